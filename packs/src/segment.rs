//! Matches the segments of one template against a message.
//!
//! Backtracking with a budget: a literal anchors each try, a placeholder gives the places where it may end, and every
//! byte looked at is paid for. When the budget is spent the message is taken as unmatched, so a hostile line costs a
//! bounded time.
//!
//! Joined lines have `\n` between them: a message that holds one was joined. A blank of a literal matches it; inside a
//! literal or an id it may be a hard wrap.

use crate::placeholder::{Captured, Extent, PlaceholderType, skip_blanks};
use crate::template::{Placeholder, Segment, Target, Template};
use kvprov_model::content::FleetKey;
use memchr::memmem;

/// Where a placeholder begins and ends, in bytes of the message.
pub(crate) type Span = (usize, usize);

/// A successful try. The spans of the placeholders that it filled, in order, are in the [`Spans`] of the search.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Found {
    /// The message ended before the text did.
    pub(crate) cut: bool,
    /// Bytes of literals that matched.
    pub(crate) literal_len: usize,
}

/// Room for spans, reused from search to search so that none allocates.
#[derive(Debug, Default)]
pub(crate) struct Spans {
    /// Of the running try; of the successful one when a search is over.
    pub(crate) taken: Vec<Span>,
    /// Of the best try that the end of the message cut.
    cut: Vec<Span>,
}

/// Fewest literal bytes that must have matched before the end of a message may cut the rest.
const MIN_CUT_LITERAL: usize = 16;
/// As many must have matched where the message ends with a whole word or a value, if they are not most of the
/// template: a few common words begin the messages of other programs too.
const MIN_WHOLE_WORDS: usize = 30;
/// Most places of the first literal that are tried.
const MAX_STARTS: usize = 64;

/// What may still be spent on a message.
#[derive(Debug)]
pub(crate) struct Budget {
    pub(crate) left: usize,
}

impl Budget {
    fn pay(&mut self, steps: usize) -> bool {
        self.left = self.left.saturating_sub(steps);
        self.left > 0
    }
}

/// How to find the places at which a template may begin; made once, with the template.
#[derive(Debug, Clone)]
pub(crate) struct Begin {
    /// The first word of the first literal, unless that begins with a blank.
    word: Option<memmem::Finder<'static>>,
}

impl Begin {
    pub(crate) fn of(template: &Template) -> Self {
        let literal = match template.segments.as_slice() {
            [Segment::Literal(literal), ..] | [Segment::Placeholder(_), Segment::Literal(literal), ..] => {
                literal
            }
            _ => return Self { word: None },
        };
        let end =
            literal.find(|c: char| c.is_ascii_whitespace()).filter(|end| *end > 0).unwrap_or(literal.len());
        let word = &literal[..end];
        let blank = word.trim().is_empty();
        Self { word: (!blank).then(|| memmem::Finder::new(word.as_bytes()).into_owned()) }
    }
}

/// Whether a message is several lines that were joined.
pub(crate) fn is_joined(message: &str) -> bool {
    memchr::memchr(b'\n', message.as_bytes()).is_some()
}

/// Tries a template at every place of the message; `joined` is what [`is_joined`] says of it.
pub(crate) fn find(
    template: &Template,
    begin: &Begin,
    message: &str,
    joined: bool,
    spans: &mut Spans,
    budget: &mut Budget,
) -> Option<Found> {
    spans.taken.clear();
    spans.cut.clear();
    let mut search = Search { template, message, joined, budget, spans, best_cut: None };
    let found = match search.at_places(begin) {
        Some(literal_len) => Found { cut: false, literal_len },
        None => {
            let literal_len = search.best_cut?;
            std::mem::swap(&mut spans.taken, &mut spans.cut);
            Found { cut: true, literal_len }
        }
    };
    let whole = |span: &Span| message.get(span.0..span.1).is_some();
    spans.taken.iter().all(whole).then_some(found)
}

