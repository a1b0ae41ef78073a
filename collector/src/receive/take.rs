//! From the bytes of a request to an answer, whatever protocol they came by.
//!
//! Order: measure, reserve memory, decode, refuse what is foreign, judge the clock, hand in, wait until the ledger has
//! it. Invariant: nothing is acknowledged that the ledger does not have, and every record that is not acknowledged is
//! refused by number and counted by reason.

use super::clocks::{Clocks, is_far_ahead};
use super::config::ReceiveConfig;
use super::stats::{Counters, Outcome};
use super::{Beside, json, shape, spans};
use crate::intake::{Batch, Intake, Refusal};
use crate::otlp::content;
use crate::otlp::spans::ExportTraceServiceResponse;
use kvprov_model::clock::ReceiveTime;
use kvprov_model::observation::otlp::{self, OtlpError};
use kvprov_model::observation::{Body, Observation};
use kvprov_model::value::Value;
use opentelemetry_proto::tonic::collector::logs::v1::{ExportLogsPartialSuccess, ExportLogsServiceResponse};
use prost::Message as _;
use prost::bytes::Bytes;
use std::sync::Arc;
use std::time::{Duration, SystemTime};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::timeout;

/// The stage under which losses of receiving are counted.
const STAGE: &str = "receive";
/// Unit in which memory is reserved, in bytes.
const UNIT: u64 = 1024;
/// When a sender should come again where nothing else is known.
const AGAIN: Duration = Duration::from_secs(1);
/// The time that an observation claims and that is too far ahead to be used.
pub const CLAIMED_WALL: &str = "kvprov.claimed_wall_ns";
/// The name by which agents of ours present themselves.
const OWN_AGENT: &str = "kvprov-agent";
/// Resource attributes that describe our agent and not what it saw.
const OF_THE_AGENT: [&str; 6] =
    ["service.", "telemetry.", "process.", "k8s.pod.", "k8s.container.", "k8s.daemonset."];

/// The bytes of a request.
#[derive(Debug, Clone)]
pub(super) enum Payload {
    Protobuf(Bytes),
    Json(Bytes),
}

/// Why a request was not taken.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(super) enum NotTaken {
    /// It is no request. Never to be sent again.
    #[error("not an OTLP request: {0}")]
    Malformed(String),
    /// It is more than is ever taken at once.
    #[error("too large: {0}; send less at once")]
    TooLarge(String),
    /// Too much is under way.
    #[error("the collector is behind: {reason}; send again in {} ms", after.as_millis())]
    Busy { reason: String, after: Duration },
    /// It cannot be kept now.
    #[error("{reason}")]
    Unavailable { reason: String, after: Duration },
}

impl NotTaken {
    fn outcome(&self) -> Outcome {
        match self {
            Self::Malformed(_) => Outcome::Malformed,
            Self::TooLarge(_) => Outcome::TooLarge,
            Self::Busy { .. } => Outcome::Busy,
            Self::Unavailable { .. } => Outcome::Unavailable,
        }
    }
}

/// What all protocols share.
pub(super) struct Taker {
    pub(super) config: ReceiveConfig,
    intake: Arc<dyn Intake>,
    beside: Beside,
    pub(super) counters: Arc<Counters>,
    /// Memory for requests that are being decoded or wait for the ledger.
    memory: Arc<Semaphore>,
    /// Requests whose bytes are being read.
    slots: Arc<Semaphore>,
}

impl Taker {
    pub(super) fn new(config: ReceiveConfig, intake: Arc<dyn Intake>, beside: Beside) -> Self {
        let units = (config.memory_bytes / UNIT).clamp(1, Semaphore::MAX_PERMITS as u64 / 2) as usize;
        let slots = config.requests.max(1);
        Self {
            config,
            intake,
            beside,
            counters: Arc::default(),
            memory: Arc::new(Semaphore::new(units)),
            slots: Arc::new(Semaphore::new(slots)),
        }
    }

