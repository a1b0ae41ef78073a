//! What is known of the content of files, whoever opened them, and what of it is asked for.
//!
//! A file is read once for its digest and once, where wanted, for its tensors. Invariant: no more files than [`FILES`].

use super::cache::{DigestCache, FileKey, Remembered};
use super::load;
use super::queue::{Queue, SMALL};
use super::read::{Found, Job, Outcome, Task, Whole};
use super::samples::Sample;
use super::tensors::{Format, TensorSum};
use super::texts::{self, Texts};
use crate::kernel::live::ModelOpen;
use std::collections::{BTreeSet, HashMap};

/// Files whose content is known or asked for.
const FILES: usize = 64 * 1024;

/// Something that is read in the background.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Stage<T> {
    /// Nobody asked for it.
    Unasked,
    /// Wanted, but not given to a thread yet.
    Wanted,
    /// A thread has it.
    Given,
    /// It is there.
    Known(T),
}

/// Content of one file.
#[derive(Debug, Clone)]
pub(super) struct Content {
    pid: u32,
    path: Vec<u8>,
    is_index: bool,
    pub digest: Stage<Result<String, &'static str>>,
    /// The digest stands in the name of the file, which was not read.
    pub is_named: bool,
    pub texts: Texts,
    pub samples: Stage<Option<Sample>>,
    pub tensors: Stage<Option<TensorSum>>,
    /// Files that an index names.
    pub names: Option<BTreeSet<String>>,
}

/// The contents.
#[derive(Debug)]
pub(super) struct Contents {
    files: HashMap<FileKey, Content, foldhash::fast::RandomState>,
    cache: DigestCache,
}

// === impl Content ===

impl Content {
    fn new(open: &ModelOpen, name: &str) -> Self {
        Self {
            pid: open.pid,
            path: crate::kernel::live::path::to_bytes(&open.path),
            is_index: load::is_index(name),
            digest: Stage::Wanted,
            is_named: false,
            texts: Texts::default(),
            samples: Stage::Unasked,
            tensors: Stage::Unasked,
            names: None,
        }
    }

    /// A file of which only the digest is known, or why it is not.
    #[cfg(test)]
    pub(super) fn known(digest: Result<String, &'static str>) -> Self {
        Self {
            pid: 0,
            path: Vec::new(),
            is_index: false,
            digest: Stage::Known(digest),
            is_named: false,
            texts: Texts::default(),
            samples: Stage::Unasked,
            tensors: Stage::Unasked,
            names: None,
        }
    }

    fn job(&self, key: FileKey, task: Task) -> Job {
        Job { key, pid: self.pid, path: self.path.clone(), task }
    }

    /// The format of its tensors, where it has any that can be told.
    pub(super) fn format(&self) -> Option<Format> {
        Format::of(&self.path)
    }

    fn is_waiting(&self) -> bool {
        !self.digest.is_known() || matches!(self.tensors, Stage::Wanted | Stage::Given)
    }
}

// === impl Stage ===

impl<T> Stage<T> {
    fn is_known(&self) -> bool {
        matches!(self, Self::Known(_))
    }

    pub(super) fn known(&self) -> Option<&T> {
        match self {
            Self::Known(value) => Some(value),
            _ => None,
        }
    }
}

// === impl Contents ===

impl Contents {
    pub(super) fn new(cache: DigestCache) -> Self {
        Self { files: HashMap::default(), cache }
    }

    pub(super) fn get(&self, key: &FileKey) -> Option<&Content> {
        self.files.get(key)
    }

    /// Digests that could not be kept, since the last call.
    pub(super) fn take_not_written(&mut self) -> u64 {
        std::mem::take(&mut self.cache.not_written)
    }

    /// Files of which something is not known yet.
    pub(super) fn waiting(&self) -> usize {
        self.files.values().filter(|content| content.is_waiting()).count()
    }

