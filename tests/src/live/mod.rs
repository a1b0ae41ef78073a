//! Verdicts on live processes: what really happened against what kvprov saw.

pub mod held;
pub mod seen;
pub mod truth;
pub mod up;

use std::collections::BTreeMap;

/// What a process did with one artifact.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Deed {
    /// It stored it.
    Wrote,
    /// It read it, whole or in part.
    Read,
    /// It removed it.
    Removed,
}

/// How often each process did each deed to each key.
pub type Deeds = BTreeMap<(i64, Deed, String), u64>;

/// Precision and recall of one deed.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Agreement {
    /// Deeds that really happened and were seen.
    pub both: u64,
    /// Deeds that were seen.
    pub seen: u64,
    /// Deeds that really happened.
    pub happened: u64,
}

// === impl Deed ===

impl Deed {
    /// Every deed.
    pub const ALL: [Self; 3] = [Self::Wrote, Self::Read, Self::Removed];
}

// === impl Agreement ===

impl Agreement {
    /// Compares what was seen of one deed with what happened. Deeds of one process on one key are counted, so that a
    /// repetition that was not seen counts against the recall.
    pub fn of(deed: Deed, happened: &Deeds, seen: &Deeds) -> Self {
        let of_deed = |deeds: &Deeds| -> u64 {
            deeds.iter().filter(|((_, of, _), _)| *of == deed).map(|(_, count)| *count).sum()
        };
        let both = happened
            .iter()
            .filter(|((_, of, _), _)| *of == deed)
            .map(|(key, count)| (*count).min(seen.get(key).copied().unwrap_or(0)))
            .sum();
        Self { both, seen: of_deed(seen), happened: of_deed(happened) }
    }

    /// Share of what was seen that really happened; 1 where nothing was seen.
    pub fn precision(&self) -> f64 {
        share(self.both, self.seen)
    }

    /// Share of what happened that was seen; 1 where nothing happened.
    pub fn recall(&self) -> f64 {
        share(self.both, self.happened)
    }
}

impl std::ops::AddAssign for Agreement {
    fn add_assign(&mut self, other: Self) {
        self.both += other.both;
        self.seen += other.seen;
        self.happened += other.happened;
    }
}

fn share(part: u64, whole: u64) -> f64 {
    if whole == 0 { 1.0 } else { part as f64 / whole as f64 }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn deeds(list: &[(i64, Deed, &str, u64)]) -> Deeds {
        list.iter().map(|(pid, deed, key, count)| ((*pid, *deed, (*key).to_owned()), *count)).collect()
    }

    #[test]
    fn a_deed_of_another_process_is_no_agreement() {
        let happened = deeds(&[(1, Deed::Removed, "k", 2)]);
        let seen = deeds(&[(2, Deed::Removed, "k", 2)]);
        let agreement = Agreement::of(Deed::Removed, &happened, &seen);
        assert_eq!(agreement, Agreement { both: 0, seen: 2, happened: 2 });
    }

    #[test]
    fn a_repetition_that_was_not_seen_lowers_the_recall_alone() {
        let happened = deeds(&[(1, Deed::Read, "k", 4)]);
        let seen = deeds(&[(1, Deed::Read, "k", 3)]);
        let agreement = Agreement::of(Deed::Read, &happened, &seen);
        assert!((agreement.precision() - 1.0).abs() < 1e-9);
        assert!((agreement.recall() - 0.75).abs() < 1e-9);
    }
}
