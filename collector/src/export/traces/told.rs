//! What was told of which request, so that it is told again only when it became another, and under the same ids.
//!
//! Kept in a file that is replaced whole. What a kill loses of it, some seconds at most, is told twice, which is the
//! same spans. Invariant: at most [`REMEMBERED`] requests; those told longest ago are forgotten first.

use crate::otlp::context::Context;
use kvprov_model::id::RequestStem;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::io::{self, Write as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::Path;

/// Requests that are remembered.
const REMEMBERED: usize = 20_000;
/// Tellings of one request.
const TELLINGS: u32 = 8;

/// What was told of a request.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
struct Entry {
    /// Hash of what the spans said.
    said: u64,
    /// The span that they were put under, as W3C trace context.
    parent: Option<String>,
    times: u32,
    order: u64,
}

/// All that was told.
#[derive(Debug, Default, Serialize, Deserialize)]
pub(super) struct Told {
    entries: BTreeMap<RequestStem, Entry>,
    order: u64,
}

/// What is to be done with something that could be told.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Turn {
    /// It was never told.
    First,
    /// Something else was told of it before, under this span.
    Again(Option<Context>),
    /// The same was told, or too much already.
    Not,
}

// === impl Told ===

impl Told {
    /// Reads the file; empty where there is none. A damaged one begins anew, and requests are told again.
    pub(super) fn load(path: &Path) -> Self {
        match std::fs::read(path) {
            Ok(bytes) => serde_json::from_slice(&bytes).unwrap_or_else(|error| {
                tracing::warn!(path = %path.display(), %error, "it cannot be read which requests were traced; they are traced again");
                Self::default()
            }),
            Err(_) => Self::default(),
        }
    }

    /// Writes the file, whole or not at all.
    pub(super) fn save(&self, path: &Path) -> io::Result<()> {
        let new = path.with_extension("json-new");
        let mut options = std::fs::OpenOptions::new();
        options.write(true).create(true).truncate(true).mode(0o600);
        options.open(&new)?.write_all(&serde_json::to_vec(self)?)?;
        std::fs::rename(&new, path)
    }

    /// Whether something that says this is to be told of a request.
    pub(super) fn turn(&self, stem: &RequestStem, said: u64) -> Turn {
        match self.entries.get(stem) {
            None => Turn::First,
            Some(entry) if entry.said == said || entry.times >= TELLINGS => Turn::Not,
            Some(entry) => Turn::Again(entry.parent.as_deref().and_then(Context::parse)),
        }
    }

    /// It was told.
    pub(super) fn note(&mut self, stem: RequestStem, said: u64, parent: Option<Context>) {
        self.order += 1;
        let times = self.entries.get(&stem).map_or(0, |entry| entry.times) + 1;
        let parent = parent.map(|parent| parent.to_string());
        self.entries.insert(stem, Entry { said, parent, times, order: self.order });
        if self.entries.len() > REMEMBERED {
            // A tenth at once, so that it is not looked for each time.
            let mut orders: Vec<u64> = self.entries.values().map(|entry| entry.order).collect();
            orders.sort_unstable();
            let edge = orders.get(REMEMBERED / 10).copied().unwrap_or(0);
            self.entries.retain(|_, entry| entry.order > edge);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_same_is_told_once_and_another_again_under_the_same_span() {
        let (mut told, stem) = (Told::default(), RequestStem::of("a"));
        let parent = Context::parse("00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01");
        assert_eq!(told.turn(&stem, 1), Turn::First);
        told.note(stem.clone(), 1, parent);
        assert_eq!(told.turn(&stem, 1), Turn::Not);
        assert_eq!(told.turn(&stem, 2), Turn::Again(parent));
        for said in 2..20 {
            told.note(stem.clone(), said, parent);
        }
        assert_eq!(told.turn(&stem, 99), Turn::Not);
    }

    #[test]
    fn it_survives_in_its_file_and_is_bounded() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("told.json");
        let mut told = Told::default();
        for number in 0..=REMEMBERED {
            told.note(RequestStem(number.to_string()), 1, None);
        }
        assert!(told.entries.len() < REMEMBERED);
        told.save(&path).unwrap();
        let again = Told::load(&path);
        assert_eq!(again.turn(&RequestStem(REMEMBERED.to_string()), 1), Turn::Not);
        assert_eq!(again.turn(&RequestStem("0".to_owned()), 1), Turn::First);
        std::fs::write(&path, b"{").unwrap();
        assert_eq!(Told::load(&path).turn(&RequestStem(REMEMBERED.to_string()), 1), Turn::First);
    }
}
