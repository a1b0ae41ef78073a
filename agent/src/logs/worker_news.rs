//! What lines say of their worker: engine, version, facts, settings. Each is told when it is new or changed.
//!
//! Bounded: at most [`MAX_TOLD`] are remembered; what is beyond is told each time.

use super::emit::{Statement, WORKER};
use super::interpret::{Interpreter, Out};
use kvprov_model::observation::{Body, Worker};
use kvprov_packs::{Match, Version};
use std::collections::BTreeMap;

/// Facts and settings remembered as told.
const MAX_TOLD: usize = 512;

/// Facts and settings as last told.
#[derive(Debug, Default)]
pub(super) struct News {
    facts: BTreeMap<String, String>,
    settings: BTreeMap<String, String>,
}

// === impl News ===

impl News {
    fn is_fact(&mut self, name: &str, value: &str) -> bool {
        let room = self.has_room();
        is_news(&mut self.facts, name, value, room)
    }

    fn is_setting(&mut self, name: &str, value: &str) -> bool {
        let room = self.has_room();
        is_news(&mut self.settings, name, value, room)
    }

    fn has_room(&self) -> bool {
        self.facts.len() + self.settings.len() < MAX_TOLD
    }
}

fn is_news(told: &mut BTreeMap<String, String>, name: &str, value: &str, room: bool) -> bool {
    if told.get(name).is_some_and(|told| told == value) {
        return false;
    }
    if room {
        told.insert(name.to_owned(), value.to_owned());
    }
    true
}

// === impl Interpreter ===

impl<'p> Interpreter<'p> {
    /// Facts and settings that a line tells of its worker; each is told when it is new or changed.
    pub(super) fn tell_worker(
        &mut self,
        statement: &Statement<'_>,
        found: &Match<'p>,
        mut worker: Worker,
        out: &mut Out<'_>,
    ) {
        let mut facts = found.facts();
        facts.append(&mut worker.facts);
        for (fact, value) in found.implies() {
            facts.entry(fact.clone()).or_insert_with(|| value.clone());
        }
        let mut settings = found.settings();
        settings.append(&mut worker.settings);
        if facts.is_empty() && settings.is_empty() && worker == Worker::default() {
            return;
        }
        let mut by_settings = BTreeMap::new();
        if !settings.is_empty() {
            // A line shows some settings; what the others default to is not its to say.
            let mut resolved = self.packs.facts(self.engine.as_deref(), self.version.as_ref(), &settings);
            for (fact, value) in resolved.facts {
                let origin = resolved.origins.remove(&fact).filter(|origin| origin.starts_with("setting"));
                if let Some(origin) = origin.filter(|_| !facts.contains_key(&fact)) {
                    by_settings.insert(fact.clone(), origin);
                    facts.insert(fact, value);
                }
            }
        }
        facts.retain(|fact, value| self.news.is_fact(fact, value));
        settings.retain(|setting, value| self.news.is_setting(setting, value));
        let says_itself = worker != Worker::default();
        if facts.is_empty() && settings.is_empty() && !says_itself {
            return;
        }
        let mut origin = |fact: &String| by_settings.remove(fact).unwrap_or_else(|| "log line".to_owned());
        worker.fact_origins = facts.keys().map(|fact| (fact.clone(), origin(fact))).collect();
        worker.facts = facts;
        worker.settings = settings;
        (out.tell)(statement.tell(WORKER, found.says(), Body::Worker(worker)));
    }

    /// A start-up line tells which engine and version speak from here on.
    pub(super) fn learn(&mut self, body: &Body, found: &Match<'p>) {
        let Body::Worker(worker) = body else { return };
        let engine = worker.engine.as_deref().unwrap_or(&found.template.engine);
        if self.engine.as_deref().is_some_and(|known| known != engine) {
            return;
        }
        if let Some(version) = worker.engine_version.as_deref().and_then(Version::parse) {
            self.engine = Some(engine.to_owned());
            self.version = Some(version);
            // Another speaker may mean another template by the same words.
            self.folds.forget_words();
        }
    }
}
