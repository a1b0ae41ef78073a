//! What a record of the kernel programs costs, from the ring to the reader of a worker.
//!
//! `cargo bench -p kvprov-agent --bench kernel_events` prints one line a mix of records: nanoseconds and allocations
//! an event, and what share of a core 100,000 events a second take. Times are those of the processor, the best of a
//! few runs, so that a busy machine shows the same figures.
#![allow(clippy::print_stdout, clippy::unwrap_used, reason = "a bench prints what it measured")]

#[path = "../tests/support/ring.rs"]
mod ring;

use kvprov_agent::kernel::live::{FakeProcesses, LiveKernel, LiveOptions, Now};
use kvprov_agent_common::Kind;
use kvprov_model::id::{NodeId, WorkerId};
use kvprov_packs::Packs;
use ring::{Bytes, FIRST_TIME, O_RDONLY, O_WRITE, Process, file};
use stats_alloc::{INSTRUMENTED_SYSTEM, Region, StatsAlloc};
use std::alloc::System;

#[global_allocator]
static ALLOCATOR: &StatsAlloc<System> = &INSTRUMENTED_SYSTEM;

/// Events of one run.
const EVENTS: usize = 1_000_000;
/// Events between two commits: what a ring gives at once.
const BATCH: usize = 1000;
const RUNS: usize = 5;

fn main() {
    let only = std::env::args().nth(1).filter(|argument| !argument.starts_with("--"));
    let run = |name: &str, records: &dyn Fn(&mut Process) -> Vec<Bytes>| {
        if only.as_deref().is_none_or(|only| name.contains(only)) {
            measure(name, records);
        }
    };
    run("reads of artifacts, 16 a file, with open and close", &|p| {
        keys(64).iter().enumerate().flat_map(|(index, key)| used(p, key, index, false, 16)).collect()
    });
    run("writes under a temporary name, 16 a file, with rename", &|p| {
        keys(64).iter().enumerate().flat_map(|(index, key)| used(p, key, index, true, 16)).collect()
    });
    run("sends and receives", &|p| {
        let ends = ("10.0.0.1:1000", "10.0.0.2:2000");
        (0..1000u32)
            .map(|index| {
                let kind = if index % 2 == 0 { Kind::Send } else { Kind::Recv };
                p.socket(kind, index % 8, ends, 65536)
            })
            .collect()
    });
    run("lookups of names that are not there", &|p| {
        keys(512).iter().map(|key| p.named(Kind::Stat, key, -2)).collect()
    });
    run("the mix: 8 reads and 8 writes a file, sends, unrelated files", &|p| {
        let ends = ("10.0.0.1:1000", "10.0.0.2:2000");
        let mut all = Vec::new();
        for (index, key) in keys(64).iter().enumerate() {
            all.extend(used(p, key, index, false, 8));
            all.extend(used(p, key, index, true, 8));
            all.extend((0..16).map(|_| p.socket(Kind::Recv, 3, ends, 65536)));
            all.extend(unrelated(p, index));
        }
        all
    });
    run("unrelated files, opened, read and closed", &|p| {
        (0..200).flat_map(|index| unrelated(p, index)).collect()
    });
}

fn keys(count: usize) -> Vec<String> {
    let key = |index: usize| format!("/mnt/kv/{index:064x}_Qwen-Qwen3-8B_0_1.bin");
    (0..count).map(key).collect()
}

fn used(p: &mut Process, key: &str, index: usize, writes: bool, calls: usize) -> Vec<Bytes> {
    let identity = file(p.device, index as u32 + 1, index as u64 + 100);
    let temporary = format!("/mnt/kv/.{index:032x}.tmp");
    let mut all = vec![if writes {
        p.open(&temporary, O_WRITE, 4, identity.open_file, identity.inode)
    } else {
        p.open(key, O_RDONLY, 4, identity.open_file, identity.inode)
    }];
    for _ in 0..calls {
        all.push(if writes { p.write(identity, 65536, 65536) } else { p.read(identity, 65536, 65536) });
    }
    all.push(p.close(identity, 1));
    if writes {
        all.push(p.rename(&temporary, key, 0));
    }
    all
}

fn unrelated(p: &mut Process, index: usize) -> Vec<Bytes> {
    let identity = file(p.device, index as u32 + 5000, index as u64 + 90_000);
    let path = format!("/usr/lib/python3/dist-packages/some/package/module_{index}.py");
    vec![
        p.open(&path, O_RDONLY, 4, identity.open_file, identity.inode),
        p.read(identity, 100, 4096),
        p.read(identity, 0, 4096),
        p.close(identity, 1),
    ]
}

fn measure(name: &str, records: &dyn Fn(&mut Process) -> Vec<Bytes>) {
    let mut process = Process::new(7);
    let events = records(&mut process);
    let mut fake = FakeProcesses::default();
    let mounts = "1 0 8:1 / / rw - ext4 /dev/sda1 rw\n";
    fake.mountinfo.insert(7, mounts.into());
    let options = LiveOptions { node: NodeId("n".to_owned()), ring: "r".to_owned() };
    let now = Now { monotonic: FIRST_TIME, wall: 1_800_000_000_000_000_000 };
    let mut live = LiveKernel::new(options, Packs::builtin(), Box::new(fake), now);
    live.add_process(&WorkerId("w".to_owned()), 7, 5);
    let (mut observations, mut position) = (0u64, 0u64);
    let mut pass = |count: usize| {
        for (index, event) in events.iter().cycle().take(count).enumerate() {
            position += 64;
            live.event(position, event.as_slice(), &mut |_| {});
            if index % BATCH == 0 {
                live.commit(position, &mut |_| observations += 1);
            }
        }
    };
    // Once to fill what is remembered.
    pass(events.len());
    let mut best = u128::MAX;
    let region = Region::new(ALLOCATOR);
    for _ in 0..RUNS {
        let start = cpu_nanos();
        pass(EVENTS / RUNS);
        best = best.min(cpu_nanos() - start);
    }
    let allocations = region.change().allocations as f64 / EVENTS as f64;
    let nanos = best as f64 / (EVENTS / RUNS) as f64;
    let told = observations as f64 / EVENTS as f64;
    println!(
        "{name}: {nanos:.0} ns an event, {allocations:.2} allocations, {told:.3} observations; {:.2} % of a core at 100,000/s",
        nanos / 100.0
    );
}

fn cpu_nanos() -> u128 {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::ProcessCPUTime);
    time.tv_sec as u128 * 1_000_000_000 + time.tv_nsec as u128
}
