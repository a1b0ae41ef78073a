//! A bundle in memory, to be edited and written out for one replay.
//!
//! Input: a directory of the corpus. `expected.toml` is never part of it: the judged program must not see the answer.

use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};
use toml::{Table, Value};

/// A bundle without its answer.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Bundle {
    /// Name of its directory.
    pub name: String,
    /// `incident.toml`; empty for loose files.
    pub incident: Table,
    /// Every other file, by its path in the bundle.
    pub files: BTreeMap<String, Vec<u8>>,
}

/// A bundle on disk for as long as the value lives.
#[derive(Debug)]
pub struct OnDisk {
    _directory: tempfile::TempDir,
    path: PathBuf,
}

// === impl Bundle ===

impl Bundle {
    /// Reads a directory.
    pub fn load(directory: &Path) -> io::Result<Self> {
        let name = directory.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
        let mut bundle = Self { name, ..Self::default() };
        bundle.take(directory, "")?;
        if let Some(text) = bundle.files.remove("incident.toml") {
            let text = String::from_utf8(text).map_err(|error| invalid(directory, &error))?;
            bundle.incident = text.parse().map_err(|error| invalid(directory, &error))?;
        }
        Ok(bundle)
    }

    fn take(&mut self, directory: &Path, prefix: &str) -> io::Result<()> {
        for entry in std::fs::read_dir(directory)? {
            let entry = entry?;
            let name = format!("{prefix}{}", entry.file_name().to_string_lossy());
            if entry.file_type()?.is_dir() {
                self.take(&entry.path(), &format!("{name}/"))?;
            } else if name != "expected.toml" {
                self.files.insert(name, std::fs::read(entry.path())?);
            }
        }
        Ok(())
    }

    /// Writes the bundle to a directory of its own.
    pub fn write(&self) -> io::Result<OnDisk> {
        let directory = tempfile::Builder::new().prefix("kvprov-bundle-").tempdir()?;
        let name = if self.name.is_empty() { "bundle" } else { &self.name };
        let path = directory.path().join(name);
        std::fs::create_dir(&path)?;
        for (name, bytes) in &self.files {
            let file = path.join(name);
            if let Some(parent) = file.parent() {
                std::fs::create_dir_all(parent)?;
            }
            std::fs::write(file, bytes)?;
        }
        if !self.incident.is_empty() {
            std::fs::write(path.join("incident.toml"), self.incident.to_string())?;
        }
        Ok(OnDisk { _directory: directory, path })
    }

    /// The `[[source]]` tables.
    pub fn sources(&self) -> impl Iterator<Item = &Table> {
        self.tables("source")
    }

    /// The `[[worker]]` tables.
    pub fn workers(&self) -> impl Iterator<Item = &Table> {
        self.tables("worker")
    }

    /// Files that are read as this kind of source.
    pub fn files_of_kind(&self, kind: &str) -> Vec<String> {
        self.sources()
            .filter(|source| text(source, "kind") == Some(kind))
            .filter_map(|source| text(source, "file").map(str::to_owned))
            .collect()
    }

    /// Calls `edit` on every table of a list of `incident.toml`.
    pub fn edit_each(&mut self, list: &str, mut edit: impl FnMut(&mut Table)) {
        if let Some(Value::Array(entries)) = self.incident.get_mut(list) {
            for entry in entries {
                if let Value::Table(table) = entry {
                    edit(table);
                }
            }
        }
    }

    /// The list of `incident.toml`, made when it is missing.
    pub fn list_mut(&mut self, list: &str) -> Option<&mut Vec<Value>> {
        self.incident.entry(list).or_insert_with(|| Value::Array(Vec::new())).as_array_mut()
    }

    fn tables(&self, list: &str) -> impl Iterator<Item = &Table> {
        self.incident.get(list).and_then(Value::as_array).into_iter().flatten().filter_map(Value::as_table)
    }
}

// === impl OnDisk ===

impl OnDisk {
    /// Where it is.
    pub fn path(&self) -> &Path {
        &self.path
    }
}

/// Text under a key of a table.
pub fn text<'t>(table: &'t Table, key: &str) -> Option<&'t str> {
    table.get(key).and_then(Value::as_str)
}

fn invalid(directory: &Path, error: &dyn std::error::Error) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, format!("{}: incident.toml: {error}", directory.display()))
}
