//! One log line of an engine, compiled: literal pieces and typed placeholders.
//!
//! Input is a `[[template]]` that [`crate::validate`] has checked.

use crate::placeholder::PlaceholderType;
use crate::version::VersionRange;
use kvprov_model::value::Value;
use std::collections::BTreeMap;

/// One `[[template]]`.
#[derive(Debug, Clone)]
pub struct Template {
    /// Unique name, starts with the engine.
    pub id: String,
    /// The engine whose pack holds it.
    pub engine: String,
    /// The text with its placeholders.
    pub text: String,
    /// Versions that print it.
    pub versions: VersionRange,
    /// Level at which it is printed.
    pub level: Option<String>,
    /// Kind of observation; `none` for a line without meaning.
    pub kind: String,
    /// Says why a neighbouring line failed.
    pub explains: bool,
    /// A failure whose cause a neighbouring line tells.
    pub takes_cause: bool,
    /// An `explains` line that states a failure by itself, also without a `takes_cause` neighbour.
    pub alone: bool,
    /// Facts of the worker that this wording proves.
    pub implies: BTreeMap<String, String>,
    /// Versions that print this wording, where narrower than `versions`; only for workers of unknown version.
    pub implied_versions: VersionRange,
    /// The message may run on over following bare lines.
    pub multiline: bool,
    /// Equal ones fold into one observation with `times`.
    pub folds: bool,
    /// By such a line the engine says that it has answered a prompt, without saying which: told only behind a change of
    /// its model, since there is one for every request.
    pub answers: bool,
    /// Other programs print these words too: they count only where an engine is known to speak.
    pub common: bool,
    /// A full message as printed.
    pub example: String,
    /// Where it was read.
    pub source: String,
    pub(crate) at_start: bool,
    /// What follows its first words may be a user's text: nothing else is looked for in such a message.
    pub(crate) user_text: bool,
    pub(crate) segments: Vec<Segment>,
    /// Constant attributes.
    pub(crate) set: Vec<(Target, Value)>,
    /// Factors by attribute.
    pub(crate) scale: BTreeMap<String, f64>,
    /// Of a `pydict`: key of the dict and where it goes.
    pub(crate) keys: Vec<(String, Slot)>,
    /// Attributes made of several captures.
    pub(crate) compose: Vec<(Target, Composition)>,
    /// Further attributes from a capture: where it goes, and the capture's name.
    pub(crate) also: Vec<(Target, String)>,
    /// Values by name of a capture that together make the line meaningless.
    pub(crate) ignore_if: Vec<(String, Wanted)>,
    /// Whether it may hold a fact of the worker.
    pub(crate) holds_facts: bool,
    /// Bytes of literal text; the longer, the more a match proves.
    pub(crate) literal_len: usize,
}

/// A piece of a template's text.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Segment {
    /// Matches exactly, blanks as runs of blanks.
    Literal(String),
    /// Matches by type.
    Placeholder(Placeholder),
}

/// A placeholder.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Placeholder {
    pub(crate) slot: Slot,
    pub(crate) kind: PlaceholderType,
}

/// A name of a capture and where its value goes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Slot {
    pub(crate) name: String,
    pub(crate) target: Target,
}

/// Text with the names of captures in braces.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Composition(pub(crate) Vec<Part>);

/// A piece of a composition.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Part {
    /// Stands as it is.
    Text(String),
    /// A value by name; the fallback where there is none.
    Value(String, Option<String>),
}

/// A value that a capture must have.
#[derive(Debug, Clone)]
pub(crate) enum Wanted {
    /// Exactly this.
    Exactly(String),
    /// Anything that the expression matches as a whole.
    Matching(regex::Regex),
}

/// Where a value goes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Target {
    /// Nowhere.
    Dropped,
    /// Into compositions alone.
    Kept,
    /// An attribute of the kind.
    Attribute(String),
    /// An entry of an attribute that is a map.
    Entry(String, String),
    /// The host or the port of an attribute that is `host:port`.
    Half(String, Half),
    /// A fact of the worker.
    Fact(String),
}

