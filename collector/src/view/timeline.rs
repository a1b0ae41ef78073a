//! A value over time: what was set when, merged from statements in any order.
//!
//! A statement may also say that the value is not known from a time on: it ends what was known, and gives way to any value
//! that is stated for the same time.

use kvprov_model::clock::WallTime;
use kvprov_model::factor::{Comparison, Factor, FactorState};
use std::collections::{BTreeMap, BTreeSet};

/// Values by the time from which they hold. `None` holds from the beginning.
#[derive(Debug, Clone)]
pub struct Timeline<T> {
    from: BTreeMap<Option<WallTime>, T>,
    /// Times for which two different values were stated: nothing is known there.
    disputed: BTreeSet<Option<WallTime>>,
    /// Times from which on the value is not known, unless it is stated for the same time.
    unknown: BTreeSet<Option<WallTime>>,
}

impl<T> Default for Timeline<T> {
    fn default() -> Self {
        Self { from: BTreeMap::new(), disputed: BTreeSet::new(), unknown: BTreeSet::new() }
    }
}

/// A value that a timeline holds.
pub trait Held: Clone + PartialEq {
    /// What two statements for one time come to, in whatever order they are made; `None`: they contradict each other.
    fn join(&self, other: &Self) -> Option<Self>;
    /// Whether it is known to be another than the one that held before.
    fn is_other_than(&self, before: &Self) -> bool;
    /// Whether it can be told from others at all.
    fn is_known(&self) -> bool;
}

impl<T: Held> Timeline<T> {
    /// States that a value holds from a time on. Two statements for one time that contradict each other make it unknown,
    /// in whatever order they come.
    pub fn set(&mut self, from: Option<WallTime>, value: T) {
        let Some(held) = self.from.get_mut(&from) else {
            self.from.insert(from, value);
            return;
        };
        match held.join(&value) {
            Some(joined) => *held = joined,
            None => {
                self.disputed.insert(from);
            }
        }
    }

    /// States that the value is not known from a time on.
    pub fn forget(&mut self, from: Option<WallTime>) {
        self.unknown.insert(from);
    }

    /// The value at a time. Before the first dated statement the first one is taken: it was seen then, not made.
    /// Without a time the value is known only when there is just one.
    pub fn at(&self, time: Option<WallTime>) -> Option<&T> {
        let first = || self.from.iter().next();
        let (from, value) = match time {
            None if self.from.len() > 1 || !self.unknown.is_subset(&self.from.keys().copied().collect()) => {
                return None;
            }
            None => first()?,
            Some(_) => self.from.range(..=time).next_back().or_else(first)?,
        };
        let ended = time.is_some() && self.unknown.range(..=time).next_back().is_some_and(|end| end > from);
        (!ended && !self.disputed.contains(from)).then_some(value)
    }

    /// What was stated up to a time; unlike [`Timeline::at`] it takes no later statement for an earlier time.
    pub fn stated_at(&self, time: WallTime) -> Option<&T> {
        self.from.range(..=Some(time)).next_back()?;
        self.at(Some(time))
    }

    /// The last statement, and the time from which it holds; `None` where it is disputed or no longer known.
    pub fn last(&self) -> Option<(Option<WallTime>, &T)> {
        let (from, value) = self.from.iter().next_back()?;
        let ended = self.unknown.last().is_some_and(|end| end > from);
        (!ended && !self.disputed.contains(from)).then_some((*from, value))
    }

    /// The times at which the value became another one than the last that was known.
    pub fn changes(&self) -> Vec<WallTime> {
        let mut changes = Vec::new();
        let mut before: Option<&T> = None;
        for (from, value) in self.from.iter().filter(|(from, _)| !self.disputed.contains(*from)) {
            if before.is_some_and(|before| value.is_other_than(before)) {
                changes.extend(from);
            }
            if before.is_none() || value.is_known() {
                before = Some(value);
            }
        }
        changes
    }

    /// From when the first value is known; `None`: from the beginning, or none is.
    pub fn known_from(&self) -> Option<WallTime> {
        self.from.iter().find(|(_, value)| value.is_known()).and_then(|(time, _)| *time)
    }

    /// The times at which another epoch began: the value changed, was no longer known, or was known again. That it was not
    /// known at first is no beginning.
    pub fn epochs(&self) -> Vec<WallTime> {
        let mut epochs: BTreeSet<WallTime> = self.changes().into_iter().collect();
        let mut known = None;
        let times: BTreeSet<&Option<WallTime>> = self.from.keys().chain(&self.unknown).collect();
        for time in times {
            let is_known = match self.from.get(time) {
                Some(value) if !self.disputed.contains(time) => {
                    // What stands for a value until it is known neither ends nor begins anything.
                    if !value.is_known() {
                        continue;
                    }
                    true
                }
                _ => false,
            };
            if known.is_some_and(|known| known != is_known) {
                epochs.extend(*time);
            }
            known = Some(is_known);
        }
        epochs.into_iter().collect()
    }
}

impl Held for Factor {
    fn join(&self, other: &Self) -> Option<Self> {
        Self::join(self, other)
    }

    fn is_other_than(&self, before: &Self) -> bool {
        self.compare(before) == Comparison::Different
    }

