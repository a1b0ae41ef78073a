//! Input without `incident.toml`: files by themselves or in a directory.
//!
//! Each log is a worker of its own, named after its file. Other files belong to the worker that their name names, once
//! words like `kernel`, `metrics` or a running number are taken off; where that leaves nothing, to the only worker of
//! their directory.

use crate::bundle::inside::regular_file_below;
use crate::bundle::manifest::FILE_NAME;
use crate::bundle::problem::Problem;
use crate::bundle::sniff::{HEAD, kind_of};
use crate::bundle::spec::{InputKind, SourceSpec, WorkerSpec};
use std::collections::{BTreeMap, BTreeSet};
use std::io::Read;
use std::path::{Path, PathBuf};

/// Depth of directories that are entered.
const MAX_DEPTH: usize = 8;
/// Files of one directory tree that are read.
const MAX_FILES: usize = 10_000;
/// Words in file names that name a kind or a moment, not a worker.
const KIND_WORDS: [&str; 13] = [
    "kernel", "metrics", "metric", "prom", "kv", "events", "event", "before", "after", "start", "end", "log",
    "snapshot",
];
/// Files that accompany recordings and are no input.
const NO_INPUT: [&str; 5] = ["toml", "md", "lock", "py", "sh"];

/// A file and what it holds.
struct Found {
    path: PathBuf,
    stream: String,
    kind: InputKind,
}

/// Reads a directory without `incident.toml`.
pub(crate) fn directory(root: &Path, problems: &mut Vec<Problem>) -> (Vec<WorkerSpec>, Vec<SourceSpec>) {
    let mut files = Vec::new();
    walk(root, root, 0, &mut files, problems);
    files.sort();
    if files.len() > MAX_FILES {
        problems.push(Problem::new(
            root.display().to_string(),
            format!("more than {MAX_FILES} files, the rest was not read"),
            "list the sources in incident.toml",
        ));
        files.truncate(MAX_FILES);
    }
    let found = files.iter().filter_map(|path| {
        let stream = path.strip_prefix(root).unwrap_or(path).to_string_lossy().into_owned();
        look_into(path, &stream, problems).map(|kind| Found { path: path.clone(), stream, kind })
    });
    assign(found.collect())
}

/// Reads files that were named one by one.
pub(crate) fn files(paths: &[PathBuf], problems: &mut Vec<Problem>) -> (Vec<WorkerSpec>, Vec<SourceSpec>) {
    let mut found = Vec::new();
    for path in paths {
        let display = path.display().to_string();
        let is_double = |name: &String| found.iter().any(|other: &Found| other.stream == *name);
        // The name alone where it is unique; results do not depend on where the files lie.
        let name = path.file_name().map(|name| name.to_string_lossy().into_owned());
        let stream = name.filter(|name| !is_double(name)).unwrap_or_else(|| display.clone());
        if let Some(kind) = look_into(path, &display, problems) {
            found.push(Found { path: path.clone(), stream, kind });
        }
    }
    assign(found)
}

fn walk(root: &Path, directory: &Path, depth: usize, files: &mut Vec<PathBuf>, problems: &mut Vec<Problem>) {
    let place = directory.display().to_string();
    if depth > MAX_DEPTH {
        problems.push(Problem::new(
            place,
            format!("more than {MAX_DEPTH} directories deep, not read"),
            "name it by itself",
        ));
        return;
    }
    if depth > 0 && directory.join(FILE_NAME).is_file() {
        problems.push(Problem::new(
            place,
            "a bundle of its own inside a directory, not read",
            "name it by itself: workers of two incidents do not belong together",
        ));
        return;
    }
    let entries = match std::fs::read_dir(directory) {
        Ok(entries) => entries,
        Err(error) => {
            problems.push(Problem::new(
                place,
                format!("directory not readable: {error}"),
                "check its permissions",
            ));
            return;
        }
    };
    for entry in entries.filter_map(Result::ok) {
        let path = entry.path();
        if entry.file_name().to_string_lossy().starts_with('.') || files.len() > MAX_FILES {
            continue;
        }
        // Not followed: a link to a directory may lead anywhere, or back.
        let Ok(file_type) = entry.file_type() else { continue };
        if file_type.is_dir() {
            walk(root, &path, depth + 1, files, problems);
        } else if let Err(reason) = regular_file_below(root, &path) {
            problems.push(Problem::new(
                path.display().to_string(),
                format!("not read: {reason}"),
                "put the file itself into the directory",
            ));
        } else {
            files.push(path);
        }
    }
}

