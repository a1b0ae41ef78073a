//! A follower with its queue and clock, and a pack, for tests of following logs.
#![allow(dead_code, unreachable_pub, reason = "each test uses some of it")]
#![allow(clippy::unwrap_used, clippy::panic, clippy::expect_used, reason = "a test fails by panicking")]

use kvprov_agent::logs::LogOptions;
use kvprov_agent::logs::follow::{Follower, OwnFiles, Source, SourceId, Timing, Turn};
use kvprov_model::observation::{Body, Observation};
use kvprov_packs::Packs;
use std::collections::BTreeMap;
use std::fs::{self, OpenOptions};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::sync::LazyLock;
use std::time::{Duration, Instant};

pub const PACK: &str = r#"
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

pub static PACKS: LazyLock<Packs> = LazyLock::new(|| Packs::from_texts(&[("vllm/test.toml", PACK)]).unwrap());

/// A follower, its queue, and the clock that it is shown.
pub struct Bench {
    pub directory: tempfile::TempDir,
    pub follower: Option<Follower<'static>>,
    pub source: SourceId,
    pub pattern: String,
    pub now: Instant,
    pub room: usize,
    pub timing: Timing,
    pub seams: (u64, u64),
    /// Everything the queue ever took.
    pub seen: Vec<Observation>,
}

pub fn timing() -> Timing {
    Timing { list_every: Duration::ZERO, ..Timing::default() }
}

impl Bench {
    pub fn new(pattern: &str) -> Self {
        Self::with(pattern, timing(), (64 << 10, 4 << 20))
    }

    pub fn with(pattern: &str, timing: Timing, seams: (u64, u64)) -> Self {
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

    pub fn logs(&self) -> PathBuf {
        self.directory.path().join("logs")
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.logs().join(name)
    }

    pub fn source(&self) -> Source {
        Source {
            path: self.path(&self.pattern),
            node: "n".into(),
            worker: Some("w".into()),
            options: LogOptions { engine: Some("vllm".to_owned()), ..LogOptions::default() },
            not_before: None,
        }
    }

    /// As after `kill -9`: nothing is saved, the follower is gone.
    pub fn kill(&mut self) {
        self.follower = None;
    }

    pub fn start(&mut self) {
        let data = self.directory.path().join("data");
        let mut follower = Follower::new(Box::new(OwnFiles), &data, &PACKS)
            .unwrap()
            .with_timing(self.timing)
            .with_seams(self.seams.0, self.seams.1);
        self.source = follower.add(self.source());
        self.follower = Some(follower);
    }

    pub fn restart(&mut self) {
        self.kill();
        self.start();
    }

    /// One turn.
    pub fn turn(&mut self) -> Turn {
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
    pub fn settle(&mut self) {
        for _ in 0..2 {
            self.now += Duration::from_millis(100);
            while self.turn() != Turn::Rest {}
        }
    }

    pub fn pass(&mut self, seconds: u64) {
        for _ in 0..seconds * 4 {
            self.now += Duration::from_millis(250);
            while self.turn() != Turn::Rest {}
        }
    }

    pub fn write(&self, name: &str, requests: std::ops::Range<u64>) {
        append(&self.path(name), &lines(requests));
    }

    /// Requests told, each with how many different ids told it.
    pub fn told(&self) -> BTreeMap<String, usize> {
        let mut ids: BTreeMap<String, std::collections::BTreeSet<String>> = BTreeMap::new();
        for one in &self.seen {
            if let Body::Lease(lease) = &one.body {
                ids.entry(lease.request_id.clone().unwrap()).or_default().insert(one.envelope.id.to_hex());
            }
        }
        ids.into_iter().map(|(request, ids)| (request, ids.len())).collect()
    }

    pub fn assert_each_once(&self, requests: std::ops::Range<u64>) {
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

    pub fn losses(&self) -> Vec<(String, i64)> {
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

pub fn unknown_source() -> SourceId {
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

pub fn line(request: u64) -> String {
    let second = request % 60;
    let minute = request / 60 % 60;
    format!(
        "WARNING 2026-01-02 10:{minute:02}:{second:02} [worker.py:29] Releasing grault for request r{request:07} which were retrieved by 0 workers.\n"
    )
}

pub fn lines(requests: std::ops::Range<u64>) -> String {
    requests.map(line).collect()
}

pub fn append(path: &Path, text: &str) {
    let mut file = OpenOptions::new().create(true).append(true).open(path).unwrap();
    file.write_all(text.as_bytes()).unwrap();
}

pub fn pack(path: &Path) {
    let status = std::process::Command::new("gzip").arg(path).status().unwrap();
    assert!(status.success());
}

impl Bench {
    pub fn settle_full(&mut self) {
        for _ in 0..10 {
            self.now += Duration::from_millis(300);
            self.turn();
        }
    }

    /// All bodies by id, with the folded counts.
    pub fn bodies(&self) -> BTreeMap<String, String> {
        self.seen
            .iter()
            .map(|one| (one.envelope.id.to_hex(), format!("{:?} {:?}", one.envelope.wall, one.body)))
            .collect()
    }
}

pub fn pack_quietly(path: &Path) {
    let _ = std::process::Command::new("gzip").arg("-1").arg("-q").arg(path).status();
}
