//! Reading: views as pure functions of the set, and the findings that were last put.

use super::index::{IndexKey, IndexKind, Subject};
use super::key::{self, Position, StoredKey};
use super::storage::{Changes, Order, Storage};
use super::stored::StoredLedger;
use super::{Ledger, LedgerError, Merged, Selection, codec};
use kvprov_model::clock::WallTime;
use kvprov_model::finding::Finding;
use kvprov_model::id::{NodeId, StoreId, WorkerId};
use kvprov_model::observation::Observation;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::ops::ControlFlow;

/// The findings of one subject as stored. JSON shows times in milliseconds; the nanoseconds stand beside it.
#[derive(Serialize, Deserialize)]
struct StoredFindings {
    subject: StoredSubject,
    findings: Vec<(Finding, Option<i64>, Option<i64>)>,
}

#[derive(Serialize, Deserialize)]
enum StoredSubject {
    Worker(String),
    Store(String),
    Fleet,
}

impl<S: Storage> Ledger for StoredLedger<S> {
    fn merge(&mut self, observations: &[Observation]) -> Result<Merged, LedgerError> {
        self.merge_batch(observations)
    }

    fn visit(
        &self,
        key: &IndexKey,
        visit: &mut dyn FnMut(Observation) -> ControlFlow<()>,
    ) -> Result<(), LedgerError> {
        let stored = StoredKey::of(key);
        let (mut undated, _) = self.lane(&stored, false, self.limits.selection)?;
        undated.sort_by(undated_order);
        for observation in undated {
            if visit(observation).is_break() {
                return Ok(());
            }
        }
        let mut outcome = Ok(());
        let (from, until) = lane_range(&stored, true);
        self.storage.scan(&from, until.as_deref(), Order::Ascending, &mut |entry, _| match self
            .observation(&StoredKey::position(entry))
        {
            Ok(Some(observation)) => visit(observation),
            Ok(None) => ControlFlow::Continue(()),
            Err(error) => {
                outcome = Err(error);
                ControlFlow::Break(())
            }
        })?;
        outcome
    }

    fn select(&self, key: &IndexKey) -> Result<Selection, LedgerError> {
        let stored = StoredKey::of(key);
        let limit = self.limits.selection;
        // Declarations and settings are often undated and matter most: they get up to half.
        let (mut observations, cut_undated) = self.lane(&stored, false, limit.div_ceil(2))?;
        observations.sort_by(undated_order);
        let (mut dated, cut_dated) = self.lane(&stored, true, limit - observations.len().min(limit))?;
        dated.reverse();
        observations.append(&mut dated);
        Ok(Selection { observations, cut: cut_undated + cut_dated })
    }

    fn keys(&self, kind: IndexKind) -> Result<Vec<IndexKey>, LedgerError> {
        let prefix = key::names(kind);
        let mut keys = Vec::new();
        self.storage.scan(
            &prefix,
            key::prefix_end(&prefix).as_deref(),
            Order::Ascending,
            &mut |_, name| {
                if keys.len() >= self.limits.selection {
                    return ControlFlow::Break(());
                }
                keys.push(kind.key(&String::from_utf8_lossy(name)));
                ControlFlow::Continue(())
            },
        )?;
        Ok(keys)
    }

    fn watermark(&self, node: &NodeId) -> Option<WallTime> {
        self.nodes.get(node)?.newest
    }

    fn watermarks(&self) -> BTreeMap<NodeId, WallTime> {
        self.nodes.iter().filter_map(|(node, state)| Some((node.clone(), state.newest?))).collect()
    }

    fn findings(&self, subject: &Subject) -> Result<Vec<Finding>, LedgerError> {
        match self.storage.get(&findings_key(subject))? {
            Some(bytes) => Ok(read_findings(&bytes)?.1),
            None => Ok(Vec::new()),
        }
    }

    fn put_findings(&mut self, subject: &Subject, findings: &[Finding]) -> Result<(), LedgerError> {
        self.mend()?;
        let key = findings_key(subject);
        let value = (!findings.is_empty()).then(|| write_findings(subject, findings)).transpose()?;
        if value == self.storage.get(&key)? {
            return Ok(());
        }
        self.storage.commit(Changes::from([(key, value)])).inspect_err(|_| self.torn = true)
    }

    fn all_findings(&self) -> Result<BTreeMap<Subject, Vec<Finding>>, LedgerError> {
        let mut all = BTreeMap::new();
        let mut outcome = Ok(());
        let prefix = [key::FINDINGS];
        self.storage.scan(
            &prefix,
            key::prefix_end(&prefix).as_deref(),
            Order::Ascending,
            &mut |_, value| match read_findings(value) {
                Ok((subject, findings)) => {
                    all.insert(subject, findings);
                    ControlFlow::Continue(())
                }
                Err(error) => {
                    outcome = Err(error);
                    ControlFlow::Break(())
                }
            },
        )?;
        outcome.map(|()| all)
    }
}

