//! OTLP as bytes: what receiving and exporting share.
//!
//! The messages of the traces signal stand here ([`spans`]) because the crate that has the others drags a random number
//! generator in with them, in a version that nothing else uses.

pub(crate) mod content;
pub(crate) mod context;
pub mod spans;
