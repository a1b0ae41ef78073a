//! Names with `*` at the begin, the end or both.

/// Longest name of a thread that the kernel keeps, in bytes.
const THREAD_NAME: usize = 15;

/// A name, of which the begin, the end or both may be anything.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Pattern {
    literal: String,
    open_begin: bool,
    open_end: bool,
}

// === impl Pattern ===

impl Pattern {
    /// Reads `name`, `name*`, `*name`, `*name*`. `None` when nothing but stars is there or one stands inside.
    pub fn parse(text: &str) -> Option<Self> {
        let (open_begin, rest) = text.strip_prefix('*').map_or((false, text), |rest| (true, rest));
        let (open_end, literal) = rest.strip_suffix('*').map_or((false, rest), |rest| (true, rest));
        (!literal.is_empty() && !literal.contains('*')).then(|| Self {
            literal: literal.to_owned(),
            open_begin,
            open_end,
        })
    }

    /// Whether a name fits.
    pub fn matches(&self, name: &str) -> bool {
        match (self.open_begin, self.open_end) {
            (false, false) => name == self.literal,
            (false, true) => name.starts_with(&self.literal),
            (true, false) => name.ends_with(&self.literal),
            (true, true) => name.contains(&self.literal),
        }
    }

    /// Whether a name fits that the kernel may have cut.
    pub fn matches_cut(&self, name: &str) -> bool {
        self.matches(name) || !self.open_begin && name.len() >= THREAD_NAME && self.literal.starts_with(name)
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test may stop at a broken premise")]
    use super::*;

    #[test]
    fn a_star_leaves_an_end_open() {
        let pattern = |text| Pattern::parse(text).unwrap();
        assert!(pattern("a*").matches("ab") && !pattern("a*").matches("ba"));
        assert!(pattern("*a").matches("ba") && pattern("*a*").matches("bab"));
        assert!(pattern("a").matches("a") && !pattern("a").matches("ab"));
        assert_eq!((Pattern::parse("*"), Pattern::parse("a*b"), Pattern::parse("")), (None, None, None));
    }

    #[test]
    fn a_thread_name_is_cut_at_15_bytes_and_a_shorter_one_is_whole() {
        let pattern = Pattern::parse("engine::scheduler*").unwrap();
        assert!(pattern.matches_cut("engine::schedul"));
        assert!(!pattern.matches_cut("engine::sched"), "it would not have been cut");
    }
}
