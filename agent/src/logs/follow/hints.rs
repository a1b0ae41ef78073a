//! Wakes whoever waits for logs to grow. A hint only: where nothing can be watched the wait just lasts its whole time.

use rustix::event::{PollFd, PollFlags, Timespec};
use rustix::fs::inotify::{self, CreateFlags, WatchFlags};
use std::collections::BTreeMap;
use std::mem::MaybeUninit;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// Directories that are watched at most.
const MAX_WATCHED: usize = 1024;
/// After a hint so long is waited for more of them, so that a busy writer costs few turns.
const GATHER: Duration = Duration::from_millis(100);

/// Waits for changes.
#[derive(Debug)]
pub struct Hints {
    queue: Option<OwnedFd>,
    watched: BTreeMap<PathBuf, i32>,
}

impl Default for Hints {
    fn default() -> Self {
        Self::new()
    }
}

// === impl Hints ===

impl Hints {
    /// Watches nothing yet.
    pub fn new() -> Self {
        let queue = inotify::init(CreateFlags::CLOEXEC | CreateFlags::NONBLOCK).ok();
        Self { queue, watched: BTreeMap::new() }
    }

    /// Watches the directories of these files and no others.
    pub fn watch<'a>(&mut self, files: impl IntoIterator<Item = &'a Path>) {
        let Some(queue) = &self.queue else { return };
        let wanted: Vec<PathBuf> =
            files.into_iter().filter_map(Path::parent).take(MAX_WATCHED).map(Path::to_owned).collect();
        self.watched.retain(|path, watch| {
            let keep = wanted.contains(path);
            if !keep {
                // A directory that is gone is watched no longer anyway.
                let _ = inotify::remove_watch(queue, *watch);
            }
            keep
        });
        let flags = WatchFlags::MODIFY | WatchFlags::CREATE | WatchFlags::MOVED_TO | WatchFlags::CLOSE_WRITE;
        for path in wanted {
            if !self.watched.contains_key(&path)
                && let Ok(watch) = inotify::add_watch(queue, &path, flags)
            {
                self.watched.insert(path, watch);
            }
        }
    }

    /// Waits until something may have changed, at most so long.
    pub fn wait(&mut self, at_most: Duration) {
        let Some(queue) = &self.queue else {
            pause(at_most);
            return;
        };
        let until = Instant::now() + at_most;
        let mut fds = [PollFd::new(queue, PollFlags::IN)];
        if rustix::event::poll(&mut fds, Some(&timeout(at_most))).is_ok_and(|ready| ready > 0) {
            pause(GATHER.min(until.saturating_duration_since(Instant::now())));
            let mut buffer = [MaybeUninit::uninit(); 4096];
            let mut events = inotify::Reader::new(queue, &mut buffer);
            while events.next().is_ok() {}
        }
    }
}

/// Waits for nothing but time.
fn pause(time: Duration) {
    // A signal only ends the wait early.
    let _ = rustix::event::poll(&mut [], Some(&timeout(time)));
}

fn timeout(time: Duration) -> Timespec {
    Timespec { tv_sec: time.as_secs() as i64, tv_nsec: i64::from(time.subsec_nanos()) }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test fails by panicking")]
    use super::*;

    #[test]
    fn a_change_ends_the_wait_and_nothing_else_does() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("e.log");
        let mut hints = Hints::new();
        hints.watch([path.as_path()]);
        std::fs::write(&path, "x\n").unwrap();
        let began = Instant::now();
        hints.wait(Duration::from_secs(20));
        assert!(began.elapsed() < Duration::from_secs(10));
        let began = Instant::now();
        hints.wait(Duration::from_millis(50));
        assert!(began.elapsed() >= Duration::from_millis(40));
    }

    #[test]
    fn what_cannot_be_watched_is_waited_for() {
        let mut hints = Hints::new();
        hints.watch([Path::new("/nowhere/at/all/e.log")]);
        let began = Instant::now();
        hints.wait(Duration::from_millis(50));
        assert!(began.elapsed() >= Duration::from_millis(40));
    }
}
