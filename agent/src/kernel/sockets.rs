//! Bytes between workers: transfers of KV over TCP and `process_vm_*`.
//!
//! Calls on one connection without a long pause are one burst, and a burst is one observation. What a burst carries
//! is not known; small ones (handshakes, notifications, keep-alives) are no transfers of KV and are counted only.
//! Traffic through `read` and `write` is HTTP and belongs to the HTTP reader.

use crate::kernel::emit::Emitter;
use crate::kernel::handle::Stamp;
use crate::kernel::record::{Operation, Record};
use crate::source::Losses;
use kvprov_model::clock::{SECOND, WallTime};
use kvprov_model::observation::{Body, Outcome, Transfer};
use std::collections::BTreeMap;
use std::sync::Arc;

/// A pause that ends a burst.
const PAUSE: i64 = SECOND;
/// Bursts with fewer bytes carry no KV: one block of the smallest models is larger.
const SMALLEST: u64 = 4096;
const CONNECTIONS: usize = 16 * 1024;
const LANE: u32 = 1 << 17;

#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
struct Connection {
    pid: i64,
    local: Arc<str>,
    peer: Arc<str>,
}

#[derive(Debug)]
struct Burst {
    first: Option<WallTime>,
    last: Stamp,
    sent: u64,
    received: u64,
    broke: bool,
}

/// Bursts in progress.
#[derive(Debug, Default)]
pub(crate) struct Sockets(BTreeMap<Connection, Burst>);

// === impl Sockets ===

impl Sockets {
    /// Takes the next call on a socket or on another process's memory.
    pub(crate) fn step(
        &mut self,
        record: &Record,
        stamp: Stamp,
        losses: &mut Losses,
        emitter: &mut Emitter<'_, '_>,
    ) {
        let Some(connection) = connection_of(record) else { return };
        let is_over = self.0.get(&connection).is_some_and(|burst| match (burst.last.wall, stamp.wall) {
            (Some(last), Some(now)) => now.since(last) > PAUSE,
            _ => false,
        });
        if is_over && let Some(burst) = self.0.remove(&connection) {
            burst.emit(&connection, losses, emitter);
        }
        if !self.0.contains_key(&connection) && self.0.len() >= CONNECTIONS {
            // The map is sorted by process; any victim is as good, and this one is the same in every run.
            if let Some((victim, burst)) = self.0.pop_first() {
                losses.one("too many connections");
                burst.emit(&victim, losses, emitter);
            }
        }
        let burst = self.0.entry(connection).or_insert_with(|| Burst {
            first: stamp.wall,
            last: stamp,
            sent: 0,
            received: 0,
            broke: false,
        });
        burst.last = stamp;
        if !record.succeeded() {
            // ECONNRESET, EPIPE, ETIMEDOUT; anything else (EAGAIN) says nothing of the transfer.
            burst.broke |= matches!(record.ret, Some(-104 | -32 | -110));
            return;
        }
        match record.op {
            Operation::Send | Operation::ProcessVmWritev => {
                burst.sent = burst.sent.saturating_add(record.moved());
            }
            _ => burst.received = burst.received.saturating_add(record.moved()),
        }
    }

    /// Tells the bursts that no record can continue: their pause is over, and `late` besides.
    pub(crate) fn idle(
        &mut self,
        now: WallTime,
        late: i64,
        losses: &mut Losses,
        emitter: &mut Emitter<'_, '_>,
    ) {
        let is_over = |burst: &Burst| burst.last.wall.is_some_and(|last| now.since(last) > PAUSE + late);
        let over = self.0.extract_if(.., |_, burst| is_over(burst));
        for (connection, burst) in over {
            burst.emit(&connection, losses, emitter);
        }
    }

    /// The records end.
    pub(crate) fn finish(&mut self, losses: &mut Losses, emitter: &mut Emitter<'_, '_>) {
        for (connection, burst) in std::mem::take(&mut self.0) {
            burst.emit(&connection, losses, emitter);
        }
    }
}

fn connection_of(record: &Record) -> Option<Connection> {
    match record.op {
        Operation::Send | Operation::Recv => Some(Connection {
            pid: record.pid,
            local: record.local.clone().unwrap_or_else(|| Arc::from("")),
            peer: record.peer.clone()?,
        }),
        // UCX asks with a write of eight bytes to itself whether it may do this; that moves no KV.
        Operation::ProcessVmReadv | Operation::ProcessVmWritev => {
            let peer = record.peer_pid.filter(|peer| *peer != record.pid)?;
            Some(Connection {
                pid: record.pid,
                local: format!("pid:{}", record.pid).into(),
                peer: format!("pid:{peer}").into(),
            })
        }
        _ => None,
    }
}

// === impl Burst ===

impl Burst {
    fn emit(&self, connection: &Connection, losses: &mut Losses, emitter: &mut Emitter<'_, '_>) {
        if self.sent < SMALLEST && self.received < SMALLEST {
            losses.one("control traffic");
            return;
        }
        for (direction, bytes, joint) in [("receive", self.received, "from"), ("send", self.sent, "to")] {
            if bytes < SMALLEST {
                continue;
            }
            let duration = match (self.first, self.last.wall) {
                (Some(first), Some(last)) => Some(last.since(first).max(0)),
                _ => None,
            };
            let says = format!("{direction} {bytes} B {joint} {} on {}", connection.peer, connection.local);
            let body = Body::Transfer(Transfer {
                local: Some(connection.local.to_string()).filter(|local| !local.is_empty()),
                peer: Some(connection.peer.to_string()),
                direction: Some(direction.to_owned()),
                bytes_seen: i64::try_from(bytes).ok(),
                visible: Some(true),
                outcome: self.broke.then_some(Outcome::Failed),
                duration_ns: duration,
                ..Transfer::default()
            });
            emitter.emit(self.last, LANE, says, body);
        }
    }
}
