//! Logs that are rotated, truncated, deleted and read on after a restart, as they are followed live.
#![allow(clippy::unwrap_used, clippy::panic, clippy::expect_used, reason = "a test fails by panicking")]

mod follow;

use follow::*;
use kvprov_agent::logs::follow::{Follower, OwnFiles, Source, Turn};
use kvprov_model::observation::Body;
use std::fs::{self, File, OpenOptions};
use std::io::Write;
use std::time::Duration;

// --- files that come and go ---

#[test]
fn a_file_that_appears_later_is_read() {
    let mut bench = Bench::new("e.log");
    bench.settle();
    assert!(!bench.follower.as_ref().unwrap().report()[0].is_followed);
    bench.write("e.log", 0..3);
    bench.settle();
    bench.assert_each_once(0..3);
    assert!(bench.follower.as_ref().unwrap().report()[0].is_followed);
}

#[test]
fn a_line_is_told_once_it_ends() {
    let mut bench = Bench::new("e.log");
    let text = line(0);
    append(&bench.path("e.log"), &text[..40]);
    bench.settle();
    assert!(bench.seen.is_empty());
    append(&bench.path("e.log"), &text[40..]);
    bench.settle();
    bench.assert_each_once(0..1);
}

#[test]
fn a_file_that_is_renamed_is_read_to_its_end_and_the_new_one_after_it() {
    let mut bench = Bench::new("e.log");
    bench.write("e.log", 0..3);
    bench.settle();
    let mut old = OpenOptions::new().append(true).open(bench.path("e.log")).unwrap();
    bench.write("e.log", 3..5);
    fs::rename(bench.path("e.log"), bench.path("e.log.1")).unwrap();
    bench.write("e.log", 6..8);
    bench.settle();
    // Whoever writes takes the new file late.
    old.write_all(lines(5..6).as_bytes()).unwrap();
    bench.settle();
    bench.assert_each_once(0..8);
    bench.pass(20);
    bench.assert_each_once(0..8);
    assert!(bench.losses().is_empty());
}

#[test]
fn several_rotations_between_two_looks_lose_nothing() {
    let mut bench = Bench::new("e.log");
    bench.write("e.log", 0..3);
    bench.settle();
    for round in 0..5 {
        for number in (1..8).rev() {
            let _ = fs::rename(
                bench.path(&format!("e.log.{number}")),
                bench.path(&format!("e.log.{}", number + 1)),
            );
        }
        fs::rename(bench.path("e.log"), bench.path("e.log.1")).unwrap();
        bench.write("e.log", 3 + round * 2..5 + round * 2);
    }
    bench.settle();
    bench.assert_each_once(0..13);
}

#[test]
fn a_deleted_file_is_read_while_it_is_open() {
    let mut bench = Bench::new("e.log");
    bench.write("e.log", 0..3);
    bench.settle();
    let mut old = OpenOptions::new().append(true).open(bench.path("e.log")).unwrap();
    fs::remove_file(bench.path("e.log")).unwrap();
    bench.pass(10);
    old.write_all(lines(3..5).as_bytes()).unwrap();
    bench.settle();
    bench.assert_each_once(0..5);
    bench.write("e.log", 5..7);
    bench.settle();
    bench.assert_each_once(0..7);
}

#[test]
fn a_link_that_is_switched_is_followed() {
    let mut bench = Bench::new("current");
    bench.write("a.log", 0..3);
    std::os::unix::fs::symlink(bench.path("a.log"), bench.path("current")).unwrap();
    bench.settle();
    bench.write("a.log", 3..4);
    bench.write("b.log", 4..6);
    fs::remove_file(bench.path("current")).unwrap();
    std::os::unix::fs::symlink(bench.path("b.log"), bench.path("current")).unwrap();
    bench.settle();
    bench.assert_each_once(0..6);
    bench.restart();
    bench.write("b.log", 6..7);
    bench.pass(10);
    bench.assert_each_once(0..7);
}

#[test]
fn a_name_that_was_reused_is_not_the_old_file() {
    let mut bench = Bench::new("e.log");
    bench.write("e.log", 0..3);
    bench.settle();
    bench.kill();
    fs::remove_file(bench.path("e.log")).unwrap();
    // The same length, perhaps the same inode.
    bench.write("e.log", 3..6);
    bench.start();
    bench.settle();
    bench.assert_each_once(0..6);
}

#[test]
fn a_pattern_names_files_that_come_later_and_their_rotations_are_no_new_files() {
    let mut bench = Bench::new("e*.log*");
    bench.write("e1.log", 0..3);
    bench.settle();
    bench.write("e2.log", 3..5);
    fs::rename(bench.path("e1.log"), bench.path("e1.log.1")).unwrap();
    bench.write("e1.log", 5..6);
    bench.write("other.log", 90..91);
    bench.pass(3);
    bench.assert_each_once(0..6);
}

