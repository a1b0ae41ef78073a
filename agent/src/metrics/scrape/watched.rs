//! A worker, as far as one has to know it to ask it something.

use super::answers::AnswerTarget;
use super::pages::PageTarget;
use crate::access::ProcessId;
use crate::discover::FoundWorker;
use crate::http::ReadPath;
use kvprov_model::clock::WallTime;
use kvprov_model::id::WorkerId;
use kvprov_packs::SettingsSeen;
use std::collections::BTreeMap;
use std::time::{Duration, Instant};

/// What is known of the worker itself.
#[derive(Debug, Clone)]
pub(super) struct Who {
    pub id: WorkerId,
    pub engine: String,
    pub version: Option<String>,
    pub started: Option<WallTime>,
    pub processes: Vec<ProcessId>,
    pub settings: BTreeMap<String, String>,
    pub seen: SettingsSeen,
    pub facts: BTreeMap<String, String>,
    pub fact_origins: BTreeMap<String, String>,
}

/// A worker and what is asked of it.
#[derive(Debug)]
pub(super) struct Watched {
    pub who: Who,
    /// By id of the endpoint.
    pub pages: BTreeMap<String, PageTarget>,
    pub answers: BTreeMap<ReadPath, AnswerTarget>,
    /// It loaded an adapter, whose runs its pages tell.
    pub has_adapters: bool,
    /// When a page was last wanted because a request was answered.
    pub followed: Option<Instant>,
}

/// Pages of a worker with adapters are wanted behind an answer this often at most.
const FOLLOWS_EVERY: Duration = Duration::from_secs(2);

// === impl Watched ===

impl Watched {
    /// Its pages are wanted as soon as their cost allows.
    pub(super) fn hurry(&mut self) {
        for target in self.pages.values_mut() {
            target.is_wanted = target.is_asked;
            if target.before.is_some() {
                target.due = target.due.min(target.rests_until);
            }
        }
    }

    /// A request was answered at a port. A page tells when each adapter ran last, and the next request hides it.
    pub(super) fn answered(&mut self, port: u16, now: Instant) {
        let is_here = self.pages.values().any(|target| target.port == port);
        let rests = self.followed.is_some_and(|at| now.duration_since(at) < FOLLOWS_EVERY);
        if self.has_adapters && is_here && !rests {
            self.followed = Some(now);
            self.hurry();
        }
    }
}

// === impl Who ===

impl Who {
    pub(super) fn of(worker: &FoundWorker) -> Self {
        let could_read = |what: &str| !worker.unread.contains_key(what);
        Self {
            id: worker.id.clone(),
            engine: worker.engine.clone(),
            version: worker.engine_version.clone(),
            started: worker.started,
            processes: worker
                .processes
                .iter()
                .map(|process| ProcessId { pid: process.key.pid, started: process.key.start })
                .collect(),
            settings: worker.settings.clone(),
            seen: SettingsSeen { arguments: could_read("arguments"), environment: could_read("environment") },
            facts: worker.facts.clone(),
            fact_origins: worker.fact_origins.clone(),
        }
    }
}
