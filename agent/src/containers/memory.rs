//! Which containers were asked for, and when one is asked for again.
//!
//! Once told is told for ever: what a container is called never changes. What was not told is asked for again a few
//! seconds later, then more and more seldom, since a runtime that is restarted or a socket that somebody mounts tells then.
//! Containers that no worker is in any more are forgotten.

use super::{By, ContainerId, Wanted};
use std::collections::BTreeMap;
use std::time::{Duration, Instant};

/// How long after one answer that told nothing the next is asked for; the last of them from then on.
const PAUSES: [Duration; 4] =
    [Duration::from_secs(5), Duration::from_secs(30), Duration::from_secs(120), Duration::from_secs(600)];

/// The containers of the workers that are there.
#[derive(Debug, Default)]
pub(super) struct Memory {
    known: BTreeMap<ContainerId, (State, By)>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    /// Nobody answered yet.
    Asked { tries: usize },
    /// All is told.
    Done,
    /// It is asked for again at a time.
    Again { tries: usize, at: Instant },
}

// === impl Memory ===

impl Memory {
    /// Which of the containers that are there are to be asked for now. They count as asked.
    pub(super) fn due(&mut self, there: impl Iterator<Item = Wanted>, now: Instant) -> Vec<Wanted> {
        let there: BTreeMap<ContainerId, Wanted> = there.map(|wanted| (wanted.id.clone(), wanted)).collect();
        self.known.retain(|id, _| there.contains_key(id));
        let mut due = Vec::new();
        for (id, wanted) in there {
            let (tries, by) = match self.known.get(&id) {
                None => (0, By::Nobody),
                Some((State::Again { tries, at }, by)) if *at <= now => (*tries, *by),
                Some(_) => continue,
            };
            self.known.insert(id, (State::Asked { tries: tries + 1 }, by));
            due.push(wanted);
        }
        due
    }

    /// It could not be asked for now.
    pub(super) fn put_off(&mut self, id: &ContainerId, now: Instant) {
        if let Some((state, _)) = self.known.get_mut(id) {
            *state = state.again(now);
        }
    }

    /// An answer came. How often it was asked for; `None`: no worker is in it any more.
    pub(super) fn answered(
        &mut self,
        id: &ContainerId,
        (by, again): (By, bool),
        now: Instant,
    ) -> Option<usize> {
        let known = self.known.get_mut(id)?;
        let State::Asked { tries } = known.0 else { return None };
        *known = (if again { known.0.again(now) } else { State::Done }, by);
        Some(tries)
    }

    /// Containers by who told what they are called.
    pub(super) fn figures(&self) -> BTreeMap<By, u64> {
        let mut figures = BTreeMap::from([(By::Nobody, 0), (By::File, 0), (By::Runtime, 0)]);
        for (_, by) in self.known.values() {
            *figures.entry(*by).or_default() += 1;
        }
        figures
    }
}

// === impl State ===

impl State {
    fn again(self, now: Instant) -> Self {
        let Self::Asked { tries } = self else { return self };
        Self::Again { tries, at: now + PAUSES[tries.saturating_sub(1).min(PAUSES.len() - 1)] }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn wanted(digit: char) -> Wanted {
        Wanted { id: ContainerId::parse(&digit.to_string().repeat(64)).unwrap(), pod_uid: None }
    }

    fn due(memory: &mut Memory, there: &[char], now: Instant) -> Vec<Wanted> {
        memory.due(there.iter().map(|digit| wanted(*digit)), now)
    }

    #[test]
    fn what_was_told_is_never_asked_for_again() {
        let (mut memory, now) = (Memory::default(), Instant::now());
        assert_eq!(due(&mut memory, &['a', 'b'], now), [wanted('a'), wanted('b')]);
        assert!(due(&mut memory, &['a', 'b'], now).is_empty(), "the question is under way");
        assert_eq!(memory.answered(&wanted('a').id, (By::Runtime, false), now), Some(1));
        assert_eq!(memory.answered(&wanted('b').id, (By::File, false), now), Some(1));
        assert!(due(&mut memory, &['a', 'b'], now + Duration::from_secs(100_000)).is_empty());
    }

    #[test]
    fn several_workers_in_one_container_are_one_question() {
        assert_eq!(due(&mut Memory::default(), &['a', 'a', 'a'], Instant::now()).len(), 1);
    }

    #[test]
    fn what_was_not_told_is_asked_for_more_and_more_seldom() {
        let (mut memory, mut now) = (Memory::default(), Instant::now());
        due(&mut memory, &['a'], now);
        for seconds in [5, 30, 120, 600, 600] {
            assert!(memory.answered(&wanted('a').id, (By::Nobody, true), now).is_some());
            assert!(due(&mut memory, &['a'], now + Duration::from_secs(seconds - 1)).is_empty());
            now += Duration::from_secs(seconds);
            assert_eq!(due(&mut memory, &['a'], now).len(), 1, "after {seconds} s");
        }
    }

    #[test]
    fn a_container_that_went_is_forgotten_and_its_late_answer_dropped() {
        let (mut memory, now) = (Memory::default(), Instant::now());
        due(&mut memory, &['a'], now);
        assert!(due(&mut memory, &[], now).is_empty());
        assert_eq!(memory.answered(&wanted('a').id, (By::Runtime, false), now), None);
        assert_eq!(due(&mut memory, &['a'], now).len(), 1, "one that comes again is asked for again");
    }

    #[test]
    fn who_told_is_counted() {
        let (mut memory, now) = (Memory::default(), Instant::now());
        due(&mut memory, &['a', 'b', 'c', 'd'], now);
        for (digit, answer) in
            [('a', (By::Runtime, false)), ('b', (By::File, true)), ('c', (By::Nobody, true))]
        {
            memory.answered(&wanted(digit).id, answer, now);
        }
        let figures = |memory: &Memory| memory.figures().into_values().collect::<Vec<_>>();
        assert_eq!(figures(&memory), [2, 1, 1], "nobody, file, runtime");
        due(&mut memory, &['a', 'b', 'c', 'd'], now + PAUSES[0]);
        assert_eq!(figures(&memory), [2, 1, 1], "asked again, what was told still stands");
        due(&mut memory, &[], now);
        assert_eq!(figures(&memory), [0, 0, 0]);
    }

    #[test]
    fn many_containers_leave_nothing_behind() {
        let (mut memory, now) = (Memory::default(), Instant::now());
        for digit in "0123456789abcdef".chars() {
            due(&mut memory, &[digit], now);
        }
        assert_eq!(memory.known.len(), 1);
    }
}
