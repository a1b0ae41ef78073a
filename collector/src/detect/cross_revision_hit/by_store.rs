//! An artifact of a store was read under another revision than the one that wrote it.
//!
//! The last complete write decides what lies under a key; a removal or a rewrite in between ends the old content. A write by
//! somebody who is no engine and never asks is a copy: what it brings back is taken for what an engine wrote before. Where both
//! engines tell by their block events for which adapter they keep the block of that name, the adapter is compared too.

use super::asked::Asked;
use super::stored_for::StoredFor;
use super::{arrangement, commit, difference, element_type, finish};
use crate::detect::artifacts::{Event, History, Written};
use crate::detect::draft::Draft;
use crate::view::View;
use kvprov_model::factor::{Comparison, Factor, Factors};
use kvprov_model::finding::{Cause, Confidence, Detector, Finding};
use kvprov_model::id::{StoreId, WorkerId};
use kvprov_model::observation::{AdminClass, ArtifactAction, Body, Observation, Outcome};
use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;

/// A finding, what was used, and the keys of it.
type Told = (Draft, String, BTreeSet<String>);

/// The complete set of findings on a store.
pub(super) fn detect(view: &View<'_>, store: &StoreId) -> Vec<Finding> {
    let history = History::of(view, store);
    let mut drafts: BTreeMap<(Cause, Rc<WorkerId>), Told> = BTreeMap::new();
    let mut reads: Vec<(&String, &Event, Written)> = Vec::new();
    for key in history.keys.keys() {
        history.walk(key, |event, held| {
            reads.extend(held.filter(|_| consumed(event)).map(|held| (key, event, held.clone())));
        });
    }
    // In the order of time: the first ones are shown, whichever keys come later.
    reads.sort_by_key(|(_, event, _)| event.order());
    let mut stored_for = StoredFor::default();
    let mut asked = Asked::default();
    for (key, event, held) in &reads {
        let verdict = judge(view, &history, key, event, held)
            .or_else(|| of_adapter(view, event, held, &mut stored_for))
            .or_else(|| by_adapter(view, &mut asked, event, held));
        let Some(verdict) = verdict else { continue };
        let Verdict { cause, confidence, what, because, unknown, request } = verdict;
        let entry = drafts.entry((cause.clone(), event.actor.clone())).or_insert_with(|| {
            let subject = format!("{store} -> {}", event.actor);
            let mut draft = Draft::new(Detector::CrossRevisionHit, cause, confidence, subject);
            draft.worker(event.actor.as_str());
            (draft, what, BTreeSet::new())
        });
        let (draft, _, keys) = entry;
        draft.at_least(confidence).worker(held.by.as_str()).at(event.at);
        if keys.insert((*key).clone()) && request.is_none() {
            draft.events(1);
        }
        if let Some(request) = &request {
            draft.proof(request).requests_of(request);
        }
        if keys.len() <= 4 {
            draft.context(held.observation()).proof(event.observation());
            for reason in &because {
                draft.context(reason).worker(reason.worker());
            }
        }
        if confidence != Confidence::Confirmed {
            draft.unknown(unknown);
        }
    }
    drafts
        .into_iter()
        .map(|((cause, reader), (draft, what, keys))| {
            let summary = format!(
                "{reader} used {} artifacts of {store} that were written under another model: {what}.",
                keys.len()
            );
            finish(draft, &cause, summary)
        })
        .collect()
}

/// Whether an event took bytes from the store. A reader that maps the file shows no count.
fn consumed(event: &Event) -> bool {
    matches!(event.action, ArtifactAction::Read | ArtifactAction::Partial)
        && event.artifact().bytes.is_none_or(|bytes| bytes > 0)
}

/// Whether a reader wanted another size than was written: the store conflict of that tells it.
fn differs_in_size(event: &Event, held: &Written) -> bool {
    let wanted = event.artifact().bytes_wanted.or(event.artifact().bytes).filter(|bytes| *bytes > 0);
    held.bytes.zip(wanted).is_some_and(|(written, wanted)| written != wanted)
}

/// What is known of a read under another revision.
struct Verdict {
    cause: Cause,
    confidence: Confidence,
    what: String,
    /// What else shows it.
    because: Vec<Observation>,
    /// What keeps it from being sure.
    unknown: &'static str,
    /// The request that used it.
    request: Option<Observation>,
}

// === impl Verdict ===

impl Verdict {
    /// Known by what both sides are.
    fn of((cause, confidence, what): (Cause, Confidence, String)) -> Self {
        let unknown = "the digests of both revisions";
        Self { cause, confidence, what, because: Vec::new(), unknown, request: None }
    }

    /// The same of bytes that somebody put back: that they are those that were written before is likely, no more.
    fn put_back(mut self, carrier: &WorkerId, made: &Written) -> Self {
        self.confidence = self.confidence.min(Confidence::Suspected);
        self.what = format!("{}, and {carrier} put them back", self.what);
        self.because.push(made.observation().clone());
        self.unknown = "whether what was put back is what was written before";
        self
    }
}

