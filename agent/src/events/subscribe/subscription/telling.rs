//! From batches to observations, losses among them, and handing them over.

use super::Subscription;
use crate::events::blocks::says;
use crate::events::event::Head;
use crate::events::reader::{gap, lane};
use crate::events::subscribe::Mark;
use crate::events::{GAP, msgpack};
use crate::source::{Losses, Place};
use kvprov_model::clock::WallTime;
use kvprov_model::observation::{Body, Loss, SourceKind};
use tokio::time::sleep;

/// Why nothing is heard of a worker that lives.
const VANISHED: &str = "publisher of KV events vanished";
/// Which observation of a batch tells that its publisher vanished behind it.
const VANISHED_LANE: u32 = u32::MAX;

// === impl Subscription ===

impl Subscription<'_> {
    /// Turns a batch into observations.
    pub(super) async fn deliver(&mut self, mark: Mark, payload: &[u8]) {
        let before = self.pending.len();
        let place = place(mark);
        self.source.generation = mark.time;
        let mut skipped = Losses::default();
        let (name, source, blocks, pending) =
            (&self.name, &mut self.source, &mut self.blocks, &mut self.pending);
        let mut index = 0;
        let read = msgpack::read_batch(
            payload,
            |reason| skipped.one(reason),
            |head, event| {
                if index == 0 {
                    source.instance = format!("{name} {}", head.publisher);
                }
                let lane = lane(index);
                index += 1;
                let Some(block) = blocks.event(Some(mark.seq), event) else { return };
                let says = says(&block);
                let body = Body::Block(block);
                pending.push(source.observe(SourceKind::Events, place, lane, wall(head), Some(says), body));
            },
        );
        if let Err(reason) = &read {
            skipped.one(reason);
        }
        for (reason, count) in skipped.iter() {
            self.blocks.losses().add(reason, count);
        }
        self.sequence.take(mark);
        self.is_known = true;
        if self.pending.len() == before {
            self.hand_over().await;
            let wall = read.ok().as_ref().and_then(wall);
            self.outlet.empty_batch(&self.target, mark.seq, wall);
        }
    }

    /// Learns what the blocks of a batch hold that was taken by an agent before this one.
    pub(super) fn learn(&mut self, payload: &[u8]) {
        let blocks = &mut self.blocks;
        // What is not readable was counted when it was taken.
        let _ = msgpack::read_batch(payload, |_| {}, |_, event| drop(blocks.event(None, event)));
        std::mem::take(self.blocks.losses());
    }

    /// Before the first batch there were others. Of a publisher that is new to us they count and are no loss of what
    /// was watched; of one that began anew they are.
    pub(super) fn lose_before(&mut self, mark: Mark, payload: &[u8]) {
        match mark.seq {
            0 => {}
            seq if self.is_known => self.lose_gap(mark, payload, seq),
            seq => self.blocks.losses().add("before the subscription", seq),
        }
    }

    pub(super) fn lose_gap(&mut self, mark: Mark, payload: &[u8], count: u64) {
        self.blocks.losses().add(GAP, count);
        self.source.generation = mark.time;
        self.source.instance.clone_from(&self.name);
        let wall = msgpack::time_of(payload).and_then(WallTime::from_unix_seconds);
        self.pending.push(gap(&self.source, place(mark), wall, count));
    }

    pub(super) fn lose_one(&mut self, reason: &'static str) {
        self.blocks.losses().one(reason);
    }

    /// The publisher is gone and the worker is not: what it may say meanwhile is not heard. Dated behind the last batch
    /// that came, so that it is told the same after a restart.
    pub(super) fn tell_vanished(&mut self) {
        let last = self.sequence.last();
        let mark = last.unwrap_or(Mark { seq: 0, time: 0 });
        self.source.generation = mark.time;
        self.source.instance.clone_from(&self.name);
        let body = Body::Loss(Loss {
            stage: Some("read".to_owned()),
            reason: Some(VANISHED.to_owned()),
            records: None,
            bytes: None,
        });
        let says = format!("the publisher of KV events at {} is gone", self.target.endpoint);
        let wall = last.and_then(|last| WallTime::from_unix_seconds(f64::from_bits(last.time)));
        self.pending.push(self.source.observe(
            SourceKind::Events,
            place(mark),
            VANISHED_LANE,
            wall,
            Some(says),
            body,
        ));
        self.lose_one(VANISHED);
    }

    /// Hands over what waits. While the queue takes nothing, nothing more is read.
    pub(super) async fn hand_over(&mut self) {
        let losses = std::mem::take(self.blocks.losses());
        if !losses.is_empty() {
            self.outlet.lose(&losses);
        }
        if !self.pending.is_empty() {
            while !self.outlet.take(&self.pending) {
                let first = self.pending.first().and_then(|first| first.envelope.wall);
                self.outlet.waits(&self.target, self.filling.or(first));
                sleep(self.patience.queue).await;
            }
            self.outlet.waits(&self.target, self.filling);
            self.pending.clear();
        }
        if let Some(last) = self.sequence.last() {
            self.outlet.reached(&self.name, last);
        }
    }
}

fn place(mark: Mark) -> Place {
    Place { position: mark.seq.saturating_add(1), offset: mark.seq }
}

fn wall(head: &Head) -> Option<WallTime> {
    head.ts.and_then(WallTime::from_unix_seconds)
}
