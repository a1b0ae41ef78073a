//! Nothing is lost without being counted: fired = filtered + delivered + dropped.

use crate::lab::{Lab, Seen, lab, perl, with};
use kvprov_agent_common::Kind;
use kvprov_agent_common::kernel::watch;
use kvprov_loader::attach::Options;
use std::collections::BTreeMap;

/// Holds the law for every kind, with `read` being all that the ring ever gave.
fn holds(lab: &Lab, read: &[Seen]) {
    let mut by_kind: BTreeMap<u16, u64> = BTreeMap::new();
    for seen in read {
        *by_kind.entry(seen.kind as u16).or_default() += 1;
    }
    let counters = lab.kernel.counters().unwrap();
    for (kind, counts) in &counters.by_kind {
        assert_eq!(counts.fired, counts.filtered + counts.delivered + counts.dropped, "{kind:?}: {counts:?}");
        // Programs start all the time, also between the reading and the counting.
        if *kind != Kind::Exec {
            assert_eq!(
                by_kind.get(&(*kind as u16)).copied().unwrap_or_default(),
                counts.delivered,
                "{kind:?}"
            );
        }
    }
    let missed: u64 = lab.kernel.programs().iter().filter_map(|program| program.missed).sum();
    assert_eq!(missed, 0, "programs that the kernel skipped");
}

fn busy(times: usize) -> String {
    let home = std::env::temp_dir();
    format!(
        "open(my $f, '+>', '{0}/kvprov-law-' . $$) or die; unlink('{0}/kvprov-law-' . $$); \
         for (1..{times}) {{ syswrite($f, 'x' x 64); sysseek($f, 0, 0); sysread($f, my $b, 64); stat('/kvprov-none'); \
         syswrite(STDOUT, 'line') if $_ % 10 == 0; }}",
        home.display()
    )
}

#[test]
fn the_law_holds_at_rest() {
    let Some(mut lab) = with(&Options::default()) else { return };
    let seen = lab.watch(watch::ALL, &busy(1000));
    assert!(seen.len() > 3000);
    let total = lab.kernel.counters().unwrap().total();
    assert_eq!(total.dropped, 0);
    holds(&lab, &seen);
}

#[test]
fn the_law_holds_at_ten_times_the_capacity_of_a_ring_that_nobody_reads() {
    let ring_bytes = 64 << 10;
    let Some(mut lab) = with(&Options { ring_bytes, ..Options::default() }) else { return };
    // About 270 bytes a turn, so more than ten times the ring.
    let times = 10 * ring_bytes as usize / 200;
    let waiting = perl(&busy(times));
    lab.kernel.watch(waiting.pid(), watch::ALL).unwrap();
    waiting.run();
    let mut all = lab.drain();
    let total = lab.kernel.counters().unwrap().total();
    assert!(total.dropped > 8 * total.delivered, "{total:?}");
    holds(&lab, &all);

    // Once read, it takes records again.
    let waiting = perl(&busy(10));
    lab.kernel.watch(waiting.pid(), watch::ALL).unwrap();
    waiting.run();
    let more = lab.drain();
    assert!(more.len() > 30);
    all.extend(more);
    holds(&lab, &all);
}

#[test]
fn what_was_not_released_is_handed_out_again_at_its_place() {
    let Some(mut lab) = lab() else { return };
    let waiting = perl(&busy(20));
    lab.kernel.watch(waiting.pid(), watch::FILES).unwrap();
    waiting.run();
    let mut first = Vec::new();
    lab.ring.peek(10, |position, bytes| first.push((position, bytes.to_vec()))).unwrap();
    assert_eq!(first.len(), 10);
    assert!(lab.ring.pending() > 0);
    // Another reader, as after a crash.
    let descriptor = lab.kernel.ring_fd().try_clone_to_owned().unwrap();
    let mut ring =
        kvprov_agent_common::ring::Ring::new(descriptor, u64::from(lab.kernel.ring_bytes())).unwrap();
    let mut again = Vec::new();
    ring.peek(10, |position, bytes| again.push((position, bytes.to_vec()))).unwrap();
    assert_eq!(first, again);
    ring.release();
    let mut next = Vec::new();
    ring.peek(1, |position, _| next.push(position)).unwrap();
    assert!(next[0] > first[9].0);
    drop(ring);
    lab.ring.release();
    lab.drain();
}

#[test]
fn room_is_given_back_up_to_a_record_and_nowhere_else() {
    let Some(mut lab) = lab() else { return };
    let waiting = perl(&busy(20));
    lab.kernel.watch(waiting.pid(), watch::FILES).unwrap();
    waiting.run();
    let mut positions = Vec::new();
    lab.ring.peek(10, |position, _| positions.push(position)).unwrap();
    let all = lab.ring.held();
    lab.ring.release_up_to(positions[3] + 1);
    assert_eq!(lab.ring.held(), all, "no record begins there");
    lab.ring.release_up_to(positions[3]);
    assert_eq!(lab.ring.held(), all - (positions[3] - positions[0]));
    let rest = lab.ring.held();
    lab.ring.release_up_to(positions[1]);
    assert_eq!(lab.ring.held(), rest, "it was given back before");
    lab.ring.release_up_to(u64::MAX - 7);
    assert_eq!(lab.ring.held(), 0, "what was not handed out stays");
    let mut next = Vec::new();
    lab.ring.peek(1, |position, _| next.push(position)).unwrap();
    assert!(next[0] > positions[9]);
    lab.drain();
}

#[test]
fn a_ring_takes_no_other_descriptor_and_no_other_size() {
    use kvprov_agent_common::ring::Ring;
    let file = || std::fs::File::open("/dev/null").unwrap().into();
    assert!(Ring::new(file(), 4096).is_err());
    assert!(Ring::new(file(), 5000).is_err());
    let Some(lab) = lab() else { return };
    let descriptor = lab.kernel.ring_fd().try_clone_to_owned().unwrap();
    assert!(Ring::new(descriptor, 2 * u64::from(lab.kernel.ring_bytes())).is_err());
}

/// The reader of the next test: reads the ring that is its standard input.
#[test]
fn reader() {
    let Some(capacity) = std::env::var("KVPROV_TEST_RING").ok().and_then(|bytes| bytes.parse().ok()) else {
        return;
    };
    let descriptor = rustix::io::dup(std::io::stdin()).unwrap();
    let mut ring = kvprov_agent_common::ring::Ring::new(descriptor, capacity).unwrap();
    let count = ring.peek(usize::MAX, |_, _| {}).unwrap();
    ring.release();
    println!("{} read {count}", std::fs::read_to_string("/proc/self/status").unwrap());
}

#[test]
fn the_ring_is_read_without_any_capability() {
    let Some(mut lab) = lab() else { return };
    let waiting = perl(&busy(20));
    lab.kernel.watch(waiting.pid(), watch::FILES).unwrap();
    waiting.run();
    let output = std::process::Command::new("setpriv")
        .args(["--inh-caps=-all", "--ambient-caps=-all", "--bounding-set=-all", "--no-new-privs"])
        .arg(std::env::current_exe().unwrap())
        .args(["--exact", "law::reader", "--nocapture"])
        .env("KVPROV_TEST_RING", lab.kernel.ring_bytes().to_string())
        .stdin(lab.kernel.ring_fd().try_clone_to_owned().unwrap())
        .output()
        .unwrap();
    let printed = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(printed.contains("CapEff:\t0000000000000000"), "{printed}");
    let count: u64 =
        printed.split("read ").nth(1).unwrap().split_whitespace().next().unwrap().parse().unwrap();
    assert!(count > 60, "{count}");
    lab.ring.rewind();
}
