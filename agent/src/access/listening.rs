//! Who listens in the own network namespace, asked of the kernel by port.
//!
//! A table of `/proc/PID/net` lists all connections, for which the kernel walks through megabytes of hash buckets, however
//! few there are: milliseconds, several times a page of metrics. The other way to ask, sock_diag(7), takes the port and
//! the state along, needs no rights, and walks through listeners alone. It tells of the own namespace only; a kernel that
//! has it as a module loads it when first asked, as for `ss`.

use rustix::fd::OwnedFd;
use rustix::io::Errno;
use rustix::net::{AddressFamily, RecvFlags, SendFlags, SocketFlags, SocketType, netlink};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

/// `SOCK_DIAG_BY_FAMILY`, the type of question and answer.
const BY_FAMILY: u16 = 20;
/// Types of messages that end an answer.
const ERROR: u16 = 2;
const DONE: u16 = 3;
/// `NLM_F_REQUEST` and `NLM_F_DUMP`.
const ALL: u16 = 0x301;
/// `NLM_F_DUMP_INTR`: something changed while the kernel looked.
const INTERRUPTED: u16 = 0x10;
const TCP: u8 = 6;
/// State of a socket that listens.
const LISTENS: u8 = 10;
/// Bytes of a header, of a question behind it (`inet_diag_req_v2`), and of an answer (`inet_diag_msg`).
const HEADER: usize = 16;
const QUESTION: usize = 56;
const ANSWER: usize = 72;
/// Room for one read.
const ROOM: usize = 32 << 10;
/// Reads of one answer; listeners on one port are few.
const READS: usize = 256;

/// A TCP socket that listens.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Listener {
    /// Where.
    pub address: SocketAddr,
    /// By which descriptors name it.
    pub inode: u64,
}

/// What listens on a port of any address.
pub(super) fn on(port: u16) -> Result<Vec<Listener>, Errno> {
    let socket = rustix::net::socket_with(
        AddressFamily::NETLINK,
        SocketType::RAW,
        SocketFlags::CLOEXEC,
        Some(netlink::SOCK_DIAG),
    )?;
    let mut found = Vec::new();
    for family in [AddressFamily::INET, AddressFamily::INET6] {
        ask(&socket, &question(family, port), &mut found)?;
    }
    Ok(found)
}

/// Whether the kernel may well answer the next time.
pub(super) fn is_for_now(error: Errno) -> bool {
    matches!(
        error,
        Errno::INTR | Errno::AGAIN | Errno::NOBUFS | Errno::NOMEM | Errno::MFILE | Errno::NFILE | Errno::BUSY
    )
}

fn question(family: AddressFamily, port: u16) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(HEADER + QUESTION);
    bytes.extend(((HEADER + QUESTION) as u32).to_ne_bytes());
    bytes.extend(BY_FAMILY.to_ne_bytes());
    bytes.extend(ALL.to_ne_bytes());
    // Number of the question and port of the socket; neither is needed.
    bytes.extend([0; 8]);
    bytes.extend([family.as_raw() as u8, TCP, 0, 0]);
    bytes.extend((1u32 << LISTENS).to_ne_bytes());
    bytes.extend(port.to_be_bytes());
    // Any other end, any interface.
    bytes.resize(HEADER + QUESTION, 0);
    bytes
}

fn ask(socket: &OwnedFd, question: &[u8], found: &mut Vec<Listener>) -> Result<(), Errno> {
    rustix::net::send(socket, question, SendFlags::empty())?;
    let mut bytes = vec![0; ROOM];
    for _ in 0..READS {
        // The kernel answers while it is asked and while it is read from: there is nothing to wait for.
        let (length, _) = rustix::net::recv(socket, &mut bytes[..], RecvFlags::DONTWAIT)?;
        if take(&bytes[..length], found)? {
            return Ok(());
        }
    }
    Err(Errno::NOBUFS)
}

/// Takes the messages of one read. True when they end the answer.
fn take(mut bytes: &[u8], found: &mut Vec<Listener>) -> Result<bool, Errno> {
    while !bytes.is_empty() {
        let length = word(bytes, 0).ok_or(Errno::BADMSG)? as usize;
        let message = bytes.get(..length).filter(|message| message.len() >= HEADER).ok_or(Errno::BADMSG)?;
        let [kind, flags] = [4, 6].map(|at| u16::from_ne_bytes([message[at], message[at + 1]]));
        if flags & INTERRUPTED != 0 {
            return Err(Errno::AGAIN);
        }
        let body = &message[HEADER..];
        match kind {
            DONE => return Ok(true),
            ERROR => {
                let code = word(body, 0).map_or(0, |code| (code as i32).wrapping_neg());
                let known = (1..4096).contains(&code);
                return Err(if known { Errno::from_raw_os_error(code) } else { Errno::BADMSG });
            }
            BY_FAMILY => found.extend(listener(body)),
            _ => {}
        }
        // Messages begin at multiples of four.
        bytes = bytes.get(length.next_multiple_of(4)..).unwrap_or_default();
    }
    Ok(false)
}

