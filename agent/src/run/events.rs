//! KV events: one thread that follows the publishers of all workers.

mod ask;
mod locate;
mod outlet;
#[cfg(test)]
mod tests;

use super::RunError;
use super::alive::Progress;
use super::around::Around;
use super::hub::Hub;
use super::report::Report;
use crate::access::Access;
use crate::discover::{FoundWorker, NodeIdentity};
use crate::events::key;
use crate::events::subscribe::targets::{self, Publisher};
use crate::events::subscribe::{Marks, Patience, Subscription, Target};
use crate::events::zmtp::Budget;
use crate::http::ReadPath;
use crate::kernel::live::Now;
use crate::status::Part;
use ask::{Answer, ask};
use kvprov_model::clock::WallTime;
use kvprov_model::content::FleetKey;
use kvprov_model::id::WorkerId;
use kvprov_model::observation::{Body, Observation, SourceKind, Worker};
use kvprov_packs::Packs;
use locate::{Locator, Processes};
use outlet::Room;
use std::collections::{BTreeMap, BTreeSet};
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
const TURN: Duration = Duration::from_millis(250);
/// An event takes so long from the engine to here at most while its publisher is well, in nanoseconds: what is absent
/// before that is absent.
const HELD_BACK: i64 = 1_200_000_000;
/// Marks of workers that are not there are kept so long after the start.
const FORGET_AFTER: Duration = Duration::from_secs(60);
/// A publisher that is not there for so long is said to be missing: engines take their time to start.
const SAY_AFTER: Duration = Duration::from_secs(60);

/// What the thread is told.
#[derive(Debug)]
pub(crate) enum EventCommand {
    /// A worker is there, or is known better.
    Worker(Box<FoundWorker>),
    /// A worker is gone.
    Gone(WorkerId),
}

pub(crate) type EventCommands = UnboundedSender<EventCommand>;

/// The thread's state before it runs.
pub(crate) struct Events {
    hub: Arc<Hub>,
    node: NodeIdentity,
    packs: &'static Packs,
    access: Arc<Access>,
    key: &'static FleetKey,
    marks: Marks,
    commands: UnboundedReceiver<EventCommand>,
    progress: Progress,
    reports: Sender<Report>,
}

/// The thread's state while it runs.
struct Following {
    hub: Arc<Hub>,
    node: NodeIdentity,
    packs: &'static Packs,
    access: Arc<Access>,
    key: &'static FleetKey,
    room: Rc<Room>,
    budget: Budget,
    reports: Sender<Report>,
    workers: BTreeMap<WorkerId, Followed>,
    answers: UnboundedSender<Answer>,
}

/// A worker and the tasks that follow its publishers.
struct Followed {
    processes: Rc<Processes>,
    started: Option<WallTime>,
    tasks: BTreeMap<String, AbortHandle>,
    /// Asks where it publishes.
    asks: Option<AbortHandle>,
    /// It answered: its settings say no more.
    is_answered: bool,
    is_watched: bool,
    is_refused: bool,
}

// === impl Events ===

