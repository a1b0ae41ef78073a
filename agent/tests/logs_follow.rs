//! Logs that are rotated, truncated, deleted and read on after a restart, as they are followed live.
#![allow(clippy::unwrap_used, clippy::panic, clippy::expect_used, reason = "a test fails by panicking")]

use kvprov_agent::logs::LogOptions;
use kvprov_agent::logs::follow::{Follower, OwnFiles, Source, SourceId, Timing, Turn};
use kvprov_model::observation::{Body, Observation};
use kvprov_packs::Packs;
use std::collections::BTreeMap;
use std::fs::{self, File, OpenOptions};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::sync::LazyLock;
use std::time::{Duration, Instant};

const PACK: &str = r#"
engine = "vllm"

[[template]]
id = "vllm-t-lease"
text = "Releasing grault for request {request_id:id} which were retrieved by {readers:int} workers."
kind = "lease"
set = { state = "expired" }
example = "Releasing grault for request r1 which were retrieved by 0 workers."
source = "test"

[[template]]
id = "vllm-t-wrapped"
text = "Pull of {request_id:id} failed towards {remote_engine_id:id}"
kind = "transfer"
set = { outcome = "failed" }
multiline = true
example = "Pull of r1 failed towards e1"
source = "test"

[[template]]
id = "vllm-t-waiting"
text = "{request_id:id} is still in WAITING_FOR_GARPLY state."
kind = "transfer"
set = { outcome = "waiting" }
folds = true
example = "r1 is still in WAITING_FOR_GARPLY state."
source = "test"
"#;

static PACKS: LazyLock<Packs> = LazyLock::new(|| Packs::from_texts(&[("vllm/test.toml", PACK)]).unwrap());

/// A follower, its queue, and the clock that it is shown.
struct Bench {
    directory: tempfile::TempDir,
    follower: Option<Follower<'static>>,
    source: SourceId,
    pattern: String,
    now: Instant,
    room: usize,
    timing: Timing,
    seams: (u64, u64),
    /// Everything the queue ever took.
    seen: Vec<Observation>,
}

fn timing() -> Timing {
    Timing { list_every: Duration::ZERO, ..Timing::default() }
}

impl Bench {
    fn new(pattern: &str) -> Self {
        Self::with(pattern, timing(), (64 << 10, 4 << 20))
    }

    fn with(pattern: &str, timing: Timing, seams: (u64, u64)) -> Self {
        let directory = tempfile::tempdir().unwrap();
        fs::create_dir(directory.path().join("logs")).unwrap();
        let mut bench = Self {
            directory,
            follower: None,
            source: unknown_source(),
            pattern: pattern.to_owned(),
            now: Instant::now(),
            room: usize::MAX,
            timing,
            seams,
            seen: Vec::new(),
        };
        bench.start();
        bench
    }

    fn logs(&self) -> PathBuf {
        self.directory.path().join("logs")
    }

    fn path(&self, name: &str) -> PathBuf {
        self.logs().join(name)
    }

    fn source(&self) -> Source {
        Source {
            path: self.path(&self.pattern),
            node: "n".into(),
            worker: Some("w".into()),
            options: LogOptions { engine: Some("vllm".to_owned()), ..LogOptions::default() },
            not_before: None,
        }
    }

    /// As after `kill -9`: nothing is saved, the follower is gone.
    fn kill(&mut self) {
        self.follower = None;
    }

    fn start(&mut self) {
        let data = self.directory.path().join("data");
        let mut follower = Follower::new(Box::new(OwnFiles), &data, &PACKS)
            .unwrap()
            .with_timing(self.timing)
            .with_seams(self.seams.0, self.seams.1);
        self.source = follower.add(self.source());
        self.follower = Some(follower);
    }

    fn restart(&mut self) {
        self.kill();
        self.start();
    }

    /// One turn.
    fn turn(&mut self) -> Turn {
        let mut room = self.room;
        let seen = &mut self.seen;
        let follower = self.follower.as_mut().unwrap();
        follower
            .poll(self.now, &mut |observation| {
                if room == 0 {
                    return Err(Box::new(observation));
                }
                room -= 1;
                seen.push(observation);
                Ok(())
            })
            .unwrap()
    }

    /// Turns until nothing is left, with a second between.
    fn settle(&mut self) {
        for _ in 0..2 {
            self.now += Duration::from_millis(100);
            while self.turn() != Turn::Rest {}
        }
    }

