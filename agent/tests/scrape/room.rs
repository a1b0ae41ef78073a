//! Where a scraper under test hands things to, and workers for it to ask: engines are played by this very process.

use super::http_double::Double;
use kvprov_agent::access::{Access, ProcessAccess as _, ProcessId};
use kvprov_agent::discover::{FoundProcess, FoundWorker, Output, ProcessKey};
use kvprov_agent::metrics::scrape::{Counts, ScrapeOptions, Scraper, Taker};
use kvprov_model::clock::WallTime;
use kvprov_model::id::{NodeId, WorkerId};
use kvprov_model::observation::{Body, Counters, Loss, Observation, Role, Worker};
use kvprov_packs::Packs;
use std::collections::BTreeMap;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};
use tempfile::TempDir;

/// Longer than anything takes that works.
const PATIENCE: Duration = Duration::from_secs(30);

/// Takes what comes.
#[derive(Debug, Default)]
pub(crate) struct Room {
    pub(crate) taken: Mutex<Vec<Observation>>,
    pub(crate) pages: Mutex<Vec<(WorkerId, String, WallTime, String)>>,
    pub(crate) reads: Mutex<Vec<String>>,
    pub(crate) blind: Mutex<Vec<String>>,
    pub(crate) is_full: AtomicBool,
}

impl Taker for Room {
    fn take(&self, observations: &[Observation]) -> bool {
        if self.is_full.load(Ordering::Relaxed) {
            return false;
        }
        self.taken.lock().unwrap().extend_from_slice(observations);
        true
    }

    fn page(&self, worker: &WorkerId, endpoint: &str, at: WallTime, text: &str) {
        self.pages.lock().unwrap().push((worker.clone(), endpoint.to_owned(), at, text.to_owned()));
    }

    fn reads(&self, _: &WorkerId, what: String) {
        self.reads.lock().unwrap().push(what);
    }

    fn blind(&self, what: String) {
        self.blind.lock().unwrap().push(what);
    }
}

impl Room {
    pub(crate) fn counters(&self, worker: &str) -> Vec<(Observation, Counters)> {
        let taken = self.taken.lock().unwrap();
        let of_worker = taken.iter().filter(|one| one.envelope.worker == Some(worker.into()));
        of_worker
            .filter_map(|one| match &one.body {
                Body::Counters(counters) => Some((one.clone(), counters.clone())),
                _ => None,
            })
            .collect()
    }

    /// All increases of a counter of a worker together, each observation once.
    pub(crate) fn increase(&self, worker: &str, counter: &str) -> f64 {
        let by_id: BTreeMap<_, _> =
            self.counters(worker).into_iter().map(|(one, counters)| (one.envelope.id, counters)).collect();
        by_id.values().filter_map(|counters| counters.values.get(counter)).sum()
    }

    pub(crate) fn told(&self, worker: &str) -> Vec<Worker> {
        let taken = self.taken.lock().unwrap();
        let of_worker = taken.iter().filter(|one| one.envelope.worker == Some(worker.into()));
        of_worker
            .filter_map(|one| match &one.body {
                Body::Worker(body) => Some(body.clone()),
                _ => None,
            })
            .collect()
    }

    pub(crate) fn losses(&self) -> Vec<Loss> {
        let taken = self.taken.lock().unwrap();
        taken
            .iter()
            .filter_map(|one| match &one.body {
                Body::Loss(loss) => Some(loss.clone()),
                _ => None,
            })
            .collect()
    }

    pub(crate) fn blind(&self) -> Vec<String> {
        self.blind.lock().unwrap().clone()
    }
}

/// Quick, and nothing but counters.
pub(crate) fn options() -> ScrapeOptions {
    ScrapeOptions {
        interval: Duration::from_millis(100),
        timeout: Duration::from_millis(400),
        page_bytes: 1 << 20,
        counters: true,
        answers: Vec::new(),
    }
}

pub(crate) fn scraper(directory: &Path, options: ScrapeOptions) -> Scraper {
    let access = Arc::new(Access::new(None));
    Scraper::new(Packs::builtin(), access, NodeId("node-a".to_owned()), directory, options).unwrap()
}

