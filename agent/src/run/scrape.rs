//! The thread that reads what workers show over HTTP.

use super::alive::Progress;
use super::around::Around;
use super::hub::Hub;
use super::report::Report;
use crate::discover::FoundWorker;
use crate::kernel::live::Now;
use crate::metrics::scrape::{ScrapeOptions, Scraper, Taker};
use crate::status::Part;
use kvprov_model::clock::{SECOND, WallTime};
use kvprov_model::id::WorkerId;
use kvprov_model::observation::Observation;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::Duration;

/// The longest wait for an answer before other things are looked after.
const PATIENCE: Duration = Duration::from_millis(250);
/// What came is with the queue after this at the latest, in nanoseconds.
const HELD_BACK: i64 = SECOND;

/// What the thread is told.
#[derive(Debug)]
pub(crate) enum ScrapeCommand {
    /// A worker is there, or something else is known of it.
    Worker(Box<FoundWorker>),
    /// Something changed that parts what is counted before from what is counted after: its counters are wanted now.
    Hurry(WorkerId),
    /// It loaded an adapter.
    Adapters(WorkerId),
    /// A router had an answer from this port.
    Answered(u16),
    /// A worker is gone.
    Gone(WorkerId),
}

/// The thread's state.
pub(crate) struct Scrape {
    scraper: Scraper,
    hub: Arc<Hub>,
    commands: Receiver<ScrapeCommand>,
    progress: Progress,
    /// Endpoints that are not read although they should be, as was said last.
    unread: u64,
}

/// Where what comes goes.
struct ToHub<'h> {
    hub: &'h Hub,
    reports: &'h Sender<Report>,
}

// === impl Scrape ===

impl Scrape {
    pub(crate) fn new(
        around: Around<'_>,
        progress: Progress,
    ) -> std::io::Result<(Self, Sender<ScrapeCommand>)> {
        let Around { options, node, packs, access, hub } = around;
        let scrape = ScrapeOptions {
            interval: options.scrape_interval,
            page_bytes: options.scrape_bytes,
            counters: options.sources.metrics,
            answers: options.answers.clone(),
            ..ScrapeOptions::default()
        };
        let directory = around.below("metrics");
        let access = Arc::clone(access);
        let scraper = Scraper::new(packs, access, node.node.clone(), &directory, scrape)?;
        let (sender, commands) = channel();
        Ok((Self { scraper, hub: Arc::clone(hub), commands, progress, unread: 0 }, sender))
    }

    pub(crate) fn run(mut self, end: &AtomicBool, reports: &Sender<Report>) {
        let hub = Arc::clone(&self.hub);
        let out = ToHub { hub: &hub, reports };
        while !end.load(Ordering::Relaxed) {
            let begun = Now::read();
            while let Ok(command) = self.commands.try_recv() {
                match command {
                    ScrapeCommand::Worker(worker) => self.scraper.worker(&worker, &out),
                    ScrapeCommand::Hurry(worker) => self.scraper.hurry(&worker),
                    ScrapeCommand::Adapters(worker) => self.scraper.has_adapters(&worker),
                    ScrapeCommand::Answered(port) => self.scraper.answered(port),
                    ScrapeCommand::Gone(worker) => self.scraper.gone(&worker),
                }
            }
            if self.scraper.turn(&out, PATIENCE) {
                self.progress.reached(WallTime(begun.wall).plus(-HELD_BACK));
            }
            hub.lose("scrape", &self.scraper.losses());
            let counts = self.scraper.counts();
            let unread = ["failing", "refused"].iter().filter_map(|state| counts.endpoints.get(state)).sum();
            if std::mem::replace(&mut self.unread, unread) != unread {
                hub.part("metrics", readiness(unread));
            }
            hub.scraped(counts);
        }
    }
}

/// The state of the part for people; the agent is ready without it.
fn readiness(unread: u64) -> Part {
    match unread {
        0 => Part::Ready,
        unread => Part::Without(format!(
            "{unread} endpoints with counters are not read; each was said with its reason"
        )),
    }
}

// === impl ToHub ===

impl Taker for ToHub<'_> {
    fn take(&self, observations: &[Observation]) -> bool {
        self.hub.take(observations)
    }

    fn page(&self, worker: &WorkerId, endpoint: &str, at: WallTime, text: &str) {
        self.hub.page(worker, endpoint, at, text);
    }

    fn reads(&self, worker: &WorkerId, what: String) {
        let _ = self.reports.send(Report::Output { worker: worker.to_string(), what });
    }

    fn blind(&self, what: String) {
        let _ = self.reports.send(Report::Blind(what));
    }
}
