//! Takes away what a paste put around a log: marks of a quotation or a list, backticks, numbers of lines, entities of HTML,
//! blanks and quotes of a word processor.
//!
//! Only what stands before every line of a text is taken; lines stay lines, so that places in the text keep their numbers.

use std::borrow::Cow;

/// Lines that tell a number with a colon apart from a clock or a count.
const MIN_NUMBERED: usize = 2;

/// What a page or a word processor has in place of characters: blanks that do not break, curly quotes, entities; that of the
/// ampersand itself last.
const ENTITIES: [(&str, &str); 16] = [
    ("\u{a0}", " "),
    ("\u{2007}", " "),
    ("\u{202f}", " "),
    ("\u{2018}", "'"),
    ("\u{2019}", "'"),
    ("\u{201c}", "\""),
    ("\u{201d}", "\""),
    ("&apos;", "'"),
    ("&quot;", "\""),
    ("&#34;", "\""),
    ("&#39;", "'"),
    ("&#x27;", "'"),
    ("&nbsp;", " "),
    ("&lt;", "<"),
    ("&gt;", ">"),
    ("&amp;", "&"),
];

/// What stands before every line.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Mark {
    Nothing,
    /// `> ` of a quoted answer.
    Quote,
    /// `- `, `* ` or `• ` of a list.
    Bullet,
    /// A pair of backticks.
    Backticks,
    /// `  12\t`, `12: ` or `12| ` of an editor or of `grep -n`.
    Number(char),
    /// `logs/d.log:12:` of `grep -n` over files.
    FileAndNumber,
    /// As many blanks or tabs before every line.
    Indent(usize),
}

/// What a paste put around a log.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Pasted {
    mark: Mark,
    entities: bool,
}

// === impl Pasted ===

impl Pasted {
    /// Looks at a whole text; `None` where nothing was put around it.
    pub(super) fn of(text: &[u8]) -> Option<Self> {
        let text = std::str::from_utf8(text).ok()?;
        let entities = ENTITIES.iter().any(|(entity, _)| text.contains(entity));
        let marks = [
            Mark::Quote,
            Mark::Bullet,
            Mark::Backticks,
            Mark::Number('\t'),
            Mark::Number('|'),
            Mark::Number(':'),
            Mark::FileAndNumber,
        ];
        let mark = marks
            .into_iter()
            .chain(indent_of(text))
            .find(|mark| mark.is_before_all(text))
            .unwrap_or(Mark::Nothing);
        (entities || mark != Mark::Nothing).then_some(Self { mark, entities })
    }

    /// The text without it.
    pub(super) fn clean(self, text: &[u8]) -> Vec<u8> {
        let Ok(text) = std::str::from_utf8(text) else { return text.to_vec() };
        let mut clean = String::with_capacity(text.len());
        for line in text.split_inclusive('\n') {
            let (words, end) = line.split_at(line.trim_end_matches(['\n', '\r']).len());
            let words = self.mark.strip(words).map_or(words, |(_, rest)| rest);
            clean.push_str(&self.without_entities(words));
            clean.push_str(end);
        }
        clean.into_bytes()
    }

    fn without_entities(self, words: &str) -> Cow<'_, str> {
        if !self.entities || words.is_ascii() && !words.contains('&') {
            return Cow::Borrowed(words);
        }
        let mut plain = words.to_owned();
        for (entity, character) in ENTITIES {
            if plain.contains(entity) {
                plain = plain.replace(entity, character);
            }
        }
        Cow::Owned(plain)
    }
}

// === impl Mark ===

impl Mark {
    fn is_before_all(self, text: &str) -> bool {
        let (mut lines, mut last) = (0_usize, None);
        for line in text.lines().filter(|line| !line.trim().is_empty()) {
            let Some((number, _)) = self.strip(line) else { return false };
            // Numbers of lines only rise.
            if number.is_some() && number <= last {
                return false;
            }
            last = number;
            lines += 1;
        }
        let enough = if self == Self::Number(':') { MIN_NUMBERED } else { 1 };
        lines >= enough
    }

