//! What a worker's model is, by the content of the files that its processes opened.
//!
//! Input: opens of files of models ([`ModelOpen`]). Output: `factor` observations: provisional once a load is quiet,
//! full when the content of every file is known, and once more when its tensors are. A file is read once, in the background,
//! and only in the state in which it was opened: if it is another by then the factor is unknown, with the reason. Opening the
//! same content again is no news; other content is dated at the open that showed it, and from there on the old value is
//! withdrawn at once. Invariant: memory is bounded; a value is full only when nothing speaks of a missing file.

mod beside;
mod cache;
mod contents;
mod load;
mod opener;
mod pages;
mod queue;
mod read;
mod samples;
mod tell;
mod tensors;
mod texts;

pub use cache::FileKey;
pub use opener::{FileOpener, OwnFiles};

use crate::kernel::live::ModelOpen;
use crate::source::{Losses, Sink};
use beside::ONE_START;
use cache::DigestCache;
use contents::Contents;
use kvprov_model::clock::WallTime;
use kvprov_model::id::{NodeId, WorkerId};
use load::{Effect, LONG_QUIET, Load, QUIET, Value};
use queue::Queue;
use read::{Outcome, Reader};
use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::sync::mpsc::{Receiver, channel};
use std::sync::{Arc, Mutex};

/// Bytes a second that are read unless told otherwise.
pub const DEFAULT_RATE: u64 = 200_000_000;
/// Factors of all workers and their directories; thousands of adapters fit.
const LOADS: usize = 16 * 1024;
/// Threads that read, at most.
const THREADS: usize = 64;
/// Name of the factor of weights that are of another model than the worker's own: the draft of a speculative decoding.
const DRAFT: &str = "draft";
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
    /// Bytes a second that are read, by all threads together; 0: no limit.
    pub rate: u64,
    /// Threads that read; each has one file at a time.
    pub threads: usize,
    /// Of which weights the tensors are read one by one.
    pub tensors: TensorDigests,
}

/// Of which weights the tensors are read one by one, so that the same tensors in other files compare equal.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum TensorDigests {
    /// Of those that were read anyway; of those whose digest is the name of a blob where weights of about the same size on
    /// this node are laid out in another way.
    #[default]
    Auto,
    /// Of all.
    Always,
    /// Of none: weights of two layouts are neither equal nor different.
    Off,
}

/// What an open belongs to.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
struct LoadKey {
    worker: WorkerId,
    factor: String,
    directory: String,
}

/// Follows the models of all workers.
pub struct Identities {
    options: IdentityOptions,
    loads: BTreeMap<LoadKey, Load>,
    /// Loads of another model than the worker's own, and whether that is to be looked at anew.
    beside: (BTreeSet<LoadKey>, bool),
    contents: Contents,
    /// The threads stop when it is closed.
    queue: Arc<Queue>,
    outcomes: Receiver<Outcome>,
    losses: Losses,
}

/// Parses of a file of a model what is parsed at all, header or text, and gives how many bytes its tensors take; for checks of
/// the parsers.
pub fn parse(path: &str, file: &std::fs::File) -> std::io::Result<u64> {
    use std::os::unix::fs::FileExt;
    let size = file.metadata()?.len();
    if let Some(format) = tensors::Format::of(path.as_bytes()) {
        let tensors = format.layout(file, size).unwrap_or_default().tensors;
        return Ok(tensors.iter().map(|tensor| tensor.length).sum());
    }
    if texts::are_in(path.as_bytes(), size) {
        let mut content = vec![0; usize::try_from(size).unwrap_or(0)];
        file.read_exact_at(&mut content, 0)?;
        let _ = texts::read(path.as_bytes(), &content);
    }
    Ok(0)
}

// === impl TensorDigests ===

impl TensorDigests {
    /// The words of a configuration.
    pub const WORDS: [&str; 3] = ["auto", "always", "off"];

    /// From a word of a configuration.
    pub fn from_word(word: &str) -> Option<Self> {
        match word {
            "auto" => Some(Self::Auto),
            "always" => Some(Self::Always),
            "off" => Some(Self::Off),
            _ => None,
        }
    }
}

