//! What a worker's model is, by the content of the files that its processes opened.
//!
//! Input: opens of files of models ([`ModelOpen`]). Output: `factor` observations: provisional once a load is quiet,
//! full when the content of every file is known. A file is read once, in the background, and only in the state in
//! which it was opened: if it is another by then the factor is unknown, with the reason. Opening the same content
//! again is no news; other content is dated at the open that showed it, and from there on the old value is withdrawn at once. Invariant: memory is bounded; a value is full
//! only when nothing speaks of a missing file.

mod cache;
mod hash;
mod load;

pub use cache::FileKey;
pub use hash::{FileOpener, OwnFiles};

use crate::kernel::live::ModelOpen;
use crate::source::{Losses, Place, Sink, SourceContext};
use cache::DigestCache;
use hash::{Job, Outcome};
use kvprov_model::clock::WallTime;
use kvprov_model::factor::FactorState;
use kvprov_model::id::{NodeId, WorkerId};
use kvprov_model::observation::{Body, Factor, SourceKind};
use load::{Effect, Load, QUIET, Value};
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::path::PathBuf;
use std::sync::mpsc::{Receiver, Sender, channel};

/// Bytes a second that are read unless told otherwise.
pub const DEFAULT_RATE: u64 = 200_000_000;
/// Factors of all workers and their directories.
const LOADS: usize = 4096;
/// Files whose content is known or asked for.
const FILES: usize = 64 * 1024;
/// A file up to this size is read at once; a larger one when its load is quiet, out of the engine's way.
const SMALL: u64 = 64 << 20;
/// Weights opened in another directory this soon after are of the same start: of a draft model, or the model's own
/// after it.
const ONE_START: i64 = 120 * kvprov_model::clock::SECOND;

/// Settings.
#[derive(Debug, Clone)]
pub struct IdentityOptions {
    /// The node.
    pub node: NodeId,
    /// What makes ring positions unique.
    pub ring: String,
    /// The boot of the node.
    pub boot: String,
    /// File that keeps digests over restarts; its directory has to be there.
    pub cache: Option<PathBuf>,
    /// Bytes a second that are read; 0: no limit.
    pub rate: u64,
}

/// What an open belongs to.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
struct LoadKey {
    worker: WorkerId,
    factor: String,
    directory: String,
}

/// Content of one file.
#[derive(Debug, Clone)]
enum Content {
    /// Asked for; `true`: the thread has it.
    Wanted(Box<Job>, bool),
    Known(Result<String, &'static str>),
}

/// Follows the models of all workers.
pub struct Identities {
    options: IdentityOptions,
    loads: BTreeMap<LoadKey, Load>,
    contents: HashMap<FileKey, Content, foldhash::fast::RandomState>,
    indexes: HashMap<FileKey, BTreeSet<String>, foldhash::fast::RandomState>,
    cache: DigestCache,
    jobs: Sender<Job>,
    /// The thread stops when this goes.
    _alive: Sender<()>,
    outcomes: Receiver<Outcome>,
    losses: Losses,
}

// === impl Identities ===

impl Identities {
    /// Begins, with a thread that reads files. It ends with this value.
    pub fn new(options: IdentityOptions, mut opener: Box<dyn FileOpener>) -> std::io::Result<Self> {
        let (jobs, wanted) = channel::<Job>();
        let (done, outcomes) = channel();
        let (alive, end) = channel();
        let rate = options.rate;
        std::thread::Builder::new().name("kvprov-hash".to_owned()).spawn(move || {
            while let Ok(job) = wanted.recv() {
                if done.send(hash::read(&job, &mut *opener, rate, &end)).is_err() {
                    return;
                }
            }
        })?;
        let cache = DigestCache::open(options.cache.as_deref(), &options.boot);
        Ok(Self {
            options,
            loads: BTreeMap::new(),
            contents: HashMap::default(),
            indexes: HashMap::default(),
            cache,
            jobs,
            _alive: alive,
            outcomes,
            losses: Losses::default(),
        })
    }

