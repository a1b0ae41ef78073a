//! Counters over the life of a ledger: what was found and what it cost.
//!
//! A finding is counted when it opens and never again, nor is what it cost; a restart goes on where it was. So the file
//! names every finding that stands with what was counted of it, and a finding of the ledger that it does not name is
//! counted when it is read. Invariant: no counter ever decreases.

use super::pages::StoreEntry;
use super::requests::status_word;
use crate::evaluate::Transition;
use kvprov_model::finding::{Detector, Finding, FindingState};
use kvprov_model::lineage::Lineage;
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, VecDeque};
use std::io::{self, Write as _};
use std::path::Path;

/// Findings that ended and are still shown.
const ENDED: usize = 200;
/// Pools that costs are told apart by; further ones are counted together as [`OTHER`].
const POOLS: usize = 64;
/// Stores and pairs of pools of which removals are counted.
const STORES: usize = 256;
/// Points and revisions of requests that are told apart.
const REVISIONS: usize = 128;
/// Stands for what is not known.
pub const UNKNOWN: &str = "unknown";
/// Stands for what is beyond a bound.
pub const OTHER: &str = "other";

/// A pool and a cause.
type Place = (String, String);

/// What was counted of one finding.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
struct Counted {
    count: u64,
    tokens: u64,
}

/// Removals in a store by one worker of what another had written, and what was seen of them last.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Evictions {
    /// The store.
    pub store: String,
    /// Pool of the remover.
    pub by_pool: String,
    /// Pool of the writer.
    pub of_pool: String,
    /// How many, over the life of the ledger.
    pub total: u64,
    /// How many the ledger held when it was looked at last; retention makes it less.
    held: u64,
}

/// The counters.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Totals {
    /// Findings by detector and cause.
    #[serde(with = "pairs")]
    pub opened: BTreeMap<(String, String), u64>,
    /// Requests and events of `cross_revision_hit` by pool and cause.
    #[serde(with = "pairs")]
    pub cross_hits: BTreeMap<Place, u64>,
    /// Tokens of `cross_revision_hit` by pool and cause.
    #[serde(with = "pairs")]
    pub cross_tokens: BTreeMap<Place, u64>,
    /// Tokens of `silent_recompute` by pool and cause.
    #[serde(with = "pairs")]
    pub recomputed_tokens: BTreeMap<Place, u64>,
    /// Requests by the status of their lineage, counted when nothing more was said of them.
    pub requests: BTreeMap<String, u64>,
    /// Points of these lineages, by point and whether its revision is known.
    #[serde(with = "pairs")]
    pub points: BTreeMap<(String, String), u64>,
    /// Points of these lineages by point and revision.
    #[serde(with = "pairs")]
    pub revisions: BTreeMap<(String, String), u64>,
    /// Artifacts that workers of one pool removed although workers of another had written them, by store and pools.
    pub evictions: Vec<Evictions>,
    /// Findings that ended, the latest last.
    pub ended: VecDeque<Finding>,
    counted: BTreeMap<String, Counted>,
}

// === impl Totals ===

impl Totals {
    /// Reads the file; an empty one where there is none. What cannot be read begins anew and says so.
    pub fn load(path: &Path) -> Self {
        match std::fs::read(path) {
            Ok(bytes) => serde_json::from_slice(&bytes).unwrap_or_else(|error| {
                tracing::warn!(path = %path.display(), %error, "the file of counters cannot be read; they begin at zero");
                Self::default()
            }),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Self::default(),
            Err(error) => {
                tracing::warn!(path = %path.display(), %error, "the file of counters cannot be read; they begin at zero");
                Self::default()
            }
        }
    }

    /// Writes the file, whole or not at all.
    pub fn save(&self, path: &Path) -> io::Result<()> {
        let new = path.with_extension("new");
        let mut file = std::fs::File::create(&new)?;
        file.write_all(&serde_json::to_vec(self)?)?;
        file.sync_data()?;
        std::fs::rename(&new, path)
    }

