//! A value over time: what was set when, merged from statements in any order.

use kvprov_model::clock::WallTime;
use std::collections::BTreeMap;

/// Values by the time from which they hold. `None` holds from the beginning.
#[derive(Debug, Clone)]
pub struct Timeline<T> {
    from: BTreeMap<Option<WallTime>, T>,
}

impl<T> Default for Timeline<T> {
    fn default() -> Self {
        Self { from: BTreeMap::new() }
    }
}

impl<T: Ord + Clone> Timeline<T> {
    /// States that a value holds from a time on. Of two statements for one time the greater wins, so that the order
    /// of statements does not matter.
    pub fn set(&mut self, from: Option<WallTime>, value: T) {
        self.from
            .entry(from)
            .and_modify(|held| {
                if value > *held {
                    held.clone_from(&value);
                }
            })
            .or_insert(value);
    }

    /// The value at a time. Before the first dated statement the first one is taken: it was seen then, not made.
    /// Without a time the value is known only when there is just one.
    pub fn at(&self, time: Option<WallTime>) -> Option<&T> {
        match time {
            None if self.from.len() > 1 => None,
            None => self.from.values().next(),
            Some(_) => self
                .from
                .range(..=time)
                .next_back()
                .map(|(_, value)| value)
                .or_else(|| self.from.values().next()),
        }
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
}
