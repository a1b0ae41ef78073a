//! KV events: one thread that follows the publishers of all workers.

mod locate;
mod outlet;

use super::alive::Progress;
use super::hub::Hub;
use super::options::Options;
use super::report::Report;
use super::{RunError, below};
use crate::access::Access;
use crate::discover::{FoundWorker, NodeIdentity};
use crate::events::key;
use crate::events::subscribe::{Marks, Patience, Subscription, Target, targets};
use crate::events::zmtp::Budget;
use crate::kernel::live::Now;
use crate::status::Part;
use kvprov_model::clock::WallTime;
use kvprov_model::content::FleetKey;
use kvprov_model::id::WorkerId;
use kvprov_model::observation::{Body, Observation, SourceKind, Worker};
use locate::{Locator, Processes};
use outlet::Room;
use std::collections::BTreeMap;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::Sender;
use std::time::{Duration, Instant};
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};
use tokio::task::{AbortHandle, LocalSet};

/// Publishers of all workers that are followed.
const MAX_PUBLISHERS: usize = 256;
/// Memory of all connections for messages that are not small, in bytes.
const BUDGET: usize = 64 << 20;
/// Commands are looked for, and marks are saved, this often.
const TURN: Duration = Duration::from_millis(100);
/// An event takes so long from the engine to here at most while its publisher is well, in nanoseconds: what is absent
/// before that is absent.
const HELD_BACK: i64 = 1_200_000_000;
/// Marks of workers that are not there are kept so long after the start.
const FORGET_AFTER: Duration = Duration::from_secs(60);
/// A publisher that is not there for so long is said to be missing: engines take their time to start.
const SAY_AFTER: Duration = Duration::from_secs(20);

/// What the thread is told.
#[derive(Debug)]
pub(crate) enum EventCommand {
    /// A worker is there, or is known better.
    Worker(Box<FoundWorker>),
    /// A worker is gone.
    Gone(WorkerId),
}

pub(crate) type EventCommands = UnboundedSender<EventCommand>;

/// The thread's state.
pub(crate) struct Events {
    hub: Arc<Hub>,
    node: NodeIdentity,
    access: Arc<Access>,
    key: &'static FleetKey,
    marks: Marks,
    commands: UnboundedReceiver<EventCommand>,
    progress: Progress,
    reports: Sender<Report>,
    patience: Patience,
}

/// A worker and the tasks that follow its publishers.
struct Followed {
    processes: Rc<Processes>,
    tasks: BTreeMap<String, AbortHandle>,
    is_told: bool,
    is_refused: bool,
    started: Option<WallTime>,
}

// === impl Events ===

impl Events {
    pub(crate) fn new(
        options: &Options,
        node: &NodeIdentity,
        access: &Arc<Access>,
        hub: &Arc<Hub>,
        progress: Progress,
        reports: Sender<Report>,
    ) -> Result<(Self, EventCommands), RunError> {
        let key = match &options.content_key_file {
            Some(path) => key::from_file(path)?,
            None => key::own(&below(options, "content.key"))?,
        };
        let (sender, commands) = unbounded_channel();
        let events = Self {
            hub: Arc::clone(hub),
            node: node.clone(),
            access: Arc::clone(access),
            // Once a process; chains of hashes refer to it for as long as it runs.
            key: Box::leak(Box::new(key)),
            marks: Marks::load(below(options, "events.json"), node.boot_id.clone()),
            commands,
            progress,
            reports,
            patience: Patience::default(),
        };
        Ok((events, sender))
    }

    pub(crate) fn run(self, end: &AtomicBool) {
        let runtime = match tokio::runtime::Builder::new_current_thread().enable_all().build() {
            Ok(runtime) => runtime,
            Err(error) => {
                tracing::error!(%error, "no KV event will be read");
                return;
            }
        };
        LocalSet::new().block_on(&runtime, self.follow(end));
    }

