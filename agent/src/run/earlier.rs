//! What a worker loaded before anybody watched it.
//!
//! Its opens were not seen. Arguments name the directories of its model and adapters; a file in them that has not changed
//! since before the worker started is what it loaded, whatever it did meanwhile: a change of content and a rename both move
//! the time of the last change of the inode, which no program can set back. A file or directory that changed later leaves the
//! factor unknown. Nothing here reads content; that is done in the background, as for files whose open was seen.

use crate::access::{AccessError, ProcessAccess, ProcessId};
use crate::discover::FoundWorker;
use crate::kernel::live::{ModelOpen, Now};
use crate::kernel::{FileRole, Names};
use kvprov_agent_common::{FileIdentity, FileState};
use kvprov_loader::process::FileKind;
use kvprov_model::clock::{SECOND, WallTime};
use kvprov_model::fact;
use std::sync::Arc;

/// Directories of one worker that are looked at: its model, and adapters.
const DIRECTORIES: usize = 256;
/// Files of one directory.
const FILES: usize = 16 * 1024;
/// Endings of files that hold tensors.
const TENSORS: [&str; 5] = [".safetensors", ".gguf", ".bin", ".pt", ".pth"];
/// Stands for a position in the ring, where no record has one.
const NO_RECORD: u64 = 1 << 62;
/// Two ways to tell when a process started agree as well as this, where no clock was set meanwhile.
const AGREEMENT: i64 = 2 * SECOND;

/// The files of its model that a worker must have opened, as if the opens had been seen when it started.
pub(super) fn loaded(
    access: &dyn ProcessAccess,
    names: &dyn Names,
    worker: &FoundWorker,
    ticks_per_second: u64,
) -> Vec<ModelOpen> {
    let process = ProcessId { pid: worker.leader.pid, started: worker.leader.start };
    let Some(started) = started(worker, ticks_per_second) else { return Vec::new() };
    let model = worker.facts.get(fact::MODEL_PATH).map(String::as_str);
    let adapters = worker.facts.get(fact::ADAPTER_DIRECTORIES);
    let adapters = adapters.iter().flat_map(|text| text.split(',')).filter_map(|one| one.split_once('='));
    let directories = model.into_iter().chain(adapters.map(|(_, directory)| directory));
    let mut opens = Vec::new();
    for directory in directories.filter(|directory| directory.starts_with('/')).take(DIRECTORIES) {
        let place = Place::of(directory.trim_end_matches('/'));
        match in_directory(access, names, process, place, started) {
            Ok(found) => opens.extend(found),
            Err(error) => tracing::debug!(%error, directory, "what an earlier worker loaded is not known"),
        }
    }
    opens
}

/// What an argument names: a directory, or one file in it (a model of one file).
#[derive(Debug, Clone, Copy)]
struct Place<'p> {
    directory: &'p str,
    only: Option<&'p str>,
}

impl<'p> Place<'p> {
    fn of(path: &'p str) -> Self {
        match path.rsplit_once('/') {
            Some((directory, name)) if holds_tensors(name) => Self { directory, only: Some(name) },
            _ => Self { directory: path, only: None },
        }
    }
}

/// When its leader started, to the tick. `None` where a clock was set since, so that times of files do not compare.
fn started(worker: &FoundWorker, ticks_per_second: u64) -> Option<WallTime> {
    let since_boot = worker.leader.start.checked_mul(1_000_000_000 / ticks_per_second.max(1))?;
    let boot_clock = rustix::time::clock_gettime(rustix::time::ClockId::Boottime);
    let up = boot_clock.tv_sec.checked_mul(SECOND)?.checked_add(boot_clock.tv_nsec)?;
    let age = up.checked_sub(i64::try_from(since_boot).ok()?)?;
    let started = WallTime(Now::read().wall).plus(-age);
    let told = worker.started?;
    (started.since(told).abs() <= AGREEMENT).then_some(started)
}

fn in_directory(
    access: &dyn ProcessAccess,
    names: &dyn Names,
    process: ProcessId,
    Place { directory, only }: Place<'_>,
    started: WallTime,
) -> Result<Vec<ModelOpen>, AccessError> {
    let itself = access.stat_path_of(process, directory.as_bytes(), true)?;
    let listing = access.list_dir_of(process, directory.as_bytes())?;
    let is_old = listing.complete && itself.kind == FileKind::Directory && itself.changed <= started.0;
    let mut found: Vec<String> = listing
        .entries
        .iter()
        .filter(|entry| entry.kind != FileKind::Directory)
        .filter_map(|entry| String::from_utf8(entry.name.clone()).ok())
        .filter(|name| only.is_none_or(|only| name == only))
        .take(FILES)
        .collect();
    found.sort();
    let tensors: Vec<&str> = found.iter().map(String::as_str).filter(|name| holds_tensors(name)).collect();
    let loaded = loaded_of(&tensors);
    let mut opens = Vec::new();
    for name in &found {
        let path = format!("{directory}/{name}");
        let FileRole::Model(file) = names.role(&path) else { continue };
        if holds_tensors(name) && !loaded.contains(&name.as_str()) {
            continue;
        }
        // A link may have been turned to another file, the file may have been changed.
        let link = access.stat_path_of(process, path.as_bytes(), false)?;
        let stat = access.stat_path_of(process, path.as_bytes(), true)?;
        let is_same = is_old && link.changed <= started.0 && stat.changed <= started.0;
        opens.push(ModelOpen {
            pid: process.pid,
            path: Arc::from(path),
            file,
            // Without an inode its content counts as unknown.
            identity: FileIdentity {
                device: stat.device,
                open_file: 0,
                inode: if is_same { stat.inode } else { 0 },
            },
            state: FileState { size: stat.size, modified: stat.modified, changed: stat.changed },
            wall: started,
            position: NO_RECORD + opens.len() as u64,
        });
    }
    Ok(opens)
}

