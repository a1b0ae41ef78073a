//! The wire of ZeroMQ: peers of both versions, heartbeats, and bytes that are none.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use kvprov_agent::events::zmtp::{
    Budget, Connection, GREETING, Greeting, Incoming, Limits, SMALL, SocketType, Sort, ZmtpError, write_frame,
};
use proptest::prelude::*;
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt, DuplexStream, duplex};

const READY_PUB: &[u8] = b"\x04\x19\x05READY\x0bSocket-Type\0\0\0\x03PUB";

fn limits() -> Limits {
    Limits { message: 1 << 20, frames: 8, command: 1 << 10, silence: Duration::from_millis(50) }
}

async fn open(stream: DuplexStream) -> Result<Connection<DuplexStream>, ZmtpError> {
    Connection::open(stream, SocketType::Sub, limits(), Budget::new(8 << 20)).await
}

/// Shakes hands as libzmq of a version does; gives what the subscriber sent after its greeting.
async fn greet(peer: &mut DuplexStream, minor: u8) -> Vec<u8> {
    let mut greeting = Greeting::own();
    greeting[11] = minor;
    peer.write_all(&greeting).await.unwrap();
    let mut theirs = [0; GREETING];
    peer.read_exact(&mut theirs).await.unwrap();
    assert_eq!(theirs, Greeting::own());
    let mut ready = vec![0; READY_PUB.len()];
    peer.read_exact(&mut ready).await.unwrap();
    peer.write_all(READY_PUB).await.unwrap();
    ready
}

#[tokio::test]
async fn a_peer_of_either_version_is_told_the_subscription_in_its_own_way() {
    for (minor, subscription) in [(1, &b"\x04\x0c\x09SUBSCRIBEkv"[..]), (0, b"\x00\x03\x01kv")] {
        let (ours, mut peer) = duplex(1 << 16);
        let (connection, ready) = tokio::join!(open(ours), greet(&mut peer, minor));
        assert_eq!(ready, b"\x04\x19\x05READY\x0bSocket-Type\0\0\0\x03SUB");
        connection.unwrap().subscribe(b"kv").await.unwrap();
        let mut sent = vec![0; subscription.len()];
        peer.read_exact(&mut sent).await.unwrap();
        assert_eq!(sent, subscription);
    }
}

#[tokio::test]
async fn a_ping_is_answered_and_messages_around_it_are_read() {
    let (ours, mut peer) = duplex(1 << 16);
    let (connection, _) = tokio::join!(open(ours), greet(&mut peer, 1));
    let mut connection = connection.unwrap();
    let mut sent = Vec::new();
    write_frame(&mut sent, b"\x04PING\0\x0actx", false, true);
    write_frame(&mut sent, b"a", true, false);
    write_frame(&mut sent, &[7; 300], false, false);
    peer.write_all(&sent).await.unwrap();
    {
        let received = connection.receive().await.unwrap();
        assert_eq!(received.parts(), [&b"a"[..], &[7; 300]]);
    }
    // The answer goes out when there is nothing more to read.
    let next = connection.receive();
    let mut pong = [0; 10];
    tokio::select! {
        _ = next => panic!("there is no message"),
        read = peer.read_exact(&mut pong) => { read.unwrap(); }
    }
    assert_eq!(&pong, b"\x04\x08\x04PONGctx");
}

#[tokio::test]
async fn a_peer_that_falls_silent_is_asked_and_then_given_up() {
    let (ours, mut peer) = duplex(1 << 16);
    let (connection, _) = tokio::join!(open(ours), greet(&mut peer, 1));
    let mut connection = connection.unwrap();
    assert!(matches!(connection.receive().await, Err(ZmtpError::Silent)));
    let mut asked = [0; 9];
    peer.read_exact(&mut asked).await.unwrap();
    assert_eq!(&asked[..7], b"\x04\x07\x04PING");
}

#[tokio::test]
async fn peers_that_are_no_publishers_are_refused() {
    for (ready, why) in [
        (&b"\x04\x1b\x05READY\x0bSocket-Type\0\0\0\x05STOP!"[..], "STOP!"),
        (b"\x04\x19\x05READY\x0bSocket-Type\0\0\0\x03SUB", "SUB"),
        (b"\x04\x09\x05ERROR\x02no", "refused"),
        (b"\x00\x01x", "before the handshake"),
    ] {
        let (ours, mut peer) = duplex(1 << 16);
        peer.write_all(&Greeting::own()).await.unwrap();
        peer.write_all(ready).await.unwrap();
        let error = open(ours).await.unwrap_err();
        assert!(error.to_string().contains(why), "{error}");
    }
}

