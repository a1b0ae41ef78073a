//! Names that a viewer of several streams put before every line.
//!
//! Before the prefix of an engine they are known by themselves; before the further lines of a message nothing tells a
//! name from a word of it but that the same name stood before a prefix earlier.

use super::prefix::Prefix;

/// Names that are remembered; a stream of more pods is read line by line alone.
const MAX_NAMES: usize = 32;

/// Names that stood before prefixes.
#[derive(Debug, Default)]
pub(super) struct Names(Vec<String>);

// === impl Names ===

impl Names {
    /// Whether no name is known.
    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Remembers the name of a line that begins with one.
    pub(super) fn learn(&mut self, prefix: &Prefix<'_>) {
        let Some(name) = prefix.pod.as_deref().filter(|_| prefix.spoken) else { return };
        if self.0.len() < MAX_NAMES && !self.0.iter().any(|known| known == name) {
            self.0.push(name.to_owned());
        }
    }

    /// A known name at the begin of a line, and what stands behind it.
    pub(super) fn split<'a>(&self, text: &'a str) -> Option<(&'a str, &'a str)> {
        self.0.iter().find_map(|name| {
            let rest = text.strip_prefix(name.as_str())?.strip_prefix(' ')?;
            let rest = rest.trim_start().strip_prefix("| ").unwrap_or(rest);
            Some((&text[..name.len()], rest))
        })
    }
}

#[cfg(test)]
mod tests {
    use super::Names;
    use crate::logs::prefix::Prefix;
    use std::borrow::Cow;

    #[test]
    fn a_name_that_stood_before_a_prefix_is_known_before_a_further_line() {
        let mut names = Names::default();
        let pod = Some(Cow::Borrowed("engine-0 engine"));
        names.learn(&Prefix { pod: pod.clone(), ..Prefix::default() });
        assert_eq!(names.split("engine-0 engine    of the message"), None, "no engine spoke");
        names.learn(&Prefix { pod, spoken: true, ..Prefix::default() });
        assert_eq!(
            names.split("engine-0 engine    of the message"),
            Some(("engine-0 engine", "   of the message"))
        );
        assert_eq!(names.split("engine-0 engine  |   of it"), Some(("engine-0 engine", "  of it")));
        for text in ["engine-0 engines fail", "engine-1 engine fails", "engine-0 engine"] {
            assert_eq!(names.split(text), None);
        }
    }
}
