//! What readers see: snapshots that the ledger's thread pins up and never changes.
//!
//! A reader takes a snapshot and is done with the board; the ledger's thread waits for nobody.

use super::pages::{Survey, WorkerEntry};
use super::totals::Totals;
use kvprov_model::finding::Finding;
use std::collections::BTreeMap;
use std::sync::{Arc, RwLock};
use std::time::{Duration, Instant};
use tokio::sync::watch;

/// Numbers of the running collector itself.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Numbers {
    /// Observations that came, by kind; duplicates too.
    pub observations: BTreeMap<String, u64>,
    /// Records lost, by stage and reason.
    pub lost: BTreeMap<(String, String), u64>,
    /// Observations that were new to the ledger.
    pub added: u64,
    /// Observations that the ledger held already.
    pub duplicates: u64,
    /// Observations that retention removed.
    pub removed: u64,
    /// Batches merged.
    pub batches: u64,
    /// Time spent on merging.
    pub merging: Duration,
    /// Evaluations of subjects.
    pub evaluations: u64,
    /// Time spent on evaluating.
    pub evaluating: Duration,
    /// What the longest evaluation took.
    pub longest: Duration,
    /// Time spent on pages.
    pub paging: Duration,
    /// Subjects known.
    pub subjects: usize,
    /// Subjects that are due and wait.
    pub due: usize,
    /// Subjects that wait for a node to be heard.
    pub awaiting: usize,
    /// Nodes heard of.
    pub nodes: usize,
    /// Nodes that fell silent.
    pub silent: usize,
    /// Bytes of the ledger on disk; `None` where it is in memory.
    pub ledger_bytes: Option<u64>,
    /// Times at which the ledger failed.
    pub failures: u64,
}

/// One state of everything that readers see.
#[derive(Debug, Clone, Default)]
pub struct Seen {
    /// Findings that stand, surest first.
    pub findings: Arc<Vec<Finding>>,
    /// Workers.
    pub workers: Arc<Vec<WorkerEntry>>,
    /// What takes long to gather; `None` before the first time.
    pub survey: Option<Arc<Survey>>,
    /// Counters over the life of the ledger.
    pub totals: Arc<Totals>,
    /// Numbers of the collector itself.
    pub numbers: Arc<Numbers>,
    /// Whether everything that the ledger held at the start has been evaluated.
    pub ready: bool,
    /// Why the ledger fails, while it does.
    pub failing: Option<String>,
    /// What is wrong with the file of expected revisions, while it is.
    pub misdeclared: Option<String>,
}

/// The board.
#[derive(Debug)]
pub struct Board {
    seen: RwLock<Seen>,
    /// When somebody last asked for a survey.
    asked: RwLock<Option<Instant>>,
    /// Counts surveys, so that a reader can wait for the next one.
    surveys: watch::Sender<u64>,
}

// === impl Board ===

impl Default for Board {
    fn default() -> Self {
        Self { seen: RwLock::default(), asked: RwLock::default(), surveys: watch::Sender::new(0) }
    }
}

impl Board {
    /// What is pinned up now.
    pub fn seen(&self) -> Seen {
        self.seen.read().map(|seen| seen.clone()).unwrap_or_default()
    }

    /// Pins up what is wrong with the file of expected revisions; `None`: nothing is.
    pub(crate) fn declare(&self, wrong: Option<String>) {
        self.pin(|seen| seen.misdeclared = wrong);
    }

    /// Changes what is pinned up.
    pub(super) fn pin(&self, change: impl FnOnce(&mut Seen)) {
        if let Ok(mut seen) = self.seen.write() {
            change(&mut seen);
        }
    }

    /// Pins up a survey and wakes who waits for one.
    pub(super) fn pin_survey(&self, survey: Survey) {
        self.pin(|seen| seen.survey = Some(Arc::new(survey)));
        self.surveys.send_modify(|count| *count += 1);
    }

    /// The survey, after telling the ledger's thread that somebody wants it fresh; waits for the first one. `None`: none
    /// came in time.
    pub async fn survey(&self, patience: Duration) -> Option<Arc<Survey>> {
        if let Ok(mut asked) = self.asked.write() {
            *asked = Some(Instant::now());
        }
        if let Some(survey) = self.seen().survey {
            return Some(survey);
        }
        let mut surveys = self.surveys.subscribe();
        let _ = tokio::time::timeout(patience, surveys.wait_for(|count| *count > 0)).await;
        self.seen().survey
    }

    /// Whether somebody asked for a survey within this time.
    pub(super) fn asked_within(&self, time: Duration) -> bool {
        self.asked.read().ok().and_then(|asked| *asked).is_some_and(|asked| asked.elapsed() < time)
    }
}
