//! The files of one factor that one worker opened, and what value they give.
//!
//! A single file is its plain digest, so that it equals `sha256sum`. Several (shards, an adapter with its settings)
//! are the digest over the sorted lines `name NUL digest`. A value is full only when nothing says that a file is
//! missing: the index of the checkpoint, the count in the names of shards, or a long quiet where neither speaks. Until then
//! samples of the files stand for it, under an algorithm of their own.

use super::cache::FileKey;
use super::contents::Content;
use super::samples;
use super::tensors::TensorSum;
use kvprov_model::clock::{SECOND, WallTime};
use kvprov_model::id::hex;
use sha2::{Digest, Sha256};
use std::collections::{BTreeMap, BTreeSet};

/// A load whose files are all known to be there is over after this quiet.
pub(super) const QUIET: i64 = 2 * SECOND;
/// One of which that is not known, after this.
pub(super) const LONG_QUIET: i64 = 60 * SECOND;
/// Bytes of the headers of a model's files, about.
const HEADERS: u64 = 16 << 20;
/// Files of one factor; a model of thousands of shards fits.
const FILES: usize = 16 * 1024;

/// Where a factor has one file that decides, in order of preference; the others beside it change no KV of equal
/// tokens, and engines open different ones of them.
const DECIDING: [(&str, &[&str]); 3] = [
    ("tokenizer", &["tokenizer.json", "tekken.json", "tokenizer.model"]),
    ("config", &["config.json", "params.json"]),
    (TEMPLATE, &["chat_template.jinja", "chat_template.json", "tokenizer_config.json"]),
];
/// The factor that may stand inside files of others.
pub(super) const TEMPLATE: &str = "chat_template";
/// Endings of files that are a chat template and nothing else.
const TEMPLATE_ALONE: [&str; 2] = [".jinja", ".jinja2"];
/// Stems of files that hold all of a factor.
const WHOLE: [&str; 4] = ["model", "pytorch_model", "consolidated", "flax_model"];
/// The reason of a value that is on its way.
pub(super) const NOT_READ: &str = "not all of it is read yet";
/// Ending of the index of a checkpoint: it repeats what the shards hold and is no part of the value.
const INDEX: &str = ".index.json";

/// One file.
#[derive(Debug, Clone)]
pub(super) struct LoadedFile {
    /// `None`: the record of the open did not tell its state.
    pub key: Option<FileKey>,
    /// Opened since the load began; else taken over from the one before.
    opened: bool,
    /// When it was opened last.
    at: WallTime,
}

/// The files of a factor in one directory.
#[derive(Debug)]
pub(super) struct Load {
    factor: String,
    pub files: BTreeMap<String, LoadedFile>,
    /// Files that an index names.
    named: BTreeSet<String>,
    /// First open of the load, and the last one that told anything new.
    pub first: WallTime,
    pub last: WallTime,
    /// First of the opens that follow each other without a pause, and the last one.
    burst: (WallTime, WallTime),
    /// A file changed and the value that holds now is not known yet.
    pub in_doubt: bool,
    /// Ring position of the first open, for ids.
    pub position: u64,
    pub path: String,
    /// What was told last, and of which factor.
    pub told: Option<Value>,
    pub told_as: String,
}

/// What the files give.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Value {
    /// Known as a whole.
    Full(Whole),
    /// Files are missing or not read yet: which of it, and what samples of them show, as algorithm and value.
    Provisional(&'static str, Option<(String, String)>),
    /// A file is not known, with the reason.
    Unknown(&'static str),
}

/// A value that is known as a whole.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Whole {
    pub value: String,
    /// Names and sizes of the files, where the same content may stand in others.
    pub layout: Option<String>,
    /// What it means, as `algorithm:value`, where known.
    pub meaning: Option<String>,
}

/// What is known of a file's content.
pub(super) type ContentOf<'d> = &'d dyn Fn(&FileKey) -> Option<&'d Content>;

/// A file that counts, with its state and content.
type Part<'p> = (&'p str, FileKey, &'p Content);

