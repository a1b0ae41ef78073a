//! The agent: turns what a node shows into observations. It observes and never concludes.
//!
//! One folder a source. Every reader takes bytes or records and a sink, and gives observations; none knows whether
//! the bytes come from a live engine or from a recording.

pub mod access;
pub mod bundle;
pub mod containers;
pub mod discover;
pub mod endpoint;
pub mod events;
pub mod http;
pub mod identity;
pub mod kernel;
pub mod logs;
pub mod metrics;
pub mod record;
pub mod run;
pub mod ship;
pub mod source;
pub mod status;
