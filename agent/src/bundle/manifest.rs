//! Reads `incident.toml`.
//!
//! Whatever is wrong with one entry is a problem with its line, and every other entry is still read; even a file that
//! is no TOML at one place gives what is readable around it.

use crate::bundle::inside::inside;
use crate::bundle::problem::Problem;
use crate::bundle::settings::flatten;
use crate::bundle::spec::{EndSpec, FactorSpec, InputKind, RevisionSpec, SourceSpec, WorkerSpec};
use crate::bundle::table::{Document, Table, scalar_text};
use kvprov_model::expected::Expectation;
use kvprov_model::observation::Role;
use std::collections::BTreeSet;
use std::path::Path;
use toml::de::DeTable;

/// The file's name.
pub(crate) const FILE_NAME: &str = "incident.toml";

const WORKER_KEYS: &[&str] = &[
    "name",
    "node",
    "engine",
    "engine_version",
    "role",
    "pod",
    "namespace",
    "container",
    "image",
    "image_digest",
    "settings",
    "revision",
    "epoch",
    "exited",
    "exit_signal",
    "exit_status",
];
const SOURCE_KEYS: &[&str] = &["worker", "kind", "file", "timezone", "year", "at"];
const EPOCH_KEYS: &[&str] = &["from", "revision"];

/// What a file declares.
#[derive(Debug, Default)]
pub(crate) struct Manifest {
    pub workers: Vec<WorkerSpec>,
    pub sources: Vec<SourceSpec>,
    pub expected: Vec<Expectation>,
}

/// Reads the text of the file `name` of the bundle in `root`.
pub(crate) fn read(root: &Path, name: &str, text: &str, problems: &mut Vec<Problem>) -> Manifest {
    let (document_table, errors) = DeTable::parse_recoverable(text);
    let document = Document::new(name, text);
    for error in errors.iter().take(20) {
        let place = error.span().map_or_else(|| name.to_owned(), |span| document.place(&span));
        problems.push(Problem::new(
            place,
            format!("no TOML: {}", error.message()),
            "correct the line; what stands around it was read as far as possible",
        ));
    }
    let span = document_table.span();
    let top = Table::new(&document, document_table.get_ref(), &span, "the file");
    top.check_keys(&["worker", "source", "expected"], problems);
    let mut manifest = Manifest::default();
    let mut names = BTreeSet::new();
    for table in top.tables("worker", "[[worker]]", problems) {
        let Some(worker) = read_worker(name, &table, problems) else { continue };
        if names.insert(worker.name.clone()) {
            manifest.workers.push(worker);
        } else {
            problems.push(Problem::new(
                table.place(),
                format!("a worker named {:?} exists already, this one was ignored", worker.name),
                "give each worker a name of its own",
            ));
        }
    }
    for table in top.tables("source", "[[source]]", problems) {
        let Some(source) = read_source(root, &table, problems) else { continue };
        if !names.contains(&source.worker) {
            problems.push(Problem::new(
                table.place(),
                format!("source of a worker {:?} that is not declared", source.worker),
                "declare it with [[worker]] or correct the name; it was read as a worker of that name",
            ));
            names.insert(source.worker.clone());
            manifest.workers.push(WorkerSpec {
                name: source.worker.clone(),
                declared_in: name.to_owned(),
                line: table.line,
                ..WorkerSpec::default()
            });
        }
        if manifest.sources.contains(&source) {
            problems.push(Problem::new(
                table.place(),
                format!("{} is listed twice for worker {:?}, it is read once", source.stream, source.worker),
                "remove one of them",
            ));
        } else {
            manifest.sources.push(source);
        }
    }
    for table in top.tables("expected", "[[expected]]", problems) {
        match table.expectation() {
            Ok(expectation) => manifest.expected.push(expectation),
            Err(flaw) => problems.push(Problem::new(
                format!("{name}:{}", flaw.line),
                format!("{}; the statement was ignored", flaw.what),
                flaw.advice,
            )),
        }
    }
    take_years_from_times(&mut manifest);
    manifest
}

fn read_worker(file: &str, table: &Table<'_, '_>, problems: &mut Vec<Problem>) -> Option<WorkerSpec> {
    table.check_keys(WORKER_KEYS, problems);
    let Some(name) = table.text("name", problems) else {
        problems.push(Problem::new(
            table.place(),
            "a worker without a name, it was ignored",
            "give it a unique name = \"…\"",
        ));
        return None;
    };
    let role = table.text("role", problems).map(|word| Role::from(word.as_str()));
    if let Some(Role::Other(word)) = &role {
        problems.push(Problem::new(
            table.place(),
            format!("role {word:?} of worker {name:?} is not known"),
            format!("use one of {}", Role::ALL.join(", ")),
        ));
    }
    let mut revisions = Vec::new();
    if let Some(revision) = table.table("revision", problems) {
        let factors = read_factors(revision, &table.place(), problems);
        revisions.push(RevisionSpec { from: None, factors, line: table.line });
    }
    for epoch in table.tables("epoch", "[[worker.epoch]]", problems) {
        epoch.check_keys(EPOCH_KEYS, problems);
        let from = epoch.time("from", problems);
        let Some(revision) = epoch.table("revision", problems) else {
            problems.push(Problem::new(
                epoch.place(),
                format!("an epoch of worker {name:?} without a revision, it was ignored"),
                "give it revision = { weights = \"sha256:…\" }",
            ));
            continue;
        };
        if from.is_none() && epoch.get("from").is_none() {
            problems.push(Problem::new(
                epoch.place(),
                format!("an epoch of worker {name:?} does not say from when, it is taken from the start"),
                "give it from = \"2026-08-16T08:00:10Z\"",
            ));
        }
        let factors = read_factors(revision, &epoch.place(), problems);
        revisions.push(RevisionSpec { from, factors, line: epoch.line });
    }
    revisions.sort_by_key(|revision| revision.from);
    let end = EndSpec {
        at: table.time("exited", problems),
        signal: table.integer("exit_signal", problems),
        status: table.integer("exit_status", problems),
        line: table.line,
    };
    let has_end = ["exited", "exit_signal", "exit_status"].iter().any(|key| table.get(key).is_some());
    Some(WorkerSpec {
        name,
        node: table.text("node", problems),
        engine: table.text("engine", problems),
        engine_version: table.text("engine_version", problems),
        role,
        pod: table.text("pod", problems),
        namespace: table.text("namespace", problems),
        container: table.text("container", problems),
        image: table.text("image", problems),
        image_digest: table.text("image_digest", problems),
        settings: table.table("settings", problems).map(flatten).unwrap_or_default(),
        revisions,
        end: has_end.then_some(end),
        declared_in: file.to_owned(),
        line: table.line,
    })
}

