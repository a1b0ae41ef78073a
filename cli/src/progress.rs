//! Progress on long input: one line on a terminal's standard error, nothing elsewhere.

use std::io::{IsTerminal, Write};
use std::time::{Duration, Instant};

/// Shorter input is done before a line could be read.
const WORTH_SHOWING: u64 = 16 << 20;
const STEP: Duration = Duration::from_millis(200);

/// Shows how far the reading has come.
pub(crate) struct Meter {
    shown: bool,
    terminal: bool,
    last: Instant,
}

impl Meter {
    pub(crate) fn new() -> Self {
        Self { shown: false, terminal: std::io::stderr().is_terminal(), last: Instant::now() }
    }

    pub(crate) fn show(&mut self, done: u64, total: u64) {
        if !self.terminal || total < WORTH_SHOWING || self.last.elapsed() < STEP {
            return;
        }
        self.last = Instant::now();
        self.shown = true;
        let percent = done.saturating_mul(100) / total.max(1);
        let _ = write!(std::io::stderr(), "\rreading {percent:>3} % of {} MiB", total >> 20);
    }

    pub(crate) fn clear(&self) {
        if self.shown {
            let _ = write!(std::io::stderr(), "\r{:40}\r", "");
        }
    }
}
