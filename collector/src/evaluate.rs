//! From dirty subjects to findings and their transitions.
//!
//! An observation only marks subjects dirty. Each is evaluated whole: detectors give the complete set of findings on
//! it, and the difference to the last set is what happened: opened, changed, superseded, resolved.

use crate::detect::{self, Subject};
use crate::ledger::{IndexKey, IndexKind, Ledger, LedgerError};
use crate::view::{Hearing, Progress, View};
use kvprov_model::clock::WallTime;
use kvprov_model::finding::{Finding, FindingState};
use kvprov_model::id::NodeId;
use std::collections::{BTreeMap, BTreeSet};

/// What a subject's findings became.
#[derive(Debug, Clone, PartialEq)]
pub struct Transition {
    /// The finding after it, with its new state.
    pub finding: Finding,
}

/// Subjects that share one view and with it what was read; more would hold more of the ledger in memory.
const SUBJECTS_PER_VIEW: usize = 64;

/// Nodes, and the times up to which they have to be heard before there may be more to conclude.
pub type Awaited = BTreeMap<NodeId, WallTime>;

/// What came of an evaluation.
#[derive(Debug, Default)]
pub struct Evaluated {
    /// What changed.
    pub transitions: Vec<Transition>,
    /// What each subject waits for, where it waits.
    pub awaited: BTreeMap<Subject, Awaited>,
}

/// Evaluates subjects and stores their findings. Returns what changed.
pub fn evaluate(
    ledger: &mut dyn Ledger,
    subjects: &BTreeSet<Subject>,
    progress: Progress,
) -> Result<Vec<Transition>, LedgerError> {
    Ok(evaluate_over(ledger, subjects, progress, &Hearing::default())?.transitions)
}

/// Evaluates subjects while more comes, and stores their findings.
pub fn evaluate_running(
    ledger: &mut dyn Ledger,
    subjects: &BTreeSet<Subject>,
    hearing: &Hearing,
) -> Result<Evaluated, LedgerError> {
    evaluate_over(ledger, subjects, Progress::Running, hearing)
}

fn evaluate_over(
    ledger: &mut dyn Ledger,
    subjects: &BTreeSet<Subject>,
    progress: Progress,
    hearing: &Hearing,
) -> Result<Evaluated, LedgerError> {
    let mut evaluated = Evaluated::default();
    let subjects: Vec<&Subject> = subjects.iter().collect();
    for together in subjects.chunks(SUBJECTS_PER_VIEW) {
        let view = View::over(ledger, progress, hearing)?;
        let mut found: Vec<Vec<Finding>> = Vec::with_capacity(together.len());
        for subject in together {
            found.push(detect::detect(&view, subject));
            let awaited = view.take_awaited();
            if !awaited.is_empty() {
                evaluated.awaited.insert((*subject).clone(), awaited);
            }
        }
        let gone = hearing.expired_before;
        let unread = Unread { before: view.cut_before().max(gone), gone };
        view.finish()?;
        for (subject, now) in together.iter().zip(found) {
            let before = ledger.findings(subject)?;
            let now = unread.carry(&before, now);
            let (kept, changed) = compare(&before, now);
            ledger.put_findings(subject, &kept)?;
            evaluated.transitions.extend(changed);
        }
    }
    mark_absorbed(&mut evaluated.transitions);
    Ok(evaluated)
}

/// A finding of one subject may turn out to be a part of another's: the half of a failure that one side tells first.
fn mark_absorbed(transitions: &mut [Transition]) {
    let (ended, stated): (Vec<&mut Transition>, Vec<&mut Transition>) =
        transitions.iter_mut().partition(|transition| transition.finding.state == FindingState::Resolved);
    for transition in ended {
        if stated.iter().any(|other| is_part_of(&transition.finding, &other.finding)) {
            transition.finding.state = FindingState::Superseded;
        }
    }
}

/// Whether a finding goes on as one of more workers.
fn is_part_of(held: &Finding, finding: &Finding) -> bool {
    finding.detector == held.detector
        && finding.cause == held.cause
        && held.workers.iter().all(|one| finding.workers.contains(one))
        && on_one_line(held, finding)
}

fn on_one_line(held: &Finding, finding: &Finding) -> bool {
    finding.evidence.iter().any(|evidence| held.evidence.contains(evidence))
}

/// What is too old to be read any more.
struct Unread {
    /// Before this time evidence may be missing from the view.
    before: Option<WallTime>,
    /// Before this time it is removed for good.
    gone: Option<WallTime>,
}

