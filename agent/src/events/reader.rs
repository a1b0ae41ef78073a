//! Reads the KV events of one worker from lines.

use super::blocks::{Blocks, says};
use super::event::Head;
use super::json;
use crate::source::{Losses, Place, Sink, SourceContext};
use kvprov_model::clock::WallTime;
use kvprov_model::content::FleetKey;
use kvprov_model::observation::{Body, Loss, SourceKind};
use std::collections::BTreeMap;

/// Blocks whose content is remembered, so that later blocks continue from them.
const BLOCKS: usize = 256 * 1024;
/// Publishers of one worker.
const PUBLISHERS: usize = 1024;
/// Why batches are missing between two others.
pub const GAP: &str = "event sequence gap";

/// What a reader read and what it skipped.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct EventCounts {
    /// Events read.
    pub events: u64,
    /// What was skipped, by reason.
    pub losses: Losses,
}

/// Reads the events of one worker.
pub struct EventReader<'k> {
    source: SourceContext,
    blocks: Blocks<'k>,
    last_sequence: BTreeMap<String, u64>,
    events: u64,
}

// === impl EventReader ===

impl<'k> EventReader<'k> {
    /// A reader at the begin of a source.
    pub fn new(source: SourceContext, key: &'k FleetKey) -> Self {
        Self { source, blocks: Blocks::new(key, BLOCKS), last_sequence: BTreeMap::new(), events: 0 }
    }

    /// Takes the next line.
    pub fn line(&mut self, place: Place, line: &[u8], sink: Sink<'_>) {
        if line.iter().all(u8::is_ascii_whitespace) {
            return;
        }
        let losses = self.blocks.losses();
        let (head, events) = match json::read_line(line, |reason| losses.one(reason)) {
            Ok(batch) => batch,
            Err(reason) => {
                losses.one(reason);
                return;
            }
        };
        let wall = head.ts.and_then(WallTime::from_unix_seconds);
        if let Some(missing) = self.follow_sequence(&head) {
            self.blocks.losses().add(GAP, missing);
            sink(gap(&self.source, place, wall, missing));
        }
        for (index, event) in events.into_iter().enumerate() {
            self.events += 1;
            let Some(block) = self.blocks.event(head.seq, event) else { continue };
            let says = says(&block);
            let body = Body::Block(block);
            sink(self.source.observe(SourceKind::Events, place, lane(index), wall, Some(says), body));
        }
    }

    /// What was read so far.
    pub fn counts(&mut self) -> EventCounts {
        EventCounts { events: self.events, losses: self.blocks.losses().clone() }
    }

    /// Notes the sequence number; gives the number of batches between the last one and this one.
    fn follow_sequence(&mut self, head: &Head) -> Option<u64> {
        let seq = head.seq?;
        if !self.last_sequence.contains_key(&head.publisher) && self.last_sequence.len() >= PUBLISHERS {
            self.blocks.losses().one("too many publishers of KV events");
            return None;
        }
        let last = self.last_sequence.insert(head.publisher.clone(), seq)?;
        if seq < last {
            // The publisher began anew: its hashes may be of another seed.
            self.blocks.forget();
            return None;
        }
        Some(seq - last).filter(|step| *step > 1).map(|step| step - 1)
    }
}

/// Which of the observations of a batch an event is: even ones, so that the loss before it has an id of its own.
pub(super) fn lane(index: usize) -> u32 {
    u32::try_from(index).unwrap_or(u32::MAX / 2).saturating_mul(2)
}

/// The loss of batches before the one at a place.
pub(super) fn gap(
    source: &SourceContext,
    place: Place,
    wall: Option<WallTime>,
    missing: u64,
) -> kvprov_model::observation::Observation {
    let body = Body::Loss(Loss {
        stage: Some("read".to_owned()),
        reason: Some(GAP.to_owned()),
        records: i64::try_from(missing).ok(),
        bytes: None,
    });
    let says = format!("{missing} batches of KV events are missing");
    source.observe(SourceKind::Events, place, 1, wall, Some(says), body)
}