/// A scraper that has read one page of the worker `d0`, with what it reads from, tells and keeps.
pub(crate) fn after_a_page(options: ScrapeOptions) -> (Double, Room, TempDir, Scraper) {
    let (double, room, folder) = (Double::start(), Room::default(), tempfile::tempdir().unwrap());
    double.page("/metrics", &page(100, 5));
    let mut scraper = scraper(folder.path(), options);
    scraper.worker(&vllm("d0", &double), &room);
    pages(&mut scraper, &room, "d0", 1);
    (double, room, folder, scraper)
}

/// Turns until something is so.
#[track_caller]
pub(crate) fn until(scraper: &mut Scraper, room: &Room, what: &str, mut is_so: impl FnMut(&Room) -> bool) {
    let begun = Instant::now();
    while !is_so(room) {
        assert!(begun.elapsed() < PATIENCE, "not so: {what}; {room:?}");
        scraper.turn(room, Duration::from_millis(20));
    }
}

/// Turns until the scraper has counted something.
#[track_caller]
pub(crate) fn counted(scraper: &mut Scraper, room: &Room, is_so: impl Fn(&Counts) -> bool) {
    let begun = Instant::now();
    while !is_so(&scraper.counts()) {
        assert!(begun.elapsed() < PATIENCE, "{:?}", scraper.counts());
        scraper.turn(room, Duration::from_millis(20));
    }
}

/// Turns for a while.
pub(crate) fn for_a_while(scraper: &mut Scraper, room: &Room, time: Duration) {
    let begun = Instant::now();
    while begun.elapsed() < time {
        scraper.turn(room, Duration::from_millis(20));
    }
}

/// Turns until so many more pages of a worker were told.
#[track_caller]
pub(crate) fn pages(scraper: &mut Scraper, room: &Room, worker: &str, more: usize) {
    let wanted = room.counters(worker).len() + more;
    until(scraper, room, "pages were told", |room| room.counters(worker).len() >= wanted);
}

/// An engine of this process, behind a port.
pub(crate) fn vllm(name: &str, double: &Double) -> FoundWorker {
    of_process(name, std::process::id(), double)
}

pub(crate) fn of_process(name: &str, pid: u32, double: &Double) -> FoundWorker {
    let ProcessId { pid, started } = Access::new(None).identify(pid).unwrap();
    let key = ProcessKey { pid, start: started };
    let process = FoundProcess {
        key,
        parent: 1,
        thread_name: "vllm".to_owned(),
        signature: Some("vllm-server".to_owned()),
        inner_pid: None,
        output: [Output::Nowhere, Output::Nowhere],
    };
    FoundWorker {
        id: name.into(),
        engine: "vllm".to_owned(),
        engine_version: Some("0.32.0".to_owned()),
        role: Some(Role::Decode),
        leader: key,
        leader_lives: true,
        started: Some(WallTime(1_000_000_000)),
        processes: vec![process],
        settings: [("port".to_owned(), double.address().port().to_string())].into(),
        facts: BTreeMap::new(),
        fact_origins: BTreeMap::new(),
        cgroup: String::new(),
        container: None,
        pod: None,
        names: kvprov_agent::containers::ContainerNames::default(),
        unread: BTreeMap::new(),
    }
}

/// A page of vLLM with a prompt computed and answered so often.
pub(crate) fn page(computed: u64, answered: u64) -> String {
    format!(
        "# HELP process_start_time_seconds Start.\n# TYPE process_start_time_seconds gauge\n\
         process_start_time_seconds 1.79596666644e+09\n\
         # TYPE vllm:prompt_tokens_by_source_total counter\n\
         vllm:prompt_tokens_by_source_total{{engine=\"0\",model_name=\"tiny\",source=\"local_compute\"}} {computed}.0\n\
         vllm:request_success_total{{engine=\"0\",finished_reason=\"stop\",model_name=\"tiny\"}} {answered}.0\n\
         vllm:something_else_total{{engine=\"0\"}} 7.0\n"
    )
}
