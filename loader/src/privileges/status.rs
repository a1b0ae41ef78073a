//! What a process holds, as `/proc/PID/status` tells.

use std::fmt;

/// Privileges of a process. The sets are bits by capability number.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Status {
    /// Kept over exec where the file has them too.
    pub inheritable: u64,
    /// May be made effective.
    pub permitted: u64,
    /// Count.
    pub effective: u64,
    /// May be gained by exec.
    pub bounding: u64,
    /// Kept over exec.
    pub ambient: u64,
    /// Exec grants nothing.
    pub no_new_privs: bool,
    /// Threads.
    pub threads: u32,
    /// Effective user.
    pub user: u32,
}

/// The text is not what the kernel writes.
#[derive(Debug, thiserror::Error)]
pub enum StatusError {
    /// It could not be read.
    #[error("reading /proc/self/status: {0}")]
    Read(#[from] std::io::Error),
    /// A line is missing or no number.
    #[error("/proc/self/status: no {0}")]
    Missing(&'static str),
}

// === impl Status ===

impl Status {
    /// Of this thread.
    ///
    /// # Errors
    /// When `/proc` is not mounted.
    pub fn own() -> Result<Self, StatusError> {
        Self::parse(&std::fs::read_to_string("/proc/thread-self/status")?)
    }

    /// Of the text of `/proc/PID/status`.
    ///
    /// # Errors
    /// When a line is missing.
    pub fn parse(text: &str) -> Result<Self, StatusError> {
        let line = |key: &'static str| {
            text.lines()
                .find_map(|line| line.strip_prefix(key)?.strip_prefix(':'))
                .map(str::trim)
                .ok_or(StatusError::Missing(key))
        };
        let set = |key| u64::from_str_radix(line(key)?, 16).map_err(|_| StatusError::Missing(key));
        Ok(Self {
            inheritable: set("CapInh")?,
            permitted: set("CapPrm")?,
            effective: set("CapEff")?,
            bounding: set("CapBnd")?,
            // Before Linux 4.3 there is none, before 4.10 NoNewPrivs is not told.
            ambient: set("CapAmb").unwrap_or(0),
            no_new_privs: line("NoNewPrivs").is_ok_and(|value| value == "1"),
            threads: line("Threads")?.parse().map_err(|_| StatusError::Missing("Threads"))?,
            user: line("Uid")?
                .split_ascii_whitespace()
                .nth(1)
                .and_then(|user| user.parse().ok())
                .ok_or(StatusError::Missing("Uid"))?,
        })
    }
}

impl fmt::Display for Status {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            out,
            "effective {:#x}, permitted {:#x}, inheritable {:#x}, ambient {:#x}, bounding {:#x}, NO_NEW_PRIVS {}",
            self.effective,
            self.permitted,
            self.inheritable,
            self.ambient,
            self.bounding,
            u8::from(self.no_new_privs)
        )
    }
}
