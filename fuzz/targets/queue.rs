//! A queue over segments of arbitrary bytes: it opens, says what it found, and still takes and keeps what is appended.

#![no_main]

use kvprov_agent::ship::{Outbox, QueueConfig};
use kvprov_model::clock::WallTime;
use kvprov_model::id::NodeId;

libfuzzer_sys::fuzz_target!(|data: &[u8]| {
    let Ok(directory) = tempfile::tempdir() else { return };
    // The first byte says where the bytes are cut into two segments.
    let Some((cut, bytes)) = data.split_first() else { return };
    let (one, two) = bytes.split_at(bytes.len() * usize::from(*cut) / 256);
    for (name, bytes) in [("0000000000000001.kvq", one), ("0000000000000002.kvq", two)] {
        assert!(std::fs::write(directory.path().join(name), bytes).is_ok());
    }
    let config = QueueConfig::new(directory.path(), NodeId::from("n0"));
    let waiting = Outbox::open(config.clone()).map(|outbox| {
        assert!(outbox.alive(Vec::new(), WallTime(1)).is_ok_and(|committed| committed.durable));
        outbox.stats().waiting
    });
    let again = Outbox::open(config).map(|outbox| outbox.stats().waiting);
    assert!(matches!((waiting, again), (Ok(before), Ok(after)) if before == after));
});
