//! One source of a stream that can be seen twice.

use std::path::{Path, PathBuf};

/// Where a process's output can be seen.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum StreamKind {
    /// The descriptor itself is a regular file.
    OwnFile(PathBuf),
    /// A container runtime writes it to a file.
    RuntimeFile(PathBuf),
    /// Pieces of writes, captured by the kernel.
    Captured,
}

/// What was chosen, and why.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Choice {
    /// The source; `None` where the stream cannot be seen.
    pub kind: Option<StreamKind>,
    /// Why, for people.
    pub why: String,
}

/// Takes the best of the ways to see one stream. A file comes first: it holds what was written before anybody looked,
/// and what was written while nobody did; a piece that is not taken in time is gone. `is_readable` tells whether a
/// file can be followed.
pub fn choose(ways: &[StreamKind], is_readable: impl Fn(&Path) -> bool) -> Choice {
    let mut refused = Vec::new();
    let mut readable = |path: &Path| {
        let is_readable = is_readable(path);
        if !is_readable {
            refused.push(path.display().to_string());
        }
        is_readable
    };
    let own = ways.iter().find(|way| matches!(way, StreamKind::OwnFile(path) if readable(path)));
    let file = own
        .or_else(|| ways.iter().find(|way| matches!(way, StreamKind::RuntimeFile(path) if readable(path))));
    let captured = ways.iter().find(|way| **way == StreamKind::Captured);
    let why = match (file, captured) {
        (Some(StreamKind::OwnFile(path)), _) => {
            format!("written to {}, which also holds what came before", path.display())
        }
        (Some(StreamKind::RuntimeFile(path)), _) => {
            format!("the container runtime keeps it in {}, which also holds what came before", path.display())
        }
        (_, Some(_)) if refused.is_empty() => "no file holds it: captured as it is written".to_owned(),
        (_, Some(_)) => format!("captured as it is written, since {} cannot be read", refused.join(", ")),
        _ if refused.is_empty() => "no file holds it and the kernel does not capture it".to_owned(),
        _ => format!("{} cannot be read and the kernel does not capture it", refused.join(", ")),
    };
    Choice { kind: file.or(captured).cloned(), why }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ways() -> [StreamKind; 3] {
        [
            StreamKind::Captured,
            StreamKind::RuntimeFile("/c/0.log".into()),
            StreamKind::OwnFile("/e.log".into()),
        ]
    }

    #[test]
    fn a_file_stands_above_what_is_captured() {
        assert_eq!(choose(&ways(), |_| true).kind, Some(StreamKind::OwnFile("/e.log".into())));
        assert_eq!(choose(&ways()[..2], |_| true).kind, Some(StreamKind::RuntimeFile("/c/0.log".into())));
        assert_eq!(choose(&ways()[..1], |_| true).kind, Some(StreamKind::Captured));
    }

    #[test]
    fn a_file_that_cannot_be_read_is_named_as_the_reason() {
        let choice = choose(&ways(), |_| false);
        assert_eq!(choice.kind, Some(StreamKind::Captured));
        assert!(choice.why.contains("/e.log") && choice.why.contains("/c/0.log"), "{}", choice.why);
        let choice = choose(&ways()[1..], |_| false);
        assert_eq!(choice.kind, None);
        assert!(choice.why.contains("cannot be read"), "{}", choice.why);
    }
}
