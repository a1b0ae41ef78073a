//! Which spans of an engine's own tracing tell of a request, and what their attributes mean.
//!
//! Input is the name of a span and its attributes, as an engine exports them by OTLP. What no entry names is never read.

/// A kind of span that tells of one request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SpanSignature {
    /// Unique over all packs.
    pub id: String,
    /// The engine whose pack holds it.
    pub engine: String,
    name: NamePattern,
    /// Attribute of the span → attribute of a `request_leg`. One of them is its `request_id`.
    pub attributes: Vec<(String, String)>,
}

/// A name, or a part of one.
#[derive(Debug, Clone, PartialEq, Eq)]
struct NamePattern {
    literal: String,
    open_begin: bool,
    open_end: bool,
}

/// Signatures of spans, in the order of the packs.
#[derive(Debug, Clone, Default)]
pub struct SpanTable {
    signatures: Vec<SpanSignature>,
}

// === impl SpanSignature ===

impl SpanSignature {
    pub(crate) fn new(id: &str, engine: &str, name: &str, attributes: Vec<(String, String)>) -> Self {
        let literal = name.trim_matches('*').to_owned();
        let name = NamePattern { literal, open_begin: name.starts_with('*'), open_end: name.ends_with('*') };
        Self { id: id.to_owned(), engine: engine.to_owned(), name, attributes }
    }

    /// What an attribute of the span becomes.
    pub fn meaning(&self, attribute: &str) -> Option<&str> {
        let found = self.attributes.iter().find(|(of_span, _)| of_span == attribute);
        found.map(|(_, of_leg)| of_leg.as_str())
    }

    fn is_named(&self, name: &str) -> bool {
        let literal = self.name.literal.as_str();
        match (self.name.open_begin, self.name.open_end) {
            (false, false) => name == literal,
            (true, false) => name.ends_with(literal),
            (false, true) => name.starts_with(literal),
            (true, true) => name.contains(literal),
        }
    }
}

// === impl SpanTable ===

impl SpanTable {
    /// The first signature of a span with this name.
    pub fn lookup(&self, name: &str) -> Option<&SpanSignature> {
        self.signatures.iter().find(|signature| signature.is_named(name))
    }

    /// All of them.
    pub fn signatures(&self) -> impl Iterator<Item = &SpanSignature> {
        self.signatures.iter()
    }

    pub(crate) fn add(&mut self, signature: SpanSignature) {
        self.signatures.push(signature);
    }
}