#[test]
fn what_is_no_regular_file_is_refused_with_a_reason() {
    let mut bench = Bench::new("pipe");
    let made = std::process::Command::new("mkfifo").arg(bench.path("pipe")).status().unwrap();
    assert!(made.success());
    bench.settle();
    let report = bench.follower.as_ref().unwrap().report();
    assert!(!report[0].is_followed);
    assert_eq!(report[0].trouble.as_deref(), Some("no regular file"));
}

// --- truncation ---

#[test]
fn a_truncated_file_is_read_from_its_begin_again() {
    let mut bench = Bench::new("e.log");
    bench.write("e.log", 0..30);
    bench.settle();
    File::create(bench.path("e.log")).unwrap();
    bench.write("e.log", 30..35);
    bench.settle();
    bench.assert_each_once(0..35);
}

#[test]
fn a_truncated_file_that_grew_beyond_its_old_size_is_known_by_what_it_holds() {
    let mut bench = Bench::new("e.log");
    bench.write("e.log", 0..3);
    bench.settle();
    File::create(bench.path("e.log")).unwrap();
    bench.write("e.log", 3..40);
    bench.settle();
    bench.assert_each_once(0..40);
}

#[test]
fn the_rest_of_a_truncated_file_is_read_in_its_copy_and_the_copy_is_no_new_file() {
    let mut bench = Bench::new("e.log");
    bench.write("e.log", 0..30);
    bench.settle();
    bench.write("e.log", 30..35);
    fs::copy(bench.path("e.log"), bench.path("e.log.1")).unwrap();
    File::create(bench.path("e.log")).unwrap();
    bench.write("e.log", 35..37);
    bench.pass(12);
    bench.assert_each_once(0..37);
    assert!(bench.losses().is_empty(), "{:?}", bench.losses());
    // The next round, packed this time and over a restart.
    fs::rename(bench.path("e.log.1"), bench.path("e.log.2")).unwrap();
    pack(&bench.path("e.log.2"));
    fs::copy(bench.path("e.log"), bench.path("e.log.1")).unwrap();
    File::create(bench.path("e.log")).unwrap();
    bench.restart();
    bench.write("e.log", 37..39);
    bench.pass(12);
    bench.assert_each_once(0..39);
}

#[test]
fn a_copy_that_is_seen_before_the_truncation_is_not_read() {
    let mut bench = Bench::new("e.log");
    bench.write("e.log", 0..30);
    bench.settle();
    fs::copy(bench.path("e.log"), bench.path("e.log.1")).unwrap();
    bench.pass(12);
    bench.write("e.log", 30..31);
    bench.pass(1);
    bench.restart();
    bench.pass(12);
    bench.assert_each_once(0..31);
}

#[test]
fn what_was_truncated_unread_is_told_as_a_loss() {
    let mut bench = Bench::new("e.log");
    bench.write("e.log", 0..30);
    bench.settle();
    bench.room = 0;
    bench.write("e.log", 30..9000);
    bench.settle_full();
    let size = fs::metadata(bench.path("e.log")).unwrap().len();
    File::create(bench.path("e.log")).unwrap();
    bench.room = usize::MAX;
    bench.write("e.log", 5000..5002);
    bench.settle();
    let losses = bench.losses();
    assert_eq!(losses.len(), 1, "{losses:?}");
    let told: u64 = bench.told().len() as u64;
    let unread = size - (told - 2) * line(0).len() as u64;
    assert!((losses[0].1 as u64).abs_diff(unread) <= line(0).len() as u64, "{losses:?}, {unread} unread");
    assert!(unread > 100_000);
    assert!(bench.told().contains_key("r0005001"));
}

#[test]
fn a_hole_that_a_writer_leaves_is_no_line() {
    let mut bench = Bench::new("e.log");
    let mut file = File::create(bench.path("e.log")).unwrap();
    file.write_all(lines(0..30).as_bytes()).unwrap();
    bench.settle();
    OpenOptions::new().write(true).open(bench.path("e.log")).unwrap().set_len(0).unwrap();
    // Not appending: the writer goes on at its old place.
    file.write_all(lines(30..33).as_bytes()).unwrap();
    bench.settle();
    bench.assert_each_once(0..33);
    bench.restart();
    file.write_all(lines(33..34).as_bytes()).unwrap();
    bench.pass(3);
    bench.assert_each_once(0..34);
}

#[test]
fn the_end_cut_off_leaves_the_begin_as_it_was_read() {
    let mut bench = Bench::new("e.log");
    bench.write("e.log", 0..30);
    bench.settle();
    let kept = lines(0..20).len() as u64;
    OpenOptions::new().write(true).open(bench.path("e.log")).unwrap().set_len(kept).unwrap();
    bench.settle();
    bench.write("e.log", 30..32);
    bench.settle();
    bench.assert_each_once(0..32);
}

