//! Which process has a pid, and which processes there are.

use super::failure;
use crate::process::{Failure, Page, ProcessId};
use rustix::fd::OwnedFd;
use rustix::fs::{CWD, Mode, OFlags};

/// Bytes of `/proc/PID/stat`: 52 numbers and a name of 64.
const STAT_MAX: usize = 4096;

/// The process that has a pid now.
///
/// # Errors
/// [`Failure::Gone`] when no process has it, or it is hidden from this one.
pub fn identify(pid: u32) -> Result<ProcessId, Failure> {
    let stat = stat_of(&directory(pid)?)?;
    let started = start_of_stat(&stat).ok_or(Failure::Gone)?;
    Ok(ProcessId { pid, started })
}

/// At most `limit` processes with a pid above `after`, by pid. Threads are no processes.
///
/// # Errors
/// When `/proc` cannot be listed.
pub fn processes(after: u32, limit: usize) -> Result<Page<ProcessId>, Failure> {
    let listing =
        std::fs::read_dir("/proc").map_err(|error| Failure::Os(error.raw_os_error().unwrap_or(0)))?;
    let mut pids: Vec<u32> = listing
        .filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok())
        .filter(|pid| *pid > after)
        .collect();
    pids.sort_unstable();
    let next = if pids.len() > limit {
        pids.truncate(limit);
        pids.last().map(|pid| u64::from(*pid))
    } else {
        None
    };
    let items = pids.into_iter().filter_map(|pid| identify(pid).ok()).collect();
    Ok(Page { items, next })
}

/// The start time in the text of `/proc/PID/stat`, in clock ticks after boot.
pub fn start_of_stat(stat: &[u8]) -> Option<u64> {
    state_and_start(stat).map(|(_, started)| started)
}

/// State (field 3) and start time (field 22). The name in field 2 may hold anything, also blanks and parentheses.
pub(super) fn state_and_start(stat: &[u8]) -> Option<(u8, u64)> {
    let close = stat.iter().rposition(|byte| *byte == b')')?;
    let rest = std::str::from_utf8(stat.get(close + 1..)?).ok()?;
    let mut fields = rest.split_ascii_whitespace();
    let state = *fields.next()?.as_bytes().first()?;
    Some((state, fields.nth(18)?.parse().ok()?))
}

/// The directory of a process.
pub(super) fn directory(pid: u32) -> Result<OwnedFd, Failure> {
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
    rustix::fs::openat(CWD, format!("/proc/{pid}"), flags, Mode::empty()).map_err(|error| {
        match failure(error) {
            Failure::NotFound => Failure::Gone,
            other => other,
        }
    })
}

/// The text of its `stat`.
pub(super) fn stat_of(directory: &OwnedFd) -> Result<Vec<u8>, Failure> {
    let gone = |error| match failure(error) {
        Failure::NotFound => Failure::Gone,
        other => other,
    };
    let flags = OFlags::RDONLY | OFlags::CLOEXEC;
    let file = rustix::fs::openat(directory, "stat", flags, Mode::empty()).map_err(gone)?;
    let mut text = vec![0; STAT_MAX];
    let length = rustix::io::read(&file, &mut text).map_err(gone)?;
    text.truncate(length);
    Ok(text)
}