impl<S: Storage> StoredLedger<S> {
    /// Hands every observation to `visit`, in the order of ids, until it breaks.
    pub fn each_observation(
        &self,
        visit: &mut dyn FnMut(Observation) -> ControlFlow<()>,
    ) -> Result<(), LedgerError> {
        let mut outcome = Ok(());
        let prefix = [key::RECORD];
        self.storage.scan(
            &prefix,
            key::prefix_end(&prefix).as_deref(),
            Order::Ascending,
            &mut |key, value| {
                let decoded = match Position(key.to_vec()).id() {
                    Some(id) => codec::decode(id, value),
                    None => return ControlFlow::Continue(()),
                };
                match decoded {
                    Ok(observation) => visit(observation),
                    Err(error) => {
                        outcome = Err(error);
                        ControlFlow::Break(())
                    }
                }
            },
        )?;
        outcome
    }

    /// The newest observations of one lane of a view, newest first, at most `limit`; and how many were left out.
    fn lane(
        &self,
        stored: &StoredKey,
        dated: bool,
        limit: usize,
    ) -> Result<(Vec<Observation>, u64), LedgerError> {
        let mut positions = Vec::new();
        let mut cut = 0;
        let (from, until) = lane_range(stored, dated);
        self.storage.scan(&from, until.as_deref(), Order::Descending, &mut |entry, _| {
            if positions.len() < limit {
                positions.push(StoredKey::position(entry));
            } else {
                cut += 1;
            }
            ControlFlow::Continue(())
        })?;
        let mut observations = Vec::with_capacity(positions.len());
        for position in positions {
            observations.extend(self.observation(&position)?);
        }
        Ok((observations, cut))
    }

    fn observation(&self, position: &Position) -> Result<Option<Observation>, LedgerError> {
        let Some(id) = position.id() else { return Ok(None) };
        let bytes = self.storage.get(&key::record(id))?;
        bytes.map(|bytes| codec::decode(id, &bytes)).transpose()
    }
}

fn undated_order(a: &Observation, b: &Observation) -> std::cmp::Ordering {
    let order = |observation: &Observation| (observation.envelope.position, observation.envelope.id);
    a.envelope.stream.cmp(&b.envelope.stream).then_with(|| order(a).cmp(&order(b)))
}

fn lane_range(stored: &StoredKey, dated: bool) -> (Vec<u8>, Option<Vec<u8>>) {
    let mut from = stored.entries();
    from.push(u8::from(dated));
    let until = key::prefix_end(&from);
    (from, until)
}

fn findings_key(subject: &Subject) -> Vec<u8> {
    key::findings(&match subject {
        Subject::Worker(worker) => format!("worker {worker}"),
        Subject::Store(store) => format!("store {store}"),
        Subject::Fleet => "fleet".to_owned(),
    })
}

fn write_findings(subject: &Subject, findings: &[Finding]) -> Result<Vec<u8>, LedgerError> {
    let subject = match subject {
        Subject::Worker(worker) => StoredSubject::Worker(worker.0.clone()),
        Subject::Store(store) => StoredSubject::Store(store.0.clone()),
        Subject::Fleet => StoredSubject::Fleet,
    };
    let nanos = |time: Option<WallTime>| time.map(|time| time.0);
    let findings = findings
        .iter()
        .map(|finding| (finding.clone(), nanos(finding.first_seen), nanos(finding.last_seen)))
        .collect();
    serde_json::to_vec(&StoredFindings { subject, findings })
        .map_err(|error| LedgerError::Corrupt { what: "finding", reason: error.to_string() })
}

fn read_findings(bytes: &[u8]) -> Result<(Subject, Vec<Finding>), LedgerError> {
    let stored: StoredFindings = serde_json::from_slice(bytes)
        .map_err(|error| LedgerError::Corrupt { what: "finding", reason: error.to_string() })?;
    let subject = match stored.subject {
        StoredSubject::Worker(name) => Subject::Worker(WorkerId(name)),
        StoredSubject::Store(name) => Subject::Store(StoreId(name)),
        StoredSubject::Fleet => Subject::Fleet,
    };
    let exact = |(mut finding, first, last): (Finding, Option<i64>, Option<i64>)| {
        finding.first_seen = first.map(WallTime);
        finding.last_seen = last.map(WallTime);
        finding
    };
    Ok((subject, stored.findings.into_iter().map(exact).collect()))
}