    /// Brings the counters into line with the findings that stand in the ledger: what they do not name yet is counted,
    /// what stands no longer is dropped.
    pub fn reconcile<'f>(
        &mut self,
        standing: impl IntoIterator<Item = &'f Finding>,
        pool: &dyn Fn(&Finding) -> String,
    ) {
        let mut kept = BTreeMap::new();
        for finding in standing {
            let id = finding.id.as_str().to_owned();
            if !self.counted.contains_key(&id) {
                self.count_opening(finding);
            }
            self.count_cost(finding, &pool(finding));
            if let Some(counted) = self.counted.get(&id) {
                kept.insert(id, *counted);
            }
        }
        self.counted = kept;
    }

    /// Counts what changed in one evaluation. An episode that goes on under an earlier beginning is no new one.
    pub fn take(&mut self, transitions: &[Transition], pool: &dyn Fn(&Finding) -> String) {
        let superseded: Vec<&Finding> = transitions
            .iter()
            .map(|transition| &transition.finding)
            .filter(|finding| finding.state == FindingState::Superseded)
            .collect();
        for finding in transitions.iter().map(|transition| &transition.finding) {
            let id = finding.id.as_str();
            match finding.state {
                FindingState::Opened | FindingState::Changed => {
                    if !self.counted.contains_key(id) {
                        let goes_on = superseded
                            .iter()
                            .find(|held| held.detector == finding.detector && held.subject == finding.subject)
                            .and_then(|held| self.counted.get(held.id.as_str()).copied());
                        match goes_on {
                            Some(counted) => {
                                self.counted.insert(id.to_owned(), counted);
                            }
                            None => self.count_opening(finding),
                        }
                    }
                    self.count_cost(finding, &pool(finding));
                }
                FindingState::Superseded | FindingState::Resolved => {
                    self.ended.retain(|held| held.id != finding.id);
                    self.ended.push_back(finding.clone());
                    while self.ended.len() > ENDED {
                        self.ended.pop_front();
                    }
                }
            }
        }
        for finding in transitions.iter().map(|transition| &transition.finding) {
            match finding.state {
                FindingState::Superseded | FindingState::Resolved => {
                    self.counted.remove(finding.id.as_str());
                }
                // What is stated again has not ended.
                _ => self.ended.retain(|held| held.id != finding.id),
            }
        }
    }

    /// Counts requests that ended.
    pub fn count_requests(&mut self, lineages: &[Lineage]) {
        for lineage in lineages {
            add(&mut self.requests, status_word(lineage.status).to_owned(), 1);
            let of = &lineage.points;
            for (name, point) in
                [("prefill", &of.prefill), ("artifact", &of.artifact), ("decode", &of.decode)]
            {
                let known = point.revision.is_some().to_string();
                add(&mut self.points, (name.to_owned(), known), 1);
                let revision = point.revision.as_deref().unwrap_or(UNKNOWN);
                add_bounded(&mut self.revisions, name, revision);
            }
        }
    }

    /// Counts removals of artifacts of others, as a survey shows them: what it shows more than the one before.
    pub fn count_evictions(&mut self, stores: &[StoreEntry], pool: &dyn Fn(&str) -> String) {
        let mut held: BTreeMap<(String, String, String), u64> = BTreeMap::new();
        for store in stores {
            for removal in &store.removals {
                let key = (store.id.clone(), pool(&removal.by), pool(&removal.of));
                add(&mut held, key, removal.artifacts);
            }
        }
        for known in &mut self.evictions {
            let key = (known.store.clone(), known.by_pool.clone(), known.of_pool.clone());
            let now = held.remove(&key).unwrap_or(0);
            known.total = known.total.saturating_add(now.saturating_sub(known.held));
            known.held = now;
        }
        for ((store, by_pool, of_pool), total) in held {
            if self.evictions.len() < STORES {
                self.evictions.push(Evictions { store, by_pool, of_pool, total, held: total });
            }
        }
    }

    fn count_opening(&mut self, finding: &Finding) {
        let key = (finding.detector.to_string(), finding.cause.to_string());
        add(&mut self.opened, key, 1);
        self.counted.insert(finding.id.as_str().to_owned(), Counted::default());
    }

    fn count_cost(&mut self, finding: &Finding, pool: &str) {
        let counted = self.counted.entry(finding.id.as_str().to_owned()).or_default();
        let count = finding.count.saturating_sub(counted.count);
        let tokens = finding.tokens.saturating_sub(counted.tokens);
        counted.count = counted.count.max(finding.count);
        counted.tokens = counted.tokens.max(finding.tokens);
        let cause = finding.cause.to_string();
        match finding.detector {
            Detector::CrossRevisionHit => {
                add_in_pool(&mut self.cross_hits, pool, &cause, count);
                add_in_pool(&mut self.cross_tokens, pool, &cause, tokens);
            }
            Detector::SilentRecompute => add_in_pool(&mut self.recomputed_tokens, pool, &cause, tokens),
            _ => {}
        }
    }
}

fn add<K: Ord>(totals: &mut BTreeMap<K, u64>, key: K, more: u64) {
    let total = totals.entry(key).or_insert(0);
    *total = total.saturating_add(more);
}

fn add_in_pool(totals: &mut BTreeMap<Place, u64>, pool: &str, cause: &str, more: u64) {
    let known = totals.keys().any(|(held, _)| held == pool);
    let pools = totals.keys().map(|(held, _)| held).collect::<std::collections::BTreeSet<_>>().len();
    let pool = if known || pools < POOLS { pool } else { OTHER };
    add(totals, (pool.to_owned(), cause.to_owned()), more);
}

/// Counts a point of a revision; beyond [`REVISIONS`] pairs revisions are counted together.
fn add_bounded(totals: &mut BTreeMap<(String, String), u64>, point: &str, revision: &str) {
    let key = (point.to_owned(), revision.to_owned());
    let has_room = totals.contains_key(&key) || totals.len() < REVISIONS;
    add(totals, if has_room { key } else { (point.to_owned(), OTHER.to_owned()) }, 1);
}

