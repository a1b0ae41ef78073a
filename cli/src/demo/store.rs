//! A store of files as engines use one: look up, read or write, evict what the own index thinks too much.

use crate::demo::script::{StoreUse, Turn};
use sha2::{Digest, Sha256};
use std::collections::VecDeque;
use std::fmt::Write as _;
use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// One user of a store. Its index is private: it knows nothing of what others remove.
pub(crate) struct Store<'u> {
    directory: PathBuf,
    usage: &'u StoreUse,
    /// Says whose turn it is, where turns are taken.
    turn: PathBuf,
    /// Names in the order in which they were last used.
    index: VecDeque<String>,
}

// === impl Store ===

impl<'u> Store<'u> {
    pub(crate) fn new(directory: &Path, turn: PathBuf, usage: &'u StoreUse) -> Self {
        Self { directory: directory.to_owned(), usage, turn, index: VecDeque::new() }
    }

    /// Asks for every page as often as the usage says.
    pub(crate) fn play(&mut self) -> io::Result<()> {
        std::thread::sleep(Duration::from_millis(self.usage.delay_ms));
        for turn in 0..self.usage.rounds.saturating_mul(self.usage.keys) {
            self.wait_for_turn(turn);
            let name = self.name(turn.wrapping_mul(self.usage.step) % self.usage.keys.max(1));
            if !self.read(&name)? {
                self.evict()?;
                self.write(&name)?;
            }
            self.use_now(name);
            self.end_turn(turn)?;
            std::thread::sleep(Duration::from_millis(self.usage.pause_ms));
        }
        Ok(())
    }

    fn wait_for_turn(&self, round: u64) {
        let Some(Turn { place, of }) = self.usage.turn else { return };
        let due = round * of + place;
        // No file: nobody had a turn yet.
        let next =
            || std::fs::read_to_string(&self.turn).ok().and_then(|text| text.parse().ok()).unwrap_or(0_u64);
        while next() < due {
            std::thread::sleep(Duration::from_millis(2));
        }
    }

    fn end_turn(&self, round: u64) -> io::Result<()> {
        let Some(Turn { place, of }) = self.usage.turn else { return Ok(()) };
        let new = self.turn.with_extension(place.to_string());
        std::fs::write(&new, (round * of + place + 1).to_string())?;
        std::fs::rename(new, &self.turn)
    }

    fn name(&self, page: u64) -> String {
        let digest = Sha256::digest(format!("{}/{page}", self.usage.prompts));
        let mut name = String::with_capacity(64 + self.usage.suffix.len());
        for byte in digest {
            // Writing into a text does not fail.
            let _ = write!(name, "{byte:02x}");
        }
        name.push_str(&self.usage.suffix);
        name
    }

    fn read(&self, name: &str) -> io::Result<bool> {
        let path = self.directory.join(name);
        if !path.try_exists()? {
            return Ok(false);
        }
        match std::fs::read(path) {
            Ok(_) => Ok(true),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(false),
            Err(error) => Err(error),
        }
    }

    fn write(&self, name: &str) -> io::Result<()> {
        let digest = Sha256::digest(format!("{name} {}", std::process::id()));
        let mut temporary = String::from(".");
        for byte in digest.iter().take(16) {
            let _ = write!(temporary, "{byte:02x}");
        }
        temporary.push_str(".tmp");
        let temporary = self.directory.join(temporary);
        std::fs::write(&temporary, vec![0x4b; self.usage.page_bytes])?;
        std::fs::rename(&temporary, self.directory.join(name))
    }

    fn evict(&mut self) -> io::Result<()> {
        let Some(cap) = self.usage.cap else { return Ok(()) };
        while self.index.len() >= cap {
            let Some(oldest) = self.index.pop_front() else { break };
            match std::fs::remove_file(self.directory.join(oldest)) {
                Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
                _ => {}
            }
        }
        Ok(())
    }

    fn use_now(&mut self, name: String) {
        self.index.retain(|known| *known != name);
        self.index.push_back(name);
    }
}
