//! KV events: which blocks an engine stored and removed.
//!
//! Input: lines of decoded events (DESIGN.md §8) or of batches as they crossed the wire (`signals.md` §2.5). Output: one
//! `block` observation an event, with content hashes in place of token ids, and `loss` where sequence numbers jump.
//! Invariant: token ids are hashed at once and wiped; none leaves this folder.

pub mod wire;

use crate::source::bounded::Bounded;
use crate::source::{Losses, Place, Sink, SourceContext};
use kvprov_model::clock::WallTime;
use kvprov_model::content::{ContentChain, FleetKey};
use kvprov_model::observation::{Block, BlockAction, Body, Loss, SourceKind};
use std::collections::BTreeMap;
use wire::{Event, Tokens};

/// Blocks whose content is remembered, so that later blocks continue from them. A chain holds at most 15 token ids,
/// which wait for their link to fill.
const BLOCKS: usize = 256 * 1024;
/// Publishers of one worker.
const PUBLISHERS: usize = 1024;
/// Blocks of one event.
const MAX_BLOCKS: usize = 64 * 1024;
/// Most tokens that one block is believed to hold.
const MAX_BLOCK_SIZE: u64 = 1 << 20;

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
    key: &'k FleetKey,
    key_id: String,
    chains: Bounded<String, ContentChain<'k>>,
    last_sequence: BTreeMap<String, u64>,
    counts: EventCounts,
}

// === impl EventReader ===

impl<'k> EventReader<'k> {
    /// A reader at the begin of a source.
    pub fn new(source: SourceContext, key: &'k FleetKey) -> Self {
        Self {
            source,
            key,
            key_id: key.id(),
            chains: Bounded::new(BLOCKS),
            last_sequence: BTreeMap::new(),
            counts: EventCounts::default(),
        }
    }

    /// Takes the next line.
    pub fn line(&mut self, place: Place, line: &[u8], sink: Sink<'_>) {
        if line.iter().all(u8::is_ascii_whitespace) {
            return;
        }
        let losses = &mut self.counts.losses;
        match wire::read_line(line, |reason| losses.one(reason)) {
            Ok(events) => {
                for (index, event) in events.into_iter().enumerate() {
                    self.event(place, index, event, sink);
                }
            }
            Err(reason) => losses.one(reason),
        }
    }

    /// What was read so far.
    pub fn counts(&self) -> &EventCounts {
        &self.counts
    }

    fn event(&mut self, place: Place, index: usize, event: Event, sink: Sink<'_>) {
        let wall = event.ts.and_then(WallTime::from_unix_seconds);
        // Two lanes, so that the loss before an event has an id of its own.
        let lane = u32::try_from(index).unwrap_or(u32::MAX / 2).saturating_mul(2);
        if let Some(missing) = self.follow_sequence(&event) {
            self.counts.losses.add("event sequence gap", missing);
            let body = Body::Loss(Loss {
                stage: Some("read".to_owned()),
                reason: Some("event sequence gap".to_owned()),
                records: i64::try_from(missing).ok(),
                bytes: None,
            });
            let says = format!("{missing} batches of KV events are missing");
            sink(self.source.observe(
                SourceKind::Events,
                place,
                lane.saturating_add(1),
                wall,
                Some(says),
                body,
            ));
        }
        self.counts.events += 1;
        let block = match event.kind.as_str() {
            "BlockStored" => self.stored(event),
            "BlockRemoved" => self.removed(event),
            "AllBlocksCleared" => {
                self.chains.clear();
                Block { action: Some(BlockAction::Cleared), medium: event.medium, ..sequence_of(event.seq) }
            }
            _ => {
                self.counts.losses.one("KV event of an unknown type");
                return;
            }
        };
        let says = says(&block);
        sink(self.source.observe(SourceKind::Events, place, lane, wall, Some(says), Body::Block(block)));
    }

    /// Notes the sequence number; gives the number of batches between the last one and this one.
    fn follow_sequence(&mut self, event: &Event) -> Option<u64> {
        let seq = event.seq?;
        if !self.last_sequence.contains_key(&event.publisher) && self.last_sequence.len() >= PUBLISHERS {
            self.counts.losses.one("too many publishers of KV events");
            return None;
        }
        let last = self.last_sequence.insert(event.publisher.clone(), seq)?;
        if seq < last {
            // The publisher began anew: its hashes may be of another seed.
            self.chains.clear();
            return None;
        }
        Some(seq - last).filter(|step| *step > 1).map(|step| step - 1)
    }

