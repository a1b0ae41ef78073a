//! Which socket of a worker serves what it shows, found and proven.
//!
//! Settings say a port; who listens there is what counts. Input: listeners or tables of sockets, and descriptors of the
//! worker's processes, through [`ProcessAccess`]. Invariant: an address is given only while a process of the worker holds the
//! listening socket and nobody else listens on it too, so that what comes from there is never another engine's that took
//! the port over. In another network namespace the other end of a connection is looked for there ([`is_peer`]), since an
//! address may lead elsewhere from here.

mod addresses;
mod find;
mod sockets;

pub use find::{NotServed, Served, find, is_peer};

use crate::access::ProcessAccess;

#[cfg(test)]
#[cfg(target_endian = "little")]
mod tests;
