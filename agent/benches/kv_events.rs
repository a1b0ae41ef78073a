//! What it costs to read a batch of KV events off the wire, beside copying its bytes and beside the two obvious
//! alternatives, decoding with serde from MessagePack and from JSON, which still hash nothing.
//!
//! Run: `cargo bench -p kvprov-agent --bench kv_events [-- MEGABYTES]`. Each round measures every side one after the
//! other over the same batches; the median round counts. Last lines: `decode: 900 MB/s, 0.1 times memcpy, 3.0 times
//! rmp-serde`.
#![allow(
    clippy::unwrap_used,
    clippy::print_stdout,
    reason = "a bench speaks to a terminal and has no data to lose"
)]

use kvprov_agent::events::blocks::Blocks;
use kvprov_agent::events::msgpack::read_batch;
use kvprov_agent::events::zmtp::{Budget, Incoming, Limits, Sort, write_frame};
use kvprov_model::content::FleetKey;
use serde::{Deserialize, Serialize};
use std::hint::black_box;
use std::time::Instant;

const ROUNDS: usize = 7;
/// Blocks of one event, and tokens of one block: a prompt of 8,192 tokens.
const BLOCKS: u64 = 512;
const BLOCK_SIZE: u64 = 16;

#[derive(Serialize, Deserialize)]
struct Stored {
    r#type: String,
    block_hashes: Vec<u64>,
    parent_block_hash: Option<u64>,
    token_ids: Vec<u32>,
    block_size: u64,
    lora_id: Option<u64>,
    medium: String,
    lora_name: Option<String>,
}

type Batch = (f64, Vec<Stored>, u64);

fn batch(number: u64) -> Batch {
    let mix = |value: u64| value.wrapping_mul(0x9e37_79b9_7f4a_7c15);
    let stored = Stored {
        r#type: "BlockStored".to_owned(),
        block_hashes: (0..BLOCKS).map(|block| mix(number * BLOCKS + block)).collect(),
        parent_block_hash: None,
        token_ids: (0..BLOCKS * BLOCK_SIZE).map(|token| (mix(token + number) >> 47) as u32).collect(),
        block_size: BLOCK_SIZE,
        lora_id: None,
        medium: "GPU".to_owned(),
        lora_name: None,
    };
    (1_800_000_000.0 + number as f64, vec![stored], 0)
}

/// Seconds of the median round.
fn median(mut work: impl FnMut()) -> f64 {
    let mut rounds: Vec<f64> = (0..ROUNDS)
        .map(|_| {
            let begin = Instant::now();
            work();
            begin.elapsed().as_secs_f64()
        })
        .collect();
    rounds.sort_by(f64::total_cmp);
    rounds[ROUNDS / 2]
}

fn main() {
    let megabytes: usize = std::env::args().skip(1).find_map(|argument| argument.parse().ok()).unwrap_or(64);
    let payloads: Vec<Vec<u8>> = (0..16).map(|n| rmp_serde::to_vec_named(&batch(n)).unwrap()).collect();
    let texts: Vec<Vec<u8>> = (0..16).map(|n| serde_json::to_vec(&batch(n)).unwrap()).collect();
    let size: usize = payloads.iter().map(Vec::len).sum();
    let times = (megabytes * 1_000_000).div_ceil(size);
    let all = || (0..times).flat_map(|_| payloads.iter());
    let bytes = (size * times) as f64;
    let events = (payloads.len() * times) as f64;

    let mut copy = vec![0; payloads.iter().map(Vec::len).max().unwrap_or(0)];
    let memcpy = median(|| {
        for payload in all() {
            copy[..payload.len()].copy_from_slice(payload);
            black_box(&mut copy);
        }
    });
    let rmp = median(|| {
        for payload in all() {
            black_box(rmp_serde::from_slice::<Batch>(payload).unwrap());
        }
    });
    let json = median(|| {
        for _ in 0..times {
            for text in &texts {
                black_box(serde_json::from_slice::<Batch>(text).unwrap());
            }
        }
    });
    let decode = median(|| {
        for payload in all() {
            read_batch(payload, |_| {}, |_, event| drop(black_box(event))).unwrap();
        }
    });
    let mut wire = Vec::new();
    for payload in &payloads {
        write_frame(&mut wire, b"kv", true, false);
        write_frame(&mut wire, &[0; 8], true, false);
        write_frame(&mut wire, payload, false, false);
    }
    let cut = median(|| {
        let mut incoming = Incoming::new(Limits::default(), Budget::new(64 << 20));
        for _ in 0..times {
            let mut rest = wire.as_slice();
            while !rest.is_empty() {
                let room = incoming.room().unwrap();
                let count = room.len().min(rest.len());
                room[..count].copy_from_slice(&rest[..count]);
                incoming.came(count);
                rest = &rest[count..];
                while incoming.look().unwrap() == Some(Sort::Message) {
                    black_box(incoming.parts().len());
                    incoming.done();
                }
            }
        }
    });
    let key = FleetKey::from_secret(b"bench");
    let mut blocks = Blocks::new(&key, 128 * 1024);
    let hashed = median(|| {
        for payload in all() {
            read_batch(payload, |_| {}, |_, event| drop(black_box(blocks.event(Some(0), event)))).unwrap();
        }
    });
    let speed = |seconds: f64| bytes / seconds / 1e6;
    println!("memcpy: {:.0} MB/s; rmp-serde: {:.0} MB/s", speed(memcpy), speed(rmp));
    println!("frames: {:.0} MB/s, {:.2} times memcpy", speed(cut), memcpy / cut);
    println!(
        "decode: {:.0} MB/s, {:.2} times memcpy, {:.1} times rmp-serde, {:.1} times serde_json of the same batches",
        speed(decode),
        memcpy / decode,
        rmp / decode,
        json / decode
    );
    println!(
        "decode and hash: {:.0} MB/s, {:.0} us an event of {} tokens",
        speed(hashed),
        hashed / events * 1e6,
        BLOCKS * BLOCK_SIZE
    );
}