    /// A process of a worker opened a file of a model.
    pub fn opened(&mut self, worker: &WorkerId, open: &ModelOpen) {
        // A blob opened by its own name does not tell which factor it is.
        if open.file.factor == "any" {
            return;
        }
        let Some((directory, name)) = open.path.rsplit_once('/') else { return };
        let key = LoadKey {
            worker: worker.clone(),
            factor: open.file.factor.clone(),
            directory: directory.to_owned(),
        };
        if self.loads.len() >= LOADS && !self.loads.contains_key(&key) {
            self.losses.one("too many loads of models");
            return;
        }
        let file = FileKey::of(&open.identity, &open.state);
        // Other weights than those that run are loaded: those are over, whatever comes.
        let takes_over = key.factor == "weights"
            && self.loads.iter().any(|(other, load)| {
                other.worker == key.worker
                    && other.factor == key.factor
                    && load.told.as_ref().is_some_and(|(full, _)| *full)
                    && open.wall.since(load.first) > ONE_START
            });
        let load = self.loads.entry(key).or_insert_with(|| {
            let mut load = Load::new(&open.file.factor, &open.path, open.wall, open.position);
            load.in_doubt = takes_over;
            load
        });
        if load.opened(name, file, &open.path, open.wall, open.position) == Effect::Full {
            self.losses.one("too many files of one model");
        }
        if let Some(file) = file {
            self.want(file, open, name);
        }
    }

    fn want(&mut self, file: FileKey, open: &ModelOpen, name: &str) {
        let is_index = load::is_index(name);
        // A reason not to know may have passed: another open, another try.
        let known = match self.contents.get(&file) {
            Some(Content::Known(digest)) => digest.is_ok(),
            Some(Content::Wanted(..)) => true,
            None => false,
        };
        if known {
            return;
        }
        if !is_index {
            let stated = open.file.digest.as_deref().filter(|digest| digest.len() == 64);
            if let Some(digest) = stated.or_else(|| self.cache.get(&file)) {
                self.contents.insert(file, Content::Known(Ok(digest.to_owned())));
                return;
            }
        }
        if self.contents.len() >= FILES {
            self.losses.one("too many files of models");
            return;
        }
        let path = crate::kernel::live::path::to_bytes(&open.path);
        let job = Job { key: file, pid: open.pid, path, is_index };
        self.contents.insert(file, Content::Wanted(Box::new(job), false));
    }

    /// Takes what was read and tells what is known now. To be called about once a second.
    pub fn poll(&mut self, now: WallTime, sink: Sink<'_>) {
        while let Ok(outcome) = self.outcomes.try_recv() {
            if let Some(names) = outcome.names {
                self.indexes.insert(outcome.key, names);
            }
            if let Ok(digest) = &outcome.digest {
                self.cache.insert(outcome.key, digest);
            }
            self.contents.insert(outcome.key, Content::Known(outcome.digest));
        }
        self.give_jobs(now);
        let beside = self.beside();
        let contents = &self.contents;
        let digest = |key: &FileKey| match contents.get(key) {
            Some(Content::Known(digest)) => Some(digest.clone()),
            _ => None,
        };
        for (key, load) in &mut self.loads {
            let index = load.files.iter().find(|(name, _)| load::is_index(name));
            let names = index.and_then(|(_, file)| self.indexes.get(&file.key?));
            if let Some(names) = names {
                load.names(&names.clone());
            }
            if beside.contains(key) {
                continue;
            }
            let value = match load.value(now, &digest) {
                Some(value) => value,
                // Other content was opened: what held before holds no more, whatever comes.
                None if load.in_doubt => Value::Provisional(String::new()),
                None => continue,
            };
            let told = match &value {
                Value::Full(value) => (true, value.clone()),
                Value::Provisional(_) => (false, String::new()),
                Value::Unknown(reason) => (false, (*reason).to_owned()),
            };
            if load.told.as_ref() == Some(&told) {
                continue;
            }
            // A load that went on without a change has the value it had until it has another one.
            let was_full = load.told.as_ref().is_some_and(|(full, _)| *full);
            if was_full && !load.in_doubt && matches!(value, Value::Provisional(_)) {
                continue;
            }
            // Of a first load nothing was known that could end. Other directories may hold files of the same name.
            let ends = load.in_doubt;
            load.in_doubt &= matches!(value, Value::Provisional(_));
            load.told = Some(told);
            tell(&self.options, key, load, &value, ends, sink);
        }
    }

