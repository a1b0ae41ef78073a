//! The findings last put on a subject, as stored. They are no part of the set: they follow from it.

use super::storage::{Changes, Order, Storage};
use super::stored::StoredLedger;
use super::{LedgerError, Subject, key};
use kvprov_model::clock::WallTime;
use kvprov_model::finding::Finding;
use kvprov_model::id::{StoreId, WorkerId};
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

impl<S: Storage> StoredLedger<S> {
    pub(super) fn findings_on(&self, subject: &Subject) -> Result<Vec<Finding>, LedgerError> {
        match self.storage.get(&findings_key(subject))? {
            Some(bytes) => Ok(read_findings(&bytes)?.1),
            None => Ok(Vec::new()),
        }
    }

    pub(super) fn replace_findings(
        &mut self,
        subject: &Subject,
        findings: &[Finding],
    ) -> Result<(), LedgerError> {
        self.mend()?;
        let key = findings_key(subject);
        let value = (!findings.is_empty()).then(|| write_findings(subject, findings)).transpose()?;
        if value == self.storage.get(&key)? {
            return Ok(());
        }
        self.storage.commit(Changes::one(key, value)).inspect_err(|_| self.torn = true)
    }

    pub(super) fn findings_by_subject(&self) -> Result<BTreeMap<Subject, Vec<Finding>>, LedgerError> {
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