    fn pass(&mut self, seconds: u64) {
        for _ in 0..seconds * 4 {
            self.now += Duration::from_millis(250);
            while self.turn() != Turn::Rest {}
        }
    }

    fn write(&self, name: &str, requests: std::ops::Range<u64>) {
        append(&self.path(name), &lines(requests));
    }

    /// Requests told, each with how many different ids told it.
    fn told(&self) -> BTreeMap<String, usize> {
        let mut ids: BTreeMap<String, std::collections::BTreeSet<String>> = BTreeMap::new();
        for one in &self.seen {
            if let Body::Lease(lease) = &one.body {
                ids.entry(lease.request_id.clone().unwrap()).or_default().insert(one.envelope.id.to_hex());
            }
        }
        ids.into_iter().map(|(request, ids)| (request, ids.len())).collect()
    }

    fn assert_each_once(&self, requests: std::ops::Range<u64>) {
        let wanted: BTreeMap<String, usize> = requests.map(|number| (format!("r{number:07}"), 1)).collect();
        let told = self.told();
        let missing: Vec<_> = wanted.keys().filter(|key| !told.contains_key(*key)).take(5).collect();
        let wrong: Vec<_> =
            told.iter().filter(|(key, ids)| **ids != 1 || !wanted.contains_key(*key)).take(5).collect();
        assert!(
            missing.is_empty() && wrong.is_empty(),
            "missing {missing:?}, not once {wrong:?}, {} told",
            told.len()
        );
    }

    fn losses(&self) -> Vec<(String, i64)> {
        let of = |one: &Observation| match &one.body {
            Body::Loss(loss) => {
                Some((loss.reason.clone().unwrap_or_default(), loss.bytes.unwrap_or_default()))
            }
            _ => None,
        };
        let mut by_id = BTreeMap::new();
        for one in &self.seen {
            if let Some(loss) = of(one) {
                by_id.insert(one.envelope.id.to_hex(), loss);
            }
        }
        by_id.into_values().collect()
    }
}

fn unknown_source() -> SourceId {
    let data = tempfile::tempdir().unwrap();
    let source = Source {
        path: data.path().join("none"),
        node: "n".into(),
        worker: None,
        options: LogOptions::default(),
        not_before: None,
    };
    Follower::new(Box::new(OwnFiles), data.path(), &PACKS).unwrap().add(source)
}

fn line(request: u64) -> String {
    let second = request % 60;
    let minute = request / 60 % 60;
    format!(
        "WARNING 2026-01-02 10:{minute:02}:{second:02} [worker.py:29] Releasing grault for request r{request:07} which were retrieved by 0 workers.\n"
    )
}

fn lines(requests: std::ops::Range<u64>) -> String {
    requests.map(line).collect()
}

fn append(path: &Path, text: &str) {
    let mut file = OpenOptions::new().create(true).append(true).open(path).unwrap();
    file.write_all(text.as_bytes()).unwrap();
}

fn pack(path: &Path) {
    let status = std::process::Command::new("gzip").arg(path).status().unwrap();
    assert!(status.success());
}

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

impl Bench {
    fn settle_full(&mut self) {
        for _ in 0..10 {
            self.now += Duration::from_millis(300);
            self.turn();
        }
    }

    /// All bodies by id, with the folded counts.
    fn bodies(&self) -> BTreeMap<String, String> {
        self.seen
            .iter()
            .map(|one| (one.envelope.id.to_hex(), format!("{:?} {:?}", one.envelope.wall, one.body)))
            .collect()
    }
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

// --- at full speed ---

/// How a writer makes room.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Rotation {
    /// Renamed to `.1`, the older ones moved on, the oldest packed.
    Numbered,
    /// As the kubelet does: renamed to a date, all but the newest packed.
    Kubelet,
    /// Copied to `.1` and truncated.
    CopyTruncate,
}

