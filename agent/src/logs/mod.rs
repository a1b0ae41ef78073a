//! Logs: raw bytes of an engine's log in, observations out.

pub mod prefix;
