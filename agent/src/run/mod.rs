//! The running agent: finds workers, follows what they show, and hands every observation to the queue.
//!
//! One thread a source: discovery, kernel, logs, KV events, identity. They meet in the [`Hub`], which appends to the queue that
//! survives, and in bounded channels. None of them waits for the network. What a source has finished up to is told to
//! the collector as a sign of life, which is the earliest of all of them: what is absent before that is really absent.
#![allow(
    clippy::disallowed_methods,
    reason = "nothing signals that the queue has room or that the end was asked for"
)]

mod adapt;
mod alive;
mod annotation;
mod around;
mod discovery;
mod drops;
mod earlier;
mod events;
mod hub;
mod kernel;
mod left;
mod logs;
mod named_logs;
mod options;
mod page;
mod report;
mod scrape;
mod settled;

pub use options::{LogFile, Options, Sources};
pub use report::Report;

use crate::access::Access;
use crate::discover::NodeIdentity;
use crate::ship::{Outbox, QueueConfig, QueueError, ShipConfig, ShipError, Shipper, resource};
use crate::status::{Readiness, StatusError};
use around::Around;
use hub::Hub;
use kvprov_loader::client::Client;
use kvprov_packs::Packs;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

/// How long a stop waits for what is queued to arrive.
const FAREWELL: Duration = Duration::from_secs(3);
/// How often the threads are looked after.
const LOOK_EVERY: Duration = Duration::from_millis(250);