/// What an open does to a load.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Effect {
    /// The file was of the load, unchanged, or joined it.
    Same,
    /// A file is another by now: a new load begins.
    Changed,
    /// No room.
    Full,
}

/// Whether a file is the index of a checkpoint.
pub(super) fn is_index(name: &str) -> bool {
    name.ends_with(INDEX)
}

/// Whether weights of these sizes may be the same tensors in other files: only headers differ.
pub(super) fn are_alike(a: u64, b: u64) -> bool {
    a.abs_diff(b) <= HEADERS + a.max(b) / 256
}

fn is_template_alone(name: &str) -> bool {
    TEMPLATE_ALONE.iter().any(|ending| name.ends_with(ending))
}

// === impl Load ===

impl Load {
    pub(super) fn new(factor: &str, path: &str, wall: WallTime, position: u64) -> Self {
        Self {
            factor: factor.to_owned(),
            files: BTreeMap::new(),
            named: BTreeSet::new(),
            first: wall,
            last: wall,
            burst: (wall, wall),
            in_doubt: false,
            position,
            path: path.to_owned(),
            told: None,
            told_as: String::new(),
        }
    }

    /// A file was opened.
    pub(super) fn opened(
        &mut self,
        name: &str,
        key: Option<FileKey>,
        path: &str,
        wall: WallTime,
        position: u64,
    ) -> Effect {
        if wall.since(self.burst.1) > QUIET {
            self.burst.0 = wall;
        }
        self.burst.1 = self.burst.1.max(wall);
        if let Some(file) = self.files.get_mut(name).filter(|file| file.key == key && file.opened) {
            // Some engines open an adapter anew for every step: no news, and no reason to wait for more.
            file.at = wall;
            return Effect::Same;
        }
        let effect = match self.files.get(name) {
            Some(file) if file.key == key => Effect::Same,
            // The others changed before it, in the same load.
            Some(file) if !file.opened => Effect::Same,
            Some(_) => Effect::Changed,
            None if self.files.len() >= FILES => return Effect::Full,
            None => Effect::Same,
        };
        if effect == Effect::Changed {
            // The other files may be opened again, changed or not; until then they count as they were. Those that were
            // opened just before are of this load already.
            let begun = self.burst.0;
            self.files.values_mut().for_each(|file| file.opened &= file.at >= begun);
            self.in_doubt = true;
            self.first = wall;
            self.position = position;
            path.clone_into(&mut self.path);
        }
        self.last = self.last.max(wall);
        self.files.insert(name.to_owned(), LoadedFile { key, opened: true, at: wall });
        effect
    }

    /// An index of this load was read.
    pub(super) fn names(&mut self, names: &BTreeSet<String>) {
        self.named.clone_from(names);
    }

    /// Bytes of all files.
    pub(super) fn size(&self) -> u64 {
        self.files.values().filter_map(|file| file.key).map(|key| key.size).sum()
    }

    /// The files that make the value.
    fn parts(&self) -> Vec<(&str, Option<FileKey>)> {
        let all = self.files.iter().filter(|(name, _)| !is_index(name));
        let all: Vec<(&str, Option<FileKey>)> = all.map(|(name, file)| (name.as_str(), file.key)).collect();
        let deciding = DECIDING.iter().find(|(factor, _)| *factor == self.factor);
        let one = deciding.and_then(|(_, names)| {
            names.iter().find_map(|wanted| all.iter().find(|(name, _)| name == wanted))
        });
        one.map_or_else(|| all.clone(), |one| vec![*one])
    }

    /// The states of the files that make the value.
    pub(super) fn keys(&self) -> impl Iterator<Item = FileKey> {
        self.parts().into_iter().filter_map(|(_, key)| key)
    }

    /// Names and sizes of the files that make the value, as 16 hex digits.
    pub(super) fn layout(&self) -> String {
        let mut hash = Sha256::new();
        for (name, key) in self.parts() {
            let size = key.map_or(0, |key| key.size);
            hash.update(format!("{name}\0{size}\n"));
        }
        hex(&hash.finalize()[..8])
    }

