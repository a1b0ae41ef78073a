//! What the container around a worker is called: its pod, namespace, name and image.
//!
//! Sources, the best first: the container runtime, which the loader asks, since its socket is never given to the agent
//! (`kvprov_loader::containers`); then the file in which the runtime keeps what it runs ([`bundle`]), opened as any other
//! file of the node and parsed here, where nothing is held that could be abused. The control group, which always tells,
//! stands in `discover::container`: it has ids and no names.
//!
//! Invariants: containers are asked for on a thread of their own ([`Asker`]), so that a runtime that hangs delays nothing;
//! what was told is not asked for again; names of a pod whose uid is another than the control group says are not taken.

mod asker;
mod bundle;
mod memory;

pub use asker::{Asker, Complaint};
pub use kvprov_loader::containers::{ContainerId, ContainerNames};

use crate::access::{AccessError, ProcessAccess};
use crate::discover::Container;

/// A container whose names are wanted.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Wanted {
    /// Which.
    pub id: ContainerId,
    /// The uid of its pod, as the control group says it.
    pub pod_uid: Option<String>,
}

/// What became of asking.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Told {
    /// What is known; perhaps nothing.
    pub names: ContainerNames,
    /// Why the runtime did not tell; `None`: it did.
    pub untold: Option<String>,
    /// Asking again may tell more.
    pub again: bool,
}

/// Who told what a container is called.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default)]
pub enum By {
    /// Nobody, so far.
    #[default]
    Nobody,
    /// A file of the runtime.
    File,
    /// The runtime.
    Runtime,
}

// === impl By ===

impl By {
    /// The word for it.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Nobody => "nobody",
            Self::File => "file",
            Self::Runtime => "runtime",
        }
    }
}

// === impl Told ===

impl Told {
    /// Who told.
    pub fn by(&self) -> By {
        match (&self.untold, self.names.is_empty()) {
            (None, _) => By::Runtime,
            (Some(_), false) => By::File,
            (Some(_), true) => By::Nobody,
        }
    }
}

// === impl Wanted ===

impl Wanted {
    /// The container that a control group tells; `None` where its id is none of a runtime.
    pub fn of(container: &Container) -> Option<Self> {
        let id = ContainerId::parse(&container.id)?;
        Some(Self { id, pod_uid: container.pod_uid.clone() })
    }

    /// Whether names may be this container's.
    fn fits(&self, names: &ContainerNames) -> bool {
        match (&names.pod_uid, &self.pod_uid) {
            (Some(told), Some(seen)) => told == seen,
            _ => true,
        }
    }
}

/// Asks the runtime, then its files. May take seconds.
pub fn tell(access: &dyn ProcessAccess, wanted: &Wanted) -> Told {
    let (untold, is_passing) = match access.container(&wanted.id) {
        Ok(names) if names.is_empty() => ("the container runtime tells no name of it".to_owned(), false),
        Ok(names) if wanted.fits(&names) => return Told { names, ..Told::default() },
        Ok(_) => ("the container runtime has it in another pod than its control group".to_owned(), false),
        Err(error) => (error.to_string(), matches!(error, AccessError::NotNow(_))),
    };
    let names = bundle::names(access, wanted).filter(|names| wanted.fits(names)).unwrap_or_default();
    Told { again: is_passing || names.is_empty(), names, untold: Some(untold) }
}

#[cfg(test)]
mod tests;