/// Writes `lines` lines, with a rotation every `each`.
fn write_at_full_speed(directory: &Path, rotation: Rotation, lines: u64, each: u64, packs: bool) {
    let live = directory.join("0.log");
    let open = || OpenOptions::new().create(true).append(true).open(&live).unwrap();
    let mut file = open();
    let mut number = 0;
    let mut rotations = 0;
    while number < lines {
        let end = (number + each).min(lines);
        while number < end {
            let batch = (number + 50).min(end);
            let text: String = (number..batch)
                .map(|number| match rotation {
                    Rotation::Kubelet => {
                        format!("2026-01-02T10:00:00.{:09}Z stderr F {}", number, line(number))
                    }
                    _ => line(number),
                })
                .collect();
            file.write_all(text.as_bytes()).unwrap();
            number = batch;
        }
        if number == lines {
            break;
        }
        rotations += 1;
        match rotation {
            Rotation::Numbered | Rotation::CopyTruncate => {
                for old in (1..rotations).rev() {
                    let packed = directory.join(format!("0.log.{old}.gz"));
                    let _ = fs::rename(&packed, directory.join(format!("0.log.{}.gz", old + 1)));
                    let plain = directory.join(format!("0.log.{old}"));
                    let _ = fs::rename(&plain, directory.join(format!("0.log.{}", old + 1)));
                }
                if rotation == Rotation::Numbered {
                    fs::rename(&live, directory.join("0.log.1")).unwrap();
                    file = open();
                } else {
                    fs::copy(&live, directory.join("0.log.1")).unwrap();
                    file.set_len(0).unwrap();
                }
                if packs && rotations > 3 {
                    pack_quietly(&directory.join("0.log.3"));
                }
            }
            Rotation::Kubelet => {
                let name = |number: u64| format!("0.log.20260102-{number:06}");
                fs::rename(&live, directory.join(name(rotations))).unwrap();
                file = open();
                if packs && rotations > 1 {
                    pack_quietly(&directory.join(name(rotations - 1)));
                }
            }
        }
    }
}

fn pack_quietly(path: &Path) {
    let _ = std::process::Command::new("gzip").arg("-1").arg("-q").arg(path).status();
}

/// What a run at full speed came to.
struct Run {
    /// By request: how many ids told it, 255 at most.
    told: Vec<u8>,
    observations: u64,
    lost: i64,
    losses: usize,
}

fn follow_at_full_speed(rotation: Rotation, lines: u64, each: u64, restarts: u64, packs: bool) -> Run {
    let directory = tempfile::tempdir().unwrap();
    let logs = directory.path().join("logs");
    fs::create_dir(&logs).unwrap();
    let data = directory.path().join("data");
    let writer = {
        let logs = logs.clone();
        std::thread::spawn(move || write_at_full_speed(&logs, rotation, lines, each, packs))
    };
    let source = Source {
        path: logs.join("0.log"),
        node: "n".into(),
        worker: Some("w".into()),
        options: LogOptions { engine: Some("vllm".to_owned()), ..LogOptions::default() },
        not_before: None,
    };
    // The first id of each request is enough to tell a second one.
    let mut first: Vec<Option<[u8; 16]>> = vec![None; lines as usize];
    let mut run = Run { told: vec![0; lines as usize], observations: 0, lost: 0, losses: 0 };
    let mut loss_ids = std::collections::BTreeSet::new();
    let mut take = |observation: Observation| {
        run.observations += 1;
        match &observation.body {
            Body::Lease(lease) => {
                let number: usize = lease.request_id.as_deref().unwrap()[1..].parse().unwrap();
                let id = observation.envelope.id.0;
                if first[number] != Some(id) {
                    first[number] = Some(id);
                    run.told[number] = run.told[number].saturating_add(1);
                }
            }
            Body::Loss(loss) => {
                if loss_ids.insert(observation.envelope.id.to_hex()) {
                    run.losses += 1;
                    run.lost += loss.bytes.unwrap_or_default();
                }
            }
            _ => {}
        }
        Ok(())
    };
    let timing = Timing { linger: Duration::from_secs(1), ..Timing::default() };
    let mut killed = 0;
    let mut rested: Option<Instant> = None;
    let mut turns = 0;
    let mut follower: Option<Follower<'static>> = None;
    loop {
        let following = follower.get_or_insert_with(|| {
            let mut new = Follower::new(Box::new(OwnFiles), &data, &PACKS).unwrap().with_timing(timing);
            new.add(source.clone());
            new
        });
        let turn = following.poll(Instant::now(), &mut take).unwrap();
        turns += 1;
        if killed < restarts && turns % 7 == 0 {
            killed += 1;
            follower = None;
            continue;
        }
        if turn == Turn::Rest {
            std::thread::sleep(Duration::from_millis(20));
        } else {
            rested = None;
            continue;
        }
        // All that is there was read a while ago, and the writer is done.
        if writer.is_finished() && rested.get_or_insert_with(Instant::now).elapsed() > Duration::from_secs(4)
        {
            break;
        }
    }
    writer.join().unwrap();
    run
}

