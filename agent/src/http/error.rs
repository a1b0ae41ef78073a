//! Why a question got no answer.

use std::net::SocketAddr;
use std::time::Duration;

/// Why there is no answer, or none that is read.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum GetError {
    /// Nobody takes the connection.
    #[error("{address} takes no connection: {reason}")]
    NoConnection {
        /// Who was asked.
        address: SocketAddr,
        /// What the system said.
        reason: String,
    },
    /// It took too long.
    #[error("no whole answer within {} s", .after.as_secs_f32())]
    TooSlow {
        /// The limit.
        after: Duration,
    },
    /// Another status than 200. A redirect is one: it is not followed.
    #[error("answered with status {0}")]
    Status(u16),
    /// The answer is longer than the limit; the rest was not read.
    #[error("the answer is longer than {limit} bytes")]
    TooLong {
        /// The limit.
        limit: usize,
    },
    /// The body is in a form that was not asked for: compressed.
    #[error("the answer is encoded although none was asked for")]
    Encoded,
    /// What came is no HTTP, or ended before its end.
    #[error("the answer broke off or is no HTTP: {0}")]
    Broken(String),
}

// === impl GetError ===

impl GetError {
    /// A word of a closed list, for counters.
    pub fn reason(&self) -> &'static str {
        match self {
            Self::NoConnection { .. } => "no_connection",
            Self::TooSlow { .. } => "too_slow",
            Self::Status(_) => "status",
            Self::TooLong { .. } => "too_long",
            Self::Encoded => "encoded",
            Self::Broken(_) => "broken",
        }
    }

    /// Whether the engine said that it has no such path, or not for everybody: asking again gives the same.
    pub fn is_final(&self) -> bool {
        matches!(self, Self::Status(401 | 403 | 404 | 405 | 501))
    }
}
