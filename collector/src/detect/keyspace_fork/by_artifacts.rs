//! Equal content under two keys of one store.
//!
//! The part of a key that stands for content is equal, another part is not, and the second side looked up or wrote
//! its own key after the first had stored the content. Ranks of one deployment are no fork; nor are two models: where
//! the names differ, the weights must be known to be equal, and where the weights are known to differ it is no fork.

use super::{cause_of, finish};
use crate::detect::artifacts::{Event, History};
use crate::detect::draft::Draft;
use crate::detect::keyspace_fork::by_blocks::differs;
use crate::view::View;
use kvprov_model::fact;
use kvprov_model::factor::Comparison;
use kvprov_model::finding::{Cause, Confidence, Detector, Finding};
use kvprov_model::id::StoreId;
use kvprov_model::observation::ArtifactAction;
use std::collections::{BTreeMap, BTreeSet};

/// The parts of a key that tell deployments apart, ranks left out.
type Fields = BTreeMap<String, String>;

/// Parts that differ between ranks of one deployment.
const RANKS: &[&str] = &[fact::TP_RANK, "pp_rank", "cp_rank", "rank", "group", "layer", "part"];

/// The complete set of findings on a store.
pub(super) fn detect(view: &View<'_>, store: &StoreId) -> Vec<Finding> {
    let history = History::of(view, store);
    let mut by_content: BTreeMap<(&str, &str), BTreeMap<Fields, Vec<&Event>>> = BTreeMap::new();
    for event in history.keys.values().flatten() {
        let (Some(content), Some(grammar)) = (&event.artifact().content, &event.artifact().grammar) else {
            continue;
        };
        let fields: Fields = event
            .artifact()
            .fields
            .iter()
            .filter(|(name, _)| !RANKS.contains(&name.as_str()))
            .map(|(name, value)| (name.clone(), value.clone()))
            .collect();
        by_content.entry((grammar, content)).or_default().entry(fields).or_default().push(event);
    }
    // The keys of several ranks are one variant; what matters is the order of time.
    for events in by_content.values_mut().flat_map(BTreeMap::values_mut) {
        events.sort_by_key(|event| event.order());
    }
    let mut drafts: BTreeMap<Cause, (Draft, BTreeSet<String>)> = BTreeMap::new();
    for variants in by_content.values().filter(|variants| variants.len() > 1) {
        for (a, b) in pairs(variants) {
            let Some((cause, stored, asked)) = fork(view, a, b) else { continue };
            let (draft, contents) = drafts.entry(cause.clone()).or_insert_with(|| {
                (
                    Draft::new(Detector::KeyspaceFork, cause, Confidence::Confirmed, store.as_str()),
                    BTreeSet::new(),
                )
            });
            draft.worker(stored.actor.as_str()).worker(asked.actor.as_str());
            draft.at(asked.at);
            if contents.insert(asked.artifact().content.clone().unwrap_or_default()) {
                draft.events(1);
            }
            if contents.len() <= 4 {
                draft.context(stored.observation()).proof(asked.observation());
            }
        }
    }
    drafts
        .into_iter()
        .map(|(cause, (draft, contents))| {
            let how = format!(
                "as {} contents in {store} show that one side stored and the other missed",
                contents.len()
            );
            finish(draft, &cause, &how)
        })
        .collect()
}

/// One key variant of a content, with its events.
type Variant<'v, 'h> = (&'v Fields, &'v Vec<&'h Event>);

/// Pairs of key variants with their events.
fn pairs<'v, 'h>(variants: &'v BTreeMap<Fields, Vec<&'h Event>>) -> Vec<(Variant<'v, 'h>, Variant<'v, 'h>)> {
    let all: Vec<_> = variants.iter().collect();
    let mut pairs = Vec::new();
    for (index, a) in all.iter().enumerate() {
        pairs.extend(all.iter().skip(index + 1).map(|b| (*a, *b)));
    }
    pairs
}

/// Whether two variants of one content are a fork: the cause, where the content was stored, where it was missed.
fn fork<'h>(
    view: &View<'_>,
    a: (&Fields, &Vec<&'h Event>),
    b: (&Fields, &Vec<&'h Event>),
) -> Option<(Cause, &'h Event, &'h Event)> {
    let ways = [stored_then_asked(a.1, b.1), stored_then_asked(b.1, a.1)];
    // The way that was seen first stands, whatever comes later.
    let (stored, asked) = ways.into_iter().flatten().min_by_key(|(_, asked)| asked.order())?;
    let names: BTreeSet<&String> = a.0.keys().chain(b.0.keys()).collect();
    let different: Vec<&str> =
        names.into_iter().filter(|name| a.0.get(*name) != b.0.get(*name)).map(String::as_str).collect();
    let revision = |event: &Event| {
        view.roster().get(&event.actor).map(|member| member.factors_at(event.at, None)).unwrap_or_default()
    };
    let weights = revision(stored).compare(&revision(asked), "weights");
    let another_model = different.contains(&fact::MODEL_NAME) || different.contains(&fact::MODEL_PATH);
    match weights {
        Comparison::Different => return None,
        Comparison::Unknown if another_model => return None,
        _ => {}
    }
    let named = different.iter().map(|name| cause_of(name)).find(|cause| *cause != Cause::Unknown);
    let cause = named.or_else(|| configured_difference(view, stored, asked)).unwrap_or(Cause::Unknown);
    Some((cause, stored, asked))
}

/// What the settings of both sides say where the key holds only a digest of them.
fn configured_difference(view: &View<'_>, stored: &Event, asked: &Event) -> Option<Cause> {
    let (a, b) = (view.roster().get(&stored.actor)?, view.roster().get(&asked.actor)?);
    [fact::TP_SIZE, fact::PP_SIZE, fact::CP_SIZE, fact::DTYPE, fact::KV_CACHE_DTYPE, fact::BLOCK_SIZE]
        .into_iter()
        .find(|name| differs(a, b, name))
        .map(cause_of)
}

/// The first side stored the content; later another worker missed or wrote it under its own key.
fn stored_then_asked<'h>(first: &[&'h Event], second: &[&'h Event]) -> Option<(&'h Event, &'h Event)> {
    let stored = first.iter().find(|event| event.action == ArtifactAction::Written)?;
    let asked = second.iter().find(|event| {
        event.actor != stored.actor
            && event.at >= stored.at
            && matches!(event.action, ArtifactAction::Missed | ArtifactAction::Written)
    })?;
    Some((stored, asked))
}
