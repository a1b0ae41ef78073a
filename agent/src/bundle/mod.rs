//! Bundles: recorded input for replay.
//!
//! A bundle is a directory with `incident.toml` (DESIGN.md §8), a directory of loose files, or files by themselves.
//! [`Bundle::open`] finds out what there is; [`Bundle::read`] turns it into observations with the readers that also
//! read live input. Invariants: the same bundle always gives the same observations, whatever the order of its
//! entries; nothing outside the directory is read; one bad entry or file never hides the others.

mod declared;
mod inside;
mod log_input;
mod loose;
mod manifest;
mod pasted;
mod problem;
mod read;
mod report;
mod settings;
mod sniff;
mod spec;
mod table;

pub use problem::{BundleError, Problem};
pub use report::{LineCounts, Report};
pub use spec::{EndSpec, FactorSpec, InputKind, RevisionSpec, SourceSpec, WorkerSpec};

use crate::source::Sink;
use kvprov_model::expected::Expectation;
use kvprov_packs::{Matcher, Packs};
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

/// Largest `incident.toml` that is read, in bytes.
const MAX_MANIFEST: u64 = 16 * 1024 * 1024;

/// Recorded input of any number of workers.
#[derive(Debug, Clone, Default)]
pub struct Bundle {
    workers: Vec<WorkerSpec>,
    sources: Vec<SourceSpec>,
    /// What operators declare that names should mean, by the file that states it.
    expected: Vec<(String, Vec<Expectation>)>,
    problems: Vec<Problem>,
}

// === impl Bundle ===

impl Bundle {
    /// Finds out what paths hold. Fails only when nothing of it can be used; anything less is a problem in the report.
    pub fn open(paths: &[PathBuf]) -> Result<Self, BundleError> {
        if paths.is_empty() {
            return Err(BundleError::NoPaths);
        }
        let mut bundle = Self::default();
        let mut files = Vec::new();
        let directories = paths.iter().filter(|path| path.is_dir()).count();
        for path in paths {
            let manifest = path.file_name().is_some_and(|name| name == manifest::FILE_NAME);
            if path.is_dir() {
                bundle.add_directory(path, directories > 1);
            } else if manifest && path.is_file() {
                let directory = path.parent().filter(|parent| !parent.as_os_str().is_empty());
                bundle.add_directory(directory.unwrap_or(Path::new(".")), directories > 0);
            } else {
                files.push(path.clone());
            }
        }
        let (workers, sources) = loose::files(&files, &mut bundle.problems);
        bundle.add(workers, sources, "file");
        if bundle.workers.is_empty() {
            return Err(BundleError::NothingUsable { paths: paths.to_vec(), problems: bundle.problems });
        }
        Ok(bundle)
    }

    /// What is declared or found.
    pub fn workers(&self) -> &[WorkerSpec] {
        &self.workers
    }

    /// The sources that will be read.
    pub fn sources(&self) -> &[SourceSpec] {
        &self.sources
    }

    /// What is wrong so far.
    pub fn problems(&self) -> &[Problem] {
        &self.problems
    }

    /// Reads everything. `progress` is called with bytes done and bytes in all.
    pub fn read(
        &self,
        packs: &Packs,
        matcher: &Matcher,
        sink: Sink<'_>,
        progress: &mut dyn FnMut(u64, u64),
    ) -> Report {
        read::Pass::new(self, packs, matcher, sink, progress).run(self)
    }

    pub(crate) fn total_bytes(&self) -> u64 {
        let sizes = self.sources.iter().filter_map(|source| source.path.metadata().ok());
        sizes.map(|metadata| metadata.len()).sum()
    }

    fn add_directory(&mut self, root: &Path, one_of_many: bool) {
        let path = root.join(manifest::FILE_NAME);
        let label = root.canonicalize().unwrap_or_else(|_| root.to_path_buf());
        let label = label.file_name().map_or_else(String::new, |name| name.to_string_lossy().into_owned());
        let (mut workers, mut sources) = if path.exists() {
            let text = match read_manifest(root, &path) {
                Ok(text) => text,
                Err(problem) => {
                    self.problems.push(problem);
                    return;
                }
            };
            let manifest = manifest::read(root, manifest::FILE_NAME, &text, &mut self.problems);
            if !manifest.expected.is_empty() {
                let place = if one_of_many { format!("{label}/") } else { String::new() };
                self.expected.push((format!("{place}{}", manifest::FILE_NAME), manifest.expected));
            }
            (manifest.workers, manifest.sources)
        } else {
            loose::directory(root, &mut self.problems)
        };
        if workers.is_empty() {
            self.problems.push(Problem::new(
                root.display().to_string(),
                "the directory holds no worker and no source",
                "list [[worker]] and [[source]] in incident.toml, or put log files into it",
            ));
        }
        if one_of_many {
            for worker in &mut workers {
                worker.declared_in = format!("{label}/{}", worker.declared_in);
            }
            for source in &mut sources {
                source.stream = format!("{label}/{}", source.stream);
            }
        }
        self.add(workers, sources, &label);
    }

    /// Adds workers and their sources; a name that is taken gets the bundle's name before it.
    fn add(&mut self, workers: Vec<WorkerSpec>, sources: Vec<SourceSpec>, label: &str) {
        let taken: BTreeSet<String> = self.workers.iter().map(|worker| worker.name.clone()).collect();
        let rename = |name: &mut String| {
            let original = name.clone();
            let mut number = 1;
            while taken.contains(name) {
                *name = if number == 1 {
                    format!("{label}/{original}")
                } else {
                    format!("{label}/{original}#{number}")
                };
                number += 1;
            }
        };
        for mut worker in workers {
            rename(&mut worker.name);
            self.workers.push(worker);
        }
        for mut source in sources {
            rename(&mut source.worker);
            self.sources.push(source);
        }
    }
}

fn read_manifest(root: &Path, path: &Path) -> Result<String, Problem> {
    let unusable = |what: String| {
        Problem::new(
            path.display().to_string(),
            what,
            "correct the file, or remove it to read the files as they are",
        )
    };
    inside::regular_file_below(root, path).map_err(&unusable)?;
    let size = path.metadata().map_err(|error| unusable(format!("not readable: {error}")))?.len();
    if size > MAX_MANIFEST {
        return Err(unusable(format!("{size} bytes are no description of an incident")));
    }
    let bytes = std::fs::read(path).map_err(|error| unusable(format!("not readable: {error}")))?;
    Ok(String::from_utf8_lossy(&bytes).into_owned())
}
