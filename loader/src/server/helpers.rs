//! Threads that may hang on a file server or a container runtime in place of the one that answers.

use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::sync::{Arc, Mutex, PoisonError};

/// Questions that wait for a thread.
const WAITING: usize = 16;

type Job = Box<dyn FnOnce() + Send>;

/// The threads. They end with this value, each after its question.
#[derive(Debug)]
pub(super) struct Helpers {
    jobs: SyncSender<Job>,
}

// === impl Helpers ===

impl Helpers {
    /// As many questions as there are `threads` may hang.
    pub(super) fn start(name: &str, threads: usize) -> std::io::Result<Self> {
        let (jobs, queue) = sync_channel::<Job>(WAITING);
        let queue = Arc::new(Mutex::new(queue));
        for number in 0..threads {
            let queue = Arc::clone(&queue);
            std::thread::Builder::new().name(format!("{name}-{number}")).spawn(move || work(&queue))?;
        }
        Ok(Self { jobs })
    }

    /// Hands over a question; `false` when too many wait.
    pub(super) fn run(&self, job: Job) -> bool {
        self.jobs.try_send(job).is_ok()
    }
}

fn work(queue: &Mutex<Receiver<Job>>) {
    loop {
        // Held only while waiting; a thread that hangs on a question does not hold it.
        let job = queue.lock().unwrap_or_else(PoisonError::into_inner).recv();
        match job {
            Ok(job) => job(),
            Err(_) => return,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::mpsc::channel;

    const THREADS: usize = 4;

    #[test]
    fn when_all_threads_hang_more_is_refused_and_afterwards_taken_again() {
        let helpers = Helpers::start("test", THREADS).unwrap();
        let (release, hangs) = channel::<()>();
        let hangs = Arc::new(Mutex::new(hangs));
        let (begun, began) = channel();
        let hang = || -> Job {
            let (hangs, begun) = (Arc::clone(&hangs), begun.clone());
            Box::new(move || {
                begun.send(()).unwrap();
                let _ = hangs.lock().unwrap().recv();
            })
        };
        for _ in 0..THREADS {
            assert!(helpers.run(hang()));
            began.recv().unwrap();
        }
        for _ in 0..WAITING {
            assert!(helpers.run(hang()));
        }
        assert!(!helpers.run(hang()));
        drop(release);
        for _ in 0..WAITING {
            began.recv().unwrap();
        }
        assert!(helpers.run(hang()));
        began.recv().unwrap();
    }
}
