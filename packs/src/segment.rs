//! Matches the segments of one template against a message.
//!
//! Backtracking with a budget: a literal anchors each try, a placeholder gives the places where it may end, and every
//! byte looked at is paid for. When the budget is spent the message is taken as unmatched, so a hostile line costs a
//! bounded time.
//!
//! Joined lines have `\n` between them. A blank of a literal matches it; inside a literal or an id it may be a hard
//! wrap when the template is `multiline`.

use crate::placeholder::{Captured, Extent, PlaceholderType, skip_blanks};
use crate::template::{Placeholder, Segment, Target, Template};
use kvprov_model::content::FleetKey;

/// A successful try.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Found {
    /// By placeholder in order; `None` for dropped ones, for ones that the end cut, and for ones that hold nothing.
    pub(crate) captured: Vec<Option<Captured>>,
    /// The message ended before the text did.
    pub(crate) cut: bool,
    /// Bytes of literals that matched.
    pub(crate) literal_len: usize,
}

/// Fewest literal bytes that must have matched before the end of a message may cut the rest.
const MIN_CUT_LITERAL: usize = 16;
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

/// Tries a template at every place of the message.
pub(crate) fn find(template: &Template, message: &str, key: &FleetKey, budget: &mut Budget) -> Option<Found> {
    let mut search = Search { template, message, budget, spans: Vec::new(), best_cut: None };
    let matched = search.starts().into_iter().find_map(|start| {
        search.spans.clear();
        search.run(0, start, 0)
    });
    let end = matched.or_else(|| search.best_cut.take())?;
    search.captured(&end, key)
}

/// Where a try ended: spans of the placeholders that it filled.
#[derive(Debug, Clone)]
struct Ending {
    spans: Vec<(usize, usize)>,
    cut: bool,
    literal_len: usize,
}

struct Search<'a> {
    template: &'a Template,
    message: &'a str,
    budget: &'a mut Budget,
    spans: Vec<(usize, usize)>,
    best_cut: Option<Ending>,
}

/// How a literal compares at one place.
enum LiteralAt {
    Ends(usize),
    /// The message ended inside, after so many bytes of the literal.
    Cut(usize),
    No,
}