    /// The value at a time; `None` while the load goes on, or there is nothing.
    pub(super) fn value<'d>(&'d self, now: WallTime, content: ContentOf<'d>) -> Option<Value> {
        let parts = self.parts();
        let quiet = now.since(self.last);
        if parts.is_empty() || quiet < QUIET {
            return None;
        }
        let mut known: Vec<Part<'_>> = Vec::new();
        for (name, key) in &parts {
            let Some(key) = key else {
                return Some(Value::Unknown(
                    "the state of a file at its open is not known: the file changed since, or its open was not seen",
                ));
            };
            // Without room for it, it is never read.
            let Some(content) = content(key) else {
                return Some(Value::Unknown("there were too many files to read"));
            };
            if let Some(Err(reason)) = content.digest.known() {
                return Some(Value::Unknown(reason));
            }
            known.push((*name, *key, content));
        }
        let digest = |(name, _, content): &Part<'_>| self.digest_in(name, content);
        let mut lines = Vec::new();
        for part in &known {
            match digest(part) {
                Some(Some(digest)) => lines.push((part.0, digest)),
                Some(None) => {}
                None => return Some(Value::Provisional(NOT_READ, self.sampled(&known))),
            }
        }
        if lines.is_empty() {
            return None; // a file that might have held the factor does not
        }
        if !self.is_whole(&parts, quiet) {
            return Some(Value::Provisional("files of it were not opened, or not yet", self.sampled(&known)));
        }
        let value = match lines.as_slice() {
            [(_, digest)] => digest.clone(),
            _ => set_digest(&lines),
        };
        let layout = (self.factor == "weights").then(|| self.layout());
        Some(Value::Full(Whole { value, layout, meaning: self.meaning(&known) }))
    }

    /// The digest of a file as a part of this factor. `None`: not known yet; `Some(None)`: it is no part after all.
    fn digest_in(&self, name: &str, content: &Content) -> Option<Option<String>> {
        let digest = content.digest.known()?.as_ref().ok()?;
        if self.factor == TEMPLATE && !is_template_alone(name) {
            return Some(content.texts.template.clone());
        }
        Some(Some(digest.clone()))
    }

    /// What samples show of files that are not all known; a small file is its own sample.
    fn sampled(&self, parts: &[Part<'_>]) -> Option<(String, String)> {
        let mut algorithm = None;
        let mut lines = Vec::new();
        for (name, _, content) in parts {
            let (of, value) = match (content.samples.known(), content.digest.known()) {
                (Some(Some(sample)), _) => match &sample.verity {
                    Some(verity) => (samples::VERITY, verity.clone()),
                    None => (samples::ALGORITHM, sample.digest.clone()),
                },
                (_, Some(Ok(digest))) => (samples::ALGORITHM, digest.clone()),
                _ => return None,
            };
            // Values that were made in two ways make none together.
            if *algorithm.get_or_insert(of) != of {
                return None;
            }
            lines.push((*name, value));
        }
        let value = match lines.as_slice() {
            [(_, value)] => value.clone(),
            _ => set_digest(&lines),
        };
        algorithm.map(|algorithm| (algorithm.to_owned(), value))
    }

    /// What the files mean, where that is known of all of them.
    fn meaning(&self, parts: &[Part<'_>]) -> Option<String> {
        match (self.factor.as_str(), parts) {
            ("config", [(_, _, content)]) => content.texts.meaning.clone(),
            ("weights", [(_, _, first), ..]) => {
                let format = first.format()?;
                let mut all = TensorSum::default();
                for (_, _, content) in parts {
                    let sum =
                        content.tensors.known()?.as_ref().filter(|_| content.format() == Some(format))?;
                    all.merge(sum);
                }
                Some(format!("{}:{}", format.algorithm(), all.digest()))
            }
            _ => None,
        }
    }

    /// Whether it is a chat template in files of its own.
    pub(super) fn is_template_alone(&self) -> bool {
        self.factor == TEMPLATE && self.files.keys().all(|name| is_template_alone(name))
    }

    /// Bytes of the files that make the value.
    pub(super) fn bytes(&self) -> u64 {
        self.keys().map(|key| key.size).sum()
    }

    /// Whether no file is missing, as far as names tell.
    fn is_whole(&self, parts: &[(&str, Option<FileKey>)], quiet: i64) -> bool {
        let has = |name: &str| self.files.contains_key(name);
        // After a change, the files that were not opened again may be about to change too.
        if self.files.iter().any(|(name, file)| !file.opened && !is_index(name)) && quiet < LONG_QUIET {
            return false;
        }
        if !self.named.is_empty() {
            return self.named.iter().all(|name| has(name));
        }
        // An index was opened, and what it names is not known yet.
        if self.files.keys().any(|name| is_index(name)) && quiet < LONG_QUIET {
            return false;
        }
        let shards: Vec<Shard<'_>> = parts.iter().filter_map(|(name, _)| Shard::parse(name)).collect();
        if !shards.is_empty() {
            return shards.iter().all(|one| {
                let have = shards.iter().filter(|other| other.stem == one.stem && other.of == one.of).count();
                u64::try_from(have).is_ok_and(|have| have == one.of)
            });
        }
        match (self.factor.as_str(), parts) {
            ("weights", [(name, _)]) => {
                let stem = name.rsplit_once('.').map_or(*name, |(stem, _)| stem);
                WHOLE.contains(&stem) || quiet >= LONG_QUIET
            }
            ("adapter", parts) => {
                let settings = parts.iter().any(|(name, _)| name.ends_with(".json"));
                let weights = parts.iter().any(|(name, _)| !name.ends_with(".json"));
                weights && (settings || quiet >= LONG_QUIET)
            }
            ("weights", _) => quiet >= LONG_QUIET,
            // Of files that may hold a template, one does; settings of a quantisation may stand in several.
            (TEMPLATE | "quantisation", _) | (_, [_]) => true,
            // Which of several files an engine opens is its own affair: no value of the factor.
            _ => false,
        }
    }
}

/// `model-00002-of-00005.safetensors`.
struct Shard<'n> {
    stem: &'n str,
    of: u64,
}

