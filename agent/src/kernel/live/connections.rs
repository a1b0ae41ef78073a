//! Sends and receives on connections, summed up between two commits of the reader.
//!
//! A record a call would cost more than the call. What the reader of bursts needs is how many bytes went which way
//! until when: one record a direction and commit.

use crate::kernel::record::{Operation, Record};
use crate::source::bounded::Bounded;
use kvprov_agent_common::{FileIdentity, SocketRecord};
use std::net::{Ipv6Addr, SocketAddr};
use std::sync::Arc;

const CONNECTIONS: usize = 16 * 1024;

/// A process and its open socket.
type Key = (u32, FileIdentity);

/// What went one way since the last commit.
#[derive(Debug, Clone, Copy, Default)]
struct Flow {
    bytes: u64,
    calls: u32,
    position: u64,
    time: u64,
    tid: u32,
}

#[derive(Debug)]
struct Connection {
    ends: ([u8; 16], u16, [u8; 16], u16),
    local: Arc<str>,
    peer: Arc<str>,
    worker: u32,
    sent: Flow,
    received: Flow,
    dirty: bool,
}

/// A summed record with its place in the ring.
pub(super) struct Summed {
    pub worker: u32,
    pub position: u64,
    pub time: u64,
    /// Without its time.
    pub record: Record,
}

/// Connections in use.
pub(super) struct Connections {
    open: Bounded<Key, Connection>,
    dirty: Vec<Key>,
    /// Connections that made room.
    pub evicted: u64,
}

// === impl Connections ===

impl Connections {
    pub(super) fn new() -> Self {
        Self { open: Bounded::new(CONNECTIONS), dirty: Vec::new(), evicted: 0 }
    }

    /// Bytes went over a connection. Summed records that cannot wait are handed out.
    pub(super) fn moved(
        &mut self,
        worker: u32,
        position: u64,
        socket: &SocketRecord,
        sends: bool,
        out: &mut dyn FnMut(Summed),
    ) {
        let header = &socket.call.header;
        let key = (header.tgid, socket.call.file);
        let ends = (socket.local, socket.local_port, socket.peer, socket.peer_port);
        if self.open.get(&key).is_some_and(|connection| connection.ends != ends) {
            self.closed(key, out);
        }
        if self.open.get(&key).is_none() {
            let connection = Connection {
                ends,
                local: text(socket.local, socket.local_port),
                peer: text(socket.peer, socket.peer_port),
                worker,
                sent: Flow::default(),
                received: Flow::default(),
                dirty: false,
            };
            if let Some(((tgid, _), mut evicted)) = self.open.insert(key, connection) {
                self.evicted += 1;
                evicted.tell(tgid, out);
            }
        }
        let Some(connection) = self.open.get_mut(&key) else { return };
        let flow = if sends { &mut connection.sent } else { &mut connection.received };
        flow.bytes = flow.bytes.saturating_add(u64::try_from(header.result).unwrap_or(0));
        flow.calls = flow.calls.saturating_add(1);
        flow.position = position;
        flow.time = header.time;
        flow.tid = header.tid;
        if !connection.dirty {
            connection.dirty = true;
            self.dirty.push(key);
        }
    }

    /// A call on a connection failed: a record of its own, after what went before it.
    pub(super) fn failed(
        &mut self,
        worker: u32,
        position: u64,
        socket: &SocketRecord,
        op: Operation,
        out: &mut dyn FnMut(Summed),
    ) {
        let header = &socket.call.header;
        self.flush_one((header.tgid, socket.call.file), out);
        let mut record = record(header.tgid, header.tid, op);
        record.ret = Some(header.result);
        record.local = Some(text(socket.local, socket.local_port));
        record.peer = Some(text(socket.peer, socket.peer_port));
        out(Summed { worker, position, time: header.time, record });
    }

    /// A socket was closed.
    pub(super) fn closed(&mut self, key: Key, out: &mut dyn FnMut(Summed)) {
        if let Some(mut connection) = self.open.remove(&key) {
            connection.tell(key.0, out);
        }
    }

    /// Hands out what was summed up.
    pub(super) fn flush(&mut self, out: &mut dyn FnMut(Summed)) {
        let mut dirty = std::mem::take(&mut self.dirty);
        for key in dirty.drain(..) {
            self.flush_one(key, out);
        }
        self.dirty = dirty;
    }

    fn flush_one(&mut self, key: Key, out: &mut dyn FnMut(Summed)) {
        if let Some(connection) = self.open.get_mut(&key) {
            connection.tell(key.0, out);
        }
    }
}

// === impl Connection ===

impl Connection {
    fn tell(&mut self, tgid: u32, out: &mut dyn FnMut(Summed)) {
        self.dirty = false;
        let flows = [
            (std::mem::take(&mut self.sent), Operation::Send),
            (std::mem::take(&mut self.received), Operation::Recv),
        ];
        let told = flows.into_iter().filter(|(flow, _)| flow.calls > 0);
        let mut told: Vec<(Flow, Operation)> = told.collect();
        told.sort_by_key(|(flow, _)| flow.position);
        for (flow, op) in told {
            let mut record = record(tgid, flow.tid, op);
            let bytes = i64::try_from(flow.bytes).unwrap_or(i64::MAX);
            record.ret = Some(bytes);
            record.bytes = Some(bytes);
            record.local = Some(Arc::clone(&self.local));
            record.peer = Some(Arc::clone(&self.peer));
            out(Summed { worker: self.worker, position: flow.position, time: flow.time, record });
        }
    }
}

/// A record of a call, without anything but who and what.
pub(super) fn record(tgid: u32, tid: u32, op: Operation) -> Record {
    Record {
        ts: None,
        pid: i64::from(tgid),
        tid: Some(i64::from(tid)),
        op,
        path: None,
        path2: None,
        flags: None,
        ret: None,
        bytes: None,
        want: None,
        fs: None,
        local: None,
        peer: None,
        peer_pid: None,
    }
}

/// `ip:port`, an IPv6 address in brackets.
fn text(address: [u8; 16], port: u16) -> Arc<str> {
    SocketAddr::new(Ipv6Addr::from(address).to_canonical(), port).to_string().into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_written_as_people_know_them() {
        let v4 = "::ffff:10.0.0.1".parse::<Ipv6Addr>().map(|ip| ip.octets()).unwrap_or_default();
        let v6 = "fd00::1".parse::<Ipv6Addr>().map(|ip| ip.octets()).unwrap_or_default();
        assert_eq!(&*text(v4, 80), "10.0.0.1:80");
        assert_eq!(&*text(v6, 80), "[fd00::1]:80");
    }
}
