//! Tables of TCP sockets, `/proc/PID/net/tcp` and `tcp6`.
//!
//! Source: the kernel's `Documentation/networking/proc_net_tcp.rst`. Addresses are words in the byte order of the
//! machine, ports are numbers, state 0A listens; sockets that listen come before all others. The kernel looks for the next
//! line when it is read, through megabytes of hash buckets, so that a table is read no further than it is needed.

use crate::access::{AccessError, ProcFile, ProcessAccess, ProcessId};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::ops::ControlFlow;

/// A line, in bytes: what is read at once where few lines are wanted.
pub(super) const LINE: usize = 150;
/// What is read at once where many are.
pub(super) const LINES: usize = 6 * LINE;

/// One socket.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Socket {
    /// Its own end.
    pub(super) local: SocketAddr,
    /// The other end; all zero where it listens.
    pub(super) remote: SocketAddr,
    /// Whether it waits for connections.
    pub(super) listens: bool,
    /// By which descriptors name it; 0 where no process has it: a connection that nobody took yet, or one that is over.
    pub(super) inode: u64,
}

/// Visits the sockets of a table, `piece` bytes at a time, until `visit` has enough. A line that is none is passed over:
/// the first one is a heading.
pub(super) fn each(
    access: &dyn ProcessAccess,
    process: ProcessId,
    file: ProcFile,
    piece: usize,
    visit: &mut dyn FnMut(Socket) -> ControlFlow<()>,
) -> Result<(), AccessError> {
    let mut open = Vec::new();
    let mut has_enough = false;
    access.read_until(process, file, piece, &mut |bytes| {
        for part in bytes.split_inclusive(|byte| *byte == b'\n') {
            open.extend_from_slice(part);
            if open.ends_with(b"\n") {
                has_enough = has_enough || socket(&open).is_some_and(|socket| visit(socket).is_break());
                open.clear();
            }
        }
        has_enough
    })?;
    if let Some(socket) = socket(&open).filter(|_| !has_enough) {
        let _ = visit(socket);
    }
    Ok(())
}

fn socket(line: &[u8]) -> Option<Socket> {
    let mut words = std::str::from_utf8(line).ok()?.split_ascii_whitespace();
    words.next()?.strip_suffix(':')?;
    let local = address(words.next()?)?;
    let remote = address(words.next()?)?;
    let listens = words.next()? == "0A";
    // Queues, timer, retransmissions, user, timeout.
    let inode = words.nth(5)?.parse().ok()?;
    Some(Socket { local, remote, listens, inode })
}

fn address(text: &str) -> Option<SocketAddr> {
    let (address, port) = text.split_once(':')?;
    let port = u16::from_str_radix(port, 16).ok()?;
    let word = |at: usize| Some(u32::from_str_radix(address.get(at..at + 8)?, 16).ok()?.to_ne_bytes());
    let address = match address.len() {
        8 => IpAddr::V4(Ipv4Addr::from(word(0)?)),
        32 => {
            let mut bytes = [0; 16];
            for (at, part) in bytes.chunks_exact_mut(4).enumerate() {
                part.copy_from_slice(&word(at * 8)?);
            }
            IpAddr::V6(Ipv6Addr::from(bytes))
        }
        _ => return None,
    };
    Some(SocketAddr::new(address, port))
}

#[cfg(test)]
#[cfg(target_endian = "little")]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test fails by panicking")]
    use super::*;
    use crate::access::fake::{Fake, FakeProcess};
    use proptest::prelude::*;

    const TABLE: &str = "  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode
   0: 0100007F:1F40 00000000:0000 0A 00000000:00000000 00:00000000 00000000     0        0 643 1 00000000f6949391 100 0 0 10 0
   1: 020200C0:8C44 507100CB:01BB 01 00000000:00000000 00:00000000 00000000     0        0 41556 1 0000000001dc456d 20 4 1 20 -1
";

    /// The first sockets of a table that comes in pieces.
    fn sockets(table: &str, most: usize) -> Vec<Socket> {
        let process = FakeProcess::new(1, 5).text(ProcFile::Tcp, table);
        let id = process.id();
        let mut found = Vec::new();
        let mut visit = |socket| {
            found.push(socket);
            if found.len() < most { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
        };
        each(&Fake::new([process]), id, ProcFile::Tcp, 7, &mut visit).unwrap();
        found
    }

    #[test]
    fn a_listening_socket_and_a_connection_are_read() {
        let found = sockets(TABLE, 9);
        assert_eq!(found.len(), 2);
        assert_eq!((found[0].local, found[0].listens), ("127.0.0.1:8000".parse().unwrap(), true));
        assert_eq!(found[0].inode, 643);
        assert_eq!((found[1].remote, found[1].listens), ("203.0.113.80:443".parse().unwrap(), false));
    }

    #[test]
    fn a_table_is_read_until_there_is_enough_or_no_more() {
        assert_eq!(sockets(TABLE, 1), sockets(TABLE, 9)[..1]);
        assert_eq!(sockets(TABLE.trim_end(), 9), sockets(TABLE, 9));
        assert_eq!(sockets("", 9), []);
    }

    #[test]
    fn an_address_of_sixteen_bytes_is_read() {
        let line = b"   0: 00000000000000000000000001000000:1F90 00000000000000000000000000000000:0000 0A 00000000:00000000 00:00000000 00000000  0  0 7 1 0 100 0 0 10 0";
        assert_eq!(socket(line).unwrap().local, "[::1]:8080".parse().unwrap());
    }

    proptest! {
        #[test]
        fn no_table_makes_it_panic(table in "([ 0-9A-F:]{0,80}\n){0,4}") {
            let _ = sockets(&table, 9);
        }
    }
}