/// What placeholders keep of the message, in order; `None` for dropped ones, for ones that the end cut, and for ones
/// that hold nothing.
pub(crate) fn capture(
    template: &Template,
    message: &str,
    spans: &[Span],
    cut: bool,
    key: &FleetKey,
    wanted: &dyn Fn(PlaceholderType, &str) -> bool,
) -> Vec<Option<Captured>> {
    let one = |(number, placeholder): (usize, &Placeholder)| {
        let &(begin, end) = spans.get(number)?;
        let may_be_incomplete = cut && end == message.len() && !keeps_whole_parts(placeholder.kind);
        // The dict itself has no name; its keys have.
        let is_dropped =
            placeholder.slot.target == Target::Dropped && placeholder.kind != PlaceholderType::PyDict;
        if is_dropped || may_be_incomplete {
            return None;
        }
        placeholder.kind.capture(message.get(begin..end)?, key, &|path| wanted(placeholder.kind, path))
    };
    template.placeholders().enumerate().map(one).collect()
}

struct Search<'a> {
    template: &'a Template,
    message: &'a str,
    /// The message was several lines.
    joined: bool,
    budget: &'a mut Budget,
    spans: &'a mut Spans,
    /// Bytes of literals that matched in the best try that the end of the message cut.
    best_cut: Option<usize>,
}

/// How a literal compares at one place.
enum LiteralAt {
    Ends(usize),
    /// The message ended inside, after so many bytes of the literal.
    Cut(usize),
    No,
}

impl<'a> Search<'a> {
    /// Tries every place at which the text may begin; the bytes of literals of the try that succeeded.
    fn at_places(&mut self, begin: &Begin) -> Option<usize> {
        if self.template.at_start {
            return self.try_at(0);
        }
        match self.template.segments.as_slice() {
            [Segment::Literal(literal), ..] => {
                self.places_of(begin, literal, &mut |search, at| search.try_at(at))
            }
            [Segment::Placeholder(first), Segment::Literal(literal), ..] => {
                let kind = first.kind;
                let mut last = None;
                self.places_of(begin, literal, &mut |search, end| {
                    let at = begin_of(kind, search.message, end);
                    if last.replace(at) == Some(at) { None } else { search.try_at(at) }
                })
            }
            _ => self.try_at(0),
        }
    }

    fn try_at(&mut self, start: usize) -> Option<usize> {
        self.spans.taken.clear();
        self.run(0, start, 0)
    }

    /// Calls `each` where the literal's first word stands, until it succeeds; cheap, so that most templates end here.
    fn places_of(
        &mut self,
        begin: &Begin,
        literal: &str,
        each: &mut dyn FnMut(&mut Self, usize) -> Option<usize>,
    ) -> Option<usize> {
        let bytes = self.message.as_bytes();
        let Some(word) = &begin.word else {
            return memchr::memchr2_iter(b' ', b'\n', bytes).take(MAX_STARTS).find_map(|at| each(self, at));
        };
        if self.joined {
            // The word itself may be wrapped: any place with its first byte.
            let first = *literal.as_bytes().first()?;
            return memchr::memchr_iter(first, bytes).take(MAX_STARTS * 16).find_map(|at| each(self, at));
        }
        word.find_iter(bytes).take(MAX_STARTS).find_map(|at| each(self, at))
    }

    /// Goes on with a segment at a place; spans taken stay when it succeeds.
    fn run(&mut self, index: usize, at: usize, literal_len: usize) -> Option<usize> {
        if !self.budget.pay(1) {
            return None;
        }
        let template: &'a Template = self.template;
        match template.segments.get(index) {
            None => Some(literal_len),
            Some(Segment::Literal(literal)) => match self.literal_at(literal, at) {
                LiteralAt::Ends(end) => self.run(index + 1, end, literal_len + literal.len()),
                LiteralAt::Cut(part) => {
                    self.note_cut(literal_len + part, is_inside_word(literal, part));
                    None
                }
                LiteralAt::No => None,
            },
            Some(Segment::Placeholder(placeholder)) => self.placeholder(placeholder, index, at, literal_len),
        }
    }

    /// Goes on behind a placeholder that covers a span.
    fn take(&mut self, span: Span, index: usize, literal_len: usize) -> Option<usize> {
        self.spans.taken.push(span);
        let found = self.run(index + 1, span.1, literal_len);
        if found.is_none() {
            self.spans.taken.pop();
        }
        found
    }