    /// A file was opened. False where there is no room.
    pub(super) fn want(&mut self, key: FileKey, open: &ModelOpen, name: &str) -> bool {
        if let Some(content) = self.files.get_mut(&key) {
            // The last one that opened it is the likeliest to be there when it is read.
            content.pid = open.pid;
            // A reason not to know may have passed: another open, another try.
            if matches!(content.digest, Stage::Known(Err(_))) {
                content.digest = Stage::Wanted;
            }
            return true;
        }
        if self.files.len() >= FILES {
            return false;
        }
        let mut content = Content::new(open, name);
        let looked_into = texts::are_in(&content.path, key.size);
        let remembered = self.cache.get(&key).filter(|known| known.texts.is_some() || !looked_into);
        if let Some(known) = remembered.filter(|_| !content.is_index) {
            content.digest = Stage::Known(Ok(known.digest.clone()));
            content.texts = known.texts.clone().unwrap_or_default();
            if let Some(tensors) = &known.tensors {
                content.tensors = Stage::Known(tensors.clone());
            }
        } else if key.size > SMALL && !content.is_index {
            content.samples = Stage::Wanted;
        }
        self.files.insert(key, content);
        true
    }

    /// Asks for the tensors of a file, once.
    pub(super) fn want_tensors(&mut self, key: &FileKey) {
        if let Some(content) = self.files.get_mut(key).filter(|content| content.tensors == Stage::Unasked) {
            content.tensors = Stage::Wanted;
        }
    }

    /// Takes what a thread found.
    pub(super) fn take(&mut self, outcome: Outcome) {
        let Outcome { key, found } = outcome;
        let mut remember = None;
        let known = self.files.get_mut(&key);
        match found {
            Found::Samples(sample) => {
                if let Some(content) = known {
                    content.samples = Stage::Known(sample);
                }
            }
            Found::Digest(Ok(Whole { digest, is_named, texts, names })) => {
                // What stands in a name is found there again, and nothing was read that could be spared.
                if !is_named {
                    let texts = Some(texts.clone());
                    remember = Some(Remembered { digest: digest.clone(), texts, tensors: None });
                }
                if let Some(content) = known {
                    content.digest = Stage::Known(Ok(digest));
                    (content.is_named, content.texts, content.names) = (is_named, texts, names);
                }
            }
            Found::Digest(Err(reason)) => {
                if let Some(content) = known {
                    content.digest = Stage::Known(Err(reason));
                }
            }
            Found::Tensors(sum) => {
                if let Some(content) = known {
                    if let Stage::Known(Ok(digest)) = &content.digest {
                        let texts = (!content.is_named).then(|| content.texts.clone());
                        remember =
                            Some(Remembered { digest: digest.clone(), texts, tensors: Some(sum.clone()) });
                    }
                    content.tensors = Stage::Known(sum);
                }
            }
        }
        if let Some(remember) = remember {
            self.cache.insert(key, remember);
        }
    }

    /// Gives the threads what may be read now: large files only where `is_busy` says that no load of them goes on.
    pub(super) fn give(&mut self, queue: &Queue, is_busy: &dyn Fn(&FileKey) -> bool) {
        for (key, content) in &mut self.files {
            if content.samples == Stage::Wanted {
                content.samples = Stage::Given;
                queue.push(content.job(*key, Task::Samples));
            }
            let may_be_read = key.size <= SMALL || !is_busy(key);
            if content.digest == Stage::Wanted && may_be_read {
                content.digest = Stage::Given;
                queue.push(content.job(*key, Task::Digest { is_index: content.is_index }));
            }
            if content.tensors == Stage::Wanted && may_be_read {
                content.tensors = Stage::Given;
                queue.push(content.job(*key, Task::Tensors));
            }
        }
    }

    /// Forgets the other files.
    pub(super) fn retain(&mut self, wanted: &BTreeSet<FileKey>) {
        self.files.retain(|key, _| wanted.contains(key));
    }
}