    /// Room to read one request; to be held until it is answered.
    pub(super) fn slot(&self) -> Result<OwnedSemaphorePermit, NotTaken> {
        Arc::clone(&self.slots).try_acquire_owned().map_err(|_| NotTaken::Busy {
            reason: format!("{} requests are being read", self.config.requests),
            after: AGAIN,
        })
    }

    /// The clocks of the nodes that were heard of.
    pub(super) fn clocks(&self) -> Arc<Clocks> {
        Arc::clone(&self.beside.clocks)
    }

    /// Takes spans of engines; the answer comes when the ledger has what tells of requests, and when all of them wait to
    /// be handed on where they are.
    pub(super) async fn take_spans(&self, bytes: Bytes) -> Result<ExportTraceServiceResponse, NotTaken> {
        let result = self.take_spans_unseen(bytes).await;
        self.counters.span_request(match &result {
            Ok(_) => Outcome::Ok,
            Err(error) => error.outcome(),
        });
        result.map(|()| ExportTraceServiceResponse::default())
    }

    async fn take_spans_unseen(&self, bytes: Bytes) -> Result<(), NotTaken> {
        // They are walked where they lie; beside the bytes there is only what is kept of them.
        let _room = self.reserve(bytes.len() as u64)?;
        let read = spans::read(&bytes, self.beside.packs.spans(), now())
            .ok_or_else(|| NotTaken::Malformed("no protobuf of spans".to_owned()))?;
        let total = read.total;
        let told = read.legs.len() as u64;
        let lost = [("span_without_id", read.without_id), ("too_many_spans", read.too_many)];
        if !read.legs.is_empty() {
            self.hand_in(Batch { observations: read.legs }).await?;
        }
        // Not before the ledger has them: what is sent again merges there, and would be handed on twice.
        if let Some(forward) = &self.beside.forward {
            let (bytes, removed) = content::without(bytes);
            self.counters.content_removed(removed);
            forward.forward(bytes, total).map_err(|reason| NotTaken::Unavailable { reason, after: AGAIN })?;
        }
        for (reason, records) in lost {
            if records > 0 {
                self.intake.lost(STAGE, reason, records);
            }
        }
        self.counters.spans(told, read.unknown, lost.iter().map(|(_, records)| records).sum());
        Ok(())
    }

    /// Takes a request; the answer comes when the ledger has it.
    pub(super) async fn take(&self, payload: Payload) -> Result<ExportLogsServiceResponse, NotTaken> {
        let result = self.take_unseen(payload).await;
        self.counters.request(match &result {
            Ok(response) if response.partial_success.is_none() => Outcome::Ok,
            Ok(_) => Outcome::Partial,
            Err(error) => error.outcome(),
        });
        result
    }

    async fn take_unseen(&self, payload: Payload) -> Result<ExportLogsServiceResponse, NotTaken> {
        let bytes = match payload {
            Payload::Protobuf(bytes) => bytes,
            Payload::Json(text) => {
                Bytes::from(json::read(&text).map_err(NotTaken::Malformed)?.encode_to_vec())
            }
        };
        let shape = shape::measure(&bytes)
            .ok_or_else(|| NotTaken::Malformed("no protobuf, or nested too deep".to_owned()))?;
        let _room = self.reserve(shape.memory)?;
        let received = now();
        let decoded = otlp::decode(&bytes).map_err(|error| NotTaken::Malformed(error.to_string()))?;
        drop(bytes);

        let refusal = self.count_skipped(&decoded.skipped);
        let mut rejected = decoded.skipped.len() as u64;
        let mut observations = decoded.observations;
        for observation in &mut observations {
            self.look_at(observation, received);
        }
        if !observations.is_empty() {
            rejected += self.hand_in(Batch { observations }).await?;
        }
        let partial = (rejected > 0).then(|| ExportLogsPartialSuccess {
            rejected_log_records: i64::try_from(rejected).unwrap_or(i64::MAX),
            error_message: refusal.unwrap_or_else(|| {
                "the ledger never takes these: too old, too large, or of too many nodes".to_owned()
            }),
        });
        Ok(ExportLogsServiceResponse { partial_success: partial })
    }