impl Run {
    fn assert_each_once(&self, rotation: Rotation) {
        let missing = self.told.iter().filter(|count| **count == 0).count();
        let doubled = self.told.iter().filter(|count| **count > 1).count();
        let first = self.told.iter().position(|count| *count != 1);
        assert!(
            missing == 0 && doubled == 0 && self.losses == 0,
            "{rotation:?}: {missing} missing, {doubled} more than once, first {first:?}, {} losses of {} bytes",
            self.losses,
            self.lost
        );
    }
}

#[test]
fn every_line_is_told_once_over_renames_at_full_speed() {
    follow_at_full_speed(Rotation::Numbered, 100_000, 9_000, 5, true).assert_each_once(Rotation::Numbered);
}

#[test]
fn every_line_is_told_once_over_the_kubelets_rotations_at_full_speed() {
    follow_at_full_speed(Rotation::Kubelet, 100_000, 9_000, 5, true).assert_each_once(Rotation::Kubelet);
}

#[test]
fn what_copies_and_truncations_lose_at_full_speed_is_counted() {
    let run = follow_at_full_speed(Rotation::CopyTruncate, 100_000, 9_000, 5, false);
    let missing = run.told.iter().filter(|count| **count == 0).count();
    let doubled = run.told.iter().filter(|count| **count > 1).count();
    let first = run.told.iter().position(|count| *count > 1);
    assert_eq!(doubled, 0, "first {first:?}, {missing} missing, {} losses of {} bytes", run.losses, run.lost);
    // Nobody wrote between a copy and its truncation, so that what is missing was seen and lost.
    assert!(missing == 0 || run.lost > 0, "{missing} missing, {} losses of {} bytes", run.losses, run.lost);
}

/// `cargo test --release -p kvprov-agent --test logs_follow -- --ignored --nocapture twenty_million`
#[test]
#[ignore = "writes gigabytes and takes minutes"]
fn twenty_million_lines_are_told_once() {
    for rotation in [Rotation::Numbered, Rotation::Kubelet] {
        let began = Instant::now();
        let run = follow_at_full_speed(rotation, 20_000_000, 1_000_000, 5, false);
        run.assert_each_once(rotation);
        eprintln!("{rotation:?}: {} observations in {:?}", run.observations, began.elapsed());
    }
    let run = follow_at_full_speed(Rotation::CopyTruncate, 20_000_000, 1_000_000, 5, false);
    let missing = run.told.iter().filter(|count| **count == 0).count();
    let doubled = run.told.iter().filter(|count| **count > 1).count();
    eprintln!(
        "CopyTruncate: {missing} missing, {doubled} doubled, {} losses of {} bytes",
        run.losses, run.lost
    );
    assert_eq!(doubled, 0);
    assert!(missing == 0 || run.lost > 0);
}

// --- any sequence ---

/// One thing that happens to a log or to whoever follows it.
#[derive(Debug, Clone)]
enum Step {
    /// So many lines; the last one only half if `.1`.
    Write(u64, bool),
    Rename,
    Create,
    Truncate,
    CopyTruncate,
    /// Packs the oldest file that is not packed.
    Pack,
    /// Looks, so many milliseconds later.
    Look(u64),
    Kill,
}

fn step() -> impl proptest::strategy::Strategy<Value = Step> {
    use proptest::prelude::*;
    prop_oneof![
        4 => (1_u64..40, any::<bool>()).prop_map(|(lines, half)| Step::Write(lines, half)),
        2 => Just(Step::Rename),
        1 => Just(Step::Create),
        1 => Just(Step::Truncate),
        2 => Just(Step::CopyTruncate),
        1 => Just(Step::Pack),
        4 => prop_oneof![Just(50_u64), Just(300), Just(1200), Just(6000)].prop_map(Step::Look),
        2 => Just(Step::Kill),
    ]
}

/// A writer, and what is to come of it.
struct Model {
    bench: Bench,
    file: File,
    /// The rest of a line that was begun.
    open: String,
    next: u64,
    /// Lines in the live file, and the first that may be unread.
    live: std::ops::Range<u64>,
    unread: u64,
    /// Lines that may never be told.
    may_be_lost: std::collections::BTreeSet<u64>,
    rotations: u64,
}

