//! The wire of KV events over arbitrary bytes: what a peer sends, cut into messages, then read as batches.

#![no_main]

use kvprov_agent::events::blocks::Blocks;
use kvprov_agent::events::msgpack;
use kvprov_agent::events::zmtp::{Budget, Command, Incoming, Limits, Sort};
use kvprov_model::content::FleetKey;
use std::time::Duration;

/// Small enough that inputs reach them.
const LIMITS: Limits = Limits { message: 4096, frames: 8, command: 256, silence: Duration::from_secs(1) };

libfuzzer_sys::fuzz_target!(|data: &[u8]| {
    let key = FleetKey::from_secret(b"fuzz");
    let mut blocks = Blocks::new(&key, 64);
    read(&mut blocks, data);
    let mut incoming = Incoming::new(LIMITS, Budget::new(1 << 20));
    let mut rest = data;
    loop {
        loop {
            match incoming.look() {
                Ok(Some(Sort::Message)) => {
                    if let Some(payload) = incoming.parts().last() {
                        read(&mut blocks, payload);
                    }
                }
                Ok(Some(Sort::Command)) => {
                    let _ = Command::read(incoming.parts().next().unwrap_or_default());
                }
                Ok(None) => break,
                Err(_) => return,
            }
            incoming.done();
        }
        if rest.is_empty() {
            break;
        }
        let Ok(room) = incoming.room() else { return };
        let count = room.len().min(rest.len());
        room[..count].copy_from_slice(&rest[..count]);
        incoming.came(count);
        rest = &rest[count..];
    }
    assert!(incoming.held() <= 512 << 10, "more is held than the limits allow");
});

fn read(blocks: &mut Blocks<'_>, payload: &[u8]) {
    let mut events = 0;
    let read = msgpack::read_batch(
        payload,
        |_| {},
        |_, event| {
            events += 1;
            if let Some(block) = blocks.event(Some(0), event) {
                assert!(block.content.is_empty() || block.content.len() == block.hashes.len());
            }
        },
    );
    assert!(read.is_ok() || events == 0, "events of a batch that is none");
}