// --- restarts ---

#[test]
fn after_a_kill_nothing_is_missing_and_nothing_new() {
    let mut bench = Bench::new("e.log");
    for round in 0..20 {
        bench.write("e.log", round * 7..round * 7 + 7);
        bench.pass(2);
        bench.write("e.log", 1000 + round..1001 + round);
        bench.now += Duration::from_millis(400);
        while bench.turn() != Turn::Rest {}
        bench.restart();
    }
    bench.settle();
    let told = bench.told();
    assert!(
        (0..140).chain(1000..1020).all(|number| told.get(&format!("r{number:07}")) == Some(&1)),
        "{told:?}"
    );
    assert_eq!(told.len(), 160);
    // What was saved is not told again.
    assert!(bench.seen.len() <= 180, "{}", bench.seen.len());
}

#[test]
fn rotations_while_nobody_looked_are_read_in_their_order() {
    let mut bench = Bench::new("0.log");
    bench.write("0.log", 0..30);
    bench.pass(2);
    bench.kill();
    bench.write("0.log", 30..33);
    fs::rename(bench.path("0.log"), bench.path("0.log.20260101-100000")).unwrap();
    bench.write("0.log", 33..36);
    fs::rename(bench.path("0.log"), bench.path("0.log.20260101-110000")).unwrap();
    pack(&bench.path("0.log.20260101-100000"));
    bench.write("0.log", 36..37);
    bench.start();
    bench.pass(3);
    bench.assert_each_once(0..37);
    let order: Vec<String> = bench
        .seen
        .iter()
        .filter_map(|one| match &one.body {
            Body::Lease(lease) => lease.request_id.clone(),
            _ => None,
        })
        .collect();
    assert!(order.is_sorted(), "{order:?}");
    bench.pass(10);
    bench.restart();
    bench.pass(3);
    bench.assert_each_once(0..37);
    assert!(bench.losses().is_empty());
}

#[test]
fn a_file_that_was_deleted_while_nobody_looked_is_a_loss() {
    let mut bench = Bench::new("e.log");
    bench.write("e.log", 0..3);
    bench.room = 1;
    bench.now += Duration::from_secs(1);
    bench.turn();
    bench.now += Duration::from_secs(2);
    bench.room = 0;
    bench.turn();
    bench.kill();
    fs::remove_file(bench.path("e.log")).unwrap();
    bench.room = usize::MAX;
    bench.start();
    bench.pass(10);
    assert_eq!(bench.losses(), [("deleted before it was read".to_owned(), lines(0..3).len() as i64)]);
}

#[test]
fn damaged_positions_cost_duplicates_under_equal_ids_only() {
    let mut bench = Bench::new("e.log");
    bench.write("e.log", 0..30);
    bench.settle();
    bench.kill();
    fs::write(bench.directory.path().join("data/positions.json"), b"{\"version\":1,\"files\":[{").unwrap();
    bench.start();
    bench.settle();
    assert!(bench.seen.len() > 30);
    bench.assert_each_once(0..30);
}

#[test]
fn a_full_queue_makes_the_follower_wait() {
    let mut bench = Bench::new("e.log");
    bench.write("e.log", 0..20_000);
    bench.room = 100;
    let mut turns = 0;
    bench.now += Duration::from_secs(1);
    while bench.turn() == Turn::Full {
        turns += 1;
        bench.now += Duration::from_millis(10);
        if turns == 50 {
            bench.restart();
        }
    }
    assert!(turns >= 200, "{turns}");
    bench.assert_each_once(0..20_000);
}

#[test]
fn what_folds_over_seams_comes_out_the_same_after_any_kill() {
    let text = |from: u64| -> String {
        (from..from + 200)
            .map(|number| match number % 3 {
                0 => line(number),
                1 => format!(
                    "DEBUG 2026-01-02 10:{:02}:{:02} [s.py:1] r7 is still in WAITING_FOR_GARPLY state.\n",
                    number / 60 % 60,
                    number % 60
                ),
                _ => format!("INFO 2026-01-02 10:00:00 [s.py:1] Pull of x{number}\n failed towards e1\n"),
            })
            .collect()
    };
    let seams = (1 << 10, 4 << 10);
    let mut whole = Bench::with("e.log", timing(), seams);
    let mut killed = Bench::with("e.log", timing(), seams);
    fs::write(whole.path("e.log"), "").unwrap();
    // The same inode names the same observations: both read one file.
    fs::hard_link(whole.path("e.log"), killed.path("e.log")).unwrap();
    for round in 0..10 {
        append(&whole.path("e.log"), &text(round * 200));
        for bench in [&mut whole, &mut killed] {
            bench.now += Duration::from_millis(300);
            while bench.turn() != Turn::Rest {}
        }
        killed.restart();
    }
    whole.pass(12);
    killed.pass(12);
    assert_eq!(whole.bodies(), killed.bodies());
}

