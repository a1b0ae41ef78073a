//! What became of the lines of a source: every line is counted once, every loss with its reason.

/// Physical lines of one source by what became of them. `matched + ignored + unparsed = total`; the others say why.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct LineCounts {
    /// All lines.
    pub total: u64,
    /// A template knows them, with or without meaning.
    pub matched: u64,
    /// Nothing in them concerns KV.
    pub ignored: u64,
    /// They concern KV or are no text, and no template knows them.
    pub unparsed: u64,
    /// Longer than the reader looks; only the head was read.
    pub too_long: u64,
    /// Read although they hold what is not UTF-8.
    pub not_utf8: u64,
    /// Parts of split lines that were dropped because their whole grew too long or never ended.
    pub partial_dropped: u64,
    /// Observations of troubles that were not made because too many different ones came before.
    pub troubles_dropped: u64,
}

/// What became of a line.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Outcome {
    /// A template knows it.
    Matched,
    /// Nothing in it concerns KV.
    Ignored,
    /// It concerns KV and no template knows it.
    Unparsed,
}

// === impl LineCounts ===

impl LineCounts {
    /// Adds those of another reader.
    pub fn add_all(&mut self, other: &Self) {
        self.total += other.total;
        self.matched += other.matched;
        self.ignored += other.ignored;
        self.unparsed += other.unparsed;
        self.too_long += other.too_long;
        self.not_utf8 += other.not_utf8;
        self.partial_dropped += other.partial_dropped;
        self.troubles_dropped += other.troubles_dropped;
    }

    pub(super) fn add(&mut self, outcome: Outcome, lines: u64) {
        match outcome {
            Outcome::Matched => self.matched += lines,
            Outcome::Ignored => self.ignored += lines,
            Outcome::Unparsed => self.unparsed += lines,
        }
    }
}
