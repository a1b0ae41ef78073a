//! Calls on sockets, summed to transfers.

use crate::rig::Rig;
use crate::ring::Process;
use kvprov_agent_common::Kind;
use kvprov_model::observation::Body;

#[test]
fn calls_on_a_connection_are_summed_and_a_quiet_burst_is_told() {
    let (mut rig, mut p) = (Rig::new(), Process::new(7));
    let ends = ("10.0.0.1:1000", "10.0.0.2:2000");
    for round in 0..4 {
        for _ in 0..100 {
            rig.take(&p.socket(Kind::Recv, 3, ends, 1000));
        }
        if round % 2 == 0 {
            rig.commit();
        }
    }
    rig.take(&p.socket(Kind::Send, 3, ends, 41));
    rig.commit();
    rig.tick(p.time + 500_000_000);
    assert!(rig.observations.is_empty());
    rig.tick(p.time + 3_000_000_000);
    rig.tick(p.time + 4_000_000_000);
    assert_eq!(rig.observations.len(), 1);
    let Body::Transfer(transfer) = &rig.observations[0].body else { unreachable!() };
    assert_eq!((transfer.bytes_seen, transfer.peer.as_deref()), (Some(400_000), Some(ends.1)));
    assert_eq!(rig.observations[0].envelope.position, 40_000);
}

#[test]
fn a_connection_that_broke_failed() {
    let (mut rig, mut p) = (Rig::new(), Process::new(7));
    let ends = ("[fd00::1]:1000", "[fd00::2]:2000");
    rig.all(&[
        p.socket(Kind::Send, 3, ends, 65536),
        p.socket(Kind::Send, 3, ends, -104),
        p.socket(Kind::Close, 3, ends, 0),
    ]);
    rig.commit();
    rig.tick(p.time + 3_000_000_000);
    let Body::Transfer(transfer) = &rig.observations[0].body else { unreachable!() };
    assert_eq!(transfer.outcome, Some(kvprov_model::observation::Outcome::Failed));
    assert_eq!(transfer.local.as_deref(), Some(ends.0));
}