// === impl Identities ===

impl Identities {
    /// Begins, with threads that read files. They end with this value.
    pub fn new(options: IdentityOptions, opener: Box<dyn FileOpener>) -> std::io::Result<Self> {
        let queue = Arc::new(Queue::new(options.rate));
        let opener = Arc::new(Mutex::new(opener));
        let (done, outcomes) = channel();
        let cache = DigestCache::open(options.cache.as_deref(), &options.boot);
        let made = Self {
            loads: BTreeMap::new(),
            beside: (BTreeSet::new(), false),
            contents: Contents::new(cache),
            queue,
            outcomes,
            losses: Losses::default(),
            options,
        };
        for _ in 0..made.options.threads.clamp(1, THREADS) {
            let (queue, opener, done) = (Arc::clone(&made.queue), Arc::clone(&opener), done.clone());
            let reader = Reader { queue, opener, done };
            std::thread::Builder::new().name("kvprov-hash".to_owned()).spawn(move || reader.run())?;
        }
        Ok(made)
    }

    /// A process of a worker opened a file of a model.
    pub fn opened(&mut self, worker: &WorkerId, open: &ModelOpen) {
        // A blob opened by its own name does not tell which factor it is.
        if open.file.factor == "any" {
            return;
        }
        let Some((directory, name)) = open.path.rsplit_once('/') else { return };
        let file = FileKey::of(&open.identity, &open.state);
        self.joins(worker, &open.file.factor, directory, (name, file), open);
        if texts::may_hold_template(name) {
            self.joins(worker, load::TEMPLATE, directory, (name, file), open);
        }
        if let Some(file) = file
            && !self.contents.want(file, open, name)
        {
            self.losses.one("too many files of models");
        }
    }

    /// A file joins the files of one factor.
    fn joins(
        &mut self,
        worker: &WorkerId,
        factor: &str,
        directory: &str,
        (name, file): (&str, Option<FileKey>),
        open: &ModelOpen,
    ) {
        let key =
            LoadKey { worker: worker.clone(), factor: factor.to_owned(), directory: directory.to_owned() };
        if self.loads.len() >= LOADS && !self.loads.contains_key(&key) {
            self.losses.one("too many loads of models");
            return;
        }
        // Other weights than those that run are loaded: those are over, whatever comes.
        let takes_over = key.factor == "weights"
            && self.loads.iter().any(|(other, load)| {
                other.worker == key.worker
                    && other.factor == key.factor
                    && matches!(load.told, Some(Value::Full(_)))
                    && open.wall.since(load.first) > ONE_START
            });
        let load = self.loads.entry(key).or_insert_with(|| {
            let mut load = Load::new(factor, &open.path, open.wall, open.position);
            load.in_doubt = takes_over;
            load
        });
        let before = (load.size(), load.first);
        if load.opened(name, file, &open.path, open.wall, open.position) == Effect::Full {
            self.losses.one("too many files of one model");
        }
        self.beside.1 |= load.files.len() == 1 || before != (load.size(), load.first);
    }