    fn placeholder(
        &mut self,
        this: &Placeholder,
        index: usize,
        at: usize,
        literal_len: usize,
    ) -> Option<usize> {
        let is_last = index + 1 == self.template.segments.len();
        let end_of_message = self.message.len();
        let Some(extent) = this.kind.extent(self.message, at, self.joined) else {
            if at == end_of_message {
                self.note_cut(literal_len, false);
            }
            return None;
        };
        match extent {
            Extent::Fixed { end, cut } => {
                if !self.budget.pay((end - at) / 8 + 1) {
                    return None;
                }
                if cut && !is_last {
                    self.spans.taken.push((at, end));
                    self.note_cut(literal_len, false);
                    self.spans.taken.pop();
                    return None;
                }
                if end == end_of_message && !is_last {
                    self.spans.taken.push((at, end));
                    self.note_cut(literal_len, false);
                    self.spans.taken.pop();
                }
                self.take((at, end), index, literal_len)
            }
            Extent::Shrinks { end, soft } if is_last => {
                // The rest of a wrapped id is a line of its own without blanks; anything else is another message.
                let end = if soft == end_of_message { soft } else { end };
                self.take((at, end), index, literal_len)
            }
            Extent::Shrinks { end, .. }
                if matches!(self.template.segments.get(index + 1), Some(Segment::Placeholder(_))) =>
            {
                self.take((at, end), index, literal_len)
            }
            Extent::Shrinks { end, soft } => {
                let found = self
                    .try_ends(index, at, (at + 1..=end).rev(), literal_len)
                    .or_else(|| self.try_ends(index, at, (end + 1..=soft).rev(), literal_len));
                if found.is_none() && soft == end_of_message {
                    self.note_cut(literal_len, false);
                }
                found
            }
            Extent::Grows if is_last => self.take((at, end_of_message), index, literal_len),
            Extent::Grows if self.template.user_text => self.behind_users_text(index, at, literal_len),
            Extent::Grows => {
                let found = self.try_growing(index, at, literal_len);
                // Free text that reaches the end is a cut only when most of the template was there before it; else
                // it is another message that begins alike.
                if found.is_none() && literal_len * 3 >= self.template.literal_len * 2 {
                    self.note_cut(literal_len, false);
                }
                found
            }
        }
    }

    /// Goes on behind a user's text. A user may have written the words that follow it: those of the engine come last, up to
    /// the sign that what they name follows.
    fn behind_users_text(&mut self, index: usize, at: usize, literal_len: usize) -> Option<usize> {
        let template: &'a Template = self.template;
        let Some(Segment::Literal(next)) = template.segments.get(index + 1) else { return None };
        let name = next.find([':', '=']).and_then(|end| next.get(..=end)).unwrap_or(next);
        let rest = self.message.as_bytes().get(at..)?;
        if !self.budget.pay(rest.len() / 8 + 1) {
            return None;
        }
        let end = at + memmem::rfind(rest, name.as_bytes())?;
        self.take((at, end), index, literal_len)
    }

    fn try_ends(
        &mut self,
        index: usize,
        at: usize,
        ends: impl Iterator<Item = usize>,
        literal_len: usize,
    ) -> Option<usize> {
        let first = self.first_byte_behind(index)?;
        for end in ends {
            if !self.budget.pay(1) {
                return None;
            }
            // The next literal begins here or at a hard wrap; all else is passed over at the cost of one step.
            let fits = match self.message.as_bytes().get(end) {
                Some(byte) if first.is_ascii_whitespace() => byte.is_ascii_whitespace(),
                Some(byte) => *byte == first || (*byte == b'\n' && self.joined),
                None => false,
            };
            if !fits {
                continue;
            }
            let found = self.take((at, end), index, literal_len);
            if found.is_some() {
                return found;
            }
        }
        None
    }

    /// The same for every place from `at` on; where one byte tells the places, all others are passed over at once.
    fn try_growing(&mut self, index: usize, at: usize, literal_len: usize) -> Option<usize> {
        let (message, first) = (self.message, self.first_byte_behind(index)?);
        if first.is_ascii_whitespace() || self.joined {
            return self.try_ends(index, at, at..=message.len(), literal_len);
        }
        let mut from = at;
        while let Some(distance) = memchr::memchr(first, message.as_bytes().get(from..)?) {
            let end = from + distance;
            if !self.budget.pay(distance / 8 + 1) {
                return None;
            }
            let found = self.take((at, end), index, literal_len);
            if found.is_some() {
                return found;
            }
            from = end + 1;
        }
        None
    }

