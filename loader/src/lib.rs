//! The small process that holds capabilities.
//!
//! It attaches kernel programs, reads `/proc` of others and passes descriptors; it parses nothing that an engine wrote.
//!
//! * [`inspect`] looks at another process; the loader does it on behalf of the agent, the agent itself where it may.
//! * [`protocol`], [`server`] and [`client`] are the two ends of the socket between them.

pub mod channel;
pub mod client;
pub mod inspect;
pub mod process;
pub mod protocol;
pub mod server;
