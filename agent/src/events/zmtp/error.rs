//! Why a connection cannot be used.

use std::io;

/// Why a connection ends. [`ZmtpError::reason`] is the word to count by.
#[derive(Debug, thiserror::Error)]
pub enum ZmtpError {
    /// The peer closed the connection.
    #[error("the peer closed the connection")]
    Closed,
    /// Reading or writing failed.
    #[error("the connection failed: {0}")]
    Io(#[from] io::Error),
    /// No ZMTP, or a version before 3.
    #[error("the peer does not speak ZMTP 3: {0}")]
    NotZmtp(&'static str),
    /// Another mechanism than NULL.
    #[error("the peer asks for authentication ({0}); only publishers without it are read")]
    Mechanism(String),
    /// A socket of another kind.
    #[error("the peer is a socket of kind {0}, which is none to subscribe to or to ask")]
    SocketType(String),
    /// The peer refused the handshake.
    #[error("the peer refused the handshake")]
    Refused,
    /// A frame or command that breaks the protocol.
    #[error("the peer breaks the protocol: {0}")]
    Malformed(&'static str),
    /// More than the limits allow.
    #[error("the peer sends more than is read: {0}")]
    TooLarge(&'static str),
    /// Other publishers hold all memory for large messages.
    #[error("no room for a large message while others are received")]
    NoRoom,
    /// Nothing came for too long, although it was asked.
    #[error("the peer is silent")]
    Silent,
}

// === impl ZmtpError ===

impl ZmtpError {
    /// The reason, from a closed set of words.
    pub fn reason(&self) -> &'static str {
        match self {
            Self::Closed => "connection closed",
            Self::Io(_) => "connection failed",
            Self::NotZmtp(_) => "no ZMTP 3",
            Self::Mechanism(_) => "authentication asked",
            Self::SocketType(_) => "socket of another kind",
            Self::Refused => "handshake refused",
            Self::Malformed(_) => "protocol broken",
            Self::TooLarge(_) => "message too large",
            Self::NoRoom => "no room for the message",
            Self::Silent => "peer silent",
        }
    }
}
