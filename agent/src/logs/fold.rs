//! Folds statements that an engine prints by the thousand.
//!
//! The first of equal statements is told at once; those that follow are counted and told together, at the place and
//! time of the last, every minute of the log's own time and at the end. `times` of each observation counts the
//! statements it stands for that none before it counted, so that sums are right; first and last observation give the
//! span. Bounded: the statement that was silent longest makes room.

use super::emit::Telling;
use kvprov_model::clock::{SECOND, WallTime};
use kvprov_model::observation::Body;
use kvprov_model::value::Value;
use std::collections::HashMap;

/// Statements remembered at once.
const MAX_OPEN: usize = 4096;
/// Log time after which what was counted is told.
const INTERVAL: i64 = 60 * SECOND;

/// Statements that were told once.
#[derive(Debug, Default)]
pub(super) struct Folds {
    open: HashMap<String, Open>,
    clock: u64,
}

#[derive(Debug)]
struct Open {
    telling: Telling,
    untold: i64,
    told_at: Option<WallTime>,
    used: u64,
}

// === impl Folds ===

impl Folds {
    /// Takes one statement; `tell` gets what is to be told now.
    pub(super) fn add(&mut self, key: String, telling: Telling, times: i64, tell: &mut dyn FnMut(Telling)) {
        self.clock += 1;
        if let Some(open) = self.open.get_mut(&key) {
            open.untold = open.untold.saturating_add(times);
            open.used = self.clock;
            let wall = telling.wall;
            open.telling = telling;
            let due = match (wall, open.told_at) {
                (Some(now), Some(told)) => now.since(told) >= INTERVAL,
                _ => false,
            };
            if due {
                open.told_at = wall;
                if let Some(folded) = open.take() {
                    tell(folded);
                }
            }
            return;
        }
        if self.open.len() >= MAX_OPEN {
            self.make_room(tell);
        }
        let mut first = telling.clone();
        set_times(&mut first.body, times, times > 1);
        let told_at = telling.wall;
        tell(first);
        self.open.insert(key, Open { telling, untold: 0, told_at, used: self.clock });
    }

    /// Whether a statement was told before.
    pub(super) fn knows(&self, key: &str) -> bool {
        self.open.contains_key(key)
    }

    /// Statements remembered.
    pub(super) fn len(&self) -> usize {
        self.open.len()
    }

    /// Tells all that was counted.
    pub(super) fn finish(&mut self, tell: &mut dyn FnMut(Telling)) {
        let mut last: Vec<Telling> = self.open.drain().filter_map(|(_, mut open)| open.take()).collect();
        last.sort_by_key(|telling| telling.place.offset);
        last.into_iter().for_each(tell);
    }

    /// Forgets the quarter that was silent longest, so that room is made rarely.
    fn make_room(&mut self, tell: &mut dyn FnMut(Telling)) {
        let mut by_use: Vec<(u64, String)> =
            self.open.iter().map(|(key, open)| (open.used, key.clone())).collect();
        by_use.sort_unstable();
        for (_, key) in by_use.into_iter().take(MAX_OPEN / 4) {
            if let Some(folded) = self.open.remove(&key).and_then(|mut open| open.take()) {
                tell(folded);
            }
        }
    }
}

// === impl Open ===

impl Open {
    fn take(&mut self) -> Option<Telling> {
        if self.untold == 0 {
            return None;
        }
        let mut folded = self.telling.clone();
        folded.index += super::emit::FOLDED;
        set_times(&mut folded.body, self.untold, true);
        self.untold = 0;
        Some(folded)
    }
}

/// Sets how often a statement was made, on kinds that count it.
pub(super) fn set_times(body: &mut Body, times: i64, said: bool) {
    if said {
        // Kinds without the attribute tell each statement by itself.
        let _ = body.set("times", Value::Int(times));
    }
}