/// Family, state, timer, retransmissions; ports, addresses, interface, cookie; times, queues, user; inode.
fn listener(body: &[u8]) -> Option<Listener> {
    let body = body.get(..ANSWER)?;
    let ip = match AddressFamily::from_raw(body[0].into()) {
        AddressFamily::INET => IpAddr::V4(Ipv4Addr::from(*body[8..].first_chunk::<4>()?)),
        AddressFamily::INET6 => IpAddr::V6(Ipv6Addr::from(*body[8..].first_chunk::<16>()?)),
        _ => return None,
    };
    let port = u16::from_be_bytes([body[4], body[5]]);
    let inode = u64::from(word(body, ANSWER - 4)?);
    (body[1] == LISTENS).then_some(Listener { address: SocketAddr::new(ip, port), inode })
}

fn word(bytes: &[u8], at: usize) -> Option<u32> {
    Some(u32::from_ne_bytes(*bytes.get(at..)?.first_chunk()?))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::panic, reason = "a test fails by panicking")]
    #![allow(clippy::print_stderr, reason = "a test that is skipped says so")]
    use super::*;
    use proptest::prelude::*;
    use std::net::TcpListener;

    fn message(kind: u16, flags: u16, body: &[u8]) -> Vec<u8> {
        let mut bytes = ((HEADER + body.len()) as u32).to_ne_bytes().to_vec();
        bytes.extend(kind.to_ne_bytes());
        bytes.extend(flags.to_ne_bytes());
        bytes.extend([0; 8]);
        bytes.extend(body);
        bytes
    }

    fn answer(state: u8) -> Vec<u8> {
        let mut body = vec![0; ANSWER];
        body[..2].copy_from_slice(&[AddressFamily::INET.as_raw() as u8, state]);
        body[4..6].copy_from_slice(&8000u16.to_be_bytes());
        body[8..12].copy_from_slice(&[10, 42, 0, 7]);
        body[ANSWER - 4..].copy_from_slice(&643u32.to_ne_bytes());
        message(BY_FAMILY, 2, &body)
    }

    #[test]
    fn sockets_that_listen_are_read_up_to_the_end_of_the_answer() {
        let mut found = Vec::new();
        assert_eq!(take(&[answer(LISTENS), answer(1)].concat(), &mut found), Ok(false));
        assert_eq!(found, [Listener { address: "10.42.0.7:8000".parse().unwrap(), inode: 643 }]);
        assert_eq!(take(&[message(DONE, 2, &[0; 4]), answer(LISTENS)].concat(), &mut found), Ok(true));
        assert_eq!(found.len(), 1);
    }

    #[test]
    fn an_answer_that_is_refused_or_not_whole_is_none() {
        let refused = message(ERROR, 0, &(-2i32).to_ne_bytes());
        assert_eq!(take(&refused, &mut Vec::new()), Err(Errno::NOENT));
        assert_eq!(take(&message(DONE, INTERRUPTED, &[]), &mut Vec::new()), Err(Errno::AGAIN));
        assert_eq!(take(&answer(LISTENS)[..40], &mut Vec::new()), Err(Errno::BADMSG));
        assert!(is_for_now(Errno::AGAIN) && !is_for_now(Errno::NOENT));
    }

    #[test]
    fn the_kernel_tells_the_listeners_of_a_port_and_no_connection() {
        let own = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = own.local_addr().unwrap();
        let _connection = std::net::TcpStream::connect(address).unwrap();
        let found = match on(address.port()) {
            Ok(found) => found,
            // The tables tell where it does not answer.
            Err(error) if std::env::var_os("CI").is_none() => {
                eprintln!("skipped: this kernel does not tell who listens: {error}");
                return;
            }
            Err(error) => panic!("the kernel does not tell who listens: {error}"),
        };
        assert_eq!(found.iter().map(|found| found.address).collect::<Vec<_>>(), [address]);
        drop(own);
        assert_eq!(on(address.port()), Ok(Vec::new()));
    }

    proptest! {
        #[test]
        fn no_answer_makes_it_panic(bytes in proptest::collection::vec(any::<u8>(), 0..200), length in 0u32..200) {
            let _ = take(&bytes, &mut Vec::new());
            let _ = take(&[&length.to_ne_bytes()[..], &bytes].concat(), &mut Vec::new());
        }
    }
}