impl<'n> Shard<'n> {
    fn parse(name: &'n str) -> Option<Self> {
        let (stem, _) = name.rsplit_once('.')?;
        let (rest, of) = stem.rsplit_once("-of-")?;
        let (stem, number) = rest.rsplit_once('-')?;
        let number: u64 = number.parse().ok()?;
        let of = of.parse().ok()?;
        (number <= of && of > 0).then_some(Self { stem, of })
    }
}

/// The digest of a set of files.
fn set_digest(lines: &[(&str, String)]) -> String {
    let mut hash = Sha256::new();
    // Sorted by name, as the map they come from.
    for (name, digest) in lines {
        hash.update(name.as_bytes());
        hash.update([0]);
        hash.update(digest.as_bytes());
        hash.update(b"\n");
    }
    hex(&hash.finalize())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(inode: u64) -> Option<FileKey> {
        Some(FileKey { device: 1 << 20, inode, size: 10, modified: 1, changed: 1 })
    }

    fn load(factor: &str, names: &[&str]) -> Load {
        let mut load = Load::new(factor, "/m", WallTime(0), 1);
        for (index, name) in names.iter().enumerate() {
            load.opened(name, key(index as u64 + 1), "/m", WallTime(0), 1);
        }
        load
    }

    /// What is known of files: the digest of each is its inode.
    fn contents() -> BTreeMap<u64, Content> {
        (0..20).map(|inode| (inode, Content::known(Ok(format!("{inode:064x}"))))).collect()
    }

    fn value_of(load: &Load, seconds: i64, contents: &BTreeMap<u64, Content>) -> Option<Value> {
        load.value(WallTime(seconds * SECOND), &|key| contents.get(&key.inode))
    }

    fn full(load: &Load, seconds: i64) -> Option<String> {
        match value_of(load, seconds, &contents()) {
            Some(Value::Full(whole)) => Some(whole.value),
            _ => None,
        }
    }

    fn is_full(load: &Load, seconds: i64) -> bool {
        full(load, seconds).is_some()
    }

    #[test]
    fn one_file_is_its_own_digest() {
        let load = load("weights", &["model.safetensors"]);
        assert_eq!(value_of(&load, 1, &contents()), None);
        assert_eq!(full(&load, 3), Some(format!("{:064x}", 1)));
    }

    #[test]
    fn shards_are_whole_when_their_count_is_reached() {
        let mut load = load("weights", &["model-00001-of-00002.safetensors"]);
        assert!(!is_full(&load, 600));
        load.opened("model-00002-of-00002.safetensors", key(2), "/m", WallTime(0), 1);
        assert!(is_full(&load, 3));
    }

    #[test]
    fn an_index_names_what_is_missing_and_is_no_part_of_the_value() {
        let mut with = load("weights", &["a.safetensors", "b.safetensors", "model.safetensors.index.json"]);
        assert!(!is_full(&with, 3));
        with.names(&["a.safetensors", "b.safetensors", "c.safetensors"].map(str::to_owned).into());
        assert!(!is_full(&with, 600));
        with.opened("c.safetensors", key(9), "/m", WallTime(0), 1);
        assert!(is_full(&with, 3));
        let mut without = load("weights", &["a.safetensors", "b.safetensors"]);
        without.opened("c.safetensors", key(9), "/m", WallTime(0), 1);
        assert_eq!((full(&with, 600), with.layout()), (full(&without, 600), without.layout()));
    }

    #[test]
    fn files_without_a_count_are_whole_only_after_a_long_quiet() {
        let load = load("weights", &["consolidated.00.pth", "consolidated.01.pth"]);
        assert!(!is_full(&load, 10));
        assert!(is_full(&load, 61));
    }

    #[test]
    fn the_file_that_decides_stands_for_its_factor_whatever_else_was_opened() {
        let a = full(&load("tokenizer", &["tokenizer.json", "vocab.json"]), 3);
        assert_eq!(a, full(&load("tokenizer", &["tokenizer.json"]), 3));
        assert!(!is_full(&load("tokenizer", &["merges.txt", "vocab.json"]), 600));
    }

    #[test]
    fn a_file_that_changed_holds_the_value_back_until_the_others_were_opened_again() {
        let mut load =
            load("weights", &["model-00001-of-00002.safetensors", "model-00002-of-00002.safetensors"]);
        let at = |seconds: i64| WallTime(seconds * SECOND);
        let effect = load.opened("model-00001-of-00002.safetensors", key(11), "/m", at(100), 7);
        assert_eq!((effect, load.position), (Effect::Changed, 7));
        assert!(!is_full(&load, 110));
        load.opened("model-00002-of-00002.safetensors", key(12), "/m", at(111), 8);
        assert_eq!(load.position, 7);
        assert!(is_full(&load, 120));
    }

    #[test]
    fn a_file_that_was_opened_just_before_another_changed_is_of_the_same_load() {
        let mut load = load("adapter", &["adapter_config.json", "adapter_model.safetensors"]);
        let at = |seconds: i64| WallTime(seconds * SECOND);
        load.opened("adapter_config.json", key(1), "/m", at(100), 6);
        let effect = load.opened("adapter_model.safetensors", key(12), "/m", at(100), 7);
        assert_eq!((effect, load.in_doubt), (Effect::Changed, true));
        assert!(is_full(&load, 103));
    }

    #[test]
    fn what_is_opened_again_and_again_is_known_all_the_same() {
        let mut load = load("adapter", &["adapter_config.json", "adapter_model.safetensors"]);
        for seconds in 1..10 {
            load.opened("adapter_model.safetensors", key(2), "/m", WallTime(seconds * SECOND), 8);
        }
        assert!(is_full(&load, 9));
    }

    #[test]
    fn weights_of_very_different_sizes_are_not_the_same_tensors() {
        assert!(are_alike(5_000_000_000, 5_010_000_000));
        assert!(!are_alike(5_000_000_000, 6_000_000_000));
    }

    #[test]
    fn one_file_that_is_not_known_makes_the_factor_unknown() {
        let load = load("weights", &["model.safetensors"]);
        let contents = [(1, Content::known(Err("it could not be read")))].into();
        assert_eq!(value_of(&load, 3, &contents), Some(Value::Unknown("it could not be read")));
    }
}
