//! Asks an engine what it shows over HTTP: a small client that can do nothing else.
//!
//! Invariants: the only method is GET, and the only paths are those of [`ReadPath`], which change nothing in an engine;
//! an address is one of a socket that was found, never a name to resolve. No redirect is followed, no proxy asked, no
//! credential sent. Time and bytes are bounded by [`Limits`], and what is read is handed on as it comes, so that a page
//! of any size costs the buffer of one connection. Every question has a connection of its own: an answer is of whoever
//! listens now, never of whoever did.

mod error;
mod get;
mod path;

pub use error::GetError;
pub use get::{Connection, Limits, get, get_blocking};
pub use path::ReadPath;