    /// The first byte of the literal behind a placeholder.
    fn first_byte_behind(&self, index: usize) -> Option<u8> {
        match self.template.segments.get(index + 1) {
            Some(Segment::Literal(next)) => next.as_bytes().first().copied(),
            _ => None,
        }
    }

    /// Compares a literal. Runs of blanks match runs of blanks; a hard wrap inside a word is passed over.
    fn literal_at(&mut self, literal: &str, from: usize) -> LiteralAt {
        let (pattern, bytes) = (literal.as_bytes(), self.message.as_bytes());
        if bytes.get(from..).is_some_and(|rest| rest.starts_with(pattern)) {
            if !self.budget.pay(pattern.len()) {
                return LiteralAt::No;
            }
            let end = from + pattern.len();
            // A run of blanks may be longer than the literal's.
            let ends_blank = pattern.last().is_some_and(u8::is_ascii_whitespace);
            return LiteralAt::Ends(if ends_blank { skip_blanks(bytes, end) } else { end });
        }
        let (mut p, mut at) = (0, from);
        while p < pattern.len() {
            let Some(&byte) = bytes.get(at) else {
                return LiteralAt::Cut(p);
            };
            if pattern[p].is_ascii_whitespace() {
                if !byte.is_ascii_whitespace() {
                    return LiteralAt::No;
                }
                p = skip_blanks(pattern, p);
                at = skip_blanks(bytes, at);
            } else if pattern[p] == byte {
                p += 1;
                at += 1;
            } else if byte == b'\n' && self.joined {
                at = skip_blanks(bytes, at);
            } else {
                return LiteralAt::No;
            }
            if !self.budget.pay(1) {
                return LiteralAt::No;
            }
        }
        LiteralAt::Ends(at)
    }

    /// Remembers that the message ended here; the longest such try wins. Every filled placeholder is whole.
    fn note_cut(&mut self, literal_len: usize, inside_word: bool) {
        let is_most = literal_len * 3 >= self.template.literal_len * 2;
        let is_enough =
            literal_len >= MIN_CUT_LITERAL && (inside_word || is_most || literal_len >= MIN_WHOLE_WORDS);
        if is_enough && self.best_cut.is_none_or(|best| literal_len > best) {
            self.best_cut = Some(literal_len);
            self.spans.cut.clone_from(&self.spans.taken);
        }
    }
}

/// Whether a text that ends after so many bytes of a literal ends inside a word.
fn is_inside_word(literal: &str, part: usize) -> bool {
    let is_word = |at: usize| literal.as_bytes().get(at).is_some_and(u8::is_ascii_alphanumeric);
    part > 0 && is_word(part - 1) && is_word(part)
}

/// Of a cut list or dict the whole parts are kept; a cut id or number is dropped.
fn keeps_whole_parts(kind: PlaceholderType) -> bool {
    matches!(kind, PlaceholderType::Ids | PlaceholderType::PyDict | PlaceholderType::Settings)
}

/// Where a leading placeholder begins that ends at `end`.
fn begin_of(kind: PlaceholderType, message: &str, end: usize) -> usize {
    let bytes = message.as_bytes();
    let is_part: fn(u8) -> bool = match kind {
        PlaceholderType::Int => |byte| byte.is_ascii_digit() || byte == b',' || byte == b'-',
        PlaceholderType::Float => {
            |byte| byte.is_ascii_digit() || matches!(byte, b',' | b'-' | b'.' | b'e' | b'+')
        }
        PlaceholderType::Word => |byte| byte.is_ascii_alphanumeric() || b"_-./:@".contains(&byte),
        PlaceholderType::Id | PlaceholderType::Path => |byte| !byte.is_ascii_whitespace(),
        _ => return 0,
    };
    let mut begin = end;
    while begin > 0 && is_part(bytes[begin - 1]) {
        begin -= 1;
    }
    while !message.is_char_boundary(begin) {
        begin += 1;
    }
    begin
}