#[tokio::test]
async fn a_peer_that_closes_in_the_middle_is_closed() {
    let (ours, mut peer) = duplex(1 << 16);
    let (connection, _) = tokio::join!(open(ours), greet(&mut peer, 1));
    let mut connection = connection.unwrap();
    peer.write_all(b"\x00\x05ab").await.unwrap();
    drop(peer);
    assert!(matches!(connection.receive().await, Err(ZmtpError::Closed)));
}

fn feed(incoming: &mut Incoming, mut bytes: &[u8]) -> Result<Vec<Vec<Vec<u8>>>, ZmtpError> {
    let mut messages = Vec::new();
    loop {
        while let Some(sort) = incoming.look()? {
            if sort == Sort::Message {
                messages.push(incoming.parts().map(<[u8]>::to_vec).collect());
            }
            incoming.done();
        }
        if bytes.is_empty() {
            return Ok(messages);
        }
        let room = incoming.room()?;
        let count = room.len().min(bytes.len());
        room[..count].copy_from_slice(&bytes[..count]);
        incoming.came(count);
        bytes = &bytes[count..];
    }
}

#[test]
fn memory_grows_as_bytes_come_and_not_by_what_a_head_announces() {
    let budget = Budget::new(2 << 20);
    let mut incoming = Incoming::new(limits(), budget.clone());
    let mut head = vec![2];
    head.extend_from_slice(&(1u64 << 20).to_be_bytes());
    feed(&mut incoming, &head).unwrap();
    assert!(incoming.held() <= SMALL);
    feed(&mut incoming, &vec![1; 1 << 19]).unwrap();
    assert!(incoming.held() <= 1 << 20, "{}", incoming.held());
    assert!(budget.left() < 2 << 20);
    let messages = feed(&mut incoming, &vec![1; 1 << 19]).unwrap();
    assert_eq!(messages[0][0].len(), 1 << 20);
    assert!(incoming.held() <= SMALL, "given back");
    assert_eq!(budget.left(), 2 << 20);
}

#[test]
fn large_messages_of_all_peers_share_one_budget() {
    let budget = Budget::new(1 << 20);
    let mut head = vec![2];
    head.extend_from_slice(&(1u64 << 20).to_be_bytes());
    let half = [head, vec![1; 900 << 10]].concat();
    let mut first = Incoming::new(limits(), budget.clone());
    feed(&mut first, &half).unwrap();
    let mut second = Incoming::new(limits(), budget.clone());
    assert!(matches!(feed(&mut second, &half), Err(ZmtpError::NoRoom)));
    drop(first);
    assert!(feed(&mut Incoming::new(limits(), budget.clone()), &half).is_ok());
    drop(second);
    assert_eq!(budget.left(), 1 << 20);
}

#[test]
fn a_message_of_many_frames_or_of_too_many_bytes_is_refused() {
    let mut many = Vec::new();
    for _ in 0..9 {
        write_frame(&mut many, b"", true, false);
    }
    let mut large = Vec::new();
    for _ in 0..3 {
        write_frame(&mut large, &vec![0; 400 << 10], true, false);
    }
    for bytes in [many, large] {
        let mut incoming = Incoming::new(limits(), Budget::new(8 << 20));
        assert!(matches!(feed(&mut incoming, &bytes), Err(ZmtpError::TooLarge(_))));
    }
}

proptest! {
    #[test]
    fn any_pieces_give_the_same_messages(
        messages in proptest::collection::vec(
            proptest::collection::vec(proptest::collection::vec(any::<u8>(), 0..700), 1..5), 0..40),
        sizes in proptest::collection::vec(1usize..5000, 1..20),
    ) {
        let mut bytes = Vec::new();
        for message in &messages {
            for (at, part) in message.iter().enumerate() {
                write_frame(&mut bytes, part, at + 1 < message.len(), false);
            }
        }
        let mut incoming = Incoming::new(limits(), Budget::new(8 << 20));
        let mut found = Vec::new();
        let mut rest = bytes.as_slice();
        for size in sizes.iter().cycle() {
            if rest.is_empty() { break; }
            let (piece, after) = rest.split_at((*size).min(rest.len()));
            found.extend(feed(&mut incoming, piece).unwrap());
            rest = after;
        }
        prop_assert_eq!(found, messages);
    }

    #[test]
    fn no_bytes_make_it_panic_or_hold_more_than_they_are(bytes in proptest::collection::vec(any::<u8>(), 0..3000)) {
        let mut incoming = Incoming::new(limits(), Budget::new(8 << 20));
        let _ = feed(&mut incoming, &bytes);
        prop_assert!(incoming.held() <= SMALL);
    }
}