    /// Forgets a worker that is gone.
    pub fn forget(&mut self, worker: &WorkerId) {
        self.loads.retain(|key, _| key.worker != *worker);
        let wanted: BTreeSet<FileKey> =
            self.loads.values().flat_map(|load| load.files.values().filter_map(|file| file.key)).collect();
        self.contents.retain(|key, _| wanted.contains(key));
        self.indexes.retain(|key, _| wanted.contains(key));
    }

    /// What was not told although it might have been, since the last call.
    pub fn take_losses(&mut self) -> Losses {
        self.losses.add("digest not written", std::mem::take(&mut self.cache.not_written));
        std::mem::take(&mut self.losses)
    }

    /// Files whose content is not known yet.
    pub fn waiting(&self) -> usize {
        self.contents.values().filter(|content| matches!(content, Content::Wanted(..))).count()
    }

    /// Hands the thread what may be read now.
    fn give_jobs(&mut self, now: WallTime) {
        let busy: BTreeSet<FileKey> = self
            .loads
            .values()
            .filter(|load| now.since(load.last) < QUIET)
            .flat_map(|load| load.files.values().filter_map(|file| file.key))
            .collect();
        let mut ready: Vec<&mut Content> = Vec::new();
        for content in self.contents.values_mut() {
            if let Content::Wanted(job, false) = content
                && (job.key.size <= SMALL || !busy.contains(&job.key))
            {
                ready.push(content);
            }
        }
        // Small ones first: most factors are known at once.
        ready.sort_by_key(|content| match content {
            Content::Wanted(job, _) => (job.key.size, job.key.inode),
            Content::Known(_) => (0, 0),
        });
        for content in ready {
            if let Content::Wanted(job, given) = content {
                *given = self.jobs.send((**job).clone()).is_ok();
            }
        }
    }

    /// Weights of another model that one worker opened while it started: of the directories the largest is the model.
    fn beside(&self) -> BTreeSet<LoadKey> {
        let mut beside = BTreeSet::new();
        let weights = || self.loads.iter().filter(|(key, _)| key.factor == "weights");
        for (key, load) in weights() {
            let is_smaller = weights().any(|(other_key, other)| {
                other_key.worker == key.worker
                    && other_key.directory != key.directory
                    && load.first.since(other.first).abs() <= ONE_START
                    && (load.size(), &key.directory) < (other.size(), &other_key.directory)
            });
            if is_smaller {
                beside.insert(key.clone());
            }
        }
        beside
    }
}

/// Tells what a load gives. `ends`: what was known before holds no more, also where the new value is not known; without a
/// value it is the algorithm that says so.
fn tell(options: &IdentityOptions, key: &LoadKey, load: &Load, value: &Value, ends: bool, sink: Sink<'_>) {
    let files = load.files.len();
    let factor = &key.factor;
    let (value, state, says, lane) = match value {
        Value::Full(value) => {
            (Some(value.clone()), FactorState::Full, format!("{factor} of {files} files read: {value}"), 2)
        }
        Value::Provisional(_) => {
            (None, FactorState::Provisional, format!("opened {files} files of {factor}, not all read yet"), 0)
        }
        Value::Unknown(reason) => {
            (None, FactorState::Unknown, format!("opened {files} files of {factor}, not known: {reason}"), 1)
        }
    };
    // By name only requests know it: which name is in this directory is for arguments and calls to say.
    let adapter = (factor == "adapter").then(|| key.directory.clone());
    let source = SourceContext {
        node: options.node.clone(),
        worker: Some(key.worker.clone()),
        stream: "files".to_owned(),
        instance: format!("{}\u{0}files\u{0}{}\u{0}{}", key.worker, options.ring, key.directory),
        generation: 0,
    };
    let body = Body::Factor(Factor {
        factor: Some(factor.clone()),
        adapter: adapter.filter(|adapter| !adapter.is_empty()),
        algorithm: (ends || value.is_some()).then(|| "sha256".to_owned()),
        value,
        state: Some(state),
        origin: Some(format!("open {}", load.path)),
    });
    let place = Place { position: load.position, offset: load.position };
    // What is told of a load changes with its files; a restart tells the same again.
    let index = (lane << 24) | u32::try_from(files).unwrap_or(0).min(0x00ff_ffff);
    sink(source.observe(SourceKind::Kernel, place, index, Some(load.first), Some(says), body));
}