impl Search<'_> {
    /// Places at which the text may begin.
    fn starts(&mut self) -> Vec<usize> {
        if self.template.at_start {
            return vec![0];
        }
        match self.template.segments.as_slice() {
            [Segment::Literal(literal), ..] => self.places_of(literal),
            [Segment::Placeholder(first), Segment::Literal(literal), ..] => {
                let kind = first.kind;
                let mut starts: Vec<usize> = self
                    .places_of(literal)
                    .into_iter()
                    .map(|end| begin_of(kind, self.message, end))
                    .collect();
                starts.dedup();
                starts
            }
            _ => vec![0],
        }
    }

    /// Where the literal's first word stands; cheap, so that most templates end here.
    fn places_of(&mut self, literal: &str) -> Vec<usize> {
        let head_end =
            literal.find(|c: char| c.is_ascii_whitespace()).filter(|end| *end > 0).unwrap_or(literal.len());
        let head = &literal[..head_end];
        let wrapped = self.template.multiline && self.message.contains('\n');
        if head.trim().is_empty() {
            return memchr::memchr2_iter(b' ', b'\n', self.message.as_bytes()).take(MAX_STARTS).collect();
        }
        if wrapped {
            // The word itself may be wrapped: any place with its first byte.
            let first = head.as_bytes()[0];
            return memchr::memchr_iter(first, self.message.as_bytes()).take(MAX_STARTS * 16).collect();
        }
        memchr::memmem::find_iter(self.message.as_bytes(), head.as_bytes()).take(MAX_STARTS).collect()
    }

    fn run(&mut self, index: usize, at: usize, literal_len: usize) -> Option<Ending> {
        if !self.budget.pay(1) {
            return None;
        }
        match self.template.segments.get(index) {
            None => Some(Ending { spans: self.spans.clone(), cut: false, literal_len }),
            Some(Segment::Literal(literal)) => match self.literal_at(literal, at) {
                LiteralAt::Ends(end) => self.run(index + 1, end, literal_len + literal.len()),
                LiteralAt::Cut(part) => {
                    self.note_cut(literal_len + part);
                    None
                }
                LiteralAt::No => None,
            },
            Some(Segment::Placeholder(placeholder)) => {
                let placeholder = placeholder.clone();
                self.placeholder(&placeholder, index, at, literal_len)
            }
        }
    }

    fn placeholder(
        &mut self,
        this: &Placeholder,
        index: usize,
        at: usize,
        literal_len: usize,
    ) -> Option<Ending> {
        let is_last = index + 1 == self.template.segments.len();
        let end_of_message = self.message.len();
        let Some(extent) = this.kind.extent(self.message, at, self.template.multiline) else {
            if at == end_of_message {
                self.note_cut(literal_len);
            }
            return None;
        };
        match extent {
            Extent::Fixed { end, cut } => {
                if !self.budget.pay((end - at) / 8 + 1) {
                    return None;
                }
                self.spans.push((at, end));
                let found = if cut && !is_last {
                    self.note_cut(literal_len);
                    None
                } else {
                    if end == end_of_message && !is_last {
                        self.note_cut(literal_len);
                    }
                    self.run(index + 1, end, literal_len)
                };
                self.spans.pop();
                found
            }
            Extent::Shrinks { end, soft } if is_last => {
                // The rest of a wrapped id is a line of its own without blanks; anything else is another message.
                let end = if soft == end_of_message { soft } else { end };
                self.spans.push((at, end));
                let found = self.run(index + 1, end, literal_len);
                self.spans.pop();
                found
            }
            Extent::Shrinks { end, .. }
                if matches!(self.template.segments.get(index + 1), Some(Segment::Placeholder(_))) =>
            {
                self.spans.push((at, end));
                let found = self.run(index + 1, end, literal_len);
                self.spans.pop();
                found
            }
            Extent::Shrinks { end, soft } => {
                let found = self
                    .try_ends(index, at, (at + 1..=end).rev(), literal_len)
                    .or_else(|| self.try_ends(index, at, (end + 1..=soft).rev(), literal_len));
                if found.is_none() && soft == end_of_message {
                    self.note_cut(literal_len);
                }
                found
            }
            Extent::Grows if is_last => {
                self.spans.push((at, end_of_message));
                let found = self.run(index + 1, end_of_message, literal_len);
                self.spans.pop();
                found
            }
            Extent::Grows => {
                let found = self.try_ends(index, at, at..=end_of_message, literal_len);
                // Free text that reaches the end is a cut only when most of the template was there before it; else
                // it is another message that begins alike.
                if found.is_none() && literal_len * 3 >= self.template.literal_len * 2 {
                    self.note_cut(literal_len);
                }
                found
            }
        }
    }

    fn try_ends(
        &mut self,
        index: usize,
        at: usize,
        ends: impl Iterator<Item = usize>,
        literal_len: usize,
    ) -> Option<Ending> {
        let Some(Segment::Literal(next)) = self.template.segments.get(index + 1) else { return None };
        let first = *next.as_bytes().first()?;
        for end in ends {
            if !self.budget.pay(1) {
                return None;
            }
            // The next literal begins here or at a hard wrap; all else is passed over at the cost of one step.
            let fits = match self.message.as_bytes().get(end) {
                Some(byte) if first.is_ascii_whitespace() => byte.is_ascii_whitespace(),
                Some(byte) => *byte == first || (*byte == b'\n' && self.template.multiline),
                None => false,
            };
            if !fits {
                continue;
            }
            self.spans.push((at, end));
            let found = self.run(index + 1, end, literal_len);
            self.spans.pop();
            if found.is_some() {
                return found;
            }
        }
        None
    }

    /// Compares a literal. Runs of blanks match runs of blanks; a hard wrap inside a word is passed over.
    fn literal_at(&mut self, literal: &str, from: usize) -> LiteralAt {
        let (pattern, bytes) = (literal.as_bytes(), self.message.as_bytes());
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
            } else if byte == b'\n' && self.template.multiline {
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
    fn note_cut(&mut self, literal_len: usize) {
        let better = self.best_cut.as_ref().is_none_or(|best| literal_len > best.literal_len);
        if literal_len >= MIN_CUT_LITERAL && better {
            self.best_cut = Some(Ending { spans: self.spans.clone(), cut: true, literal_len });
        }
    }

    fn captured(&self, ending: &Ending, key: &FleetKey) -> Option<Found> {
        let mut captured = Vec::with_capacity(ending.spans.len());
        for (number, placeholder) in self.template.placeholders().enumerate() {
            let Some(&(begin, end)) = ending.spans.get(number) else {
                captured.push(None);
                continue;
            };
            let may_be_incomplete =
                ending.cut && end == self.message.len() && !keeps_whole_parts(placeholder.kind);
            // The dict itself has no name; its keys have.
            let is_dropped =
                placeholder.slot.target == Target::Dropped && placeholder.kind != PlaceholderType::PyDict;
            if is_dropped || may_be_incomplete {
                captured.push(None);
                continue;
            }
            captured.push(placeholder.kind.capture(self.message.get(begin..end)?, key));
        }
        Some(Found { captured, cut: ending.cut, literal_len: ending.literal_len })
    }
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
