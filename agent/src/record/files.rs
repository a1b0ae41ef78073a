//! The source files of a recording: one a worker, kind and stream.

use super::RecordError;
use kvprov_model::id::WorkerId;
use std::collections::BTreeMap;
use std::fs::File;
use std::io::{BufWriter, Write};
use std::path::PathBuf;

/// Source files of one recording that are held open; a stream beyond them is an error, not a silent loss.
const MAX_FILES: usize = 1024;

/// What a file holds, as `incident.toml` names it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Kind {
    Kernel,
    Log,
    Events,
    Metrics,
}

type Source = (WorkerId, Kind, String);

/// The open files.
#[derive(Debug)]
pub(super) struct Files {
    directory: PathBuf,
    open: BTreeMap<Source, (PathBuf, BufWriter<File>)>,
}

// === impl Kind ===

impl Kind {
    pub(super) fn as_str(self) -> &'static str {
        match self {
            Self::Kernel => "kernel",
            Self::Log => "log",
            Self::Events => "kv-events",
            Self::Metrics => "metrics",
        }
    }

    fn extension(self) -> &'static str {
        match self {
            Self::Kernel | Self::Events => "jsonl",
            Self::Log => "log",
            Self::Metrics => "prom",
        }
    }
}

// === impl Files ===

impl Files {
    pub(super) fn new(directory: PathBuf) -> Self {
        Self { directory, open: BTreeMap::new() }
    }

    /// Appends a line; the name of the file when it is a new one.
    pub(super) fn append(
        &mut self,
        worker: &WorkerId,
        kind: Kind,
        stream: &str,
        line: &[u8],
    ) -> Result<Option<String>, RecordError> {
        let source = (worker.clone(), kind, stream.to_owned());
        let mut new = None;
        if !self.open.contains_key(&source) {
            let number = self.open.len();
            let name = format!("{:03}-{}.{}", number, tame(worker.as_str()), kind.extension());
            let path = self.directory.join(&name);
            let made = if number < MAX_FILES {
                File::create_new(&path)
            } else {
                Err(std::io::Error::other(format!("more than {MAX_FILES} sources")))
            };
            let file = made.map_err(|error| RecordError::Write { path: path.clone(), error })?;
            self.open.insert(source.clone(), (path, BufWriter::new(file)));
            new = Some(name);
        }
        if let Some((path, file)) = self.open.get_mut(&source) {
            file.write_all(line)
                .and_then(|()| if line.ends_with(b"\n") { Ok(()) } else { file.write_all(b"\n") })
                .map_err(|error| RecordError::Write { path: path.clone(), error })?;
        }
        Ok(new)
    }

    pub(super) fn flush(&mut self) -> Result<(), RecordError> {
        for (path, file) in self.open.values_mut() {
            file.flush().map_err(|error| RecordError::Write { path: path.clone(), error })?;
        }
        Ok(())
    }
}

/// A name without anything that a path could be made of.
fn tame(name: &str) -> String {
    name.chars().map(|c| if c.is_ascii_alphanumeric() || c == '-' { c } else { '_' }).take(80).collect()
}
