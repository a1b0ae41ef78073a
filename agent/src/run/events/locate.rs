//! Where the publishers of one worker are: at sockets that its own processes hold.

use crate::access::{Access, ProcessId};
use crate::discover::FoundWorker;
use crate::endpoint::{self, NotServed, Served};
use crate::events::subscribe::{Endpoint, Ends, Locate, Place, Unreachable};
use std::cell::RefCell;
use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::sync::Arc;

/// Longest path of a socket, in bytes: what the kernel takes, without the NUL behind it.
const MAX_PATH: usize = 107;

/// A worker as it is known now.
#[derive(Debug, Default)]
pub(super) struct Processes {
    all: RefCell<Vec<ProcessId>>,
    /// Whether it has a file system of its own.
    is_contained: RefCell<bool>,
}

/// Looks for the publishers of one worker.
pub(super) struct Locator {
    access: Arc<Access>,
    processes: Rc<Processes>,
    /// What was found the last time, by port: it saves looking through all descriptors.
    found: RefCell<BTreeMap<u16, Served>>,
}

// === impl Processes ===

impl Processes {
    /// Takes what is known of the worker.
    pub(super) fn set(&self, worker: &FoundWorker) {
        let all = worker.processes.iter();
        let all = all.map(|process| ProcessId { pid: process.key.pid, started: process.key.start });
        *self.all.borrow_mut() = all.collect();
        *self.is_contained.borrow_mut() = worker.container.is_some();
    }

    /// The path of a socket of the worker as this process reaches it.
    fn reachable(&self, path: &Path) -> Result<PathBuf, Unreachable> {
        let reached = if *self.is_contained.borrow() {
            let all = self.all.borrow();
            let first = all.first().ok_or_else(|| Unreachable("the worker has no process".to_owned()))?;
            let root = PathBuf::from(format!("/proc/{}/root", first.pid));
            root.join(path.strip_prefix("/").unwrap_or(path))
        } else {
            path.to_owned()
        };
        if reached.as_os_str().len() > MAX_PATH {
            return Err(Unreachable(format!("its path is longer than {MAX_PATH} bytes from here")));
        }
        Ok(reached)
    }
}

// === impl Locator ===

impl Locator {
    pub(super) fn new(access: Arc<Access>, processes: Rc<Processes>) -> Self {
        Self { access, processes, found: RefCell::default() }
    }

    /// Addresses of a port that is the worker's own.
    pub(super) fn addresses(&self, port: u16) -> Result<Vec<SocketAddr>, NotServed> {
        let before = self.found.borrow_mut().remove(&port);
        let processes = self.processes.all.borrow();
        let served = endpoint::find(&*self.access, &processes, port, before.as_ref())?;
        let addresses = served.addresses.clone();
        self.found.borrow_mut().insert(port, served);
        Ok(addresses)
    }

    /// Whether a connection to an address that was found leads to the worker.
    pub(super) fn is_own(&self, peer: SocketAddr, local: SocketAddr) -> bool {
        let found = self.found.borrow();
        found.get(&peer.port()).is_some_and(|served| {
            served.is_still_held(&*self.access)
                && (!served.is_foreign || endpoint::is_peer(&*self.access, served, peer, local))
        })
    }
}

impl Locate for Locator {
    fn locate(&self, endpoint: &Endpoint) -> Result<Place, Unreachable> {
        match endpoint {
            Endpoint::Ipc(path) => Ok(Place::Unix(self.processes.reachable(path)?)),
            Endpoint::Tcp { host, port } => match self.addresses(*port) {
                Ok(addresses) => Ok(Place::Tcp(addresses)),
                // Who names a host may mean one to connect to. Only the one that listens there hears it.
                Err(why @ (NotServed::Silent(_) | NotServed::Taken(_))) if host != "*" => {
                    Err(Unreachable(format!("{why}; it may connect to a subscriber of its own there")))
                }
                Err(why) => Err(Unreachable(why.to_string())),
            },
        }
    }

    fn is_peer(&self, _: &Endpoint, ends: Ends) -> bool {
        match ends {
            Ends::Tcp { local, peer } => self.is_own(peer, local),
            Ends::Unix(pid) => {
                pid.is_some_and(|pid| self.processes.all.borrow().iter().any(|process| process.pid == pid))
            }
        }
    }
}
