//! Any sequence of writes, rotations, truncations and kills: every line is told once.
#![allow(clippy::unwrap_used, clippy::panic, clippy::expect_used, reason = "a test fails by panicking")]

mod follow;

use follow::*;
use kvprov_agent::logs::follow::Turn;
use std::fs::{self, File, OpenOptions};
use std::io::Write;
use std::time::{Duration, Instant};

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
    /// First look after a kill.
    killed: Option<Instant>,
    /// Lines that may never be told.
    may_be_lost: std::collections::BTreeSet<u64>,
    rotations: u64,
}

impl Model {
    fn new() -> Self {
        let bench = Bench::with("e.log", timing(), (512, 2048));
        let file = OpenOptions::new().create(true).append(true).open(bench.path("e.log")).unwrap();
        Self {
            killed: Some(bench.now - Duration::from_secs(10)),
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
                // What was set aside while nobody looked may have to rest before it is known, and the live file with it.
                let first_look = *self.killed.get_or_insert(self.bench.now);
                if self.bench.now < first_look + Duration::from_millis(2200) {
                    return;
                }
                // A line that is half written is not read yet.
                self.unread = if self.open.is_empty() { self.next } else { self.next - 1 };
            }
            Step::Kill => {
                self.bench.restart();
                self.killed = None;
            }
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