    fn is_known(&self) -> bool {
        self.state == FactorState::Full
    }
}

impl Held for String {
    fn join(&self, other: &Self) -> Option<Self> {
        (self == other).then(|| self.clone())
    }

    fn is_other_than(&self, before: &Self) -> bool {
        self != before
    }

    fn is_known(&self) -> bool {
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_latest_statement_before_a_time_holds() {
        let mut timeline = Timeline::default();
        timeline.set(Some(WallTime(20)), "b".to_owned());
        timeline.set(Some(WallTime(10)), "a".to_owned());
        assert_eq!(timeline.at(Some(WallTime(15))), Some(&"a".to_owned()));
        assert_eq!(timeline.at(Some(WallTime(25))), Some(&"b".to_owned()));
        assert_eq!(timeline.changes(), [WallTime(20)]);
    }

    #[test]
    fn an_epoch_ends_where_a_value_is_no_longer_known_and_begins_where_it_is_again() {
        let mut timeline = Timeline::default();
        timeline.forget(Some(WallTime(5)));
        timeline.set(Some(WallTime(10)), "a".to_owned());
        assert_eq!(timeline.epochs(), [WallTime(10)]);
        timeline.forget(Some(WallTime(20)));
        timeline.set(Some(WallTime(30)), "a".to_owned());
        timeline.set(Some(WallTime(40)), "b".to_owned());
        assert_eq!(timeline.epochs(), [10, 20, 30, 40].map(WallTime));
        assert_eq!(timeline.changes(), [WallTime(40)]);
        let mut steady = Timeline::default();
        steady.set(Some(WallTime(10)), "a".to_owned());
        steady.set(Some(WallTime(20)), "a".to_owned());
        steady.forget(Some(WallTime(20)));
        assert!(steady.epochs().is_empty());
    }

    #[test]
    fn without_a_time_two_values_are_unknown() {
        let mut timeline = Timeline::default();
        timeline.set(Some(WallTime(10)), "a".to_owned());
        assert_eq!(timeline.at(None), Some(&"a".to_owned()));
        timeline.set(Some(WallTime(20)), "b".to_owned());
        assert_eq!(timeline.at(None), None);
    }

    #[test]
    fn what_is_no_longer_known_is_neither_the_old_value_nor_a_change() {
        let mut timeline = Timeline::default();
        timeline.set(Some(WallTime(10)), "a".to_owned());
        timeline.forget(Some(WallTime(20)));
        assert_eq!(timeline.at(Some(WallTime(15))), Some(&"a".to_owned()));
        assert_eq!((timeline.at(Some(WallTime(20))), timeline.last()), (None, None));
        assert_eq!(timeline.at(None), None);
        assert!(timeline.changes().is_empty());
    }

    #[test]
    fn a_value_for_the_same_time_takes_the_place_of_not_knowing_it() {
        let mut timeline = Timeline::default();
        timeline.set(Some(WallTime(10)), "a".to_owned());
        timeline.forget(Some(WallTime(20)));
        timeline.set(Some(WallTime(20)), "a".to_owned());
        assert_eq!(timeline.at(Some(WallTime(25))), Some(&"a".to_owned()));
        assert!(timeline.changes().is_empty(), "equal content is no new epoch");
    }

    #[test]
    fn two_statements_for_one_time_make_it_unknown() {
        let mut timeline = Timeline::default();
        for value in ["a", "b", "a"] {
            timeline.set(None, value.to_owned());
        }
        assert_eq!(timeline.at(None), None);
        assert_eq!(timeline.at(Some(WallTime(1))), None);
    }

    fn factors(texts: [&str; 2]) -> Timeline<Factor> {
        let mut timeline = Timeline::default();
        for (text, at) in texts.into_iter().zip([10, 20]) {
            timeline.set(Some(WallTime(at)), Factor::full(text));
        }
        timeline
    }

    #[test]
    fn equal_tensors_in_other_files_are_no_change() {
        let texts = ["sha256:aa layout=l meaning=tensors-v1:t", "sha256:bb layout=m meaning=tensors-v1:t"];
        assert!(factors(texts).changes().is_empty());
        let texts = ["sha256:aa layout=l", "sha256:bb layout=m meaning=tensors-v1:t"];
        assert!(factors(texts).changes().is_empty(), "not known to be others");
        assert_eq!(factors(["sha256:aa layout=l", "sha256:bb layout=l"]).changes(), [WallTime(20)]);
    }

    #[test]
    fn what_is_known_of_a_value_later_is_of_the_same_statement() {
        let mut timeline = factors(["sha256:aa layout=l", "sha256:bb layout=l"]);
        timeline.set(Some(WallTime(20)), Factor::full("sha256:bb layout=l meaning=tensors-v1:t"));
        let last = timeline.last().and_then(|(_, factor)| factor.meaning.clone());
        assert_eq!(last.as_deref(), Some("tensors-v1:t"));
    }

    #[test]
    fn a_sample_between_two_values_hides_no_change() {
        let mut timeline = factors(["sha256:aa", "sha256:bb"]);
        let sampled = Factor { state: FactorState::Provisional, ..Factor::full("samples-v1:s") };
        timeline.set(Some(WallTime(15)), sampled);
        assert_eq!(timeline.changes(), [WallTime(20)]);
    }
}