    fn reserve(&self, memory: u64) -> Result<OwnedSemaphorePermit, NotTaken> {
        let most = self.config.memory_bytes / 2;
        if memory > most {
            return Err(NotTaken::TooLarge(format!(
                "it takes about {memory} bytes of memory, at most {most} are allowed"
            )));
        }
        let units = u32::try_from(memory / UNIT + 1).unwrap_or(u32::MAX);
        Arc::clone(&self.memory).try_acquire_many_owned(units).map_err(|_| NotTaken::Busy {
            reason: format!("{} bytes of requests are under way", self.config.memory_bytes),
            after: AGAIN,
        })
    }

    /// Counts what is no observation; words about the first.
    fn count_skipped(&self, skipped: &[OtlpError]) -> Option<String> {
        let foreign =
            skipped.iter().filter(|error| matches!(error, OtlpError::Foreign { .. })).count() as u64;
        let incomplete = skipped.len() as u64 - foreign;
        for (reason, records) in [("foreign", foreign), ("incomplete", incomplete)] {
            if records > 0 {
                self.intake.lost(STAGE, reason, records);
            }
        }
        self.counters.skipped(foreign, incomplete);
        // The words hold a name that the sender chose; it gets it back and nobody else, cut to a sensible length.
        skipped.first().map(|error| error.to_string().chars().take(300).collect())
    }

    /// Counts what is unknown in an observation, takes out what describes the sender, and judges the time.
    fn look_at(&self, observation: &mut Observation, received: ReceiveTime) {
        let unknown_kind = matches!(observation.body, Body::Unknown { .. });
        self.counters.observation(unknown_kind, observation.extra.len() as u64);
        if matches!(observation.resource.get("service.name"), Some(Value::Str(name)) if name == OWN_AGENT) {
            observation.resource.retain(|name, _| OF_THE_AGENT.iter().all(|own| !name.starts_with(own)));
        }
        let envelope = &mut observation.envelope;
        let Some(wall) = envelope.wall else { return };
        if is_far_ahead(wall, received) {
            // It would move the node's watermark to a time that is not, and expire what is really new.
            envelope.wall = None;
            observation.extra.insert(CLAIMED_WALL.to_owned(), Value::Int(wall.0));
            self.counters.far_ahead();
            let times = self.beside.clocks.far_ahead(&envelope.node);
            if times.is_power_of_two() {
                tracing::warn!(
                    node = %envelope.node,
                    ahead_s = wall.0.saturating_sub(received.0) / kvprov_model::clock::SECOND,
                    times,
                    "a time is far ahead of the collector's clock and is not used; set the clock of one of them"
                );
            }
        } else if matches!(observation.body, Body::Alive(_) | Body::Clock(_)) {
            self.beside.clocks.saw(&envelope.node, wall, received);
        }
    }

    /// Waits until the ledger has a batch; the number of observations that it will never take.
    async fn hand_in(&self, batch: Batch) -> Result<u64, NotTaken> {
        let unavailable = |reason: String| NotTaken::Unavailable { reason, after: AGAIN };
        let Ok(answer) = timeout(self.config.patience, self.intake.offer(batch)).await else {
            // It may still be merged; then the next delivery is a duplicate, which is nothing.
            return Err(unavailable("the ledger did not answer in time".to_owned()));
        };
        match answer {
            Ok(accepted) => Ok(accepted.refused),
            Err(Refusal::Busy { waiting, retry_after }) => {
                Err(NotTaken::Busy { reason: format!("{waiting} observations wait"), after: retry_after })
            }
            Err(refusal @ (Refusal::Stopping | Refusal::Ledger { .. })) => {
                Err(unavailable(refusal.to_string()))
            }
        }
    }
}

fn now() -> ReceiveTime {
    let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    ReceiveTime(i64::try_from(since.as_nanos()).unwrap_or(i64::MAX))
}
