//! Severities, in every spelling.

use super::scan::run;

/// Severity of a line.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Level {
    /// Finest.
    Trace,
    /// For developers.
    Debug,
    /// Normal.
    Info,
    /// Something may be wrong.
    Warning,
    /// Something failed.
    Error,
    /// The process cannot go on.
    Critical,
}

// === impl Level ===

impl Level {
    /// The word as it stands in observations.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Trace => "trace",
            Self::Debug => "debug",
            Self::Info => "info",
            Self::Warning => "warning",
            Self::Error => "error",
            Self::Critical => "critical",
        }
    }

    /// Reads a whole word in any case.
    pub fn from_word(word: &str) -> Option<Self> {
        const WORDS: [(&str, Level); 13] = [
            ("TRACE", Level::Trace),
            ("DEBUG", Level::Debug),
            ("DEBG", Level::Debug),
            ("INFO", Level::Info),
            ("NOTICE", Level::Info),
            ("WARNING", Level::Warning),
            ("WARN", Level::Warning),
            ("ERROR", Level::Error),
            ("ERR", Level::Error),
            ("CRITICAL", Level::Critical),
            ("FATAL", Level::Critical),
            ("PANIC", Level::Critical),
            ("DPANIC", Level::Critical),
        ];
        WORDS.iter().find(|(name, _)| name.eq_ignore_ascii_case(word)).map(|(_, level)| *level)
    }

    /// The one-letter form of glog, klog and NIXL.
    pub(super) fn from_letter(letter: u8) -> Option<Self> {
        match letter {
            b'D' | b'V' => Some(Self::Debug),
            b'I' => Some(Self::Info),
            b'W' => Some(Self::Warning),
            b'E' => Some(Self::Error),
            b'F' => Some(Self::Critical),
            _ => None,
        }
    }

    /// Priorities of syslog and the kernel: 0 (emergency) to 7 (debug); the facility is dropped.
    pub(super) fn from_priority(priority: u32) -> Self {
        match priority % 8 {
            0..=2 => Self::Critical,
            3 => Self::Error,
            4 => Self::Warning,
            5 | 6 => Self::Info,
            _ => Self::Debug,
        }
    }
}

/// A level in capitals at the start of text.
pub(super) fn word(text: &str) -> Option<(Level, &str)> {
    let (word, rest) = run(text, 8, |b| b.is_ascii_uppercase())?;
    Some((Level::from_word(word)?, rest))
}