    /// The number before a line and the line behind the mark.
    fn strip(self, line: &str) -> Option<(Option<u64>, &str)> {
        match self {
            Self::Nothing => None,
            Self::Quote => {
                let rest = line.strip_prefix('>')?;
                Some((None, rest.strip_prefix(' ').unwrap_or(rest)))
            }
            Self::Bullet => {
                ["- ", "* ", "• "].iter().find_map(|mark| line.strip_prefix(mark)).map(|rest| (None, rest))
            }
            Self::Backticks => {
                let inner = line.trim_end().strip_prefix('`')?.strip_suffix('`')?;
                (!inner.contains('`')).then_some((None, inner))
            }
            Self::Indent(blanks) => Some((None, line.get(blanks..)?)),
            Self::Number(behind) => numbered(line.trim_start(), behind),
            Self::FileAndNumber => {
                let (file, rest) = line.split_once(':')?;
                let is_path = file.contains(['.', '/']) && !file.contains(char::is_whitespace);
                let (number, rest) = rest.split_once(':')?;
                is_path.then_some((Some(number.parse().ok()?), rest))
            }
        }
    }
}

/// What every line is indented by.
fn indent_of(text: &str) -> Option<Mark> {
    let lines = text.lines().filter(|line| !line.trim().is_empty());
    let blanks =
        lines.map(|line| line.bytes().take_while(|byte| matches!(byte, b' ' | b'\t')).count()).min()?;
    (blanks > 0).then_some(Mark::Indent(blanks))
}

/// A number with what an editor puts behind it. Two digits with a colon may be a clock's.
fn numbered(line: &str, behind: char) -> Option<(Option<u64>, &str)> {
    let digits = line.bytes().take_while(u8::is_ascii_digit).count();
    let number = line.get(..digits)?.parse().ok()?;
    let rest = line.get(digits..)?.strip_prefix(behind)?;
    (behind != ':' || !is_clock(rest)).then_some((Some(number), rest))
}

fn is_clock(rest: &str) -> bool {
    matches!(rest.as_bytes(), [a, b, b':', ..] if a.is_ascii_digit() && b.is_ascii_digit())
}

#[cfg(test)]
mod tests {
    use super::Pasted;

    const LOG: &str = "ERROR 10-16 17:22:56 [a.py:1] one 'x' > \"y\"\n\n    goes on\nINFO 10-16 17:22:57 [a.py:2] two & three\n";

    fn cleaned(text: &str) -> Option<String> {
        let pasted = Pasted::of(text.as_bytes())?;
        Some(String::from_utf8(pasted.clean(text.as_bytes())).expect("is UTF-8"))
    }

    fn each(mark: impl Fn(usize, &str) -> String) -> String {
        let marked = LOG.lines().enumerate().map(|(place, line)| match line {
            "" => String::new(),
            line => mark(place + 1, line),
        });
        marked.collect::<Vec<_>>().join("\n") + "\n"
    }

    #[test]
    fn marks_are_taken_and_lines_stay_lines() {
        for text in [
            each(|_, line| format!("> {line}")),
            each(|_, line| format!("    {line}")),
            each(|_, line| format!("\t{line}")),
            each(|_, line| format!("- {line}")),
            each(|_, line| format!("`{line}`")),
            each(|place, line| format!("{place:6}\t{line}")),
            each(|place, line| format!("{place}:{line}")),
            each(|place, line| format!("logs/d.log:{place}:{line}")),
            LOG.replace(' ', "\u{a0}").replace('"', "\u{201d}").replace('\'', "\u{2019}"),
            LOG.replace('&', "&amp;").replace('"', "&quot;").replace('\'', "&#x27;").replace('>', "&gt;"),
        ] {
            assert_eq!(cleaned(&text).as_deref(), Some(LOG), "{text}");
        }
    }

    #[test]
    fn what_an_engine_writes_is_left() {
        for text in [
            LOG,
            "",
            "> one\ntwo\n",
            "10:22:56 one\n11:22:57 two\n12:22:58 three\n",
            "3: one\n2: two\n1: three\n",
            "[a] one: 1\n[b] two: 2\n",
        ] {
            assert_eq!(cleaned(text), None, "{text}");
        }
    }

    #[test]
    fn a_quotation_needs_no_blank() {
        assert_eq!(cleaned(">one\n>\n>two\n").as_deref(), Some("one\n\ntwo\n"));
    }

    #[test]
    fn ends_of_lines_stay() {
        let text = each(|_, line| format!("> {line}")).replace('\n', "\r\n");
        assert_eq!(cleaned(&text), Some(LOG.replace('\n', "\r\n")));
    }
}