    async fn follow(self, end: &AtomicBool) {
        let Self { hub, node, access, key, marks, mut commands, progress, reports, patience } = self;
        let room = Rc::new(Room::new(Arc::clone(&hub), marks));
        let budget = Budget::new(BUDGET);
        let mut workers: BTreeMap<WorkerId, Followed> = BTreeMap::new();
        let begun = Instant::now();
        let mut has_forgotten = false;
        while !end.load(Ordering::Relaxed) {
            let turn = WallTime(Now::read().wall).plus(-HELD_BACK);
            while let Ok(command) = commands.try_recv() {
                match command {
                    EventCommand::Worker(worker) => {
                        let followed = workers.entry(worker.id.clone()).or_insert_with(|| Followed {
                            processes: Rc::new(Processes::default()),
                            tasks: BTreeMap::new(),
                            is_told: false,
                            is_refused: false,
                            started: worker.started,
                        });
                        followed.processes.set(&worker);
                        let publishers = match targets::of_facts(&worker.facts) {
                            Ok(publishers) => publishers,
                            Err(why) => {
                                if !std::mem::replace(&mut followed.is_refused, true) {
                                    let what = format!("KV events of {}: {why}", worker.id);
                                    let _ = reports.send(Report::Blind(what));
                                }
                                Vec::new()
                            }
                        };
                        for publisher in publishers {
                            let target = Target {
                                node: node.node.clone(),
                                worker: worker.id.clone(),
                                endpoint: publisher.endpoint,
                                replay: publisher.replay,
                                topic: publisher.topic,
                            };
                            let name = target.name();
                            if followed.tasks.contains_key(&name) {
                                continue;
                            }
                            if !room.add(&target, MAX_PUBLISHERS) {
                                continue;
                            }
                            let last = room.last(&name);
                            let locate =
                                Locator::new(Arc::clone(&access), Rc::clone(&followed.processes));
                            let outlet: Rc<Room> = Rc::clone(&room);
                            let subscription = Subscription::new(
                                target,
                                last,
                                key,
                                budget.clone(),
                                patience,
                                Rc::new(locate),
                                outlet,
                            );
                            let task = tokio::task::spawn_local(subscription.run());
                            followed.tasks.insert(name, task.abort_handle());
                        }
                    }
                    EventCommand::Gone(worker) => {
                        if let Some(followed) = workers.remove(&worker) {
                            for (name, task) in followed.tasks {
                                task.abort();
                                room.remove(&name);
                            }
                        }
                    }
                }
            }
            tell_watched(&hub, &node, &room, &mut workers);
            room.say(&reports, SAY_AFTER);
            if !has_forgotten && begun.elapsed() >= FORGET_AFTER {
                has_forgotten = true;
                room.forget_others();
            }
            room.save();
            let (subscribed, waiting, why) = room.publishers();
            hub.publishers(subscribed, waiting);
            hub.part("events", part(subscribed, waiting, why));
            progress.reached(room.waits().map_or(turn, |waits| waits.min(turn)));
            tokio::time::sleep(TURN).await;
        }
        room.save();
    }
}

/// A worker is watched from the first subscription on.
fn tell_watched(
    hub: &Hub,
    node: &NodeIdentity,
    room: &Room,
    workers: &mut BTreeMap<WorkerId, Followed>,
) {
    for (worker, followed) in workers.iter_mut().filter(|(_, followed)| !followed.is_told) {
        if followed.tasks.keys().any(|name| room.was_subscribed(name)) {
            followed.is_told = hub.take(&[watched(node, worker, followed.started)]);
        }
    }
}

/// The same at every start of an agent, so that it merges into nothing.
fn watched(node: &NodeIdentity, worker: &WorkerId, started: Option<WallTime>) -> Observation {
    let source = crate::source::SourceContext {
        node: node.node.clone(),
        worker: Some(worker.clone()),
        stream: "discovery".to_owned(),
        instance: format!("kv-events {worker}"),
        generation: 0,
    };
    let place = crate::source::Place { position: 0, offset: 0 };
    let says = Some(format!("KV events of worker {worker} are read"));
    let body = Body::Worker(Worker { watched_by: vec!["kv-events".to_owned()], ..Worker::default() });
    let mut observation = source.observe(SourceKind::Config, place, 0, started, says, body);
    observation.envelope.boot_id = Some(node.boot_id.clone());
    observation
}

fn part(subscribed: u64, waiting: u64, why: Option<String>) -> Part {
    match why {
        Some(why) if waiting > 0 => {
            let all = subscribed + waiting;
            Part::Without(format!("{waiting} of {all} publishers are not followed: {why}"))
        }
        _ => Part::Ready,
    }
}
