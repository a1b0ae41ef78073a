//! What a worker answers to questions about its models, as observations.
//!
//! Facts from here are claims of the engine: they stand where discovery knows nothing, or only a default. Adapters are
//! told as a fact, not as a call that loaded them: the log may have told that call, and one load is not two.

use super::watched::Who;
use crate::endpoint::Served;
use crate::http::ReadPath;
use crate::source::{Place, SourceContext};
use kvprov_model::clock::WallTime;
use kvprov_model::fact;
use kvprov_model::id::NodeId;
use kvprov_model::observation::{Body, Observation, SourceKind, Worker};
use kvprov_packs::{Packs, Said, Version};
use sha2::{Digest, Sha256};
use std::time::Instant;

/// Longest list of adapters that is told, in bytes.
const MAX_ADAPTERS: usize = 16 * 1024;
/// What stands for an empty list after one that was not.
const NONE: &str = "none";
/// How packs name the origin of a default.
const DEFAULT: &str = "default of";

/// One path of one worker.
#[derive(Debug)]
pub(super) struct AnswerTarget {
    pub port: u16,
    pub before: Option<Served>,
    pub due: Instant,
    pub is_asked: bool,
    pub failures: u32,
    pub tries: u64,
    /// It is there for good, or will never be.
    pub is_done: bool,
    told: Option<Worker>,
}

// === impl AnswerTarget ===

impl AnswerTarget {
    pub(super) fn new(port: u16) -> Self {
        let now = Instant::now();
        Self {
            port,
            before: None,
            due: now,
            is_asked: false,
            failures: 0,
            tries: 0,
            is_done: false,
            told: None,
        }
    }

    /// What an answer says that was not said before.
    pub(super) fn told(
        &mut self,
        packs: &Packs,
        node: &NodeId,
        who: &Who,
        path: ReadPath,
        body: &[u8],
        at: WallTime,
    ) -> Option<Observation> {
        let answer = serde_json::from_slice(body).ok()?;
        let said = packs.read_answer(&who.engine, path.as_str(), &answer)?;
        let mut body = news(packs, who, path, said);
        let listed = self.told.as_ref().is_some_and(|told| told.facts.contains_key(fact::ADAPTERS_LOADED));
        if listed && !body.facts.contains_key(fact::ADAPTERS_LOADED) {
            body.facts.insert(fact::ADAPTERS_LOADED.to_owned(), NONE.to_owned());
        }
        if self.told.as_ref() == Some(&body) || (self.told.is_none() && body == Worker::default()) {
            return None;
        }
        let source = SourceContext {
            node: node.clone(),
            worker: Some(who.id.clone()),
            stream: path.to_string(),
            instance: format!("http {} {path}", who.id),
            generation: 0,
        };
        // What is said first has the same id at every start of an agent; a change is of its time.
        let when = self.told.is_some().then_some(at);
        let digest = Sha256::digest(format!("{when:?} {body:?}").as_bytes());
        let mut offset = [0; 8];
        offset.copy_from_slice(&digest[..8]);
        let place = Place { position: 0, offset: u64::from_le_bytes(offset) };
        let names =
            body.facts.keys().cloned().chain(body.engine_version.iter().map(|_| "its version".to_owned()));
        let says = format!("{path} tells {}", names.collect::<Vec<_>>().join(", "));
        self.told = Some(body.clone());
        Some(source.observe(SourceKind::Config, place, 0, Some(at), Some(says), Body::Worker(body)))
    }
}

/// What of an answer is not known already.
fn news(packs: &Packs, who: &Who, path: ReadPath, said: Said<'_>) -> Worker {
    let mut body = Worker { engine_ids: said.engine_id.into_iter().collect(), ..Worker::default() };
    let mut add = |name: String, value: String, origin: String| {
        let is_default = who.fact_origins.get(&name).is_some_and(|origin| origin.starts_with(DEFAULT));
        let is_news = match who.facts.get(&name) {
            None => true,
            Some(known) => is_default && *known != value,
        };
        if is_news {
            body.fact_origins.insert(name.clone(), origin);
            body.facts.insert(name, value);
        }
    };
    let origin = format!("GET {path}");
    if who.version.is_none()
        && let Some(version) = &said.engine_version
    {
        // What the settings mean depends on the version.
        let parsed = Version::parse(version);
        let resolved = packs.facts_of_seen(Some(&who.engine), parsed.as_ref(), &who.settings, who.seen);
        for (name, value) in resolved.facts {
            let from = resolved.origins.get(&name).cloned().unwrap_or_default();
            add(name, value, from);
        }
    }
    for (name, value) in said.facts {
        add(name, value, origin.clone());
    }
    if let Some(adapters) = &said.adapters {
        let mut list: String =
            adapters.iter().map(|(name, path)| format!("{name}={path}")).collect::<Vec<_>>().join(",");
        let end = (0..=MAX_ADAPTERS.min(list.len())).rev().find(|end| list.is_char_boundary(*end));
        list.truncate(end.unwrap_or(0));
        if !list.is_empty() {
            add(fact::ADAPTERS_LOADED.to_owned(), list, origin);
        }
    }
    if who.version.is_none() {
        body.engine_version = said.engine_version;
    }
    body
}
