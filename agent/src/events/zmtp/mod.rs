//! ZMTP 3.0 and 3.1, the protocol of ZeroMQ sockets, as far as a subscriber and a requester of replays need it.
//!
//! Source: ZeroMQ RFC 23 (3.0) and RFC 37 (3.1). Only the NULL mechanism is spoken: a publisher that asks for a password or
//! a key is refused with a reason. Invariants: at most [`Limits::message`] bytes of one message are held, and beyond
//! [`SMALL`] only what [`Budget`] has room for; memory grows as bytes come, never by what a header announces; bytes that
//! were handed out are overwritten before their room is used again, since they hold token ids.

mod budget;
mod command;
mod connection;
mod error;
mod frame;
mod greeting;
mod incoming;

pub use budget::Budget;
pub use command::Command;
pub use connection::{Connection, Received};
pub use error::ZmtpError;
pub use frame::{Frame, write_frame};
pub use greeting::{GREETING, Greeting};
pub use incoming::{Incoming, SMALL, Sort};

use std::time::Duration;

/// What a peer may send at most, and how long it may be silent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    /// Bytes of all frames of one message.
    pub message: usize,
    /// Frames of one message.
    pub frames: usize,
    /// Bytes of one command.
    pub command: usize,
    /// Silence after which a peer that knows how is asked for a sign of life. It has as long again for that.
    pub silence: Duration,
}

impl Default for Limits {
    /// 16 MiB hold a batch of events over several million tokens; publishers send three to five frames.
    fn default() -> Self {
        Self { message: 16 << 20, frames: 16, command: 64 << 10, silence: Duration::from_secs(10) }
    }
}

/// The kind of a ZeroMQ socket, as it stands in the handshake.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SocketType {
    /// Receives what it subscribed to.
    Sub,
    /// Sends requests and receives any number of replies to each.
    Dealer,
    /// The other side of [`Self::Sub`].
    Pub,
    /// The other side of [`Self::Dealer`].
    Router,
}

// === impl SocketType ===

impl SocketType {
    /// The word of the handshake.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Sub => "SUB",
            Self::Dealer => "DEALER",
            Self::Pub => "PUB",
            Self::Router => "ROUTER",
        }
    }

    /// Whether a peer of this kind is one to talk to, by RFC 28 and 29.
    pub fn fits(self, peer: &[u8]) -> bool {
        let peers: &[&[u8]] = match self {
            Self::Sub => &[b"PUB", b"XPUB"],
            Self::Dealer => &[b"ROUTER", b"DEALER", b"REP"],
            Self::Pub => &[b"SUB", b"XSUB"],
            Self::Router => &[b"DEALER", b"ROUTER", b"REQ"],
        };
        peers.contains(&peer)
    }
}
