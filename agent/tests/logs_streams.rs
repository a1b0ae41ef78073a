//! Output captured by the kernel: pieces of interleaved processes become lines.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test fails by panicking")]

use kvprov_agent::logs::LogOptions;
use kvprov_agent::logs::streams::{Piece, Streams};
use kvprov_model::clock::{SECOND, WallTime};
use kvprov_model::observation::{Body, Observation};
use kvprov_packs::Packs;
use std::sync::LazyLock;

const PACK: &str = r#"
engine = "vllm"

[[template]]
id = "vllm-t-lease"
text = "Releasing grault for request {request_id:id} which were retrieved by {readers:int} workers."
kind = "lease"
set = { state = "expired" }
multiline = true
example = "Releasing grault for request r1 which were retrieved by 0 workers."
source = "test"
"#;

static PACKS: LazyLock<Packs> = LazyLock::new(|| Packs::from_texts(&[("vllm/test.toml", PACK)]).unwrap());

struct Bench {
    streams: Streams<'static>,
    position: u64,
    seen: Vec<Observation>,
}

impl Bench {
    fn new() -> Self {
        let mut streams = Streams::new("n".into(), "boot".to_owned(), &PACKS);
        streams.add("w".into(), LogOptions { engine: Some("vllm".to_owned()), ..LogOptions::default() });
        Self { streams, position: 0, seen: Vec::new() }
    }

    fn write(&mut self, process: u32, text: &str) {
        self.write_cut(process, text, 0);
    }

    fn write_cut(&mut self, process: u32, text: &str, skipped: u64) {
        self.position += 1;
        self.piece(process, self.position, text, skipped);
    }

    fn piece(&mut self, process: u32, position: u64, text: &str, skipped: u64) {
        let wall = WallTime(position as i64 * SECOND / 10);
        let piece = Piece { process, descriptor: 1, position, wall, bytes: text.as_bytes(), skipped };
        self.streams.piece(&"w".into(), piece, &mut |observation| self.seen.push(observation));
    }

    fn end(&mut self) {
        self.streams.remove(&"w".into(), &mut |observation| self.seen.push(observation));
    }

    fn requests(&self) -> Vec<String> {
        let of = |one: &Observation| match &one.body {
            Body::Lease(lease) => lease.request_id.clone(),
            _ => None,
        };
        self.seen.iter().filter_map(of).collect()
    }

    fn ids(&self) -> Vec<String> {
        let mut ids: Vec<String> = self.seen.iter().map(|one| one.envelope.id.to_hex()).collect();
        ids.sort();
        ids.dedup();
        ids
    }
}

fn line(request: &str) -> String {
    format!("Releasing grault for request {request} which were retrieved by 0 workers.\n")
}

#[test]
fn pieces_of_interleaved_processes_are_lines_of_their_own() {
    let mut bench = Bench::new();
    let (a, b) = (line("r1"), line("r2"));
    bench.write(1, &a[..20]);
    bench.write(2, &b[..33]);
    bench.write(1, &a[20..40]);
    bench.write(2, &b[33..]);
    bench.write(1, &a[40..]);
    bench.end();
    assert_eq!(bench.requests(), ["r1", "r2"]);
}

#[test]
fn a_message_that_runs_on_is_not_mixed_with_another_processes() {
    let mut bench = Bench::new();
    bench.write(1, "Releasing grault for request r1\n");
    bench.write(2, "Releasing grault for request r2\n");
    bench.write(1, "  which were retrieved by 1 workers.\n");
    bench.write(2, "  which were retrieved by 2 workers.\n");
    bench.end();
    let readers: Vec<_> = bench
        .seen
        .iter()
        .map(|one| match &one.body {
            Body::Lease(lease) => (lease.request_id.clone().unwrap(), lease.readers),
            _ => panic!("{one:?}"),
        })
        .collect();
    assert_eq!(readers, [("r1".to_owned(), Some(1)), ("r2".to_owned(), Some(2))]);
}

