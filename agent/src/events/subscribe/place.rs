//! Where a publisher is, and streams to it.

use crate::events::zmtp::ZmtpError;
use std::net::SocketAddr;
use std::path::PathBuf;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpStream, UnixStream};

/// Where to connect to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Place {
    /// TCP addresses, best first.
    Tcp(Vec<SocketAddr>),
    /// A socket of the file system, as this process reaches it.
    Unix(PathBuf),
}

/// Who is at the ends of a connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Ends {
    /// Addresses of a TCP connection.
    Tcp {
        /// The end here.
        local: SocketAddr,
        /// The publisher's end.
        peer: SocketAddr,
    },
    /// The process that made a socket of the file system; `None`: one of another name space.
    Unix(Option<u32>),
}

/// Why a publisher cannot be reached, for people.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct Unreachable(pub String);

/// A stream of either kind.
pub(super) trait Stream: AsyncRead + AsyncWrite + Unpin {}

impl<S: AsyncRead + AsyncWrite + Unpin> Stream for S {}

// === impl Place ===

impl Place {
    /// Connects. Whoever calls bounds the time.
    pub(super) async fn connect(&self) -> Result<(Box<dyn Stream>, Ends), ZmtpError> {
        match self {
            Self::Tcp(addresses) => {
                let stream = TcpStream::connect(addresses.as_slice()).await?;
                stream.set_nodelay(true)?;
                let ends = Ends::Tcp { local: stream.local_addr()?, peer: stream.peer_addr()? };
                Ok((Box::new(stream), ends))
            }
            Self::Unix(path) => {
                let stream = UnixStream::connect(path).await?;
                let pid = stream.peer_cred()?.pid().and_then(|pid| u32::try_from(pid).ok());
                Ok((Box::new(stream), Ends::Unix(pid.filter(|pid| *pid != 0))))
            }
        }
    }
}
