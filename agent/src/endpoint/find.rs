//! From a port to an address that leads to a worker.

use super::ProcessAccess;
use super::addresses::{of_inet6, of_trie};
use super::sockets::{self, Socket};
use crate::access::{AccessError, Link, Listener, ProcFile, ProcessId};
use std::collections::BTreeSet;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::ops::ControlFlow;

/// Processes of a worker whose descriptors are looked at.
const MAX_PROCESSES: usize = 256;
/// Descriptors of one process that are looked at.
const MAX_DESCRIPTORS: u32 = 1 << 20;

/// A listening socket of a worker, and how to reach it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Served {
    /// Where it is reached from here, best first; never empty.
    pub addresses: Vec<SocketAddr>,
    /// Whether it is in another network namespace, so that a connection has to be proven ([`is_peer`]).
    pub is_foreign: bool,
    /// The process in whose namespace it is.
    process: ProcessId,
    /// Who holds which of its sockets.
    held: Vec<Held>,
}

/// A socket and a descriptor that leads to it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Held {
    inode: u64,
    process: ProcessId,
    fd: u32,
}

/// Why there is no address.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum NotServed {
    /// Not yet, or no more.
    #[error("nothing listens on port {0}")]
    Silent(u16),
    /// Somebody else's.
    #[error("port {0} belongs to another process")]
    Taken(u16),
    /// Connections go to either.
    #[error("another process listens on port {0} too")]
    Shared(u16),
    /// No way leads there.
    #[error("port {0} is on loopback of another network namespace, which cannot be reached from here")]
    Loopback(u16),
    /// A namespace without an address.
    #[error("port {0} is in a network namespace without an address")]
    NoAddress(u16),
    /// It cannot be seen who listens.
    #[error("who listens on port {port} cannot be seen: {error}")]
    Unseen {
        /// The port.
        port: u16,
        /// Why.
        error: AccessError,
    },
}

// === impl NotServed ===

impl NotServed {
    /// A word of a closed list, for counters.
    pub fn reason(&self) -> &'static str {
        match self {
            Self::Silent(_) => "not_listening",
            Self::Taken(_) => "port_taken",
            Self::Shared(_) => "port_shared",
            Self::Loopback(_) | Self::NoAddress(_) => "not_reachable",
            Self::Unseen { .. } => "not_seen",
        }
    }
}

/// Finds how a port of a worker is reached. `processes`: those of the worker, of which the first decides the network
/// namespace. `before`: what was found the last time, which saves looking through all descriptors.
///
/// # Errors
/// When the port is not the worker's alone, or not reachable.
pub fn find(
    access: &dyn ProcessAccess,
    processes: &[ProcessId],
    port: u16,
    before: Option<&Served>,
) -> Result<Served, NotServed> {
    let unseen = |error| NotServed::Unseen { port, error };
    let Found { process, is_foreign, listeners } = listeners(access, processes, port).map_err(unseen)?;
    if listeners.is_empty() {
        return Err(NotServed::Silent(port));
    }
    let held = holders(access, processes, &listeners, before).map_err(unseen)?;
    let is_ours = |socket: &Listener| held.iter().any(|held| held.inode == socket.inode);
    if !listeners.iter().any(is_ours) {
        return Err(NotServed::Taken(port));
    }
    let is_foreign = is_foreign.map_err(unseen)?;
    let mut addresses = Vec::new();
    for socket in listeners.iter().filter(|socket| is_ours(socket)) {
        let ways = if is_foreign {
            from_outside(access, process, socket.address.ip()).map_err(unseen)?
        } else {
            from_here(socket.address.ip())
        };
        addresses.extend(ways.into_iter().map(|way| SocketAddr::new(way, port)));
    }
    if addresses.is_empty() {
        let on_loopback = listeners.iter().any(|socket| is_ours(socket) && is_loopback(socket.address.ip()));
        return Err(if on_loopback { NotServed::Loopback(port) } else { NotServed::NoAddress(port) });
    }
    // Whoever else would get a connection to an address makes it worthless.
    addresses.retain(|address| {
        listeners.iter().all(|socket| is_ours(socket) || !answers(socket.address.ip(), address.ip()))
    });
    let mut seen = BTreeSet::new();
    addresses.retain(|address| seen.insert(*address));
    if addresses.is_empty() {
        return Err(NotServed::Shared(port));
    }
    Ok(Served { addresses, is_foreign, process, held })
}