#[test]
fn a_line_without_a_clock_has_the_time_of_its_piece_and_one_with_a_clock_its_own() {
    let mut bench = Bench::new();
    bench.position = 99;
    bench.write(1, &line("r1"));
    bench.write(1, &format!("WARNING 2026-01-02 10:00:01 [worker.py:29] {}", line("r2")));
    bench.write(1, &line("r3"));
    bench.end();
    let walls: Vec<String> = bench.seen.iter().map(|one| one.envelope.wall.unwrap().to_rfc3339()).collect();
    assert_eq!(walls, ["1970-01-01T00:00:10.000Z", "2026-01-02T10:00:01.000Z", "1970-01-01T00:00:10.200Z"]);
}

#[test]
fn a_line_of_which_a_part_was_not_captured_is_not_read() {
    let mut bench = Bench::new();
    let text = line("r1");
    bench.write_cut(1, &text[..50], 7);
    bench.write(1, "rest of something\n");
    bench.write(1, &line("r2"));
    bench.end();
    assert_eq!(bench.requests(), ["r2"]);
    let lost: Vec<_> = bench
        .seen
        .iter()
        .filter_map(|one| match &one.body {
            Body::Loss(loss) => loss.bytes,
            _ => None,
        })
        .collect();
    assert_eq!(lost, [7]);
    assert_eq!(bench.streams.losses().of("line of which a part was not captured"), 1);
}

#[test]
fn lines_of_one_piece_have_ids_of_their_own_and_the_same_ones_again() {
    let text: String = (0..20).map(|number| line(&format!("r{number}"))).collect();
    let run = || {
        let mut bench = Bench::new();
        bench.write(1, &text[..700]);
        bench.write(1, &text[700..]);
        bench.end();
        bench.ids()
    };
    assert_eq!(run().len(), 20);
    assert_eq!(run(), run());
}

#[test]
fn what_is_settled_is_not_needed_again_and_a_restart_gives_the_same() {
    let pieces: Vec<String> = (0..60)
        .map(|number| {
            let text = line(&format!("r{number}"));
            // Every third line comes in two pieces.
            if number % 3 == 0 { text[..30].to_owned() + "\u{0}" + &text[30..] } else { text }
        })
        .flat_map(|text| text.split('\u{0}').map(str::to_owned).collect::<Vec<_>>())
        .collect();
    let mut whole = Bench::new();
    pieces.iter().for_each(|piece| whole.write(1, piece));
    whole.end();
    for kill_at in 1..pieces.len() {
        let mut bench = Bench::new();
        let mut from = 1;
        let mut states = Vec::new();
        for (at, piece) in pieces.iter().enumerate() {
            if at == kill_at {
                let seen = std::mem::take(&mut bench.seen);
                bench = Bench { seen, ..Bench::new() };
                bench.streams.restore(std::mem::take(&mut states));
                for position in from..=at as u64 {
                    bench.piece(1, position, &pieces[position as usize - 1], 0);
                }
                bench.position = at as u64;
            }
            bench.write(1, piece);
            if at % 5 == 0 {
                let now = WallTime(bench.position as i64 * SECOND / 10);
                let Bench { streams, seen, position } = &mut bench;
                let needed = streams.settle(now, &mut |observation| seen.push(observation));
                from = needed.unwrap_or(*position + 1);
                states = streams.states();
            }
        }
        bench.end();
        assert_eq!(bench.ids(), whole.ids(), "killed before piece {kill_at}");
    }
}

#[test]
fn many_processes_and_endless_lines_are_bounded() {
    let mut bench = Bench::new();
    for process in 0..1000 {
        bench.write(process, "x");
    }
    for _ in 0..400 {
        bench.write(1, &"y".repeat(8192));
    }
    bench.write(1, "\n");
    bench.write(1, &line("r1"));
    bench.end();
    assert_eq!(bench.requests(), ["r1"]);
}

#[test]
fn output_of_nobody_is_left_out() {
    let mut bench = Bench::new();
    let piece =
        Piece { process: 1, descriptor: 1, position: 1, wall: WallTime(0), bytes: b"x\n", skipped: 0 };
    bench.streams.piece(&"other".into(), piece, &mut |observation| bench.seen.push(observation));
    assert_eq!(bench.streams.counts().total, 0);
}
