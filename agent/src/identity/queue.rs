//! What is to be read, by rank, and at which pace: shared by the threads that read.
//!
//! Small files go before large ones, so that most of a model is known soon, and a large one lets small ones pass. What
//! nobody wants any more is given up, also in the middle of a file. All threads together keep one rate.

use super::cache::FileKey;
use super::read::{Job, Task};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// A file up to this size is read at once; a larger one when its load is quiet, out of the engine's way.
pub(super) const SMALL: u64 = 64 << 20;

/// Jobs in the order in which they are done: rank, size, number.
type Order = (u8, u64, u64);

/// The queue.
#[derive(Debug)]
pub(super) struct Queue {
    state: Mutex<State>,
    changed: Condvar,
    /// Bytes a second, 0: as fast as it goes.
    rate: u64,
}

#[derive(Debug, Default)]
struct State {
    jobs: BTreeMap<Order, Job>,
    number: u64,
    /// Files that are being read.
    current: BTreeMap<FileKey, u32>,
    /// Of those, the ones that nobody wants any more.
    given_up: BTreeSet<FileKey>,
    closed: bool,
    /// When the bytes that were read until now are paid for.
    paid: Option<Instant>,
    /// Bytes that were read.
    bytes: u64,
}

/// What to do between two pieces of a file.
#[derive(Debug)]
pub(super) enum Next {
    /// Go on with it.
    Go,
    /// Read a small file first.
    First(Job),
    /// Nobody wants it.
    Stop,
}

// === impl Queue ===

impl Queue {
    pub(super) fn new(rate: u64) -> Self {
        Self { state: Mutex::default(), changed: Condvar::new(), rate }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn push(&self, job: Job) {
        let mut state = self.state();
        state.given_up.remove(&job.key);
        state.number += 1;
        let order = (rank(&job), job.key.size, state.number);
        state.jobs.insert(order, job);
        drop(state);
        self.changed.notify_all();
    }

    /// The next job; waits for one. `None`: there will be none.
    pub(super) fn take(&self) -> Option<Job> {
        let mut state = self.state();
        loop {
            if state.closed {
                return None;
            }
            if let Some((_, job)) = state.jobs.pop_first() {
                state.begin(&job);
                return Some(job);
            }
            state = self.changed.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
    }

    /// A job that was taken is over.
    pub(super) fn over(&self, key: &FileKey) {
        let mut state = self.state();
        match state.current.get_mut(key) {
            Some(count) if *count > 1 => *count -= 1,
            _ => {
                state.current.remove(key);
                state.given_up.remove(key);
            }
        }
    }

    /// Bytes that were read so far.
    pub(super) fn bytes_read(&self) -> u64 {
        self.state().bytes
    }

    /// Nothing is to be read any more.
    pub(super) fn close(&self) {
        self.state().closed = true;
        self.changed.notify_all();
    }

    /// Gives up the files that nobody wants any more.
    pub(super) fn retain(&self, wanted: impl Fn(&FileKey) -> bool) {
        let mut state = self.state();
        state.jobs.retain(|_, job| wanted(&job.key));
        let unwanted: Vec<FileKey> = state.current.keys().filter(|key| !wanted(key)).copied().collect();
        state.given_up.extend(unwanted);
        drop(state);
        self.changed.notify_all();
    }

    /// Waits until `bytes` that were read of a file are paid for. `passes`: small files may go before the rest of it.
    pub(super) fn pace(&self, key: &FileKey, bytes: u64, passes: bool) -> Next {
        let mut state = self.state();
        let due = state.pay(bytes, self.rate);
        loop {
            if state.closed || state.given_up.contains(key) {
                return Next::Stop;
            }
            let first = state.jobs.first_key_value().is_some_and(|((rank, ..), _)| *rank < LARGE);
            if passes
                && first
                && let Some((_, job)) = state.jobs.pop_first()
            {
                state.begin(&job);
                return Next::First(job);
            }
            let Some(left) = due.and_then(|due| due.checked_duration_since(Instant::now())) else {
                return Next::Go;
            };
            if left.is_zero() {
                return Next::Go;
            }
            let (again, _) = self.changed.wait_timeout(state, left).unwrap_or_else(PoisonError::into_inner);
            state = again;
        }
    }
}

// === impl State ===

impl State {
    fn begin(&mut self, job: &Job) {
        *self.current.entry(job.key).or_default() += 1;
    }

    fn pay(&mut self, bytes: u64, rate: u64) -> Option<Instant> {
        self.bytes = self.bytes.saturating_add(bytes);
        if rate == 0 {
            return None;
        }
        let nanos = u128::from(bytes) * 1_000_000_000 / u128::from(rate);
        let takes = Duration::from_nanos(u64::try_from(nanos).unwrap_or(u64::MAX));
        let now = Instant::now();
        let due = self.paid.map_or(now, |paid| paid.max(now)).checked_add(takes)?;
        self.paid = Some(due);
        Some(due)
    }
}

/// Rank of a large file.
const LARGE: u8 = 2;

fn rank(job: &Job) -> u8 {
    match job.task {
        Task::Samples => 0,
        Task::Digest { .. } if job.key.size <= SMALL => 1,
        Task::Digest { .. } => LARGE,
        Task::Tensors => LARGE + 1,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn job(inode: u64, size: u64, task: Task) -> Job {
        let key = FileKey { device: 1 << 20, inode, size, modified: 1, changed: 1 };
        Job { key, pid: 1, path: b"/m/model.safetensors".to_vec(), task }
    }

    const DIGEST: Task = Task::Digest { is_index: false };

    #[test]
    fn samples_go_first_then_small_files_then_large_ones_then_tensors() {
        let queue = Queue::new(0);
        queue.push(job(1, 10, Task::Tensors));
        queue.push(job(2, SMALL + 1, DIGEST));
        queue.push(job(3, 10, DIGEST));
        queue.push(job(4, SMALL + 1, Task::Samples));
        let order: Vec<u64> = (0..4).filter_map(|_| Some(queue.take()?.key.inode)).collect();
        assert_eq!(order, [4, 3, 2, 1]);
    }

    #[test]
    fn a_small_file_passes_a_large_one_that_is_being_read() {
        let queue = Queue::new(0);
        let large = job(1, SMALL + 1, DIGEST);
        assert!(matches!(queue.pace(&large.key, 1, true), Next::Go));
        queue.push(job(2, 10, DIGEST));
        assert!(matches!(queue.pace(&large.key, 1, true), Next::First(job) if job.key.inode == 2));
    }

    #[test]
    fn what_nobody_wants_is_given_up_in_the_middle() {
        let queue = Queue::new(1);
        queue.push(job(1, SMALL + 1, DIGEST));
        queue.push(job(2, SMALL + 1, DIGEST));
        let Some(current) = queue.take() else { panic!("a job is there") };
        queue.retain(|_| false);
        assert!(matches!(queue.pace(&current.key, u64::MAX / 2, true), Next::Stop));
        queue.over(&current.key);
        queue.close();
        assert!(queue.take().is_none());
    }

    #[test]
    fn all_threads_together_keep_the_rate() {
        let mut state = State::default();
        let begin = Instant::now();
        let mut due = None;
        for _ in 0..4 {
            due = state.pay(100, 1000);
        }
        assert!(due.is_some_and(|due| due.duration_since(begin) >= Duration::from_millis(400)));
    }
}
