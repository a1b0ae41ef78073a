//! The last batch of every publisher on disk, so that an agent that was killed asks for what it missed.

use super::Mark;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::io;
use std::path::PathBuf;

/// Publishers that are remembered.
const MAX: usize = 4096;
/// Largest file that is read, in bytes.
const MAX_FILE: u64 = 4 << 20;

/// The marks of one boot: after another one every publisher is new.
#[derive(Debug)]
pub struct Marks {
    path: PathBuf,
    boot: String,
    marks: BTreeMap<String, Mark>,
    is_changed: bool,
}

#[derive(Serialize, Deserialize)]
struct Saved {
    boot: String,
    marks: BTreeMap<String, Mark>,
}

// === impl Marks ===

impl Marks {
    /// What an agent before this one saved in a file; nothing where it cannot be read.
    pub fn load(path: PathBuf, boot: String) -> Self {
        let is_small = std::fs::metadata(&path).is_ok_and(|found| found.len() <= MAX_FILE);
        let bytes = if is_small { std::fs::read(&path).unwrap_or_default() } else { Vec::new() };
        let marks = match serde_json::from_slice::<Saved>(&bytes) {
            Ok(saved) if saved.boot == boot => saved.marks,
            Ok(_) => BTreeMap::new(),
            Err(_) if bytes.is_empty() => BTreeMap::new(),
            Err(error) => {
                tracing::warn!(path = %path.display(), %error, "marks of KV events are damaged");
                BTreeMap::new()
            }
        };
        Self { path, boot, marks, is_changed: false }
    }

    /// The last batch of a publisher.
    pub fn get(&self, publisher: &str) -> Option<Mark> {
        self.marks.get(publisher).copied()
    }

    /// A publisher came so far. Beyond the most that are remembered nothing is noted: it is then asked for again.
    pub fn reached(&mut self, publisher: &str, mark: Mark) {
        let has_room = self.marks.len() < MAX;
        match self.marks.get_mut(publisher) {
            Some(known) if *known == mark => return,
            Some(known) => *known = mark,
            None if has_room => drop(self.marks.insert(publisher.to_owned(), mark)),
            None => return,
        }
        self.is_changed = true;
    }

    /// Forgets publishers that are not kept.
    pub fn retain(&mut self, keep: impl Fn(&str) -> bool) {
        let before = self.marks.len();
        self.marks.retain(|publisher, _| keep(publisher));
        self.is_changed |= before != self.marks.len();
    }

    /// Writes what changed. A loss of power is another boot, so nothing is forced to the disk.
    ///
    /// # Errors
    /// When the file cannot be written; it is tried again the next time.
    pub fn save(&mut self) -> io::Result<()> {
        if !self.is_changed {
            return Ok(());
        }
        let saved = Saved { boot: self.boot.clone(), marks: self.marks.clone() };
        let new = self.path.with_extension("new");
        std::fs::write(&new, serde_json::to_vec(&saved).map_err(io::Error::other)?)?;
        std::fs::rename(&new, &self.path)?;
        self.is_changed = false;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_saved_is_known_to_the_next_agent_of_the_same_boot() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("events.json");
        let mark = Mark { seq: 7, time: 1.5f64.to_bits() };
        let mut marks = Marks::load(path.clone(), "one".to_owned());
        marks.reached("p", mark);
        marks.save().unwrap();
        assert_eq!(Marks::load(path.clone(), "one".to_owned()).get("p"), Some(mark));
        assert_eq!(Marks::load(path, "two".to_owned()).get("p"), None);
    }

    #[test]
    fn a_damaged_file_is_as_none() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("events.json");
        std::fs::write(&path, b"{\"boot\":").unwrap();
        assert_eq!(Marks::load(path, "one".to_owned()).get("p"), None);
    }

    #[test]
    fn what_is_remembered_is_bounded() {
        let mut marks = Marks::load("/nonexistent/events.json".into(), "one".to_owned());
        for number in 0..=MAX {
            marks.reached(&number.to_string(), Mark { seq: 0, time: 0 });
        }
        assert_eq!(marks.marks.len(), MAX);
        marks.retain(|publisher| publisher == "1");
        assert_eq!(marks.marks.len(), 1);
    }
}
