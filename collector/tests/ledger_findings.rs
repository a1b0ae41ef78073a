//! Findings are kept by subject, exactly, over a restart.
#![allow(clippy::unwrap_used, reason = "a failed test says enough")]

use kvprov_collector::ledger::{EmbeddedLedger, Ledger, Limits, Subject};
use kvprov_model::clock::WallTime;
use kvprov_model::finding::{Cause, Confidence, Detector, Evidence, Finding, FindingState};
use kvprov_model::id::{FindingId, StoreId, WorkerId};
use std::collections::BTreeMap;

fn finding(name: &str) -> Finding {
    Finding {
        id: FindingId::derive(&Detector::StaleKvRead, name, "x"),
        detector: Detector::StaleKvRead,
        confidence: Confidence::Suspected,
        cause: Cause::LeaseExpired,
        state: FindingState::Opened,
        summary: "blocks were read after their lease had ended".to_owned(),
        requests: vec!["r1".to_owned()],
        workers: vec![name.to_owned()],
        tokens: 17,
        count: 1,
        first_seen: Some(WallTime(1_755_331_200_123_456_789)),
        last_seen: None,
        evidence: vec![Evidence { source: "p.log".to_owned(), line: 3, says: "lease expired".to_owned() }],
        unknown: vec!["the reader".to_owned()],
        advice: String::new(),
        subject: name.to_owned(),
    }
}

#[test]
fn findings_survive_a_restart_to_the_nanosecond() {
    let directory = tempfile::tempdir().unwrap();
    let subjects = [Subject::Worker(WorkerId::from("x")), Subject::Store(StoreId::from("x")), Subject::Fleet];
    let mut ledger = EmbeddedLedger::open(directory.path(), Limits::default()).unwrap();
    for subject in &subjects {
        ledger.put_findings(subject, &[finding("d0"), finding("d1")]).unwrap();
    }
    ledger.put_findings(&subjects[1], &[finding("d2")]).unwrap();
    ledger.put_findings(&subjects[2], &[]).unwrap();
    drop(ledger);

    let ledger = EmbeddedLedger::open(directory.path(), Limits::default()).unwrap();
    let [worker, store, fleet] = subjects;
    assert_eq!(ledger.findings(&store).unwrap(), [finding("d2")]);
    assert!(ledger.findings(&fleet).unwrap().is_empty());
    assert_eq!(
        ledger.all_findings().unwrap(),
        BTreeMap::from([(worker, vec![finding("d0"), finding("d1")]), (store, vec![finding("d2")])])
    );
}