fn judge(view: &View<'_>, history: &History, key: &str, event: &Event, held: &Written) -> Option<Verdict> {
    match original(view, history, key, held) {
        Some(made) => compare(view, event, &made).map(|verdict| verdict.put_back(&held.by, &made)),
        None => compare(view, event, held),
    }
}

/// Another content of the adapter for which both sides keep the block.
fn of_adapter(view: &View<'_>, event: &Event, held: &Written, stored_for: &mut StoredFor) -> Option<Verdict> {
    let content = event.artifact().content.as_deref().filter(|_| held.by != event.actor)?;
    let (maker, reader) = view.roster().get(&held.by).zip(view.roster().get(&event.actor))?;
    if !maker.has_adapters() || !reader.has_adapters() {
        return None;
    }
    let (made_for, told) = stored_for.adapter(view, maker, content)?;
    let (used_for, told_too) = stored_for.adapter(view, reader, content)?;
    let made = maker.factors_at(held.at, Some(&made_for));
    let used = reader.factors_at(event.at, Some(&used_for));
    let known = difference(&made, &used)?;
    Some(Verdict { because: vec![told, told_too], ..Verdict::of(known) })
}

/// The write whose bytes a copy brought back, where the last writer is no engine and never asks the store for anything.
fn original(view: &View<'_>, history: &History, key: &str, held: &Written) -> Option<Written> {
    let copies = |worker: &WorkerId| {
        let member = view.roster().get(worker);
        member.is_none_or(|member| member.engine.is_none() && member.role.is_none()) && !history.asks(worker)
    };
    if !copies(&held.by) {
        return None;
    }
    let made = history.before(key, held)?;
    let as_large = made.bytes.zip(held.bytes).is_none_or(|(before, now)| before == now);
    (as_large && !copies(&made.by)).then_some(made)
}

/// Written for requests of an adapter and read for those of one with other content: whatever its key holds of the adapter, it
/// does not hold that.
fn by_adapter(view: &View<'_>, asked: &mut Asked, event: &Event, held: &Written) -> Option<Verdict> {
    let mut side = |worker: &WorkerId, at| {
        let (name, request) = asked.adapter(view, worker, at)?;
        let factors = view.roster().get(worker)?.factors_at(at, Some(name));
        Some((factors.0.get("adapter")?.clone(), request.clone()))
    };
    let (made, maker) = side(&held.by, held.at)?;
    let (used, user) = side(&event.actor, event.at)?;
    if made.compare(&used) != Comparison::Different {
        return None;
    }
    let of = |factor: Factor| Factors([("adapter".to_owned(), factor)].into());
    let (cause, _, what) = difference(&of(made), &of(used))?;
    Some(Verdict {
        because: vec![maker],
        unknown: "which of its requests each side touched the store for",
        request: Some(user),
        ..Verdict::of((cause, Confidence::Suspected, what))
    })
}

fn compare(view: &View<'_>, event: &Event, held: &Written) -> Option<Verdict> {
    let factors = |worker: &WorkerId, at| -> Factors {
        view.roster().get(worker).map(|member| member.factors_at(at, None)).unwrap_or_default()
    };
    let (made, used) = (factors(&held.by, held.at), factors(&event.actor, event.at));
    if let Some(known) = difference(&made, &used) {
        return Some(Verdict::of(known));
    }
    if made.compare(&used, "weights") == Comparison::Unknown
        && let Some((maker, reader)) = view.roster().get(&held.by).zip(view.roster().get(&event.actor))
        && let Some(known) = commit(maker, reader, (&made, &used))
    {
        return Some(Verdict::of(known));
    }
    if held.by != event.actor
        && let Some((maker, reader)) = view.roster().get(&held.by).zip(view.roster().get(&event.actor))
        && !differs_in_size(event, held)
        && let Some(known) = element_type(maker, reader).or_else(|| arrangement(maker, reader))
    {
        return Some(Verdict::of(known));
    }
    if made.compare(&used, "weights") == Comparison::Equal && held.by != event.actor {
        return None;
    }
    // The reader's own weights were replaced after the write: the digests are not known, the change is.
    let update = view.worker(&event.actor).iter().find_map(|observation| match &observation.body {
        Body::AdminCall(call)
            if call.class == Some(AdminClass::WeightsUpdate)
                && call.outcome != Some(Outcome::Failed)
                && observation.envelope.wall > held.at
                && observation.envelope.wall <= event.at =>
        {
            Some(observation.clone())
        }
        _ => None,
    })?;
    let what = "the weights were updated between write and read".to_owned();
    Some(Verdict { because: vec![update], ..Verdict::of((Cause::Weights, Confidence::Suspected, what)) })
}