/// Which part of `host:port`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Half {
    Host,
    Port,
}

impl Template {
    /// Whether a line of it has no meaning, whatever its placeholders hold.
    pub fn is_silent(&self) -> bool {
        self.kind == "none" && self.implies.is_empty() && !self.multiline
    }

    /// Whether it is printed as a warning or worse, so that the same words at a lower level are somebody else's: a prompt
    /// that is logged, an answer that quotes.
    pub fn is_severe(&self) -> bool {
        matches!(self.level.as_deref(), Some("warning" | "error" | "critical"))
    }
}

impl Slot {
    pub(crate) fn of(name: &str) -> Self {
        Self { name: name.to_owned(), target: Target::parse(name) }
    }
}

impl Wanted {
    /// Reads a value; between slashes it is an expression.
    pub(crate) fn parse(text: &str) -> Result<Self, regex::Error> {
        match text.strip_prefix('/').and_then(|rest| rest.strip_suffix('/')) {
            Some(pattern) => regex::Regex::new(&format!("^(?:{pattern})$")).map(Self::Matching),
            None => Ok(Self::Exactly(text.to_owned())),
        }
    }

    pub(crate) fn is(&self, value: &str) -> bool {
        match self {
            Self::Exactly(text) => text == value,
            Self::Matching(pattern) => pattern.is_match(value),
        }
    }
}

impl Composition {
    /// Reads `{_host}:{_port}`, with fallbacks `{host|0.0.0.0}`.
    pub(crate) fn parse(text: &str) -> Result<Self, String> {
        let mut parts = Vec::new();
        let mut rest = text;
        while let Some((before, after)) = rest.split_once('{') {
            let Some((name, tail)) = after.split_once('}') else {
                return Err(format!("`{text}` has an open brace; close it"));
            };
            if !before.is_empty() {
                parts.push(Part::Text(before.to_owned()));
            }
            let (name, fallback) = match name.split_once('|') {
                Some((name, fallback)) => (name, Some(fallback.to_owned())),
                None => (name, None),
            };
            parts.push(Part::Value(name.to_owned(), fallback));
            rest = tail;
        }
        if !rest.is_empty() {
            parts.push(Part::Text(rest.to_owned()));
        }
        Ok(Self(parts))
    }

    /// The names of its values.
    pub(crate) fn names(&self) -> impl Iterator<Item = &str> {
        self.0.iter().filter_map(|part| match part {
            Part::Value(name, _) => Some(name.as_str()),
            Part::Text(_) => None,
        })
    }

    /// Puts values in. `None` when a value without fallback is absent, or when every value is.
    pub(crate) fn fill(&self, value_of: impl Fn(&str) -> Option<String>) -> Option<String> {
        let mut text = String::new();
        let mut any = false;
        for part in &self.0 {
            match part {
                Part::Text(fixed) => text.push_str(fixed),
                Part::Value(name, fallback) => match (value_of(name), fallback) {
                    (Some(value), _) => {
                        any = true;
                        text.push_str(&value);
                    }
                    (None, Some(fallback)) => text.push_str(fallback),
                    (None, None) => return None,
                },
            }
        }
        any.then_some(text)
    }
}

impl Target {
    /// Reads the name of a placeholder or the value of an entry in `keys`.
    pub(crate) fn parse(name: &str) -> Self {
        if name == "_" {
            return Self::Dropped;
        }
        if name.starts_with('_') {
            return Self::Kept;
        }
        match name.split_once('.') {
            None => Self::Attribute(name.to_owned()),
            Some(("facts", fact)) => Self::Fact(fact.to_owned()),
            Some((attribute, "host")) => Self::Half(attribute.to_owned(), Half::Host),
            Some((attribute, "port")) => Self::Half(attribute.to_owned(), Half::Port),
            Some((attribute, key)) => Self::Entry(attribute.to_owned(), key.to_owned()),
        }
    }

