//! Follows logs while they are written, rotated and truncated, and over restarts of the agent.
//!
//! A [`Follower`] is given sources and polled; it reads what is new and hands observations to a queue that survives.
//! Positions are kept on disk and only move over what the queue took. Files are looked at by polling, so that network
//! file systems are followed too; [`Hints`] only shorten the wait.
//!
//! Invariant: every line of a live or rotated file gives its observation once. After `kill -9` some are given again
//! under the same ids, none is missing. What was truncated or deleted unread is told as a loss.

mod family;
mod files;
mod follower;
mod hints;
mod identity;
mod input;
mod member;
mod names;
mod pattern;
mod positions;
mod reading;
mod source;

pub use files::{FileStat, Files, MAX_NAMES, OwnFiles};
pub use follower::{Follower, Take, Timing, Turn};
pub use hints::Hints;
pub use source::{Source, SourceId, SourceReport};