/// JSON has no pairs as keys: a list of triples.
mod pairs {
    use serde::{Deserialize, Deserializer, Serialize, Serializer};
    use std::collections::BTreeMap;

    pub(super) fn serialize<S: Serializer>(
        map: &BTreeMap<(String, String), u64>,
        serializer: S,
    ) -> Result<S::Ok, S::Error> {
        map.iter().map(|((a, b), n)| (a, b, n)).collect::<Vec<_>>().serialize(serializer)
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(
        deserializer: D,
    ) -> Result<BTreeMap<(String, String), u64>, D::Error> {
        let list = Vec::<(String, String, u64)>::deserialize(deserializer)?;
        Ok(list.into_iter().map(|(a, b, n)| ((a, b), n)).collect())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::run::pages::RemovalEntry;
    use kvprov_model::clock::WallTime;
    use kvprov_model::finding::{Cause, Confidence};
    use kvprov_model::id::FindingId;

    fn finding(id: &str, state: FindingState, tokens: u64) -> Finding {
        Finding {
            id: FindingId::from(id),
            detector: Detector::SilentRecompute,
            confidence: Confidence::Confirmed,
            cause: Cause::PeerDied,
            state,
            summary: String::new(),
            requests: Vec::new(),
            workers: Vec::new(),
            tokens,
            count: 1,
            first_seen: Some(WallTime(5)),
            last_seen: None,
            evidence: Vec::new(),
            unknown: Vec::new(),
            advice: String::new(),
            subject: "d0".to_owned(),
        }
    }

    fn take(totals: &mut Totals, findings: &[Finding]) {
        let transitions: Vec<_> =
            findings.iter().map(|finding| Transition { finding: finding.clone() }).collect();
        totals.take(&transitions, &|_| "p".to_owned());
    }

    fn opened(totals: &Totals) -> u64 {
        totals.opened.values().sum()
    }

    fn tokens(totals: &Totals) -> u64 {
        totals.recomputed_tokens.values().sum()
    }

    #[test]
    fn a_finding_counts_once_and_its_cost_as_it_grows() {
        let mut totals = Totals::default();
        take(&mut totals, &[finding("a", FindingState::Opened, 10)]);
        take(&mut totals, &[finding("a", FindingState::Changed, 25)]);
        take(&mut totals, &[finding("a", FindingState::Changed, 20)]);
        assert_eq!((opened(&totals), tokens(&totals)), (1, 25));
    }

    #[test]
    fn an_episode_that_goes_on_under_another_id_is_not_counted_again() {
        let mut totals = Totals::default();
        take(&mut totals, &[finding("a", FindingState::Opened, 10)]);
        take(
            &mut totals,
            &[finding("b", FindingState::Opened, 15), finding("a", FindingState::Superseded, 10)],
        );
        assert_eq!((opened(&totals), tokens(&totals)), (1, 15));
    }

    #[test]
    fn a_restart_counts_only_what_was_not_counted() {
        let file = tempfile::NamedTempFile::new().unwrap();
        let mut totals = Totals::default();
        take(&mut totals, &[finding("a", FindingState::Opened, 10)]);
        totals.save(file.path()).unwrap();
        let mut again = Totals::load(file.path());
        assert_eq!(again, totals);
        // The second one was stored in the ledger, and the process killed before it was counted.
        let standing = [finding("a", FindingState::Opened, 10), finding("b", FindingState::Opened, 5)];
        again.reconcile(&standing, &|_| "p".to_owned());
        again.reconcile(&standing, &|_| "p".to_owned());
        assert_eq!((opened(&again), tokens(&again)), (2, 15));
    }

    #[test]
    fn removals_are_counted_once_and_never_less_when_the_ledger_forgets() {
        let mut totals = Totals::default();
        let mut shows = |artifacts| {
            let removals = vec![RemovalEntry { by: "a".to_owned(), of: "b".to_owned(), artifacts }];
            let store = StoreEntry { id: "s".to_owned(), removals, ..StoreEntry::default() };
            totals.count_evictions(&[store], &|_| "p".to_owned());
            totals.evictions[0].total
        };
        assert_eq!([shows(5), shows(5), shows(8), shows(2), shows(3)], [5, 5, 8, 8, 9]);
    }

    #[test]
    fn a_damaged_file_begins_anew() {
        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(file.path(), b"{\"opened\":7").unwrap();
        assert_eq!(Totals::load(file.path()), Totals::default());
    }

    #[test]
    fn pools_are_bounded() {
        let mut totals = BTreeMap::new();
        for pool in 0..POOLS * 2 {
            add_in_pool(&mut totals, &pool.to_string(), "weights", 1);
        }
        assert_eq!(totals.len(), POOLS + 1);
    }
}
