//! OTLP as bytes: what both ends of a connection know of it.
//!
//! Agent and collector take and give messages that somebody else measures, reads or has made. What they mean stands in the
//! model; who sends and who answers, in their own rooms. Invariant: knows no other crate of ours.

pub mod error;
pub mod protobuf;
mod raw;
pub mod status;

pub use raw::Raw;