    /// Takes what was read and tells what is known now. To be called about once a second.
    pub fn poll(&mut self, now: WallTime, sink: Sink<'_>) {
        let mut is_news = false;
        while let Ok(outcome) = self.outcomes.try_recv() {
            is_news = true;
            self.contents.take(outcome);
        }
        let anew = std::mem::take(&mut self.beside.1);
        if anew {
            self.beside.0 = beside::of(&self.loads);
        }
        self.want_tensors();
        let busy: BTreeSet<FileKey> = self
            .loads
            .values()
            .filter(|load| now.since(load.last) < QUIET)
            .flat_map(|load| load.files.values().filter_map(|file| file.key))
            .collect();
        self.contents.give(&self.queue, &|key| busy.contains(key));
        for (key, load) in &mut self.loads {
            // Nothing was read, and nothing can become so by waiting: what was told holds.
            let is_settled = load.told.is_some() && now.since(load.last) > 2 * LONG_QUIET;
            if is_settled && !is_news && !anew {
                continue;
            }
            let index = load.files.iter().find(|(name, _)| load::is_index(name));
            let index = index.and_then(|(_, file)| self.contents.get(&file.key?));
            if let Some(names) = index.and_then(|content| content.names.as_ref()) {
                load.names(names);
            }
            let factor = match (self.beside.0.contains(key), key.factor.as_str()) {
                (true, "weights") => DRAFT,
                (true, _) => continue,
                (false, factor) => factor,
            };
            if load.told_as != factor {
                load.told = None;
                factor.clone_into(&mut load.told_as);
            }
            let value = match load.value(now, &|key| self.contents.get(key)) {
                Some(value) => value,
                // Other content was opened: what held before holds no more, whatever comes.
                None if load.in_doubt => Value::Provisional(load::NOT_READ, None),
                None => continue,
            };
            if load.told.as_ref() == Some(&value) {
                continue;
            }
            let is_on_its_way = matches!(value, Value::Provisional(..));
            let was_full = matches!(load.told, Some(Value::Full(_)));
            // A load that went on without a change has the value it had until it has another one.
            if was_full && !load.in_doubt && is_on_its_way {
                continue;
            }
            // Of a first load nothing was known that could end. Other directories may hold files of the same name.
            let ends = load.in_doubt;
            load.in_doubt &= is_on_its_way;
            let tell = tell::Tell { options: &self.options, key, factor, load };
            // What a sample shows does not end what held; that nothing more is known does.
            if ends && matches!(value, Value::Provisional(_, Some(_))) && !tell.ended() {
                tell.now(&Value::Provisional(load::NOT_READ, None), true, sink);
            }
            tell.now(&value, ends, sink);
            load.told = Some(value);
        }
    }

    /// Asks for the tensors of the weights of which they are wanted.
    fn want_tensors(&mut self) {
        if self.options.tensors == TensorDigests::Off {
            return;
        }
        let weights = self.loads.values().filter(|load| load.told_as == "weights");
        let full: Vec<(&Load, &load::Whole)> = weights
            .filter_map(|load| match &load.told {
                Some(Value::Full(whole)) => Some((load, whole)),
                _ => None,
            })
            .collect();
        let mut wanted = Vec::new();
        for (load, whole) in full.iter().filter(|(_, whole)| whole.meaning.is_none()) {
            let known: Option<Vec<_>> =
                load.keys().map(|key| Some((key, self.contents.get(&key)?))).collect();
            let Some(known) =
                known.filter(|known| known.iter().all(|(_, content)| content.format().is_some()))
            else {
                continue;
            };
            let was_read = known.iter().any(|(_, content)| !content.is_named);
            let is_laid_out_otherwise = || {
                full.iter().any(|(other, otherwise)| {
                    otherwise.layout != whole.layout && load::are_alike(load.bytes(), other.bytes())
                })
            };
            if self.options.tensors == TensorDigests::Always || was_read || is_laid_out_otherwise() {
                wanted.extend(known.into_iter().map(|(key, _)| key));
            }
        }
        wanted.iter().for_each(|key| self.contents.want_tensors(key));
    }

    /// Forgets a worker that is gone.
    pub fn forget(&mut self, worker: &WorkerId) {
        self.loads.retain(|key, _| key.worker != *worker);
        self.beside.1 = true;
        let wanted: BTreeSet<FileKey> =
            self.loads.values().flat_map(|load| load.files.values().filter_map(|file| file.key)).collect();
        self.contents.retain(&wanted);
        self.queue.retain(|key| wanted.contains(key));
    }

    /// What was not told although it might have been, since the last call.
    pub fn take_losses(&mut self) -> Losses {
        self.losses.add("digest not written", self.contents.take_not_written());
        std::mem::take(&mut self.losses)
    }

    /// Bytes that were read so far, parts without blocks included.
    pub fn bytes_read(&self) -> u64 {
        self.queue.bytes_read()
    }

    /// Files of which something is not known yet.
    pub fn waiting(&self) -> usize {
        self.contents.waiting()
    }
}

impl Drop for Identities {
    fn drop(&mut self) {
        self.queue.close();
    }
}