fn read_factors(revision: &DeTable<'_>, place: &str, problems: &mut Vec<Problem>) -> Vec<FactorSpec> {
    let mut factors = Vec::new();
    for (key, value) in revision {
        let factor = key.get_ref().as_ref();
        match (factor, value.get_ref().as_table()) {
            ("adapters", Some(adapters)) => {
                for (adapter, digest) in adapters {
                    let Some(text) = scalar_text(digest.get_ref()) else { continue };
                    let adapter = Some(adapter.get_ref().to_string());
                    factors.push(FactorSpec { factor: "adapter".to_owned(), adapter, text });
                }
            }
            (_, None) if factor != "adapters" => {
                if let Some(text) = scalar_text(value.get_ref()).filter(|text| !text.is_empty()) {
                    factors.push(FactorSpec { factor: factor.to_owned(), adapter: None, text });
                }
            }
            _ => problems.push(Problem::new(
                place,
                format!("factor {factor:?} of a revision is {}, it was ignored", value.get_ref().type_str()),
                "give factors as \"sha256:…\" and adapters as { name = \"sha256:…\" }",
            )),
        }
    }
    factors
}

fn read_source(root: &Path, table: &Table<'_, '_>, problems: &mut Vec<Problem>) -> Option<SourceSpec> {
    table.check_keys(SOURCE_KEYS, problems);
    let file = table.text("file", problems);
    let kind = table.text("kind", problems);
    let (Some(file), Some(kind_word)) = (file, kind) else {
        problems.push(Problem::new(
            table.place(),
            "a source without file or kind, it was ignored",
            "give it file = \"…\" and kind = \"log\", \"metrics\", \"kv-events\" or \"kernel\"",
        ));
        return None;
    };
    let Some(kind) = InputKind::from_word(&kind_word) else {
        problems.push(Problem::new(
            table.place(),
            format!("source {file:?} is of an unknown kind {kind_word:?}, it was ignored"),
            "use log, metrics, kv-events or kernel",
        ));
        return None;
    };
    let worker = table.text("worker", problems).unwrap_or_else(|| stem(&file));
    let at = table.time("at", problems);
    if kind == InputKind::Metrics && at.is_none() && table.get("at").is_none() {
        problems.push(Problem::new(
            table.place(),
            format!(
                "metrics {file:?} do not say when they were taken, so that they give totals but no increases"
            ),
            "give at = \"2026-08-16T08:00:00Z\"",
        ));
    }
    let year = table.integer("year", problems).and_then(|year| i16::try_from(year).ok());
    let zone_seconds = table.zone("timezone", problems).unwrap_or(0);
    match inside(root, &file) {
        Ok(path) => Some(SourceSpec { worker, kind, path, stream: file, zone_seconds, year, at }),
        Err(reason) => {
            problems.push(Problem::new(
                table.place(),
                format!("source {file:?} was not read: {reason}"),
                "name a regular file in the directory of the bundle",
            ));
            None
        }
    }
}

pub(crate) fn stem(file: &str) -> String {
    Path::new(file).file_stem().map_or_else(|| file.to_owned(), |stem| stem.to_string_lossy().into_owned())
}

/// A log whose clock prints no year, and whose source declares none, is of the year of what else is dated: first of
/// its own worker, then of the bundle.
fn take_years_from_times(manifest: &mut Manifest) {
    let year_of = |worker: Option<&str>| {
        let of_worker = |name: &str| worker.is_none_or(|wanted| wanted == name);
        let at =
            manifest.sources.iter().filter(|source| of_worker(&source.worker)).filter_map(|source| source.at);
        let ends = manifest
            .workers
            .iter()
            .filter(|worker| of_worker(&worker.name))
            .flat_map(|worker| {
                worker
                    .revisions
                    .iter()
                    .map(|revision| revision.from)
                    .chain([worker.end.and_then(|end| end.at)])
            })
            .flatten();
        let declared = manifest
            .sources
            .iter()
            .filter(|source| of_worker(&source.worker))
            .filter_map(|source| source.year);
        let dated = at.chain(ends).filter_map(|time| time.to_rfc3339().get(..4)?.parse().ok());
        let years: BTreeSet<i16> = declared.chain(dated).collect();
        if years.len() == 1 { years.first().copied() } else { None }
    };
    let of_bundle = year_of(None);
    let years: Vec<Option<i16>> = manifest
        .sources
        .iter()
        .map(|source| source.year.or_else(|| year_of(Some(&source.worker))).or(of_bundle))
        .collect();
    for (source, year) in manifest.sources.iter_mut().zip(years) {
        source.year = year;
    }
}
