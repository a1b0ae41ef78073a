//! The small process that holds capabilities.
//!
//! It attaches kernel programs, reads `/proc` of others and passes descriptors; it parses nothing that an engine wrote.

#[cfg(feature = "attach")]
pub mod attach;
