//! What the programs counted.

use kvprov_agent_common::Kind;
use kvprov_agent_common::kernel::counter;

/// Counts of one kind, since the start. `fired` = `filtered` + `delivered` + `dropped`, whenever nothing runs.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Counts {
    /// Events of watched processes.
    pub fired: u64,
    /// Left out on purpose: nobody wants their class, result or flags.
    pub filtered: u64,
    /// Written to the ring.
    pub delivered: u64,
    /// Lost, since the ring was full.
    pub dropped: u64,
    /// Of those, events of which something could not be read.
    pub unreadable: u64,
}

/// Counts of all kinds.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Counters {
    /// Every kind of which something was seen, in the order of their numbers.
    pub by_kind: Vec<(Kind, Counts)>,
    /// Children of watched processes that are not watched since there were too many.
    pub unfollowed: u64,
}

impl Counters {
    /// Those of one kind.
    pub fn of(&self, kind: Kind) -> Counts {
        self.by_kind.iter().find(|(of, _)| *of == kind).map(|(_, counts)| *counts).unwrap_or_default()
    }

    /// Those of all kinds together.
    pub fn total(&self) -> Counts {
        self.by_kind.iter().fold(Counts::default(), |sum, (_, counts)| Counts {
            fired: sum.fired + counts.fired,
            filtered: sum.filtered + counts.filtered,
            delivered: sum.delivered + counts.delivered,
            dropped: sum.dropped + counts.dropped,
            unreadable: sum.unreadable + counts.unreadable,
        })
    }
}

impl Counts {
    /// Of the numbers of each processor.
    pub(crate) fn sum<'n>(processors: impl Iterator<Item = &'n [u64; counter::COUNT]>) -> Self {
        processors.fold(Self::default(), |sum, numbers| Self {
            fired: sum.fired + numbers[counter::FIRED],
            filtered: sum.filtered + numbers[counter::FILTERED],
            delivered: sum.delivered + numbers[counter::DELIVERED],
            dropped: sum.dropped + numbers[counter::DROPPED],
            unreadable: sum.unreadable + numbers[counter::UNREADABLE],
        })
    }
}