    fn stored(&mut self, mut event: Event) -> Block {
        if event.hashes.len() > MAX_BLOCKS {
            self.counts.losses.one("too many blocks in one event");
            event.hashes.truncate(MAX_BLOCKS);
        }
        let tokens = event.tokens.take();
        let count = tokens.as_ref().map(|tokens| tokens.ids().len() as u64).or(event.num_tokens);
        let given = !event.content.is_empty();
        let content = match &tokens {
            _ if given => std::mem::take(&mut event.content),
            Some(tokens) => self.hash(&event, tokens),
            None => Vec::new(),
        };
        let content_key = if given { event.content_key } else { Some(self.key_id.clone()) };
        Block {
            action: Some(BlockAction::Stored),
            hashes: event.hashes,
            content_key: content_key.filter(|_| content.iter().any(|hash| !hash.is_empty())),
            content,
            parent: event.parent,
            block_size: event.block_size.and_then(|size| i64::try_from(size).ok()),
            tokens: count.and_then(|count| i64::try_from(count).ok()),
            medium: event.medium,
            adapter: event.adapter,
            extra_keys: Some(event.extra_keys),
            ..sequence_of(event.seq)
        }
    }

    /// Content hashes at the ends of the event's blocks; empty text where there is none to compare.
    fn hash(&mut self, event: &Event, tokens: &Tokens) -> Vec<String> {
        let losses = &mut self.counts.losses;
        let size = event.block_size.filter(|size| (1..=MAX_BLOCK_SIZE).contains(size));
        if tokens.incomparable {
            losses.one("tokens that are no single ids");
            return Vec::new();
        }
        let Some(size) = size.map(|size| size as usize) else {
            losses.one("KV event without a block size");
            return Vec::new();
        };
        let mut chain = match &event.parent {
            None => ContentChain::new(self.key),
            Some(parent) => match self.chains.get(parent) {
                Some(chain) => chain.clone(),
                None => {
                    losses.one("block whose parent is not known");
                    return Vec::new();
                }
            },
        };
        if tokens.ids().len() != size.saturating_mul(event.hashes.len()) {
            losses.one("tokens that do not fill their blocks");
        }
        let mut content = Vec::with_capacity(event.hashes.len());
        for (hash, block) in event.hashes.iter().zip(tokens.ids().chunks(size)) {
            chain.extend(block.iter().copied());
            content.push(chain.current_hex().unwrap_or_default());
            if self.chains.insert(hash.clone(), chain.clone()).is_some() {
                losses.one("too many blocks to remember");
            }
        }
        content.resize(event.hashes.len(), String::new());
        content
    }

    fn removed(&mut self, event: Event) -> Block {
        // The chain stays: the block may still be in another medium, and its children may be stored anew.
        let content: Vec<String> = event
            .hashes
            .iter()
            .map(|hash| self.chains.get(hash).and_then(ContentChain::current_hex).unwrap_or_default())
            .collect();
        let comparable = content.iter().any(|hash| !hash.is_empty());
        Block {
            action: Some(BlockAction::Removed),
            hashes: event.hashes,
            content: if comparable { content } else { Vec::new() },
            content_key: comparable.then(|| self.key_id.clone()),
            medium: event.medium,
            adapter: event.adapter,
            ..sequence_of(event.seq)
        }
    }
}

fn sequence_of(seq: Option<u64>) -> Block {
    Block { sequence: seq.and_then(|seq| i64::try_from(seq).ok()), ..Block::default() }
}

fn says(block: &Block) -> String {
    let action = block.action.as_ref().map_or("", BlockAction::as_str);
    let mut words = format!("{action} {} blocks", block.hashes.len());
    if block.action == Some(BlockAction::Cleared) {
        "cleared all blocks".clone_into(&mut words);
    }
    if let Some(tokens) = block.tokens {
        words.push_str(&format!(" of {tokens} tokens"));
    }
    if let Some(medium) = &block.medium {
        words.push_str(&format!(" in {medium}"));
    }
    if let Some(adapter) = &block.adapter {
        words.push_str(&format!(" for adapter {adapter}"));
    }
    words
}