impl Model {
    fn new() -> Self {
        let bench = Bench::with("e.log", timing(), (512, 2048));
        let file = OpenOptions::new().create(true).append(true).open(bench.path("e.log")).unwrap();
        Self {
            bench,
            file,
            open: String::new(),
            next: 0,
            live: 0..0,
            unread: 0,
            may_be_lost: std::collections::BTreeSet::new(),
            rotations: 0,
        }
    }

    /// A writer rotates between lines.
    fn end_line(&mut self) {
        let open = std::mem::take(&mut self.open);
        self.file.write_all(open.as_bytes()).unwrap();
    }

    fn move_on(&mut self) {
        let names: Vec<String> = fs::read_dir(self.bench.logs())
            .unwrap()
            .map(|entry| entry.unwrap().file_name().into_string().unwrap())
            .collect();
        for number in (1..=self.rotations).rev() {
            for ending in ["", ".gz"] {
                let name = format!("e.log.{number}{ending}");
                if names.contains(&name) {
                    let next = format!("e.log.{}{ending}", number + 1);
                    fs::rename(self.bench.path(&name), self.bench.path(&next)).unwrap();
                }
            }
        }
        self.rotations += 1;
    }

    fn create(&mut self) {
        self.file = OpenOptions::new().create(true).append(true).open(self.bench.path("e.log")).unwrap();
        self.live = self.next..self.next;
    }

    fn apply(&mut self, step: &Step) {
        match step {
            Step::Write(count, half) => {
                self.end_line();
                let text = lines(self.next..self.next + count);
                self.next += count;
                self.live.end = self.next;
                let cut = if *half { text.len() - 20 } else { text.len() };
                self.open = text[cut..].to_owned();
                self.file.write_all(&text.as_bytes()[..cut]).unwrap();
            }
            Step::Rename => {
                self.end_line();
                self.move_on();
                fs::rename(self.bench.path("e.log"), self.bench.path("e.log.1")).unwrap();
                self.create();
            }
            Step::Create => {
                self.end_line();
                // Deleted under the writer: what was not looked at is gone unless the file is open.
                self.may_be_lost.extend(self.live.clone().filter(|number| *number >= self.unread));
                fs::remove_file(self.bench.path("e.log")).unwrap();
                self.create();
            }
            Step::Truncate => {
                self.end_line();
                self.may_be_lost.extend(self.live.clone().filter(|number| *number >= self.unread));
                self.file.set_len(0).unwrap();
                self.live = self.next..self.next;
            }
            Step::CopyTruncate => {
                self.end_line();
                self.move_on();
                fs::copy(self.bench.path("e.log"), self.bench.path("e.log.1")).unwrap();
                self.file.set_len(0).unwrap();
                self.live = self.next..self.next;
            }
            Step::Pack => {
                let oldest =
                    (1..=self.rotations).rev().map(|number| self.bench.path(&format!("e.log.{number}")));
                if let Some(path) = oldest.into_iter().find(|path| path.exists()) {
                    pack_quietly(&path);
                }
            }
            Step::Look(milliseconds) => {
                self.bench.now += Duration::from_millis(*milliseconds);
                while self.bench.turn() != Turn::Rest {}
                // A line that is half written is not read yet.
                self.unread = if self.open.is_empty() { self.next } else { self.next - 1 };
            }
            Step::Kill => self.bench.restart(),
        }
    }

    fn check(mut self) -> Result<(), String> {
        self.end_line();
        self.bench.pass(30);
        let told = self.bench.told();
        for number in 0..self.next {
            match told.get(&format!("r{number:07}")) {
                Some(1) => {}
                Some(ids) => return Err(format!("line {number} was told under {ids} ids")),
                None if self.may_be_lost.contains(&number) => {}
                None => return Err(format!("line {number} of {} was not told", self.next)),
            }
        }
        Ok(())
    }
}

proptest::proptest! {
    #![proptest_config(proptest::prelude::ProptestConfig { cases: std::env::var("PROPTEST_CASES").ok().and_then(|cases| cases.parse().ok()).unwrap_or(100), max_shrink_iters: 300, ..Default::default() })]

    #[test]
    fn any_sequence_of_rotations_and_kills_tells_every_line_once(steps in proptest::collection::vec(step(), 1..40)) {
        let mut model = Model::new();
        for step in &steps {
            model.apply(step);
        }
        if let Err(wrong) = model.check() {
            proptest::prop_assert!(false, "{}: {:?}", wrong, steps);
        }
    }
}
