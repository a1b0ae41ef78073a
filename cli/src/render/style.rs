//! Colour, on a terminal only.

use kvprov_model::finding::Confidence;
use std::io::IsTerminal;

/// Whether and how to colour.
#[derive(Debug, Clone, Copy)]
pub(super) struct Style {
    colour: bool,
}

impl Style {
    /// Colour when standard output is a terminal and `NO_COLOR` is not set.
    pub(super) fn of_stdout() -> Self {
        let wanted = std::env::var_os("NO_COLOR").is_none_or(|value| value.is_empty());
        Self { colour: wanted && std::io::stdout().is_terminal() }
    }

    fn paint(self, code: &str, text: &str) -> String {
        if self.colour { format!("\x1b[{code}m{text}\x1b[0m") } else { text.to_owned() }
    }

    pub(super) fn bold(self, text: &str) -> String {
        self.paint("1", text)
    }

    pub(super) fn dim(self, text: &str) -> String {
        self.paint("2", text)
    }

    pub(super) fn confidence(self, confidence: Confidence) -> String {
        match confidence {
            Confidence::Confirmed => self.paint("1;31", "CONFIRMED"),
            Confidence::Suspected => self.paint("1;33", "SUSPECTED"),
            Confidence::Risk => self.paint("1;36", "RISK"),
        }
    }
}
