//! What all subscriptions share: the way to the hub, their marks, and how they are.

use crate::events::subscribe::{Mark, Marks, Outlet, Target};
use crate::run::hub::Hub;
use crate::run::report::Report;
use crate::source::Losses;
use kvprov_model::clock::WallTime;
use kvprov_model::observation::Observation;
use std::cell::RefCell;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::mpsc::Sender;
use std::time::{Duration, Instant};

/// The room.
pub(super) struct Room {
    hub: Arc<Hub>,
    marks: RefCell<Marks>,
    publishers: RefCell<BTreeMap<String, Publisher>>,
}

/// How one publisher is.
struct Publisher {
    worker: String,
    endpoint: String,
    /// `None`: subscribed.
    why: Option<String>,
    was_subscribed: bool,
    /// Since when it is not subscribed.
    since: Instant,
    /// That it is followed, or that it is not, was said.
    said: Option<bool>,
    waits: Option<WallTime>,
}

// === impl Room ===

impl Room {
    pub(super) fn new(hub: Arc<Hub>, marks: Marks) -> Self {
        Self { hub, marks: RefCell::new(marks), publishers: RefCell::default() }
    }

    /// A publisher is to be followed; false where there are too many.
    pub(super) fn add(&self, target: &Target, most: usize) -> bool {
        let mut publishers = self.publishers.borrow_mut();
        if publishers.len() >= most {
            let mut losses = Losses::default();
            losses.one("too many publishers of KV events");
            self.hub.lose("events", &losses);
            return false;
        }
        let publisher = Publisher {
            worker: target.worker.to_string(),
            endpoint: target.stream(),
            why: Some("it was not tried yet".to_owned()),
            was_subscribed: false,
            since: Instant::now(),
            said: None,
            waits: None,
        };
        publishers.insert(target.name(), publisher);
        true
    }

    pub(super) fn remove(&self, name: &str) {
        self.publishers.borrow_mut().remove(name);
        self.marks.borrow_mut().retain(|known| known != name);
    }

    /// The last batch of a publisher that an agent before this one took.
    pub(super) fn last(&self, name: &str) -> Option<Mark> {
        self.marks.borrow().get(name)
    }

    /// Forgets publishers of workers that are not there.
    pub(super) fn forget_others(&self) {
        let publishers = self.publishers.borrow();
        self.marks.borrow_mut().retain(|known| publishers.contains_key(known));
    }

    pub(super) fn save(&self) {
        if let Err(error) = self.marks.borrow_mut().save() {
            tracing::debug!(%error, "marks of KV events are not saved; some will be read again");
        }
    }

    pub(super) fn was_subscribed(&self, name: &str) -> bool {
        self.publishers.borrow().get(name).is_some_and(|publisher| publisher.was_subscribed)
    }

    /// How many are subscribed, how many are not, and why not.
    pub(super) fn publishers(&self) -> (u64, u64, Option<String>) {
        let publishers = self.publishers.borrow();
        let waiting: Vec<&Publisher> = publishers.values().filter(|one| one.why.is_some()).collect();
        let why = waiting
            .first()
            .and_then(|one| one.why.as_ref().map(|why| format!("{} of {}: {why}", one.endpoint, one.worker)));
        ((publishers.len() - waiting.len()) as u64, waiting.len() as u64, why)
    }

    /// Since when something waits to be taken.
    pub(super) fn waits(&self) -> Option<WallTime> {
        self.publishers.borrow().values().filter_map(|publisher| publisher.waits).min()
    }

    /// Says who is followed now, and who is not for a while already.
    pub(super) fn say(&self, reports: &Sender<Report>, after: Duration) {
        for publisher in self.publishers.borrow_mut().values_mut() {
            let report = match &publisher.why {
                None if publisher.said != Some(true) => {
                    publisher.said = Some(true);
                    let what = format!("KV events from {}", publisher.endpoint);
                    Report::Output { worker: publisher.worker.clone(), what }
                }
                Some(why) if publisher.said != Some(false) && publisher.since.elapsed() >= after => {
                    publisher.said = Some(false);
                    Report::Blind(format!(
                        "KV events of {} at {}: {why}",
                        publisher.worker, publisher.endpoint
                    ))
                }
                _ => continue,
            };
            let _ = reports.send(report);
        }
    }

    fn of(&self, target: &Target, change: impl FnOnce(&mut Publisher)) {
        if let Some(publisher) = self.publishers.borrow_mut().get_mut(&target.name()) {
            change(publisher);
        }
    }
}

impl Outlet for Room {
    fn take(&self, observations: &[Observation]) -> bool {
        let is_taken = self.hub.take(observations);
        if is_taken {
            self.hub.count_events(observations);
        }
        is_taken
    }

    fn reached(&self, publisher: &str, mark: Mark) {
        self.marks.borrow_mut().reached(publisher, mark);
    }

    fn lose(&self, losses: &Losses) {
        self.hub.lose("events", losses);
    }

    fn empty_batch(&self, target: &Target, seq: u64, wall: Option<WallTime>) {
        self.hub.empty_batch(&target.worker, &target.stream(), seq, wall);
    }

    fn state(&self, target: &Target, state: Result<(), String>) {
        self.of(target, |publisher| {
            if publisher.why.is_none() && state.is_err() {
                publisher.since = Instant::now();
            }
            publisher.was_subscribed |= state.is_ok();
            publisher.why = state.err();
        });
    }

    fn waits(&self, target: &Target, since: Option<WallTime>) {
        self.of(target, |publisher| publisher.waits = since);
    }
}
