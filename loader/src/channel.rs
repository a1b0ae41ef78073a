//! The socket between agent and loader: whole messages, at most one descriptor beside each.

use crate::protocol::MESSAGE_MAX;
use rustix::fd::{AsFd, BorrowedFd, OwnedFd};
use rustix::io::{Errno, IoSlice, IoSliceMut};
use rustix::net::sockopt::{Timeout, set_socket_timeout};
use rustix::net::{
    AddressFamily, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, ReturnFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags, SocketFlags, SocketType,
};
use std::mem::MaybeUninit;
use std::time::Duration;

/// A side that reads nothing for so long counts as dead.
const SEND_TIMEOUT: Duration = Duration::from_secs(10);

/// A packet.
#[derive(Debug)]
pub(crate) struct Packet {
    /// Its bytes.
    pub(crate) bytes: Vec<u8>,
    /// The descriptor beside it.
    pub(crate) descriptor: Option<OwnedFd>,
    /// It was longer than any message may be; only its begin is here.
    pub(crate) cut: bool,
}

/// Makes the two ends.
///
/// # Errors
/// When no descriptors are left.
pub fn pair() -> Result<(OwnedFd, OwnedFd), Errno> {
    rustix::net::socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None)
}

/// Sees to it that a side which reads nothing does not hold up the other for ever.
pub(crate) fn prepare(socket: &OwnedFd) -> Result<(), Errno> {
    set_socket_timeout(socket, Timeout::Send, Some(SEND_TIMEOUT))
}

/// Sends a message.
pub(crate) fn send(
    socket: impl AsFd,
    message: &[u8],
    descriptor: Option<BorrowedFd<'_>>,
) -> Result<(), Errno> {
    if message.len() > MESSAGE_MAX {
        return Err(Errno::MSGSIZE);
    }
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut beside = SendAncillaryBuffer::new(&mut space);
    let rights: Vec<BorrowedFd<'_>> = descriptor.into_iter().collect();
    if !rights.is_empty() && !beside.push(SendAncillaryMessage::ScmRights(&rights)) {
        return Err(Errno::NOMEM);
    }
    loop {
        match rustix::net::sendmsg(&socket, &[IoSlice::new(message)], &mut beside, SendFlags::NOSIGNAL) {
            Err(Errno::INTR) => {}
            other => return other.map(|_| ()),
        }
    }
}

/// Receives a message; `None` when the other side is closed. Without `descriptors`, those beside it are closed unseen.
pub(crate) fn receive(socket: impl AsFd, descriptors: bool) -> Result<Option<Packet>, Errno> {
    let mut bytes = vec![0; MESSAGE_MAX];
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut beside = RecvAncillaryBuffer::new(if descriptors { &mut space } else { &mut [] });
    let received = loop {
        let mut slices = [IoSliceMut::new(&mut bytes)];
        match rustix::net::recvmsg(&socket, &mut slices, &mut beside, RecvFlags::CMSG_CLOEXEC) {
            Err(Errno::INTR) => {}
            Err(Errno::CONNRESET) => return Ok(None),
            other => break other?,
        }
    };
    let mut descriptor = None;
    for message in beside.drain() {
        if let RecvAncillaryMessage::ScmRights(rights) = message {
            descriptor = rights.into_iter().next().or(descriptor);
        }
    }
    // A packet without bytes is not sent by either side; it is how the end of the socket shows.
    if received.bytes == 0 {
        return Ok(None);
    }
    bytes.truncate(received.bytes);
    Ok(Some(Packet { bytes, descriptor, cut: received.flags.contains(ReturnFlags::TRUNC) }))
}
