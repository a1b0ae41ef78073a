//! Where probes look.

use std::io;

/// Longest file that a probe reads, in bytes.
const LIMIT: usize = 4 * 1024 * 1024;

/// A machine as its files tell.
pub trait Machine {
    /// The text of a file; what is not UTF-8 is replaced.
    ///
    /// # Errors
    /// What opening or reading it says.
    fn read(&self, path: &str) -> io::Result<String>;
    /// Where a link leads.
    ///
    /// # Errors
    /// What reading it says.
    fn link(&self, path: &str) -> io::Result<String>;
    /// Whether a file or directory can be opened for reading.
    ///
    /// # Errors
    /// What opening it says.
    fn opens(&self, path: &str) -> io::Result<()>;
    /// Whether there is a socket that may be connected to.
    ///
    /// # Errors
    /// As [`crate::containers::may_ask`].
    fn listens(&self, path: &str) -> io::Result<()>;
    /// Whether paths below the root of another process can be resolved (openat2).
    fn resolves_paths(&self) -> bool;
}

/// This machine.
#[derive(Debug, Clone, Copy, Default)]
pub struct RealMachine;

impl Machine for RealMachine {
    fn read(&self, path: &str) -> io::Result<String> {
        let file = std::fs::File::open(path)?;
        let (bytes, _) = crate::inspect::read_at_most(&file, LIMIT)?;
        Ok(String::from_utf8_lossy(&bytes).into_owned())
    }

    fn link(&self, path: &str) -> io::Result<String> {
        Ok(std::fs::read_link(path)?.to_string_lossy().into_owned())
    }

    fn opens(&self, path: &str) -> io::Result<()> {
        std::fs::File::open(path).map(|_| ())
    }

    fn listens(&self, path: &str) -> io::Result<()> {
        crate::containers::may_ask(std::path::Path::new(path))
    }

    fn resolves_paths(&self) -> bool {
        crate::inspect::can_resolve()
    }
}
