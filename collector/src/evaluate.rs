//! From dirty subjects to findings and their transitions.
//!
//! An observation only marks subjects dirty. Each is evaluated whole: detectors give the complete set of findings on
//! it, and the difference to the last set is what happened: opened, changed, superseded, resolved.

use crate::detect::{self, Subject};
use crate::ledger::{IndexKey, IndexKind, Ledger, LedgerError};
use crate::view::{Progress, View};
use kvprov_model::finding::{Finding, FindingState};
use std::collections::BTreeSet;

/// What a subject's findings became.
#[derive(Debug, Clone, PartialEq)]
pub struct Transition {
    /// The finding after it, with its new state.
    pub finding: Finding,
}

/// Subjects that share one view and with it what was read; more would hold more of the ledger in memory.
const SUBJECTS_PER_VIEW: usize = 64;

/// Evaluates subjects and stores their findings. Returns what changed.
pub fn evaluate(
    ledger: &mut dyn Ledger,
    subjects: &BTreeSet<Subject>,
    progress: Progress,
) -> Result<Vec<Transition>, LedgerError> {
    let mut transitions = Vec::new();
    let subjects: Vec<&Subject> = subjects.iter().collect();
    for together in subjects.chunks(SUBJECTS_PER_VIEW) {
        let view = View::new(ledger, progress)?;
        let now: Vec<Vec<Finding>> = together.iter().map(|subject| detect::detect(&view, subject)).collect();
        view.finish()?;
        for (subject, now) in together.iter().zip(now) {
            let before = ledger.findings(subject)?;
            let (kept, changed) = compare(&before, now);
            ledger.put_findings(subject, &kept)?;
            transitions.extend(changed);
        }
    }
    Ok(transitions)
}

/// Every subject that the ledger knows.
pub fn all_subjects(ledger: &dyn Ledger) -> Result<BTreeSet<Subject>, LedgerError> {
    let mut subjects = BTreeSet::from([Subject::Fleet]);
    for kind in [IndexKind::Worker, IndexKind::Store] {
        subjects.extend(ledger.keys(kind)?.into_iter().filter_map(|key| match key {
            IndexKey::Worker(worker) => Some(Subject::Worker(worker)),
            IndexKey::Store(store) => Some(Subject::Store(store)),
            _ => None,
        }));
    }
    Ok(subjects)
}

/// Compares the last set of a subject with the new one: the set to keep, and what changed.
fn compare(before: &[Finding], now: Vec<Finding>) -> (Vec<Finding>, Vec<Transition>) {
    let mut transitions = Vec::new();
    let mut kept = Vec::new();
    for mut finding in now {
        match before.iter().find(|held| held.id == finding.id) {
            None => finding.state = FindingState::Opened,
            Some(held) => {
                finding.state = held.state;
                if finding == *held {
                    kept.push(finding);
                    continue;
                }
                finding.state = FindingState::Changed;
            }
        }
        transitions.push(Transition { finding: finding.clone() });
        kept.push(finding);
    }
    for held in before.iter().filter(|held| kept.iter().all(|finding| finding.id != held.id)) {
        // Earlier evidence arrived late: the same episode goes on under the id of its true beginning.
        let superseded = kept.iter().any(|finding| {
            finding.detector == held.detector
                && finding.subject == held.subject
                && finding.cause == held.cause
                && finding.first_seen < held.first_seen
        });
        let mut finding = held.clone();
        finding.state = if superseded { FindingState::Superseded } else { FindingState::Resolved };
        transitions.push(Transition { finding });
    }
    (kept, transitions)
}

#[cfg(test)]
mod tests {
    use super::*;
    use kvprov_model::clock::WallTime;
    use kvprov_model::finding::{Cause, Confidence, Detector};
    use kvprov_model::id::FindingId;

    fn finding(first: i64, confidence: Confidence) -> Finding {
        Finding {
            id: FindingId::derive(&Detector::SilentRecompute, "d0", &first.to_string()),
            detector: Detector::SilentRecompute,
            confidence,
            cause: Cause::PeerDied,
            state: FindingState::Opened,
            summary: String::new(),
            requests: Vec::new(),
            workers: vec!["d0".to_owned()],
            tokens: 0,
            count: 1,
            first_seen: Some(WallTime(first)),
            last_seen: Some(WallTime(first)),
            evidence: Vec::new(),
            unknown: Vec::new(),
            advice: String::new(),
            subject: "d0".to_owned(),
        }
    }

    fn states(before: &[Finding], now: Vec<Finding>) -> Vec<FindingState> {
        compare(before, now).1.into_iter().map(|transition| transition.finding.state).collect()
    }

    #[test]
    fn a_new_finding_opens_and_an_equal_one_is_silent() {
        let one = finding(10, Confidence::Suspected);
        assert_eq!(states(&[], vec![one.clone()]), [FindingState::Opened]);
        assert_eq!(states(std::slice::from_ref(&one), vec![one.clone()]), []);
    }

    #[test]
    fn better_evidence_changes_a_finding_under_its_id() {
        let before = finding(10, Confidence::Suspected);
        let now = finding(10, Confidence::Confirmed);
        assert_eq!(before.id, now.id);
        assert_eq!(states(&[before], vec![now]), [FindingState::Changed]);
    }

    #[test]
    fn an_earlier_beginning_supersedes() {
        let (late, early) = (finding(10, Confidence::Confirmed), finding(5, Confidence::Confirmed));
        assert_eq!(states(&[late], vec![early]), [FindingState::Opened, FindingState::Superseded]);
    }

    #[test]
    fn a_finding_that_is_no_longer_stated_is_resolved() {
        assert_eq!(states(&[finding(10, Confidence::Confirmed)], Vec::new()), [FindingState::Resolved]);
    }
}