    /// The attribute concerned.
    pub(crate) fn attribute(&self) -> Option<&str> {
        match self {
            Self::Attribute(name) | Self::Entry(name, _) | Self::Half(name, _) => Some(name),
            Self::Dropped | Self::Kept | Self::Fact(_) => None,
        }
    }
}

/// Splits the text of a template. `{{` and `}}` stand for braces; a `{` that begins no `name:type}` is a brace too.
pub(crate) fn parse_text(text: &str) -> Result<Vec<Segment>, String> {
    let mut segments: Vec<Segment> = Vec::new();
    let mut literal = String::new();
    let mut rest = text;
    while let Some(open) = rest.find(['{', '}']) {
        literal.push_str(&rest[..open]);
        let brace = &rest[open..];
        if let Some(after) = brace.strip_prefix("{{") {
            literal.push('{');
            rest = after;
        } else if let Some(after) = brace.strip_prefix("}}") {
            literal.push('}');
            rest = after;
        } else if let Some((name, kind, after)) = split_placeholder(brace) {
            let Some(kind) = PlaceholderType::parse(kind) else {
                return Err(format!(
                    "`{kind}` is no type of a placeholder; use one of {}",
                    PlaceholderType::NAMES
                ));
            };
            if !literal.is_empty() {
                segments.push(Segment::Literal(std::mem::take(&mut literal)));
            } else if let Some(Segment::Placeholder(before)) = segments.last()
                && matches!(before.kind, PlaceholderType::Text | PlaceholderType::Digest)
            {
                return Err(format!("placeholder `{name}` follows free text at once; put text between them"));
            }
            segments.push(Segment::Placeholder(Placeholder { slot: Slot::of(name), kind }));
            rest = after;
        } else {
            literal.push_str(&brace[..1]);
            rest = &brace[1..];
        }
    }
    literal.push_str(rest);
    if !literal.is_empty() {
        segments.push(Segment::Literal(literal));
    }
    Ok(segments)
}

/// Reads `{name:type}` at the begin of the text.
fn split_placeholder(text: &str) -> Option<(&str, &str, &str)> {
    let inside = text.strip_prefix('{')?;
    let close = inside.find('}')?;
    let (name, kind) = inside[..close].split_once(':')?;
    let plain = |word: &str| {
        !word.is_empty()
            && word.bytes().all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'.'))
    };
    (plain(name) && plain(kind)).then(|| (name, kind, &inside[close + 1..]))
}

impl Template {
    /// Whether it keeps something that stands behind a user's text.
    pub(crate) fn reads_behind_users_text(&self) -> bool {
        let is_text = |segment: &Segment| matches!(segment, Segment::Placeholder(placeholder) if placeholder.kind == PlaceholderType::Text);
        self.user_text && self.segments.split_last().is_some_and(|(_, before)| before.iter().any(is_text))
    }

    /// The placeholders in the order of the text.
    pub(crate) fn placeholders(&self) -> impl Iterator<Item = &Placeholder> {
        self.segments.iter().filter_map(|segment| match segment {
            Segment::Placeholder(placeholder) => Some(placeholder),
            Segment::Literal(_) => None,
        })
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test may stop at a broken premise")]
    use super::*;

    #[test]
    fn text_is_split_into_literals_and_placeholders() {
        let segments = parse_text("got {tokens:int} of {{x}} {a").unwrap();
        assert_eq!(segments.len(), 3);
        assert_eq!(segments[0], Segment::Literal("got ".to_owned()));
        assert_eq!(segments[2], Segment::Literal(" of {x} {a".to_owned()));
    }

    #[test]
    fn a_wrong_type_and_touching_placeholders_are_errors() {
        assert!(parse_text("{a:number}").unwrap_err().contains("number"));
        assert!(parse_text("{_:text}{b:int}").unwrap_err().contains("follows free text"));
    }
}