impl Unread {
    /// A finding does not end because its evidence grew old: where the beginning of an episode can no longer be read, it
    /// goes on under its id, or stays as it was last stated until all of it is beyond what the ledger keeps.
    fn carry(&self, before: &[Finding], mut now: Vec<Finding>) -> Vec<Finding> {
        let is_unread = |held: &&Finding| {
            held.first_seen.is_some_and(|first| self.before.is_some_and(|edge| first < edge))
        };
        for held in before.iter().filter(is_unread) {
            if now.iter().any(|finding| finding.id == held.id) {
                continue;
            }
            let goes_on = now.iter_mut().find(|finding| {
                finding.detector == held.detector
                    && finding.subject == held.subject
                    && finding.cause == held.cause
                    && finding.first_seen > held.first_seen
                    && before.iter().all(|other| other.id != finding.id)
            });
            if let Some(finding) = goes_on {
                finding.id = held.id.clone();
                finding.first_seen = held.first_seen;
                finding.confidence = finding.confidence.max(held.confidence);
                finding.count = finding.count.max(held.count);
                finding.tokens = finding.tokens.max(held.tokens);
            } else if held.last_seen >= self.gone {
                now.push(held.clone());
            }
        }
        now
    }
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
        // Earlier evidence arrived late: the same episode goes on under the id of its true beginning. It has the same
        // cause, or stands on a line on which the other stood. So does one that more workers turn out to be part of.
        let superseded = kept.iter().any(|finding| {
            let is_earlier = || finding.cause == held.cause && finding.first_seen < held.first_seen;
            let is_same = finding.detector == held.detector && finding.subject == held.subject;
            (is_same && (is_earlier() || on_one_line(held, finding))) || is_part_of(held, finding)
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
    use kvprov_model::finding::{Cause, Confidence, Detector, Evidence};
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
    fn one_of_more_workers_on_the_same_line_supersedes() {
        let line = Evidence { source: "e.jsonl".to_owned(), line: 3, says: "stored".to_owned() };
        let of = |workers: &[&str]| Finding {
            subject: workers.join(", "),
            id: FindingId::from(workers.concat().as_str()),
            workers: workers.iter().map(|one| (*one).to_owned()).collect(),
            evidence: vec![line.clone()],
            ..finding(10, Confidence::Confirmed)
        };
        assert_eq!(
            states(&[of(&["a", "b"])], vec![of(&["a", "b", "c"])]),
            [FindingState::Opened, FindingState::Superseded]
        );
        assert_eq!(
            states(&[of(&["a", "b"])], vec![of(&["b", "c"])]),
            [FindingState::Opened, FindingState::Resolved]
        );
    }

    #[test]
    fn a_half_that_another_subject_absorbs_is_superseded() {
        let line = Evidence { source: "p.log".to_owned(), line: 21, says: "failed".to_owned() };
        let of = |workers: &[&str], state: FindingState| Transition {
            finding: Finding {
                state,
                subject: workers[0].to_owned(),
                workers: workers.iter().map(|one| (*one).to_owned()).collect(),
                evidence: vec![line.clone()],
                ..finding(10, Confidence::Confirmed)
            },
        };
        let of_both = of(&["d", "p"], FindingState::Opened);
        let mut transitions = [of(&["p"], FindingState::Resolved), of_both.clone()];
        mark_absorbed(&mut transitions);
        assert_eq!(transitions[0].finding.state, FindingState::Superseded);
        let mut transitions = [of(&["x"], FindingState::Resolved), of_both];
        mark_absorbed(&mut transitions);
        assert_eq!(transitions[0].finding.state, FindingState::Resolved);
    }

    #[test]
    fn a_finding_whose_evidence_can_no_longer_be_read_stays_as_it_is() {
        let unread = Unread { before: Some(WallTime(15)), gone: Some(WallTime(5)) };
        let old = finding(10, Confidence::Confirmed);
        assert_eq!(unread.carry(std::slice::from_ref(&old), Vec::new()), [old]);
    }

    #[test]
    fn an_episode_whose_beginning_can_no_longer_be_read_keeps_its_id() {
        let unread = Unread { before: Some(WallTime(15)), gone: Some(WallTime(5)) };
        let (old, now) = (finding(10, Confidence::Confirmed), finding(20, Confidence::Suspected));
        let carried = unread.carry(std::slice::from_ref(&old), vec![now]);
        assert_eq!((&carried[0].id, carried[0].confidence), (&old.id, Confidence::Confirmed));
        assert_eq!(states(&[old], carried), [FindingState::Changed]);
    }

    #[test]
    fn a_finding_older_than_what_the_ledger_keeps_ends() {
        let unread = Unread { before: Some(WallTime(15)), gone: Some(WallTime(12)) };
        assert_eq!(unread.carry(&[finding(10, Confidence::Confirmed)], Vec::new()), []);
    }

    #[test]
    fn a_finding_that_can_still_be_read_is_not_carried() {
        let unread = Unread { before: Some(WallTime(10)), gone: None };
        assert_eq!(unread.carry(&[finding(10, Confidence::Confirmed)], Vec::new()), []);
    }

    #[test]
    fn a_finding_that_is_no_longer_stated_is_resolved() {
        assert_eq!(states(&[finding(10, Confidence::Confirmed)], Vec::new()), [FindingState::Resolved]);
    }
}