/// Why the agent cannot run.
#[derive(Debug, thiserror::Error)]
pub enum RunError {
    /// The queue cannot be used.
    #[error(transparent)]
    Queue(#[from] QueueError),
    /// Nothing can be sent.
    #[error(transparent)]
    Ship(#[from] ShipError),
    /// The page cannot be served.
    #[error(transparent)]
    Status(#[from] StatusError),
    /// The recording cannot be made.
    #[error(transparent)]
    Record(#[from] crate::record::RecordError),
    /// There is no key for content hashes.
    #[error(transparent)]
    Key(#[from] crate::events::key::KeyError),
    /// A thread or a directory cannot be made.
    #[error("could not {doing}: {error}")]
    System {
        /// What was being done.
        doing: String,
        /// What the system said.
        error: std::io::Error,
    },
    /// A thread ended although it must not.
    #[error("the {0} thread ended; the agent cannot go on without it")]
    Ended(&'static str),
}

/// Runs until `stop` is set. `loader` is what has the rights that this process has not.
///
/// # Errors
/// When something that it cannot do without is missing. A source that cannot be read is no error: it is reported.
pub fn run(
    options: &Options,
    packs: &'static Packs,
    loader: Option<&Arc<Client>>,
    report: &dyn Fn(Report),
    stop: &Arc<AtomicBool>,
) -> Result<(), RunError> {
    let system = |doing: &str| {
        let doing = doing.to_owned();
        move |error| RunError::System { doing, error }
    };
    let node = NodeIdentity::read(options.node.clone()).map_err(system("learn which node this is"))?;
    std::fs::create_dir_all(&options.data)
        .map_err(system(&format!("make the data directory {}", options.data.display())))?;
    let mut queue = QueueConfig::new(options.data.join("queue"), node.node.clone());
    queue.capacity_bytes = options.queue_bytes;
    queue.boot_id = Some(node.boot_id.clone());
    queue.resource = resource::detect(|name| std::env::var(name).ok());
    let outbox = Outbox::open(queue)?;
    let shipper = match &options.endpoint {
        Some(endpoint) => Some(Shipper::start(&outbox, ShipConfig::new(endpoint.clone(), options.protocol))?),
        None => None,
    };
    let readiness = Arc::new(Readiness::default());
    let hub = Arc::new(Hub::new(outbox.clone(), options.recording.as_deref(), Arc::clone(&readiness))?);
    let _page = page::serve(options.listen, &hub, &outbox, shipper.as_ref(), loader, readiness)?;
    let access = Arc::new(Access::new(loader.cloned()));
    let around = Around { options, node: &node, packs, access: &access, hub: &hub };
    let threads = std::thread::scope(|scope| -> Result<(), RunError> {
        let mut alive = alive::Alive::default();
        let settled = settled::Settled::default();
        let (logs, log_commands) = logs::Logs::new(around, alive.source("log"), settled.clone())
            .map_err(system("open the positions of logs"))?;
        let (kernel, kernel_commands) = kernel::Kernel::new(around, loader, alive.source("kernel"));
        let (reports, told) = std::sync::mpsc::channel();
        let (events, event_commands) = match options.sources.events {
            true => {
                let progress = alive.source("kv-events");
                let (events, commands) = events::Events::new(around, progress, reports.clone())?;
                (Some(events), Some(commands))
            }
            false => (None, None),
        };
        let asks = options.sources.metrics || !options.answers.is_empty();
        let scrape = asks
            .then(|| {
                let progress = alive.source("metrics");
                scrape::Scrape::new(around, progress)
            })
            .transpose()
            .map_err(system("open what was read of counters"))?;
        let (scrape, scrape_commands) = scrape.unzip();
        if let Some(commands) = &scrape_commands {
            hub.tell_changes(commands.clone());
        }
        let (discovery, discovery_events) = discovery::Found::new(
            around,
            loader.filter(|_| kernel.sees()).cloned(),
            discovery::Followers {
                logs: log_commands.clone(),
                kernel: kernel_commands,
                events: event_commands,
                scrape: scrape_commands,
            },
        );
        let kernel = kernel.with_listeners(discovery_events, log_commands, settled);
        let end = Arc::new(AtomicBool::new(false));
        // However this function is left, the threads end: the scope waits for them.
        let _guard = EndGuard(&end);
        let name = |name: &str| std::thread::Builder::new().name(format!("kvprov-{name}"));
        let (kernel_end, logs_end, discovery_end) = (Arc::clone(&end), Arc::clone(&end), Arc::clone(&end));
        let told_to = reports.clone();
        let events_end = Arc::clone(&end);
        let mut handles = vec![
            ("kernel", name("kernel").spawn_scoped(scope, move || kernel.run(&kernel_end))),
            ("logs", name("logs").spawn_scoped(scope, move || logs.run(&logs_end))),
            (
                "discovery",
                name("discovery").spawn_scoped(scope, move || discovery.run(&discovery_end, &told_to)),
            ),
        ];
        if let Some(events) = events {
            handles.push(("events", name("events").spawn_scoped(scope, move || events.run(&events_end))));
        }
        if let Some(scrape) = scrape {
            let (scrape_end, told_to) = (Arc::clone(&end), reports.clone());
            handles.push((
                "scrape",
                name("scrape").spawn_scoped(scope, move || scrape.run(&scrape_end, &told_to)),
            ));
        }
        drop(reports);
        let mut running = Vec::new();
        for (name, handle) in handles {
            running.push((name, handle.map_err(system("start a thread"))?));
        }
        let mut ticker = alive::Ticker::new();
        while !stop.load(Ordering::Relaxed) {
            while let Ok(one) = told.try_recv() {
                report(one);
            }
            if let Some((name, _)) = running.iter().find(|(_, handle)| handle.is_finished()) {
                return Err(RunError::Ended(name));
            }
            ticker.tick(&alive, &outbox);
            hub.flush_recording();
            std::thread::sleep(LOOK_EVERY);
        }
        Ok(())
    });
    hub.flush_recording();
    outbox.flush(FAREWELL);
    outbox.close();
    if let Some(shipper) = shipper {
        shipper.stop();
    }
    threads
}

/// Ends the threads when it is dropped.
struct EndGuard<'e>(&'e AtomicBool);

impl Drop for EndGuard<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}
