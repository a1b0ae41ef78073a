//! Whether a source is wrapped in a way that hides messages from a search of raw bytes: split lines, JSON escapes.
//!
//! The first lines and every line that matters are looked at; once a wrapper was seen, every line is looked at by
//! itself until so many were not wrapped that the wrapped one was a stray.

use memchr::memmem;
use std::sync::LazyLock;

/// Lines at the begin that are looked at.
const FIRST_LINES: u32 = 64;

/// Lines without a wrapper after which a source is not taken for wrapped any more.
const STRAY_AFTER: u32 = 256;

/// Names of streams as CRI lines hold them.
static STREAMS: LazyLock<[memmem::Finder<'static>; 2]> =
    LazyLock::new(|| [&b" stderr "[..], b" stdout "].map(memmem::Finder::new));

/// What the names of both streams begin with: most lines hold neither.
static STREAM: LazyLock<memmem::Finder<'static>> = LazyLock::new(|| memmem::Finder::new(b" std"));

/// What was seen.
#[derive(Debug)]
pub(super) struct Wrapping {
    /// Lines that are still to be looked at one by one.
    left: u32,
}

impl Default for Wrapping {
    fn default() -> Self {
        Self { left: FIRST_LINES }
    }
}

// === impl Wrapping ===

impl Wrapping {
    /// Goes on where so many lines are still to be looked at.
    pub(super) fn with_left(left: u32) -> Self {
        Self { left }
    }

    /// Lines that are still to be looked at one by one.
    pub(super) fn left(&self) -> u32 {
        self.left
    }

    /// Whether lines have to be looked at one by one.
    pub(super) fn needs_every_line(&self) -> bool {
        self.left > 0
    }

    /// Looks at a line that is parsed anyway.
    pub(super) fn look_at(&mut self, line: &[u8]) {
        if Self::wraps(line) {
            self.left = STRAY_AFTER;
        }
    }

    /// Whether a line is wrapped.
    pub(super) fn wraps(line: &[u8]) -> bool {
        object_start(line).is_some() || cri_tag(line).is_some()
    }

    /// Whether a search of raw bytes may miss what the line holds.
    pub(super) fn hides(&mut self, line: &[u8]) -> bool {
        self.left = self.left.saturating_sub(1);
        if let Some(tag) = cri_tag(line) {
            self.left = STRAY_AFTER;
            if tag == b'P' {
                return true;
            }
        }
        let Some(object) = object_start(line) else { return false };
        self.left = STRAY_AFTER;
        if memmem::find(object, b"\"log\":").is_some() {
            // A record whose text does not end its line goes on in the next.
            return memmem::find(object, b"\\n\",").is_none() && memmem::find(object, b"\\n\"}").is_none()
                || escapes(object);
        }
        let is_record = [&b"\"message\":"[..], b"\"msg\":", b"\"MESSAGE\":", b"\"event\":"]
            .iter()
            .any(|key| memmem::find(object, key).is_some());
        // Data is told by its fields, which no search knows.
        !is_record || escapes(object)
    }
}

/// The JSON object of a line, behind names that a viewer put there.
fn object_start(line: &[u8]) -> Option<&[u8]> {
    let at = memchr::memchr(b'{', &line[..line.len().min(400)])?;
    let before = &line[..at];
    let is_prefix = before.is_empty() || before.ends_with(b" ") || before.ends_with(b"| ");
    (is_prefix && line.get(at + 1).is_some_and(|next| *next == b'"' || *next == b' ')).then(|| &line[at..])
}

/// Quotes and letters that stand escaped, so that a literal does not stand as it is.
fn escapes(object: &[u8]) -> bool {
    memmem::find(object, b"\\\"").is_some()
        || memmem::find(object, b"\\u").is_some()
        || memmem::find(object, b"\\t").is_some()
        || memmem::find(object, b"\\\\").is_some()
        || memmem::find(object, b"\\/").is_some()
}

/// `F` or `P` of a CRI line.
fn cri_tag(line: &[u8]) -> Option<u8> {
    let head = &line[..line.len().min(400)];
    STREAM.find(head)?;
    let at = STREAMS.iter().find_map(|stream| stream.find(head))?;
    let digit_before = at > 0 && (head[at - 1] == b'Z' || head[at - 1].is_ascii_digit());
    let tag = *head.get(at + 8)?;
    (digit_before && matches!(tag, b'F' | b'P') && matches!(head.get(at + 9), Some(b' ' | b':') | None))
        .then_some(tag)
}
