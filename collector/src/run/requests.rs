//! The lineages of the latest requests, brought up to date where something new was said.
//!
//! Invariant: a request is counted once, when nothing more was said of it between two surveys or when it has to make
//! room; never again after that, whatever comes late.

use crate::lineage;
use crate::lineage::record::{self, Record};
use crate::view::View;
use kvprov_model::id::RequestStem;
use kvprov_model::lineage::{Lineage, LineageStatus};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// Lineages that are held; the ones that were touched longest ago make room.
const HELD: usize = 10_000;

/// A request that is held.
#[derive(Debug, Clone)]
struct Held {
    record: Arc<Record>,
    /// The survey in which something was said of it last.
    touched: u64,
    counted: bool,
}

/// The requests.
#[derive(Debug, Default)]
pub struct Requests {
    held: BTreeMap<RequestStem, Held>,
    surveys: u64,
    /// Requests that were there before the start, and counted then.
    before: BTreeSet<RequestStem>,
    ended: Vec<Lineage>,
}

// === impl Requests ===

impl Requests {
    /// Requests that were counted before the start.
    pub fn counted_before(&mut self, stems: BTreeSet<RequestStem>) {
        self.before = stems;
    }

    /// Looks at the requests of which something was said.
    pub(super) fn take(&mut self, view: &View<'_>, mut touched: BTreeSet<RequestStem>) {
        self.surveys += 1;
        let fates = lineage::fates(view);
        touched.extend(fates.keys().cloned());
        for stem in touched {
            let Some(lineage) = lineage::of_request(view, &stem, fates.get(&stem)) else { continue };
            let record = record::of(view, &stem, lineage);
            self.put(stem, record);
        }
        self.settle();
    }

    /// The lineages, by request.
    pub fn records(&self) -> Vec<Arc<Record>> {
        self.held.values().map(|held| Arc::clone(&held.record)).collect()
    }

    /// The lineage of one request, where it is held.
    pub fn record(&self, stem: &RequestStem) -> Option<&Record> {
        self.held.get(stem).map(|held| held.record.as_ref())
    }

    /// Requests that ended since this was last asked.
    pub fn take_ended(&mut self) -> Vec<Lineage> {
        std::mem::take(&mut self.ended)
    }

    fn put(&mut self, stem: RequestStem, record: Record) {
        let surveys = self.surveys;
        match self.held.get_mut(&stem) {
            Some(held) if *held.record == record => {}
            Some(held) => (held.record, held.touched) = (Arc::new(record), surveys),
            None => {
                let counted = self.before.remove(&stem);
                self.held.insert(stem, Held { record: Arc::new(record), touched: surveys, counted });
            }
        }
    }

    fn settle(&mut self) {
        let surveys = self.surveys;
        for held in self.held.values_mut().filter(|held| !held.counted && held.touched < surveys) {
            held.counted = true;
            self.ended.push(held.record.lineage.clone());
        }
        if self.held.len() <= HELD {
            return;
        }
        let mut oldest: Vec<(u64, RequestStem)> =
            self.held.iter().map(|(stem, held)| (held.touched, stem.clone())).collect();
        oldest.sort();
        for (_, stem) in oldest.into_iter().take(self.held.len() - HELD) {
            if let Some(held) = self.held.remove(&stem).filter(|held| !held.counted) {
                self.ended.push(held.record.lineage.clone());
            }
        }
    }
}

/// The word of a status.
pub fn status_word(status: LineageStatus) -> &'static str {
    match status {
        LineageStatus::Consistent => "consistent",
        LineageStatus::Divergent => "divergent",
        LineageStatus::Unverified => "unverified",
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use kvprov_model::lineage::Points;

    fn record(request: &str, status: LineageStatus) -> Record {
        Record::bare(Lineage { request: request.to_owned(), status, points: Points::default() })
    }

    fn survey(requests: &mut Requests, said: &[(&str, LineageStatus)]) -> Vec<String> {
        requests.surveys += 1;
        for (request, status) in said {
            requests.put(RequestStem::of(request), record(request, *status));
        }
        requests.settle();
        requests.take_ended().into_iter().map(|ended| ended.request).collect()
    }

    #[test]
    fn a_request_counts_once_when_nothing_more_is_said() {
        let mut requests = Requests::default();
        assert!(survey(&mut requests, &[("a", LineageStatus::Unverified)]).is_empty());
        assert!(survey(&mut requests, &[("a", LineageStatus::Consistent)]).is_empty());
        assert_eq!(survey(&mut requests, &[]), ["a"]);
        assert!(survey(&mut requests, &[("a", LineageStatus::Divergent)]).is_empty());
        assert!(survey(&mut requests, &[]).is_empty());
        assert_eq!(requests.records()[0].lineage.status, LineageStatus::Divergent);
    }

    #[test]
    fn what_was_there_before_a_restart_is_not_counted_again() {
        let mut requests = Requests::default();
        requests.counted_before(BTreeSet::from([RequestStem::of("a")]));
        survey(&mut requests, &[("a", LineageStatus::Consistent), ("b", LineageStatus::Consistent)]);
        assert_eq!(survey(&mut requests, &[]), ["b"]);
    }

    #[test]
    fn the_requests_that_are_held_are_bounded_and_each_is_counted() {
        let mut requests = Requests::default();
        let names: Vec<String> = (0..HELD + 5).map(|n| n.to_string()).collect();
        let said: Vec<_> = names.iter().map(|name| (name.as_str(), LineageStatus::Consistent)).collect();
        let early = survey(&mut requests, &said).len();
        assert_eq!((early, requests.held.len()), (5, HELD));
        assert_eq!(survey(&mut requests, &[]).len(), HELD);
    }
}
