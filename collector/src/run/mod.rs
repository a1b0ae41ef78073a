//! The running collector: one thread owns the ledger.
//!
//! Receivers offer batches ([`crate::intake`]); the thread merges them first of all, then evaluates what is due, then
//! brings the board up to date that readers see ([`board`]). Evaluating and paging may take a share of the time only,
//! so that merging never starves. What a finding becomes is logged in words, counted ([`totals`]) and told to
//! subscribers.
//!
//! After a restart every subject is evaluated once; what the ledger held as found before is neither opened nor counted
//! again.

pub mod board;
pub mod ear;
mod keeper;
pub mod pages;
pub mod requests;
pub mod rollout;
pub mod schedule;
pub mod totals;
pub mod work;

pub use board::{Board, Numbers, Seen};
pub use work::Core;

use crate::evaluate::Transition;
use crate::export::traces::Teller;
use crate::intake::{self, Queue, Room};
use crate::ledger::{Ledger, LedgerError};
use keeper::{Keeper, Losses};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::Instant;

/// Told what findings become.
pub trait Subscriber: Send {
    /// A finding was opened, changed, superseded or resolved.
    fn changed(&mut self, transition: &Transition);
}

/// What to run.
pub struct Options {
    /// The ledger.
    pub ledger: Box<dyn Ledger>,
    /// How long the ledger keeps what is dated, in nanoseconds.
    pub horizon_ns: Option<i64>,
    /// The ledger's directory, to measure its size.
    pub directory: Option<PathBuf>,
    /// Where the counters are kept; `None`: nowhere.
    pub counters: Option<PathBuf>,
    /// How much may wait in front of the ledger.
    pub room: Room,
    /// Told what findings become.
    pub subscribers: Vec<Box<dyn Subscriber>>,
    /// Tells requests as traces; `None`: nobody does.
    pub teller: Option<Teller>,
}

/// A collector that runs. Ends when it is dropped.
pub struct Running {
    queue: Queue,
    board: Arc<Board>,
    stop: Arc<AtomicBool>,
    alive: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

/// Why the collector could not begin.
#[derive(Debug, thiserror::Error)]
pub enum RunError {
    /// The ledger cannot be read.
    #[error(transparent)]
    Ledger(#[from] LedgerError),
    /// No thread.
    #[error("could not start the ledger's thread: {0}; raise the limit on processes (ulimit -u)")]
    Thread(#[from] std::io::Error),
}

/// Starts the thread that owns the ledger.
pub fn start(options: Options) -> Result<Running, RunError> {
    let board = Arc::new(Board::default());
    let stop = Arc::new(AtomicBool::new(false));
    let lost: Arc<Losses> = Arc::default();
    let counted = Arc::clone(&lost);
    let (queue, inbox) = intake::queue(options.room, move |lost| counted.add(lost));
    let core = Core::new(options.ledger, options.horizon_ns, Instant::now())?;
    let links = keeper::Links { inbox, board: Arc::clone(&board), stop: Arc::clone(&stop), lost };
    let tells = keeper::Tells { subscribers: options.subscribers, teller: options.teller };
    let mut keeper = Keeper::new(core, links, options.directory, options.counters, tells);
    keeper.begin()?;
    let alive = Arc::new(AtomicBool::new(true));
    let life = Life(Arc::clone(&alive));
    let thread = std::thread::Builder::new().name("kvprov-ledger".to_owned()).spawn(move || {
        let _life = life;
        keeper.run();
    })?;
    Ok(Running { queue, board, stop, alive, thread: Some(thread) })
}

// === impl Running ===

impl Running {
    /// Where batches are offered.
    pub fn intake(&self) -> Queue {
        self.queue.clone()
    }

    /// What readers see.
    pub fn board(&self) -> Arc<Board> {
        Arc::clone(&self.board)
    }

    /// Whether the thread runs; false as soon as it ended, for whatever reason.
    pub fn alive(&self) -> Arc<AtomicBool> {
        Arc::clone(&self.alive)
    }

    /// Ends it: what waits is merged, what is due is left for the next start. Returns when the ledger is closed.
    pub fn stop(mut self) {
        self.end();
    }

    fn end(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take()
            && thread.join().is_err()
        {
            tracing::error!("the ledger's thread ended by a panic; the ledger holds what was acknowledged");
        }
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        self.end();
    }
}

/// Says that the thread runs until it is dropped, by a panic too.
struct Life(Arc<AtomicBool>);

impl Drop for Life {
    fn drop(&mut self) {
        self.0.store(false, Ordering::Relaxed);
    }
}