/// What a file holds; `None` with or without a problem where it is no input.
fn look_into(path: &Path, place: &str, problems: &mut Vec<Problem>) -> Option<InputKind> {
    let extension = path.extension().map(|extension| extension.to_string_lossy().to_lowercase());
    if extension.is_some_and(|extension| NO_INPUT.contains(&extension.as_str())) {
        return None;
    }
    // A pipe or a device never ends, or never begins. What is missing is told below.
    if path.metadata().is_ok_and(|metadata| !metadata.is_file()) {
        problems.push(Problem::new(place, "no regular file, not read", "write what it gives into a file"));
        return None;
    }
    let mut head = Vec::with_capacity(HEAD);
    let read = std::fs::File::open(path).and_then(|file| file.take(HEAD as u64).read_to_end(&mut head));
    if let Err(error) = read {
        problems.push(Problem::new(
            place,
            format!("file not readable: {error}"),
            "check path and permissions",
        ));
        return None;
    }
    let kind = kind_of(&head);
    if kind.is_none() && !head.is_empty() {
        problems.push(Problem::new(
            place,
            "neither text nor records, not read",
            "unpack it if it is compressed",
        ));
    }
    kind
}

/// Gives each file its worker.
fn assign(found: Vec<Found>) -> (Vec<WorkerSpec>, Vec<SourceSpec>) {
    let mut names = BTreeSet::new();
    let mut of_directory: BTreeMap<PathBuf, Vec<String>> = BTreeMap::new();
    let mut owners: Vec<Option<String>> = Vec::new();
    for file in &found {
        let owner = (file.kind == InputKind::Log).then(|| {
            let name = without_extension(Path::new(&file.stream).file_name().map(Path::new));
            let whole = without_extension(Some(Path::new(&file.stream)));
            let name = if names.contains(&name) { whole } else { name };
            let name = if names.contains(&name) { file.stream.clone() } else { name };
            names.insert(name.clone());
            let directory = file.path.parent().map(Path::to_path_buf).unwrap_or_default();
            of_directory.entry(directory).or_default().push(name.clone());
            name
        });
        owners.push(owner);
    }
    let mut sources = Vec::new();
    for (file, owner) in found.into_iter().zip(owners) {
        let worker = owner.unwrap_or_else(|| {
            let directory = file.path.parent().map(Path::to_path_buf).unwrap_or_default();
            let above = directory.parent().map(Path::to_path_buf).unwrap_or_default();
            let beside = of_directory.get(&directory).or_else(|| of_directory.get(&above));
            owner_of(&file.stream, &names, beside.map(Vec::as_slice))
        });
        sources.push(SourceSpec {
            worker,
            kind: file.kind,
            path: file.path,
            stream: file.stream,
            zone_seconds: 0,
            year: None,
            at: None,
        });
    }
    let all: BTreeSet<&str> = sources.iter().map(|source| source.worker.as_str()).collect();
    let workers =
        all.into_iter().map(|name| WorkerSpec { name: name.to_owned(), ..WorkerSpec::default() }).collect();
    (workers, sources)
}

fn without_extension(path: Option<&Path>) -> String {
    path.map(|path| path.with_extension("").to_string_lossy().into_owned()).unwrap_or_default()
}

/// The worker of a file that is no log.
fn owner_of(stream: &str, names: &BTreeSet<String>, beside: Option<&[String]>) -> String {
    let file_name = without_extension(Path::new(stream).file_name().map(Path::new));
    let mut rest = file_name.as_str();
    loop {
        if names.contains(rest) {
            return rest.to_owned();
        }
        let (head, tail) = match rest.rfind(['.', '-', '_']) {
            Some(at) => (&rest[..at], &rest[at + 1..]),
            None => ("", rest),
        };
        let lower = tail.to_lowercase();
        let says_no_worker = KIND_WORDS.contains(&lower.as_str())
            || (!tail.is_empty() && tail.bytes().all(|byte| byte.is_ascii_digit()))
            || (tail.len() <= 3
                && tail.starts_with('m')
                && tail[1..].bytes().all(|byte| byte.is_ascii_digit()));
        if !says_no_worker {
            return rest.to_owned();
        }
        if head.is_empty() {
            break;
        }
        rest = head;
    }
    match beside {
        Some([only]) => only.clone(),
        _ => file_name,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_belongs_to_the_worker_its_name_names() {
        let names: BTreeSet<String> = ["a0", "d"].iter().map(|name| (*name).to_owned()).collect();
        let only = ["d".to_owned()];
        assert_eq!(owner_of("a0.kernel.jsonl", &names, None), "a0");
        assert_eq!(owner_of("metrics/d-02.txt", &names, None), "d");
        assert_eq!(owner_of("before.prom", &names, Some(&only)), "d");
        assert_eq!(owner_of("m1.prom", &names, Some(&only)), "d");
        assert_eq!(owner_of("b1-kernel.jsonl", &names, None), "b1");
        assert_eq!(owner_of("kernel.jsonl", &names, None), "kernel");
    }
}