impl Events {
    pub(crate) fn new(
        around: Around<'_>,
        progress: Progress,
        reports: Sender<Report>,
    ) -> Result<(Self, EventCommands), RunError> {
        let Around { options, node, packs, access, hub } = around;
        let key = match &options.content_key_file {
            Some(path) => key::from_file(path)?,
            None => key::own(&around.below("content.key"))?,
        };
        let (sender, commands) = unbounded_channel();
        let events = Self {
            hub: Arc::clone(hub),
            node: node.clone(),
            packs,
            access: Arc::clone(access),
            // Once a process; chains of hashes refer to it for as long as it runs.
            key: Box::leak(Box::new(key)),
            marks: Marks::load(around.below("events.json"), node.boot_id.clone()),
            commands,
            progress,
            reports,
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

    async fn follow(mut self, end: &AtomicBool) {
        let (sender, mut answers) = unbounded_channel();
        let mut following = Following {
            room: Rc::new(Room::new(Arc::clone(&self.hub), self.marks)),
            hub: self.hub,
            node: self.node,
            packs: self.packs,
            access: self.access,
            key: self.key,
            budget: Budget::new(BUDGET),
            reports: self.reports,
            workers: BTreeMap::new(),
            answers: sender,
        };
        let begun = Instant::now();
        let mut has_forgotten = false;
        while !end.load(Ordering::Relaxed) {
            let turn = WallTime(Now::read().wall).plus(-HELD_BACK);
            while let Ok(command) = self.commands.try_recv() {
                match command {
                    EventCommand::Worker(worker) => following.meet(&worker),
                    EventCommand::Gone(worker) => following.leave(&worker),
                }
            }
            while let Ok(answer) = answers.try_recv() {
                following.heed(answer);
            }
            if !has_forgotten && begun.elapsed() >= FORGET_AFTER {
                has_forgotten = true;
                following.room.forget_others();
            }
            following.tell();
            self.progress.reached(following.room.waits().map_or(turn, |waits| waits.min(turn)));
            tokio::time::sleep(TURN).await;
        }
        following.room.save();
    }
}

// === impl Following ===

impl Following {
    fn meet(&mut self, worker: &FoundWorker) {
        let followed = self.workers.entry(worker.id.clone()).or_insert_with(|| Followed {
            processes: Rc::new(Processes::default()),
            started: worker.started,
            tasks: BTreeMap::new(),
            asks: None,
            is_answered: false,
            is_watched: false,
            is_refused: false,
        });
        followed.processes.set(worker);
        if followed.is_answered {
            return;
        }
        let publishers = targets::of_facts(&worker.facts);
        // One whose arguments cannot be read may publish all the same.
        let may_publish =
            !matches!(&publishers, Ok(none) if none.is_empty()) || worker.unread.contains_key("arguments");
        if may_publish && followed.asks.is_none() {
            let sees_arguments = !worker.unread.contains_key("arguments");
            let path = ReadPath::KvEventSources.as_str();
            let endpoints = self.packs.endpoints(&worker.engine, &worker.settings, sees_arguments);
            let served = endpoints
                .iter()
                .find(|one| one.refused.is_none() && one.serves.iter().any(|served| served == path));
            if let Some(endpoint) = served {
                let locator = Locator::new(Arc::clone(&self.access), Rc::clone(&followed.processes));
                let asking = ask(worker.id.clone(), endpoint.port, locator, self.answers.clone());
                followed.asks = Some(tokio::task::spawn_local(asking).abort_handle());
            }
        }
        match publishers {
            Ok(publishers) => self.subscribe(&worker.id, publishers),
            Err(why) => {
                if followed.asks.is_none() && !std::mem::replace(&mut followed.is_refused, true) {
                    let what = format!("KV events of {}: {why}", worker.id);
                    let _ = self.reports.send(Report::Blind(what));
                }
            }
        }
    }

    /// What a worker says of its publishers takes the place of what its settings do.
    fn heed(&mut self, answer: Answer) {
        let Some(followed) = self.workers.get_mut(&answer.worker) else { return };
        if answer.publishers.is_empty() {
            return;
        }
        followed.is_answered = true;
        let names: BTreeSet<String> =
            answer.publishers.iter().map(|one| Target::name_of(&answer.worker, &one.endpoint)).collect();
        for (name, task) in followed.tasks.extract_if(.., |name, _| !names.contains(name)) {
            task.abort();
            self.room.remove(&name);
        }
        self.subscribe(&answer.worker, answer.publishers);
    }

    fn subscribe(&mut self, worker: &WorkerId, publishers: Vec<Publisher>) {
        let Some(followed) = self.workers.get_mut(worker) else { return };
        for publisher in publishers {
            let target = Target {
                node: self.node.node.clone(),
                worker: worker.clone(),
                endpoint: publisher.endpoint,
                replay: publisher.replay,
                topic: publisher.topic,
            };
            let name = target.name();
            if followed.tasks.contains_key(&name) || !self.room.add(&target, MAX_PUBLISHERS) {
                continue;
            }
            let outlet: Rc<Room> = Rc::clone(&self.room);
            let subscription = Subscription::new(
                target,
                self.room.last(&name),
                self.key,
                self.budget.clone(),
                Patience::default(),
                Rc::new(Locator::new(Arc::clone(&self.access), Rc::clone(&followed.processes))),
                outlet,
            );
            let task = tokio::task::spawn_local(subscription.run());
            followed.tasks.insert(name, task.abort_handle());
        }
    }

    fn leave(&mut self, worker: &WorkerId) {
        let Some(followed) = self.workers.remove(worker) else { return };
        if let Some(asks) = followed.asks {
            asks.abort();
        }
        for (name, task) in followed.tasks {
            task.abort();
            self.room.remove(&name);
        }
    }

    /// Tells who is watched, and how that goes.
    fn tell(&mut self) {
        for (worker, followed) in &mut self.workers {
            // From the first subscription on.
            let is_new =
                !followed.is_watched && followed.tasks.keys().any(|name| self.room.was_subscribed(name));
            if is_new {
                followed.is_watched = self.hub.take(&[watched(&self.node, worker, followed.started)]);
            }
        }
        self.room.say(&self.reports, SAY_AFTER);
        self.room.save();
        let (subscribed, waiting, why) = self.room.publishers();
        self.hub.publishers(subscribed, waiting);
        self.hub.part("events", part(subscribed, waiting, why));
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
