//! The small process that holds capabilities.
//!
//! It attaches kernel programs, reads `/proc` of others and passes descriptors; it parses nothing that an engine wrote.
//!
//! * `attach` (a feature) loads and attaches the kernel programs.
//! * [`inspect`] looks at another process; the loader does it on behalf of the agent, the agent itself where it may.
//! * [`privileges`] drops what is not needed, [`supervise`] keeps the children running that have none.
//! * [`abilities`] tells what a machine lets kvprov see, and what to do where it does not.
//! * [`containers`] asks the container runtime what a container is called.
//! * [`protocol`], [`server`] and [`client`] are the two ends of the socket between them.

pub mod abilities;
#[cfg(feature = "attach")]
pub mod attach;
pub mod channel;
pub mod client;
pub mod containers;
pub mod inspect;
pub mod privileges;
pub mod process;
pub mod protocol;
pub mod server;
pub mod supervise;
