//! KV events: which blocks an engine stored and removed.
//!
//! Input: lines of decoded events or of batches (recordings), or the publishers of the workers themselves. Output: one
//! `block` observation an event, with content hashes in place of token ids, and `loss` where sequence numbers jump.
//! [`json`] and [`msgpack`] read the two encodings into one [`event::Event`], and [`blocks`] says what it means, so that
//! live and recorded events are read alike. Invariant: token ids are hashed at once and wiped; none leaves this folder.

pub mod blocks;
pub mod event;
pub mod json;
pub mod key;
pub mod msgpack;
mod reader;
pub mod subscribe;
pub mod zmtp;

pub use reader::{EventCounts, EventReader, GAP};
