//! A value over time: what was set when, merged from statements in any order.
//!
//! A statement may also say that the value is not known from a time on: it ends what was known, and gives way to any value
//! that is stated for the same time.

use kvprov_model::clock::WallTime;
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

impl<T: Ord + Clone> Timeline<T> {
    /// States that a value holds from a time on. Two different statements for one time make it unknown, in whatever
    /// order they come.
    pub fn set(&mut self, from: Option<WallTime>, value: T) {
        if self.from.get(&from).is_some_and(|held| *held != value) {
            self.disputed.insert(from);
        }
        self.from
            .entry(from)
            .and_modify(|held| {
                if value > *held {
                    held.clone_from(&value);
                }
            })
            .or_insert(value);
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

    /// The times at which the value became another one.
    pub fn changes(&self) -> Vec<WallTime> {
        let entries: Vec<_> = self.from.iter().collect();
        entries.windows(2).filter(|pair| pair[0].1 != pair[1].1).filter_map(|pair| *pair[1].0).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_latest_statement_before_a_time_holds() {
        let mut timeline = Timeline::default();
        timeline.set(Some(WallTime(20)), "b");
        timeline.set(Some(WallTime(10)), "a");
        assert_eq!(timeline.at(Some(WallTime(15))), Some(&"a"));
        assert_eq!(timeline.at(Some(WallTime(25))), Some(&"b"));
        assert_eq!(timeline.changes(), [WallTime(20)]);
    }

    #[test]
    fn without_a_time_two_values_are_unknown() {
        let mut timeline = Timeline::default();
        timeline.set(Some(WallTime(10)), "a");
        assert_eq!(timeline.at(None), Some(&"a"));
        timeline.set(Some(WallTime(20)), "b");
        assert_eq!(timeline.at(None), None);
    }

    #[test]
    fn what_is_no_longer_known_is_neither_the_old_value_nor_a_change() {
        let mut timeline = Timeline::default();
        timeline.set(Some(WallTime(10)), "a");
        timeline.forget(Some(WallTime(20)));
        assert_eq!(timeline.at(Some(WallTime(15))), Some(&"a"));
        assert_eq!((timeline.at(Some(WallTime(20))), timeline.last()), (None, None));
        assert_eq!(timeline.at(None), None);
        assert!(timeline.changes().is_empty());
    }

    #[test]
    fn a_value_for_the_same_time_takes_the_place_of_not_knowing_it() {
        let mut timeline = Timeline::default();
        timeline.set(Some(WallTime(10)), "a");
        timeline.forget(Some(WallTime(20)));
        timeline.set(Some(WallTime(20)), "a");
        assert_eq!(timeline.at(Some(WallTime(25))), Some(&"a"));
        assert!(timeline.changes().is_empty(), "equal content is no new epoch");
    }

    #[test]
    fn two_statements_for_one_time_make_it_unknown() {
        let mut timeline = Timeline::default();
        for value in ["a", "b", "a"] {
            timeline.set(None, value);
        }
        assert_eq!(timeline.at(None), None);
        assert_eq!(timeline.at(Some(WallTime(1))), None);
    }
}
