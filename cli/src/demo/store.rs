//! A store of files as engines use one: look up, read or write, evict what the own index thinks too much.

use crate::demo::script::StoreUse;
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
    /// Names in the order in which they were last used.
    index: VecDeque<String>,
}

// === impl Store ===

impl<'u> Store<'u> {
    pub(crate) fn new(directory: &Path, usage: &'u StoreUse) -> Self {
        Self { directory: directory.to_owned(), usage, index: VecDeque::new() }
    }

    /// Asks for every page as often as the usage says.
    pub(crate) fn play(&mut self) -> io::Result<()> {
        std::thread::sleep(Duration::from_millis(self.usage.delay_ms));
        for turn in 0..self.usage.rounds.saturating_mul(self.usage.keys) {
            let name = self.name(turn.wrapping_mul(self.usage.step) % self.usage.keys.max(1));
            if !self.read(&name)? {
                self.evict()?;
                self.write(&name)?;
            }
            self.use_now(name);
            std::thread::sleep(Duration::from_millis(self.usage.pause_ms));
        }
        Ok(())
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
