//! What the queue lost, as observations: one a worker and reason, so that who asks about a worker hears of it.
//!
//! Invariant: at most [`MAX_WORKERS`] workers are told apart; beyond, losses are the node's.

use super::encode::QUEUE_STREAM;
use super::frame::Record;
use kvprov_model::clock::WallTime;
use kvprov_model::id::{NodeId, ObservationId, WorkerId};
use kvprov_model::observation::{Body, Envelope, Loss, Observation, SCHEMA_VERSION, SourceKind, otlp};
use kvprov_model::value::Value;
use std::collections::BTreeMap;

/// Workers that are told apart.
const MAX_WORKERS: usize = 256;
/// The stage that every loss of the queue has.
pub(super) const STAGE: &str = "ship";
/// Extra attribute: the earliest wall time among what was lost.
const SINCE: &str = "kvprov.lost_since_ns";
/// Extra attribute: the latest wall time among what was lost.
const UNTIL: &str = "kvprov.lost_until_ns";

/// Why records were lost on their way. A closed list; labels of metrics.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Reason {
    /// The queue was full: the receiver is away for too long, or too slow.
    QueueFull,
    /// The disk was full, and so was the room in memory.
    DiskFull,
    /// One record was longer than the queue takes.
    Oversized,
    /// A segment could not be read back.
    Damaged,
    /// The receiver refused a whole request, and said that it always will.
    Refused,
    /// The receiver took a request and refused some of its records.
    Rejected,
}

/// Losses by worker and reason.
#[derive(Debug, Default)]
pub(super) struct Tally(BTreeMap<(Option<String>, Reason), Lost>);

/// How much was lost.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Lost {
    pub(super) records: u64,
    pub(super) bytes: u64,
    /// Earliest and latest wall time of the records.
    pub(super) window: Option<(i64, i64)>,
}

/// Who speaks in a loss observation.
#[derive(Debug, Clone)]
pub(super) struct Speaker {
    pub(super) node: NodeId,
    pub(super) boot_id: Option<String>,
}

// === impl Reason ===

impl Reason {
    /// Every reason.
    pub const ALL: [Self; 6] =
        [Self::QueueFull, Self::DiskFull, Self::Oversized, Self::Damaged, Self::Refused, Self::Rejected];

    /// The word in observations and metrics.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::QueueFull => "queue_full",
            Self::DiskFull => "disk_full",
            Self::Oversized => "oversized",
            Self::Damaged => "damaged",
            Self::Refused => "refused",
            Self::Rejected => "rejected",
        }
    }

    fn parse(word: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|reason| reason.as_str() == word)
    }
}

// === impl Tally ===

impl Tally {
    /// Nothing was lost.
    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Counts a record that is lost.
    pub(super) fn record(&mut self, reason: Reason, record: &Record<'_>) {
        let window = record.wall.map(|wall| (wall, wall));
        self.add(record.worker, reason, Lost { records: 1, bytes: record.payload.len() as u64, window });
    }

    /// Counts a loss.
    pub(super) fn add(&mut self, worker: Option<&str>, reason: Reason, lost: Lost) {
        let known = self.0.len() < MAX_WORKERS || self.0.keys().any(|(name, _)| name.as_deref() == worker);
        let worker = worker.filter(|_| known).map(str::to_owned);
        let entry = self.0.entry((worker, reason)).or_default();
        entry.records = entry.records.saturating_add(lost.records);
        entry.bytes = entry.bytes.saturating_add(lost.bytes);
        entry.window = match (entry.window, lost.window) {
            (Some((from, to)), Some((since, until))) => Some((from.min(since), to.max(until))),
            (window, None) => window,
            (None, window) => window,
        };
    }

    /// Takes back a loss that an earlier tally reported and that was not sent; false where the bytes are none.
    pub(super) fn fold(&mut self, resource: &[u8], payload: &[u8]) -> bool {
        let request = super::wire::request(&[super::wire::Group { resource, records: vec![payload] }]);
        let Ok(decoded) = otlp::decode(&request) else { return false };
        let Some(observation) = decoded.observations.into_iter().next() else { return false };
        let Body::Loss(loss) = &observation.body else { return false };
        let Some(reason) = loss.reason.as_deref().and_then(Reason::parse) else { return false };
        let number = |value: Option<i64>| value.and_then(|value| u64::try_from(value).ok()).unwrap_or(0);
        let at = |name: &str| match observation.extra.get(name) {
            Some(Value::Int(at)) => Some(*at),
            _ => None,
        };
        let lost = Lost {
            records: number(loss.records),
            bytes: number(loss.bytes),
            window: at(SINCE).zip(at(UNTIL)),
        };
        self.add(observation.envelope.worker.as_ref().map(WorkerId::as_str), reason, lost);
        true
    }

    /// Records by reason.
    pub(super) fn by_reason(&self) -> BTreeMap<Reason, u64> {
        let mut sums = BTreeMap::new();
        for ((_, reason), lost) in &self.0 {
            *sums.entry(*reason).or_default() += lost.records;
        }
        sums
    }

    /// The observations. `generation` and `offset` never come twice on a node.
    pub(super) fn observations(&self, speaker: &Speaker, generation: u64, offset: u64) -> Vec<Observation> {
        let instance =
            format!("{QUEUE_STREAM}/{}/{}", speaker.node, speaker.boot_id.as_deref().unwrap_or(""));
        let numbered = self.0.iter().zip(0u32..);
        numbered
            .map(|(((worker, reason), lost), index)| {
                let body = Body::Loss(Loss {
                    stage: Some(STAGE.to_owned()),
                    reason: Some(reason.as_str().to_owned()),
                    records: Some(i64::try_from(lost.records).unwrap_or(i64::MAX)),
                    bytes: Some(i64::try_from(lost.bytes).unwrap_or(i64::MAX)),
                });
                let window = lost.window.into_iter().flat_map(|(since, until)| {
                    [(SINCE.to_owned(), Value::Int(since)), (UNTIL.to_owned(), Value::Int(until))]
                });
                Observation {
                    envelope: Envelope {
                        schema_version: SCHEMA_VERSION,
                        id: ObservationId::derive(&instance, generation, offset, index),
                        node: speaker.node.clone(),
                        boot_id: speaker.boot_id.clone(),
                        worker: worker.as_deref().map(WorkerId::from),
                        source: SourceKind::Other("agent".to_owned()),
                        stream: QUEUE_STREAM.to_owned(),
                        position: 0,
                        monotonic: None,
                        wall: lost.window.map(|(_, until)| WallTime(until)),
                        says: None,
                    },
                    body,
                    extra: window.collect(),
                    resource: BTreeMap::new(),
                }
            })
            .collect()
    }
}
