//! Which files of a model a worker's processes opened: factors of its revision.
//!
//! A full factor needs a digest of the content, which a path holds only where it points into a store of blobs by
//! sha256. A commit is evidence: the factor is provisional. Any other path leaves the factor unknown; its
//! observation still says when the files were opened. Several files of one factor (shards) are one set; sets are
//! compared by a digest over the digests of their files, which is provisional, because the set may be incomplete.

use crate::kernel::emit::Emitter;
use crate::kernel::handle::Stamp;
use crate::kernel::names::ModelFile;
use crate::kernel::state::Kept;
use crate::source::Losses;
use kvprov_model::clock::{SECOND, WallTime};
use kvprov_model::factor::FactorState;
use kvprov_model::id::hex;
use kvprov_model::observation::{Body, Factor};
use sha2::{Digest, Sha256};
use std::collections::{BTreeMap, BTreeSet};

/// Opens of one factor by one process belong to one load while no more than this lies between them.
const ONE_LOAD: i64 = 60 * SECOND;
/// Loads that are followed at once.
const LOADS: usize = 4096;
/// Files of one load; a model of thousands of shards fits.
const FILES: usize = 16 * 1024;
const LANE: u32 = 1 << 16;

/// A load in progress.
#[derive(Debug)]
struct Load {
    last: Stamp,
    digests: BTreeSet<String>,
    without_digest: BTreeSet<String>,
    evidence: BTreeSet<String>,
}

/// Loads by process, factor and, for adapters, directory.
#[derive(Debug, Default)]
pub(crate) struct ModelFiles(BTreeMap<(i64, String, String), Load>);

// === impl ModelFiles ===

impl ModelFiles {
    /// A process opened a file of the model.
    pub(crate) fn opened(
        &mut self,
        pid: i64,
        path: &str,
        file: &ModelFile,
        stamp: Stamp,
        losses: &mut Losses,
        emitter: &mut Emitter<'_, '_>,
    ) {
        let adapter = if file.factor == "adapter" { directory_of(path) } else { "" };
        let key = (pid, file.factor.clone(), adapter.to_owned());
        let is_over = self.0.get(&key).is_some_and(|load| match (load.last.wall, stamp.wall) {
            (Some(last), Some(now)) => now.since(last) > ONE_LOAD,
            _ => false,
        });
        if is_over {
            if let Some(load) = self.0.remove(&key) {
                load.emit(&key, emitter);
            }
        } else if !self.0.contains_key(&key) && self.0.len() >= LOADS {
            losses.one("too many loads of models");
            return;
        }
        let load = self.0.entry(key).or_insert_with(|| Load {
            last: stamp,
            digests: BTreeSet::new(),
            without_digest: BTreeSet::new(),
            evidence: BTreeSet::new(),
        });
        load.last = stamp;
        if load.digests.len() + load.without_digest.len() >= FILES {
            losses.one("too many files of one model");
            return;
        }
        match &file.digest {
            Some(digest) => load.digests.insert(digest.clone()),
            None => load.without_digest.insert(path.to_owned()),
        };
        load.evidence.extend(file.evidence.clone());
    }

    /// What is known, to be put back by [`ModelFiles::restore`].
    pub(crate) fn keep(&self, take: &mut dyn FnMut(Kept)) {
        for ((pid, factor, adapter), load) in &self.0 {
            take(Kept::Load {
                pid: *pid,
                factor: factor.clone(),
                adapter: adapter.clone(),
                last: load.last,
                digests: load.digests.clone(),
                without_digest: load.without_digest.clone(),
                evidence: load.evidence.clone(),
            });
        }
    }

    /// Puts one thing back.
    pub(crate) fn restore(&mut self, kept: Kept) {
        if let Kept::Load { pid, factor, adapter, last, digests, without_digest, evidence } = kept {
            self.0.insert((pid, factor, adapter), Load { last, digests, without_digest, evidence });
        }
    }

    /// Tells the loads that no record can continue: their pause is over, and `late` besides.
    pub(crate) fn idle(&mut self, now: WallTime, late: i64, emitter: &mut Emitter<'_, '_>) {
        let is_over = |load: &Load| load.last.wall.is_some_and(|last| now.since(last) > ONE_LOAD + late);
        for (key, load) in self.0.extract_if(.., |_, load| is_over(load)) {
            load.emit(&key, emitter);
        }
    }

    /// The records end.
    pub(crate) fn finish(&mut self, emitter: &mut Emitter<'_, '_>) {
        for (key, load) in std::mem::take(&mut self.0) {
            load.emit(&key, emitter);
        }
    }
}

// === impl Load ===

impl Load {
    fn emit(&self, key: &(i64, String, String), emitter: &mut Emitter<'_, '_>) {
        let (_, factor, adapter) = key;
        let (algorithm, value, state) = self.value();
        let files = self.digests.len() + self.without_digest.len();
        let says = match state {
            FactorState::Full => {
                format!("opened {factor} with the digest {}", value.as_deref().unwrap_or(""))
            }
            _ => format!("opened {files} files of {factor} whose content no path states"),
        };
        let evidence: Vec<&str> = self.evidence.iter().map(String::as_str).take(4).collect();
        let first_path = self.without_digest.first().map_or("", String::as_str);
        let origin = if evidence.is_empty() {
            format!("open {first_path}").trim_end().to_owned()
        } else {
            format!("open {first_path}, commit {}", evidence.join(", "))
        };
        let body = Body::Factor(Factor {
            factor: Some(factor.clone()),
            adapter: (!adapter.is_empty()).then(|| adapter.clone()),
            algorithm,
            value,
            state: Some(state),
            origin: Some(origin),
            ..Factor::default()
        });
        emitter.emit(self.last, LANE, says, body);
    }

    fn value(&self) -> (Option<String>, Option<String>, FactorState) {
        let mut digests = self.digests.iter();
        match (digests.next(), digests.next()) {
            (Some(only), None) if self.without_digest.is_empty() => {
                (Some("sha256".to_owned()), Some(only.clone()), FactorState::Full)
            }
            (Some(_), _) => {
                let mut hash = Sha256::new();
                for digest in &self.digests {
                    hash.update(digest.as_bytes());
                    hash.update(b"\n");
                }
                let value = hex(&hash.finalize());
                (Some("sha256-set".to_owned()), Some(value), FactorState::Provisional)
            }
            (None, _) => match self.evidence.first() {
                Some(commit) if self.evidence.len() == 1 => {
                    (Some("commit".to_owned()), Some(commit.clone()), FactorState::Provisional)
                }
                _ => (None, None, FactorState::Unknown),
            },
        }
    }
}

/// The last part of the directory of a file: under it engines and people know an adapter.
fn directory_of(path: &str) -> &str {
    let Some((directory, _)) = path.rsplit_once('/') else { return "" };
    let name = directory.rsplit('/').next().unwrap_or("");
    // A blob stands beside blobs of other adapters; its directory names none.
    if name == "blobs" { "" } else { name }
}
