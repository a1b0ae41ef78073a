//! Endpoints as ZeroMQ writes them: `tcp://*:5557`, `ipc:///run/kv.sock`.

use std::path::PathBuf;

/// Where a publisher listens, or where it connects to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Endpoint {
    /// A TCP port; the host is told by who listens there.
    Tcp {
        /// What stands before the port, without brackets.
        host: String,
        /// The port.
        port: u16,
    },
    /// A socket of the file system.
    Ipc(PathBuf),
}

/// Why nobody can subscribe to an endpoint. The text says it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum NoEndpoint {
    /// Only threads of the same process hear it.
    #[error("it is inside the process of the engine (inproc)")]
    Inside,
    /// The system chooses the port.
    #[error("its port is chosen by the system when it starts")]
    PortOpen,
    /// Another form.
    #[error("it has a form that is not known")]
    Unknown,
}

// === impl Endpoint ===

impl Endpoint {
    /// Reads an endpoint.
    ///
    /// # Errors
    /// When nobody could subscribe to it.
    pub fn parse(text: &str) -> Result<Self, NoEndpoint> {
        if text.starts_with("inproc:") {
            return Err(NoEndpoint::Inside);
        }
        if let Some(path) = text.strip_prefix("ipc://") {
            // `@` and a name are a socket without a file; `*` is a name that the system chooses.
            let is_path = path.starts_with('/') && !path.contains('\0');
            return if is_path { Ok(Self::Ipc(path.into())) } else { Err(NoEndpoint::Unknown) };
        }
        let address = text.strip_prefix("tcp://").ok_or(NoEndpoint::Unknown)?;
        // `tcp://source;destination` names where a connection comes from first.
        let address = address.rsplit(';').next().unwrap_or(address);
        let (host, port) = address.rsplit_once(':').ok_or(NoEndpoint::Unknown)?;
        let host = host.strip_prefix('[').and_then(|host| host.strip_suffix(']')).unwrap_or(host);
        match port {
            "*" | "0" => Err(NoEndpoint::PortOpen),
            port => {
                let port = port.parse().map_err(|_| NoEndpoint::Unknown)?;
                Ok(Self::Tcp { host: host.to_owned(), port })
            }
        }
    }

    /// The endpoint of a data parallel rank: each one publishes on the port after that of the one before it. A rank
    /// beyond the first has no socket of the file system.
    pub fn of_rank(&self, rank: u16) -> Option<Self> {
        match self {
            Self::Tcp { host, port } => Some(Self::Tcp { host: host.clone(), port: port.checked_add(rank)? }),
            Self::Ipc(_) => (rank == 0).then(|| self.clone()),
        }
    }
}

impl std::fmt::Display for Endpoint {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Tcp { host, port } if host.contains(':') => write!(f, "tcp://[{host}]:{port}"),
            Self::Tcp { host, port } => write!(f, "tcp://{host}:{port}"),
            Self::Ipc(path) => write!(f, "ipc://{}", path.display()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_read_is_written_the_same() {
        for text in ["tcp://*:5557", "tcp://127.0.0.1:1", "tcp://[::]:5557", "ipc:///run/kv events.sock"] {
            assert_eq!(Endpoint::parse(text).unwrap().to_string(), text);
        }
    }

    #[test]
    fn each_rank_has_a_port_of_its_own() {
        let first = Endpoint::parse("tcp://*:5557").unwrap();
        assert_eq!(first.of_rank(3).unwrap().to_string(), "tcp://*:5560");
        assert_eq!(Endpoint::parse("tcp://*:65535").unwrap().of_rank(1), None);
        assert_eq!(Endpoint::parse("ipc:///a").unwrap().of_rank(1), None);
    }

    #[test]
    fn what_nobody_can_subscribe_to_is_told_apart() {
        for (text, why) in [
            ("inproc://cache", NoEndpoint::Inside),
            ("tcp://*:0", NoEndpoint::PortOpen),
            ("tcp://*:*", NoEndpoint::PortOpen),
            ("ipc://*", NoEndpoint::Unknown),
            ("pgm://x:1", NoEndpoint::Unknown),
            ("tcp://x:99999", NoEndpoint::Unknown),
            ("", NoEndpoint::Unknown),
        ] {
            assert_eq!(Endpoint::parse(text), Err(why), "{text}");
        }
    }
}
