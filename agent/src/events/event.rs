//! One KV event, whatever the form in which it came.
//!
//! Invariant: token ids live in [`Tokens`] only, which wipes itself when dropped.

/// Longest text of an event that is kept, in bytes: names of adapters and media, hashes.
pub(super) const MAX_TEXT: usize = 256;
/// Longest block hash in raw bytes.
pub(super) const MAX_HASH: usize = 64;

/// Token ids on their way into a hash.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Tokens {
    ids: Vec<u32>,
    /// Some token was no single id (pairs under speculation), so that the content cannot be compared.
    pub incomparable: bool,
}

/// One event.
#[derive(Debug, Default, PartialEq)]
pub struct Event {
    /// `BlockStored`, `BlockRemoved`, `AllBlocksCleared`.
    pub kind: String,
    /// Hashes of the blocks as text.
    pub hashes: Vec<String>,
    /// Hash of the block before the first.
    pub parent: Option<String>,
    /// Token ids, where the event has them.
    pub tokens: Option<Tokens>,
    /// Content hashes at the ends of the blocks, where the recorder made them.
    pub content: Vec<String>,
    /// The key of these.
    pub content_key: Option<String>,
    /// Number of tokens, where the event states it.
    pub num_tokens: Option<u64>,
    /// Tokens of one block.
    pub block_size: Option<u64>,
    /// Where the blocks are.
    pub medium: Option<String>,
    /// Adapter by name, or by number where it has no name.
    pub adapter: Option<String>,
    /// Salts, images or adapters go into the hashes.
    pub extra_keys: bool,
}

/// What a publisher sends at once, without its events.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Head {
    /// Unix seconds by the engine's clock.
    pub ts: Option<f64>,
    /// Sequence number.
    pub seq: Option<u64>,
    /// Topic and data parallel rank.
    pub publisher: String,
}

// === impl Head ===

impl Head {
    /// The name of a publisher.
    pub fn publisher(topic: &str, rank: Option<u64>) -> String {
        match rank {
            Some(rank) => format!("{topic}#{rank}"),
            None => topic.to_owned(),
        }
    }
}

// === impl Tokens ===

impl Tokens {
    /// Room for so many ids. More need memory anew, and what is left behind is overwritten.
    pub(super) fn with_capacity(count: usize) -> Self {
        Self { ids: Vec::with_capacity(count), incomparable: false }
    }

    /// Appends an id; `None`: something that is no single id.
    pub(super) fn push(&mut self, id: Option<u32>) {
        let Some(id) = id else {
            self.incomparable = true;
            return;
        };
        if self.ids.len() == self.ids.capacity() {
            let mut more = Vec::with_capacity((self.ids.len() * 2).max(64));
            more.extend_from_slice(&self.ids);
            wipe(&mut self.ids);
            self.ids = more;
        }
        self.ids.push(id);
    }

    /// The ids.
    pub fn ids(&self) -> &[u32] {
        &self.ids
    }
}

impl Drop for Tokens {
    fn drop(&mut self) {
        wipe(&mut self.ids);
    }
}

fn wipe(ids: &mut [u32]) {
    ids.fill(0);
    // Keeps the writes above, which nothing reads.
    std::hint::black_box(ids);
}
