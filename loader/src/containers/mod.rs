//! What the container runtime says of a container: its pod, namespace, name and image.
//!
//! Who holds the socket of a runtime can start a container as root. Its descriptor therefore never leaves this process:
//! the agent names a container and gets a few short texts ([`ContainerNames`]). Invariants: one method is ever called,
//! `ContainerStatus`, which reads; what the runtime says is bounded in time and size and is checked to be names before
//! it is handed on; the sockets are those of a closed list, or the one that the operator names, as this process sees
//! them: a socket of the host that nobody mounted here is not looked for behind another process's root.
//!
//! What is parsed here comes from a process that is root already; of what the starter of a container wrote, texts are
//! copied and never interpreted. Files of a runtime, which anybody's text is in, are parsed by the agent.

mod ask;
mod cri;
mod names;
mod sockets;

pub use names::{ContainerId, ContainerNames, Said};
pub use sockets::{KNOWN, may_ask};

use ask::Silence;
use sockets::Socket;
use std::io::ErrorKind;
use std::path::PathBuf;
use std::time::{Duration, Instant};

/// How long one runtime may take.
const PATIENCE: Duration = Duration::from_secs(2);
/// How long all of them together may take: less than the agent waits for an answer.
const PATIENCE_IN_ALL: Duration = Duration::from_secs(4);

/// Why nothing is told of a container.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum NotTold {
    /// There is nobody who could be asked, and will not be without a change by somebody.
    #[error("{0}")]
    NoRuntime(String),
    /// Who was asked has no such container.
    #[error("no such container: {0}")]
    NotFound(String),
    /// Perhaps later.
    #[error("{0}")]
    NotNow(String),
}

/// The runtimes of this node.
#[derive(Debug, Clone)]
pub struct Runtimes {
    sockets: Vec<Socket>,
    patience: Duration,
    in_all: Duration,
    /// Why there are none, where that was decided.
    off: Option<String>,
}

// === impl Runtimes ===

impl Runtimes {
    /// Whichever listens on a socket of [`KNOWN`].
    pub fn known() -> Self {
        Self::of(Socket::known())
    }

    /// The one that listens at a place.
    pub fn at(path: impl Into<PathBuf>) -> Self {
        Self::of(vec![Socket { name: "the container runtime".to_owned(), path: path.into() }])
    }

    /// Nobody is asked, for a reason.
    pub fn off(reason: impl Into<String>) -> Self {
        Self { off: Some(reason.into()), ..Self::of(Vec::new()) }
    }

    fn of(sockets: Vec<Socket>) -> Self {
        Self { sockets, patience: PATIENCE, in_all: PATIENCE_IN_ALL, off: None }
    }

    /// With another limit of patience for each of them.
    #[must_use]
    pub fn with_patience(self, patience: Duration) -> Self {
        Self { patience, ..self }
    }

    /// Asks one after the other, until one knows the container. Blocks for at most four seconds.
    ///
    /// # Errors
    /// Why nobody told.
    pub fn ask(&self, id: &ContainerId) -> Result<ContainerNames, NotTold> {
        if let Some(reason) = &self.off {
            return Err(NotTold::NoRuntime(reason.clone()));
        }
        let begun = Instant::now();
        let (mut absent, mut lasting, mut passing, mut unknown_to) =
            (Vec::new(), Vec::new(), Vec::new(), Vec::new());
        for Socket { name, path } in &self.sockets {
            let place = path.display();
            match may_ask(path) {
                Ok(()) => {}
                Err(error) if error.kind() == ErrorKind::NotFound => {
                    absent.push(place.to_string());
                    continue;
                }
                Err(error) => {
                    lasting.push(format!("{name} may not be asked at {place}: {error}"));
                    continue;
                }
            }
            let left = self.in_all.saturating_sub(begun.elapsed());
            match ask::status(path, id, self.patience.min(left)) {
                Ok(names) => return Ok(names),
                Err(Silence::NotFound) => unknown_to.push(name.as_str()),
                Err(Silence::NoCri) => {
                    lasting.push(format!(
                        "{name} at {place} does not speak CRI v1 (its CRI plugin may be switched off)"
                    ));
                }
                Err(Silence::NotNow(reason)) => passing.push(format!("{name} at {place}: {reason}")),
            }
        }
        if !passing.is_empty() {
            return Err(NotTold::NotNow(passing.join("; ")));
        }
        if !unknown_to.is_empty() {
            return Err(NotTold::NotFound(format!("{} has none with this id", unknown_to.join(", "))));
        }
        if lasting.is_empty() {
            lasting.push(format!("no socket of a container runtime is here ({})", absent.join(", ")));
        }
        Err(NotTold::NoRuntime(lasting.join("; ")))
    }
}

#[cfg(test)]
mod tests;
