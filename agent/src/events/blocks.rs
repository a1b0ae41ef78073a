//! What events say of blocks, with content hashes in place of token ids.
//!
//! A block's content continues that of its parent, so the chain of every block is remembered. Invariant: token ids are
//! hashed at once and wiped; none leaves this file, but for at most 15 of a chain that wait for their link to fill.

use super::event::{Event, Tokens};
use crate::source::Losses;
use crate::source::bounded::Bounded;
use kvprov_model::content::{ContentChain, FleetKey};
use kvprov_model::observation::{Block, BlockAction};

/// Blocks of one event.
pub(super) const MAX_BLOCKS: usize = 64 * 1024;
/// Most tokens that one block is believed to hold.
const MAX_BLOCK_SIZE: u64 = 1 << 20;

/// The blocks of one publisher or worker.
pub struct Blocks<'k> {
    key: &'k FleetKey,
    key_id: String,
    chains: Bounded<String, ContentChain<'k>>,
    losses: Losses,
}

// === impl Blocks ===

impl<'k> Blocks<'k> {
    /// Knows no block yet, and later at most `capacity`.
    pub fn new(key: &'k FleetKey, capacity: usize) -> Self {
        Self { key, key_id: key.id(), chains: Bounded::new(capacity), losses: Losses::default() }
    }

    /// Forgets every block: the hashes that follow may be of another seed.
    pub fn forget(&mut self) {
        self.chains.clear();
    }

    /// What an event of a batch with this sequence number says; `None` for an event of a type that is not known.
    pub fn event(&mut self, seq: Option<u64>, event: Event) -> Option<Block> {
        Some(match event.kind.as_str() {
            "BlockStored" => self.stored(seq, event),
            "BlockRemoved" => self.removed(seq, event),
            "AllBlocksCleared" => {
                self.chains.clear();
                Block { action: Some(BlockAction::Cleared), medium: event.medium, ..sequence_of(seq) }
            }
            _ => {
                self.losses.one("KV event of an unknown type");
                return None;
            }
        })
    }

    /// What was skipped so far, by reason.
    pub fn losses(&mut self) -> &mut Losses {
        &mut self.losses
    }

    fn stored(&mut self, seq: Option<u64>, mut event: Event) -> Block {
        if event.hashes.len() > MAX_BLOCKS {
            self.losses.one("too many blocks in one event");
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
            ..sequence_of(seq)
        }
    }

    /// Content hashes at the ends of the event's blocks; empty text where there is none to compare.
    fn hash(&mut self, event: &Event, tokens: &Tokens) -> Vec<String> {
        let losses = &mut self.losses;
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

    fn removed(&self, seq: Option<u64>, mut event: Event) -> Block {
        let given = !event.content.is_empty();
        // The chain stays: the block may still be in another medium, and its children may be stored anew.
        let known = |hash: &String| self.chains.get(hash).and_then(ContentChain::current_hex);
        let content: Vec<String> = if given {
            std::mem::take(&mut event.content)
        } else {
            event.hashes.iter().map(|hash| known(hash).unwrap_or_default()).collect()
        };
        let comparable = content.iter().any(|hash| !hash.is_empty());
        let content_key = if given { event.content_key } else { Some(self.key_id.clone()) };
        Block {
            action: Some(BlockAction::Removed),
            hashes: event.hashes,
            content: if comparable { content } else { Vec::new() },
            content_key: content_key.filter(|_| comparable),
            medium: event.medium,
            adapter: event.adapter,
            ..sequence_of(seq)
        }
    }
}

fn sequence_of(seq: Option<u64>) -> Block {
    Block { sequence: seq.and_then(|seq| i64::try_from(seq).ok()), ..Block::default() }
}

/// An event in words.
pub(super) fn says(block: &Block) -> String {
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
