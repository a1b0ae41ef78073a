//! Turns what the tables of this folder concluded into observations.

use crate::kernel::handle::Stamp;
use crate::kernel::mounts::Mounts;
use crate::kernel::names::ArtifactName;
use crate::kernel::record::FileSystem;
use crate::source::{Sink, SourceContext};
use kvprov_model::observation::{Artifact, ArtifactAction, Body, Observation, SourceKind};
use std::fmt::Write;

/// Room for what is said of an artifact beside its key.
const WORDS: usize = 96;

/// Writes observations of one source. Counts those of one record, so that each gets an id of its own.
pub(crate) struct Emitter<'a, 's> {
    source: &'a SourceContext,
    mounts: &'a Mounts,
    sink: Sink<'s>,
    last_offset: Option<u64>,
    index: u32,
}

/// What happened to an artifact.
pub(crate) struct Happening<'n> {
    pub name: &'n ArtifactName,
    pub file_system: Option<&'n FileSystem>,
    pub action: ArtifactAction,
    pub bytes: Option<u64>,
    pub wanted: Option<u64>,
    pub pid: i64,
    /// Words that say more than the action: `the temporary file was gone`.
    pub remark: Option<&'static str>,
}

// === impl Emitter ===

impl<'a, 's> Emitter<'a, 's> {
    pub(crate) fn new(source: &'a SourceContext, mounts: &'a Mounts, sink: Sink<'s>) -> Self {
        Self { source, mounts, sink, last_offset: None, index: 0 }
    }

    /// Hands one observation on.
    pub(crate) fn emit(&mut self, stamp: Stamp, lane: u32, says: String, body: Body) {
        let observation = self.observe(stamp, lane, says, body);
        (self.sink)(observation);
    }

    fn observe(&mut self, stamp: Stamp, lane: u32, says: String, body: Body) -> Observation {
        self.index = if self.last_offset == Some(stamp.place.offset) { self.index + 1 } else { 0 };
        self.last_offset = Some(stamp.place.offset);
        let index = lane + self.index;
        self.source.observe(SourceKind::Kernel, stamp.place, index, stamp.wall, Some(says), body)
    }

    /// Hands on what happened to an artifact.
    pub(crate) fn artifact(&mut self, stamp: Stamp, what: &Happening<'_>) {
        let name = what.name;
        let store = match what.file_system {
            Some(file_system) => {
                let FileSystem { name: fs, .. } = file_system;
                match file_system.inside(&name.store_dir) {
                    Some(directory) => ["file:", fs, ":", directory.as_str()].concat(),
                    None => ["file:", fs, ":", &self.mounts.directory(fs, &name.store_dir)].concat(),
                }
            }
            None => ["file:", self.source.node.0.as_str(), ":", name.store_dir.as_str()].concat(),
        };
        // One allocation: this is told for every artifact that was read or written.
        let mut says = String::with_capacity(WORDS + name.key.len());
        let written = match (what.bytes, what.wanted) {
            (Some(bytes), Some(wanted)) if bytes != wanted => {
                write!(says, "{} {bytes} of {wanted} B: {}", what.action, name.key)
            }
            (Some(bytes), _) => write!(says, "{} {bytes} B: {}", what.action, name.key),
            _ => write!(says, "{}: {}", what.action, name.key),
        };
        let remarked = what.remark.map(|words| write!(says, " ({words})"));
        // Writing to memory does not fail.
        let _ = (written, remarked);
        let body = Body::Artifact(Artifact {
            store: Some(store),
            key: Some(name.key.clone()),
            grammar: Some(name.grammar.clone()),
            content: name.content.clone(),
            fields: name.fields.clone(),
            action: Some(what.action.clone()),
            bytes: what.bytes.and_then(|bytes| i64::try_from(bytes).ok()),
            bytes_wanted: what.wanted.and_then(|wanted| i64::try_from(wanted).ok()),
            pid: Some(what.pid),
        });
        self.emit(stamp, 0, says, body);
    }
}