fn holds_tensors(name: &str) -> bool {
    TENSORS.iter().any(|ending| name.ends_with(ending))
}

/// Of the files with tensors in one directory, those that an engine loads: one file, or the shards under one name. A directory
/// with the same model in several formats does not tell which was taken; then none counts.
fn loaded_of<'n>(tensors: &[&'n str]) -> Vec<&'n str> {
    let of_main_format: Vec<&str> = tensors
        .iter()
        .copied()
        .filter(|name| {
            name.ends_with(".safetensors") && (name.starts_with("model.") || name.starts_with("model-"))
        })
        .collect();
    match (of_main_format.as_slice(), tensors) {
        ([], [only]) => vec![only],
        ([], _) => Vec::new(),
        (main, _) => main.to_vec(),
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test may stop at a broken premise")]
    use super::*;
    use crate::access::Access;
    use crate::identity::FileKey;
    use std::path::Path;

    fn here() -> ProcessId {
        Access::new(None).identify(std::process::id()).unwrap()
    }

    fn known(path: &Path, started: WallTime) -> Vec<(String, bool)> {
        let packs = kvprov_packs::Packs::builtin();
        let access = Access::new(None);
        let place = Place::of(path.to_str().unwrap());
        let opens = in_directory(&access, packs, here(), place, started).unwrap();
        let name = |open: &ModelOpen| open.path.rsplit('/').next().unwrap().to_owned();
        opens.iter().map(|open| (name(open), FileKey::of(&open.identity, &open.state).is_some())).collect()
    }

    fn now() -> WallTime {
        WallTime(Now::read().wall + 20_000_000)
    }

    fn model() -> tempfile::TempDir {
        let folder = tempfile::tempdir().unwrap();
        for name in ["config.json", "model.safetensors", "README.md"] {
            std::fs::write(folder.path().join(name), b"x").unwrap();
        }
        folder
    }

    #[test]
    fn files_that_are_older_than_the_worker_are_what_it_loaded() {
        let folder = model();
        let all = [("config.json".to_owned(), true), ("model.safetensors".to_owned(), true)];
        assert_eq!(known(folder.path(), now()), all);
    }

    #[test]
    fn a_model_that_is_one_file_is_that_file() {
        let folder = model();
        std::fs::write(folder.path().join("other.gguf"), b"x").unwrap();
        std::fs::write(folder.path().join("model.Q8_0.gguf"), b"x").unwrap();
        let path = folder.path().join("model.Q8_0.gguf");
        assert_eq!(known(&path, now()), [("model.Q8_0.gguf".to_owned(), true)]);
    }

    #[test]
    fn a_file_that_changed_after_the_start_is_not_known() {
        let folder = model();
        let before = WallTime(Now::read().wall - SECOND);
        assert!(known(folder.path(), before).iter().all(|(_, is_known)| !is_known));
    }

    #[test]
    fn a_directory_that_changed_after_the_start_leaves_all_of_it_unknown() {
        use std::os::unix::fs::MetadataExt;
        let folder = model();
        let wait = || std::sync::mpsc::channel::<()>().1.recv_timeout(std::time::Duration::from_millis(50));
        let _ = wait();
        let started = WallTime(Now::read().wall);
        let _ = wait();
        std::fs::rename(folder.path().join("README.md"), folder.path().join("NOTES.md")).unwrap();
        assert!(std::fs::metadata(folder.path()).unwrap().ctime() >= started.0 / SECOND);
        assert!(known(folder.path(), started).iter().all(|(_, is_known)| !is_known));
    }

    #[test]
    fn of_several_formats_the_shards_of_the_usual_one_count_and_none_where_there_is_no_usual_one() {
        let shards =
            ["model-00001-of-00002.safetensors", "model-00002-of-00002.safetensors", "pytorch_model.bin"];
        assert_eq!(loaded_of(&shards), shards[..2]);
        assert_eq!(loaded_of(&["consolidated.safetensors", "pytorch_model.bin"]), Vec::<&str>::new());
        assert_eq!(loaded_of(&["adapter_model.safetensors"]), ["adapter_model.safetensors"]);
    }
}
