//! Sockets of workers on a machine in memory.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use super::*;
use crate::access::fake::{Fake, FakeProcess};
use crate::access::{AccessError, Descriptor, FileKind, Link, ProcFile};
use std::net::SocketAddr;

const HEAD: &str =
    "  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode\n";
const LISTENS: &str = "0A";
const CONNECTED: &str = "01";
const TRIE: &str = "Main:\n  |-- 10.42.0.7\n     /32 host LOCAL\n  |-- 127.0.0.1\n     /32 host LOCAL\n";

/// A line of the table; addresses as the kernel writes them on a little-endian machine.
fn line(local: &str, remote: &str, state: &str, inode: u64) -> String {
    format!(
        "   0: {local} {remote} {state} 00000000:00000000 00:00000000 00000000     0        0 {inode} 1 0 100\n"
    )
}

fn own_namespace() -> Vec<u8> {
    std::fs::read_link("/proc/self/ns/net").unwrap().into_os_string().into_encoded_bytes()
}

fn engine(pid: u32, table: &str, namespace: impl Into<Vec<u8>>, sockets: &[u64]) -> FakeProcess {
    let mut process = FakeProcess::new(pid, 5)
        .text(ProcFile::Tcp, format!("{HEAD}{table}"))
        .text(ProcFile::FibTrie, TRIE)
        .leads(Link::NetworkNamespace, namespace);
    for (fd, inode) in (3..).zip(sockets) {
        process = process.descriptor(Descriptor {
            fd,
            target: format!("socket:[{inode}]").into_bytes(),
            device: 8,
            inode: *inode,
            kind: FileKind::Socket,
            flags: 0,
            position: 0,
            mount: 0,
        });
    }
    process
}

fn ways(found: &Result<Served, NotServed>) -> Vec<String> {
    found.as_ref().unwrap().addresses.iter().map(SocketAddr::to_string).collect()
}

const ANY: &str = "00000000:1F40";
const LOOPBACK: &str = "0100007F:1F40";
const POD: &str = "07002A0A:1F40";
const NOBODY: &str = "00000000:0000";

#[test]
fn a_socket_on_every_address_is_reached_over_loopback() {
    let table = line(ANY, NOBODY, LISTENS, 70);
    let process = engine(1, &table, own_namespace(), &[69, 70]);
    let id = process.id();
    let fake = Fake::new([process]);
    let found = find(&fake, &[id], 8000, None);
    assert_eq!(ways(&found), ["127.0.0.1:8000"]);
    assert!(found.unwrap().is_still_held(&fake));
}

#[test]
fn a_socket_of_a_child_is_the_workers() {
    let table = line(LOOPBACK, NOBODY, LISTENS, 70);
    let leader = engine(1, &table, own_namespace(), &[]);
    let child = engine(2, &table, own_namespace(), &[70]);
    let ids = [leader.id(), child.id()];
    assert_eq!(ways(&find(&Fake::new([leader, child]), &ids, 8000, None)), ["127.0.0.1:8000"]);
}

#[test]
fn a_port_is_not_the_workers_when_nobody_or_another_listens() {
    let process = engine(1, &line(LOOPBACK, NOBODY, LISTENS, 70), own_namespace(), &[71]);
    let id = process.id();
    let fake = Fake::new([process]);
    assert_eq!(find(&fake, &[id], 8000, None), Err(NotServed::Taken(8000)));
    assert_eq!(find(&fake, &[id], 8001, None), Err(NotServed::Silent(8001)));
    fake.end(1);
    let unseen = NotServed::Unseen { port: 8000, error: AccessError::Gone };
    assert_eq!(find(&fake, &[id], 8000, None), Err(unseen));
}

#[test]
fn a_port_that_another_process_listens_on_too_is_not_read() {
    let table = line(ANY, NOBODY, LISTENS, 70) + &line(ANY, NOBODY, LISTENS, 90);
    let process = engine(1, &table, own_namespace(), &[70]);
    let id = process.id();
    assert_eq!(find(&Fake::new([process]), &[id], 8000, None), Err(NotServed::Shared(8000)));
}

#[test]
fn the_same_port_of_another_address_takes_nothing_away() {
    let table = line(LOOPBACK, NOBODY, LISTENS, 70) + &line(POD, NOBODY, LISTENS, 90);
    let process = engine(1, &table, own_namespace(), &[70]);
    let id = process.id();
    assert_eq!(ways(&find(&Fake::new([process]), &[id], 8000, None)), ["127.0.0.1:8000"]);
}

#[test]
fn in_another_namespace_a_worker_is_reached_at_the_address_of_its_pod() {
    let table = line(ANY, NOBODY, LISTENS, 70) + &line(POD, "01002A0A:C000", CONNECTED, 0);
    let process = engine(1, &table, "net:[7]", &[70]);
    let id = process.id();
    let fake = Fake::new([process]);
    let found = find(&fake, &[id], 8000, None);
    assert_eq!(ways(&found), ["10.42.0.7:8000"]);
    let found = found.unwrap();
    assert!(found.is_foreign);
    let address = found.addresses[0];
    assert!(is_peer(&fake, &found, address, "10.42.0.1:49152".parse().unwrap()));
    assert!(!is_peer(&fake, &found, address, "10.42.0.1:49153".parse().unwrap()), "led elsewhere");
}

#[test]
fn loopback_of_another_namespace_is_out_of_reach() {
    let process = engine(1, &line(LOOPBACK, NOBODY, LISTENS, 70), "net:[7]", &[70]);
    let id = process.id();
    assert_eq!(find(&Fake::new([process]), &[id], 8000, None), Err(NotServed::Loopback(8000)));
}

#[test]
fn what_may_not_be_looked_at_is_not_seen_rather_than_taken() {
    let process = engine(1, &line(LOOPBACK, NOBODY, LISTENS, 70), own_namespace(), &[70]).of_another_user();
    let id = process.id();
    assert!(matches!(find(&Fake::new([process]), &[id], 8000, None), Err(NotServed::Unseen { .. })));
}

#[test]
fn what_was_found_before_holds_until_the_socket_is_another() {
    let process = engine(1, &line(LOOPBACK, NOBODY, LISTENS, 70), own_namespace(), &[70]);
    let id = process.id();
    let fake = Fake::new([process]);
    let first = find(&fake, &[id], 8000, None).unwrap();
    assert_eq!(find(&fake, &[id], 8000, Some(&first)), Ok(first.clone()));
    fake.put(engine(1, &line(LOOPBACK, NOBODY, LISTENS, 80), own_namespace(), &[80]));
    assert!(!first.is_still_held(&fake));
    assert_ne!(find(&fake, &[id], 8000, Some(&first)), Ok(first));
}