#[test]
fn a_pause_that_set_something_free_is_made_again_after_a_kill() {
    let mut bench = Bench::new("e.log");
    append(&bench.path("e.log"), "INFO 2026-01-02 10:00:00 [s.py:1] Pull of x1 failed towards e1\n");
    bench.settle();
    assert!(bench.seen.is_empty(), "it may run on");
    bench.pass(2);
    assert_eq!(bench.seen.len(), 1);
    bench.restart();
    append(&bench.path("e.log"), "  and further\n");
    append(&bench.path("e.log"), &line(1));
    bench.pass(3);
    let bodies = bench.bodies();
    assert_eq!(bodies.len(), 2, "{bodies:?}");
}

// --- sources ---

#[test]
fn a_file_that_two_sources_name_is_read_once() {
    let mut bench = Bench::new("e.log");
    let second = bench.source();
    bench.follower.as_mut().unwrap().add(second);
    bench.write("e.log", 0..3);
    bench.pass(2);
    assert_eq!(bench.seen.len(), 3);
}

#[test]
fn a_removed_source_is_read_to_where_it_was_and_its_successor_goes_on_there() {
    let mut bench = Bench::new("e.log");
    bench.write("e.log", 0..3);
    bench.settle();
    bench.write("e.log", 3..5);
    let source = bench.source;
    bench.follower.as_mut().unwrap().remove(source);
    let next = Source { worker: Some("w2".into()), ..bench.source() };
    bench.follower.as_mut().unwrap().add(next);
    bench.write("e.log", 5..7);
    bench.pass(3);
    bench.assert_each_once(0..7);
    let of = |worker: &str| {
        bench
            .seen
            .iter()
            .filter(|one| one.envelope.worker.as_ref().is_some_and(|w| w.as_str() == worker))
            .count()
    };
    assert_eq!((of("w"), of("w2")), (5, 2));
}

#[test]
fn what_an_earlier_worker_wrote_is_not_told() {
    let mut bench = Bench::new("e.log");
    bench.kill();
    bench.write("e.log", 0..10);
    let data = bench.directory.path().join("data");
    let mut follower = Follower::new(Box::new(OwnFiles), &data, &PACKS).unwrap();
    let not_before = kvprov_model::clock::WallTime::parse_rfc3339("2026-01-02T10:00:05Z");
    follower.add(Source { not_before, ..bench.source() });
    bench.follower = Some(follower);
    bench.settle();
    bench.assert_each_once(5..10);
    assert_eq!(bench.follower.as_ref().unwrap().foreign(), 5);
}

#[test]
fn what_is_recorded_begins_where_recording_began_and_goes_on_over_a_rotation() {
    let mut bench = Bench::new("e.log");
    bench.write("e.log", 0..3);
    bench.settle();
    bench.follower.as_mut().unwrap().record();
    bench.write("e.log", 3..5);
    bench.settle();
    fs::rename(bench.path("e.log"), bench.path("e.log.1")).unwrap();
    bench.write("e.log", 5..7);
    bench.pass(12);
    let mut recorded = Vec::new();
    bench.follower.as_mut().unwrap().recorded(true, &mut |source, lines| {
        assert_eq!(source.worker, Some("w".into()));
        recorded.extend_from_slice(lines);
    });
    let text = String::from_utf8(recorded).unwrap();
    let requests: Vec<&str> = text.split_whitespace().filter(|word| word.starts_with("r0")).collect();
    assert_eq!(requests, ["r0000003", "r0000004", "r0000005", "r0000006"]);
}

#[test]
fn a_damaged_packed_file_is_a_loss_and_keeps_nothing_else_from_being_read() {
    let mut bench = Bench::new("e.log");
    let path = bench.path("e.log.1");
    fs::write(&path, lines(100..5000)).unwrap();
    pack(&path);
    let packed = bench.path("e.log.1.gz");
    let mut bytes = fs::read(&packed).unwrap();
    let middle = bytes.len() / 2;
    bytes[middle..middle + 200].fill(0xff);
    fs::write(&packed, bytes).unwrap();
    bench.write("e.log", 0..3);
    bench.pass(30);
    let told = bench.told();
    assert!(told.contains_key("r0000002") && told.contains_key("r0000100"));
    assert!(told.values().all(|ids| *ids == 1));
    let report = bench.follower.as_ref().unwrap().report();
    assert!(report[0].is_followed);
}
