//! What agent and loader say to each other.
//!
//! One message is one packet of a SOCK_SEQPACKET socket: a number that the answer repeats, a code, then the fields of
//! that code, little-endian and without gaps. Lists that may be long are told in pages. A descriptor travels beside its
//! answer. The agent asks and the loader answers; the loader never begins.
//!
//! Invariants: no message is longer than [`MESSAGE_MAX`]; decoding takes any bytes, gives a value or says that it is
//! malformed, and never allocates more than the message is long (times a small constant); a message is used up to its
//! last byte.

mod answer;
mod codec;
mod request;

pub use answer::{Answer, Hello, KernelCounter, KernelCounters, Problem, ProgramStatus};
pub use codec::Malformed;
pub use request::Request;

/// Version of this protocol; both ends are one binary, so that another version means that it was replaced meanwhile.
pub const VERSION: u32 = 2;
/// Longest message, in bytes.
pub const MESSAGE_MAX: usize = 64 * 1024;
/// Bytes of items in one page; the rest of a message has ample room.
pub const PAGE_BYTES: usize = 48 * 1024;
/// Longest text of a reason or a name, in bytes.
pub const TEXT_MAX: usize = 1024;

#[cfg(test)]
mod tests;
