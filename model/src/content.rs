//! Token content made comparable without token ids.
//!
//! h_i = HMAC-SHA256(fleet key, h_{i-1} ‖ 16 token ids as u32 little-endian). Hashes are compared at equal prefix
//! ends, so that block sizes 16 and 64 compare; hashes under different keys are incomparable, so the key id
//! travels with them. Token ids stay on the node that printed them.

use crate::id::hex;
use hmac::{Hmac, KeyInit, Mac};
use sha2::{Digest, Sha256};

/// Tokens of one link of the chain.
pub const LINK: usize = 16;

/// The secret of one fleet.
#[derive(Clone)]
pub struct FleetKey([u8; 32]);

/// A chain of content hashes over a growing prefix. Tokens that do not yet fill a link wait in it and are dropped
/// with it.
#[derive(Clone)]
pub struct ContentChain<'k> {
    key: &'k FleetKey,
    last: [u8; 32],
    pending: Vec<u8>,
}

// === impl FleetKey ===

impl FleetKey {
    /// A key from any secret bytes.
    pub fn from_secret(secret: &[u8]) -> Self {
        Self(Sha256::digest(secret).into())
    }

    /// A public name of the key, 8 hex digits; equal ids mean equal keys.
    pub fn id(&self) -> String {
        let mut hash = Sha256::new();
        hash.update(b"kvprov fleet key id");
        hash.update(self.0);
        hex(&hash.finalize()[..4])
    }
}

impl std::fmt::Debug for FleetKey {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "FleetKey({})", self.id())
    }
}

// === impl ContentChain ===

impl<'k> ContentChain<'k> {
    /// The chain of an empty prefix.
    pub fn new(key: &'k FleetKey) -> Self {
        Self { key, last: [0; 32], pending: Vec::with_capacity(LINK * 4) }
    }

    /// Continues from a hash that [`ContentChain::current`] gave at a multiple of [`LINK`] tokens.
    pub fn resume(key: &'k FleetKey, from: [u8; 32]) -> Self {
        Self { key, last: from, pending: Vec::with_capacity(LINK * 4) }
    }

    /// Appends token ids.
    pub fn extend(&mut self, tokens: impl IntoIterator<Item = u32>) {
        for token in tokens {
            self.pending.extend_from_slice(&token.to_le_bytes());
            if self.pending.len() == LINK * 4 {
                self.close_link();
            }
        }
    }

    fn close_link(&mut self) {
        if let Ok(mut mac) = Hmac::<Sha256>::new_from_slice(&self.key.0) {
            mac.update(&self.last);
            mac.update(&self.pending);
            self.last = mac.finalize().into_bytes().into();
        }
        self.pending.clear();
    }

    /// The hash at the current end, or `None` when the end is not a multiple of [`LINK`] tokens and therefore has
    /// no comparable hash.
    pub fn current(&self) -> Option<[u8; 32]> {
        self.pending.is_empty().then_some(self.last)
    }

    /// [`ContentChain::current`] as it travels: 32 hex digits.
    pub fn current_hex(&self) -> Option<String> {
        self.current().map(|hash| hex(&hash[..16]))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn block_sizes_16_and_64_agree_at_equal_ends() {
        let key = FleetKey::from_secret(b"fleet");
        let mut by_16 = ContentChain::new(&key);
        let mut by_64 = ContentChain::new(&key);
        for start in (0..64).step_by(16) {
            by_16.extend(start..start + 16);
        }
        by_64.extend(0..64);
        assert_eq!(by_16.current(), by_64.current());
    }

    #[test]
    fn another_prefix_or_key_gives_another_hash() {
        let (a, b) = (FleetKey::from_secret(b"a"), FleetKey::from_secret(b"b"));
        let hash = |key: &FleetKey, first: u32| {
            let mut chain = ContentChain::new(key);
            chain.extend((0..32).map(|i| i + first));
            chain.current()
        };
        assert_ne!(hash(&a, 0), hash(&a, 1));
        assert_ne!(hash(&a, 0), hash(&b, 0));
        assert_ne!(a.id(), b.id());
    }

    #[test]
    fn an_unfinished_link_has_no_hash() {
        let key = FleetKey::from_secret(b"fleet");
        let mut chain = ContentChain::new(&key);
        chain.extend(0..17);
        assert_eq!(chain.current(), None);
    }
}