impl Served {
    /// Whether the worker still holds a socket that it was found with. Cheap; asked again once an answer is there, it says
    /// that the answer was the worker's.
    pub fn is_still_held(&self, access: &dyn ProcessAccess) -> bool {
        self.held.iter().any(|held| leads_to(access, held))
    }
}

/// Whether the other end of a connection to a found address is in the worker's network namespace. `local` is the end
/// here; a connection whose addresses are rewritten on the way is not recognised.
pub fn is_peer(access: &dyn ProcessAccess, served: &Served, address: SocketAddr, local: SocketAddr) -> bool {
    let same = |one: SocketAddr, other: SocketAddr| {
        one.port() == other.port() && one.ip().to_canonical() == other.ip().to_canonical()
    };
    [ProcFile::Tcp, ProcFile::Tcp6].into_iter().any(|file| {
        let mut is_there = false;
        let looked = sockets::each(access, served.process, file, sockets::LINES, &mut |socket| {
            is_there = !socket.listens && same(socket.local, address) && same(socket.remote, local);
            if is_there { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
        });
        looked.is_ok() && is_there
    })
}

/// Who listens on a port.
struct Found {
    /// The first process that lives, in whose namespace it was looked.
    process: ProcessId,
    /// Whether that is another than the own one.
    is_foreign: Result<bool, AccessError>,
    listeners: Vec<Listener>,
}

/// What listens on a port in the namespace of the first process that lives.
fn listeners(access: &dyn ProcessAccess, processes: &[ProcessId], port: u16) -> Result<Found, AccessError> {
    let mut last = AccessError::Gone;
    for process in processes.iter().take(MAX_PROCESSES).copied() {
        let is_foreign = is_foreign(access, process);
        let own = if is_foreign == Ok(false) { access.own_listeners(port) } else { None };
        match own.map_or_else(|| of_tables(access, process, port), Ok) {
            Ok(listeners) => return Ok(Found { process, is_foreign, listeners }),
            Err(error) => last = error,
        }
    }
    Err(last)
}

/// The same, by the tables of a process.
fn of_tables(
    access: &dyn ProcessAccess,
    process: ProcessId,
    port: u16,
) -> Result<Vec<Listener>, AccessError> {
    let mut found = Vec::new();
    let mut take = |socket: Socket| {
        if !socket.listens {
            return ControlFlow::Break(());
        }
        if socket.local.port() == port {
            found.push(Listener { address: socket.local, inode: socket.inode });
        }
        ControlFlow::Continue(())
    };
    sockets::each(access, process, ProcFile::Tcp, sockets::LINE, &mut take)?;
    match sockets::each(access, process, ProcFile::Tcp6, sockets::LINE, &mut take) {
        // A kernel without IPv6.
        Ok(()) | Err(AccessError::NotFound) => Ok(found),
        Err(error) => Err(error),
    }
}

/// Descriptors of the worker that lead to listeners. An error only where nothing was found and something not seen.
fn holders(
    access: &dyn ProcessAccess,
    processes: &[ProcessId],
    listeners: &[Listener],
    before: Option<&Served>,
) -> Result<Vec<Held>, AccessError> {
    let wanted: BTreeSet<u64> =
        listeners.iter().map(|socket| socket.inode).filter(|inode| *inode != 0).collect();
    let known = before.map_or(&[][..], |served| &served.held);
    let mut held: Vec<Held> =
        known.iter().filter(|held| wanted.contains(&held.inode) && leads_to(access, held)).copied().collect();
    let mut refused = None;
    for process in processes.iter().take(MAX_PROCESSES) {
        if wanted.iter().all(|inode| held.iter().any(|held| held.inode == *inode)) {
            break;
        }
        if let Err(error) = held_by(access, *process, &wanted, &mut held) {
            // One that ended holds nothing.
            refused = Some(error).filter(|error| *error != AccessError::Gone).or(refused);
        }
    }
    match refused {
        Some(error) if held.is_empty() => Err(error),
        _ => Ok(held),
    }
}

fn held_by(
    access: &dyn ProcessAccess,
    process: ProcessId,
    wanted: &BTreeSet<u64>,
    held: &mut Vec<Held>,
) -> Result<(), AccessError> {
    let mut from = 0;
    while from < MAX_DESCRIPTORS {
        let page = access.descriptors(process, from, 0)?;
        for descriptor in &page.items {
            if let Some(inode) = socket_inode(&descriptor.target).filter(|inode| wanted.contains(inode)) {
                held.push(Held { inode, process, fd: descriptor.fd });
            }
        }
        match page.next.and_then(|next| u32::try_from(next).ok()) {
            Some(next) if next > from => from = next,
            _ => break,
        }
    }
    Ok(())
}

/// `socket:[643]`.
fn socket_inode(target: &[u8]) -> Option<u64> {
    let inode = target.strip_prefix(b"socket:[")?.strip_suffix(b"]")?;
    std::str::from_utf8(inode).ok()?.parse().ok()
}

fn leads_to(access: &dyn ProcessAccess, held: &Held) -> bool {
    access
        .descriptor(held.process, held.fd)
        .is_ok_and(|found| socket_inode(&found.target) == Some(held.inode))
}

fn is_foreign(access: &dyn ProcessAccess, process: ProcessId) -> Result<bool, AccessError> {
    let own = std::fs::read_link("/proc/self/ns/net")
        .map_err(|error| AccessError::Failed(format!("reading the own network namespace: {error}")))?;
    let its = access.link(process, Link::NetworkNamespace)?;
    Ok(its != own.as_os_str().as_encoded_bytes())
}

/// How one connects to a socket of the own namespace.
fn from_here(listens_on: IpAddr) -> Vec<IpAddr> {
    match listens_on {
        IpAddr::V4(address) if address.is_unspecified() => vec![Ipv4Addr::LOCALHOST.into()],
        // It may take IPv4 too, which its table does not show.
        IpAddr::V6(address) if address.is_unspecified() => {
            vec![Ipv6Addr::LOCALHOST.into(), Ipv4Addr::LOCALHOST.into()]
        }
        address => vec![address.to_canonical()],
    }
}

/// How one connects to a socket of another namespace; nothing where only those inside can.
fn from_outside(
    access: &dyn ProcessAccess,
    process: ProcessId,
    listens_on: IpAddr,
) -> Result<Vec<IpAddr>, AccessError> {
    if is_loopback(listens_on) {
        return Ok(Vec::new());
    }
    if !listens_on.is_unspecified() {
        return Ok(vec![listens_on.to_canonical()]);
    }
    let text = |file| match access.read(process, file) {
        Ok(text) => Ok(String::from_utf8_lossy(&text).into_owned()),
        Err(AccessError::NotFound) => Ok(String::new()),
        Err(error) => Err(error),
    };
    let mut found = of_trie(&text(ProcFile::FibTrie)?);
    if listens_on.is_ipv6() {
        found.extend(of_inet6(&text(ProcFile::IfInet6)?));
    }
    Ok(found)
}

fn is_loopback(address: IpAddr) -> bool {
    address.to_canonical().is_loopback()
}

/// Whether a socket that listens on one address gets connections to another.
fn answers(listens_on: IpAddr, target: IpAddr) -> bool {
    match listens_on {
        IpAddr::V6(address) if address.is_unspecified() => true,
        IpAddr::V4(address) if address.is_unspecified() => target.is_ipv4(),
        address => address.to_canonical() == target.to_canonical(),
    }
}
