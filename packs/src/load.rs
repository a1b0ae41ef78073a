//! Reads packs: compiled in, or from a directory.
//!
//! Invariant: an entry with an error is reported and left out; one bad entry never takes another with it. A file
//! that is no TOML of the schema is left out as a whole.

use crate::answer::AnswerRule;
use crate::endpoint::EndpointRule;
use crate::error::PackError;
use crate::fact::{FactRule, KnownSettings};
use crate::guard::Guard;
use crate::json_line::JsonSignature;
use crate::key::KeyGrammars;
use crate::matcher::Matcher;
use crate::metric::MetricTable;
use crate::process::ProcessTable;
use crate::span::SpanTable;
use crate::template::Template;
use crate::validate::{Build, Example};
use std::collections::BTreeMap;
use std::path::Path;
use std::sync::{Arc, OnceLock};
use std::{fs, io};

/// Path below `signatures/` and text of every pack that is compiled in.
const BUILTIN: &[(&str, &str)] = include!(concat!(env!("OUT_DIR"), "/builtin_packs.rs"));

/// Largest pack file that is read, in bytes.
const MAX_FILE: u64 = 4 << 20;

/// All packs, read and checked.
#[derive(Debug, Default)]
pub struct Packs {
    /// Path and engine of every file.
    pub(crate) files: Vec<(String, String)>,
    pub(crate) templates: Vec<Arc<Template>>,
    pub(crate) json: Vec<Arc<JsonSignature>>,
    pub(crate) metrics: MetricTable,
    pub(crate) facts: Vec<FactRule>,
    pub(crate) known_settings: Arc<KnownSettings>,
    pub(crate) keys: KeyGrammars,
    pub(crate) processes: ProcessTable,
    pub(crate) endpoints: Vec<EndpointRule>,
    pub(crate) answers: Vec<AnswerRule>,
    pub(crate) spans: SpanTable,
    pub(crate) guards: Vec<Guard>,
    pub(crate) examples: Vec<Example>,
    pub(crate) matcher: OnceLock<Matcher>,
}

impl Packs {
    /// The packs that are compiled in. Entries with errors are left out; [`Packs::check_builtin`] is empty in a
    /// release.
    pub fn builtin() -> &'static Self {
        static READ: OnceLock<Packs> = OnceLock::new();
        READ.get_or_init(|| Build::of(&builtin_files()).0)
    }

    /// The compiled-in packs, with whole files replaced or added by relative path (`vllm/nixl.toml`) from `dir`.
    /// Any error in a file of `dir`, or that one of them causes, refuses all of it.
    pub fn with_overrides(dir: &Path) -> Result<Self, Vec<PackError>> {
        let mut files = builtin_files();
        files.extend(read_dir(dir)?);
        let (packs, mut errors) = Build::of(&files);
        errors.extend(packs.check_examples());
        if errors.is_empty() { Ok(packs) } else { Err(sorted(errors)) }
    }

    /// Every error of the packs in a directory, as overrides of the compiled-in ones.
    pub fn check(dir: &Path) -> Vec<PackError> {
        Self::with_overrides(dir).err().unwrap_or_default()
    }

    /// Every error of the compiled-in packs.
    pub fn check_builtin() -> Vec<PackError> {
        let (packs, mut errors) = Build::of(&builtin_files());
        errors.extend(packs.check_examples());
        sorted(errors)
    }

    /// Packs from texts by relative path, with every error; for tests of other crates.
    pub fn from_texts(files: &[(&str, &str)]) -> Result<Self, Vec<PackError>> {
        let files = files
            .iter()
            .map(|(path, text)| ((*path).to_owned(), ("".to_owned(), (*text).to_owned())))
            .collect();
        let (packs, mut errors) = Build::of(&files);
        errors.extend(packs.check_examples());
        if errors.is_empty() { Ok(packs) } else { Err(sorted(errors)) }
    }

    /// The matcher over these packs, made on first use.
    pub fn matcher(&self) -> &Matcher {
        self.matcher.get_or_init(|| Matcher::new(self))
    }

    /// Meanings of metrics.
    pub fn metrics(&self) -> &MetricTable {
        &self.metrics
    }

    /// Whether lines of an engine are known by its name.
    pub fn knows_engine(&self, engine: &str) -> bool {
        self.templates.iter().any(|template| template.engine == engine)
    }

    /// Spans that tell of requests.
    pub fn spans(&self) -> &SpanTable {
        &self.spans
    }

    /// Grammars of keys and names.
    pub fn keys(&self) -> &KeyGrammars {
        &self.keys
    }
}

/// Path below the folder of packs → how to print the folder, text.
pub(crate) type Files = BTreeMap<String, (String, String)>;

fn sorted(mut errors: Vec<PackError>) -> Vec<PackError> {
    errors.sort();
    errors.dedup();
    errors
}

fn builtin_files() -> Files {
    let root = "packs/signatures/".to_owned();
    BUILTIN.iter().map(|(path, text)| ((*path).to_owned(), (root.clone(), (*text).to_owned()))).collect()
}

/// Every TOML file of a directory and its folders, by relative path.
fn read_dir(dir: &Path) -> Result<Files, Vec<PackError>> {
    let mut files = Files::new();
    let mut errors = Vec::new();
    let mut open = vec![dir.to_owned()];
    while let Some(folder) = open.pop() {
        let failed = |path: &Path, error: &io::Error| PackError {
            file: path.display().to_string(),
            line: 0,
            subject: "reading packs".to_owned(),
            problem: format!("{error}; give a readable directory of packs"),
        };
        let entries = match fs::read_dir(&folder) {
            Ok(entries) => entries,
            Err(error) => {
                errors.push(failed(&folder, &error));
                continue;
            }
        };
        for path in entries.filter_map(Result::ok).map(|entry| entry.path()) {
            // A link may lead back up: only real folders are entered.
            if path.is_dir() && !path.is_symlink() {
                open.push(path);
            } else if path.extension().is_some_and(|extension| extension == "toml") {
                let size = fs::metadata(&path).map_or(0, |data| data.len());
                let text = if size > MAX_FILE {
                    Err(io::Error::other(format!("the file has {size} bytes, more than {MAX_FILE}")))
                } else {
                    fs::read_to_string(&path)
                };
                let relative = path.strip_prefix(dir).unwrap_or(&path).to_string_lossy().replace('\\', "/");
                match text {
                    Ok(text) => {
                        let root = format!("{}/", dir.display().to_string().trim_end_matches('/'));
                        files.insert(relative, (root, text));
                    }
                    Err(error) => errors.push(failed(&path, &error)),
                }
            }
        }
    }
    if errors.is_empty() { Ok(files) } else { Err(errors) }
}
