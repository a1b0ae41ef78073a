//! Observations as frames of the queue.
//!
//! Input: observations of any source. An observation whose record is longer than the queue takes is refused and
//! counted; the others of the same append are written.

use super::frame::{ALIVE, ESSENTIAL, MAX_RECORD, OWN_LOSS, Record, Writer, Written};
use super::record;
use kvprov_model::id::WorkerId;
use kvprov_model::observation::{Body, Observation, otlp};
use opentelemetry_proto::tonic::common::v1::KeyValue;
use prost::Message as _;

/// The stream that the queue's own observations name.
pub(super) const QUEUE_STREAM: &str = "kvprov-queue";

/// What an append writes.
#[derive(Debug, Default)]
pub(super) struct Encoded {
    /// Frames in order.
    pub(super) frames: Vec<Written>,
    /// Records in them.
    pub(super) records: u64,
    /// Bytes of all frames.
    pub(super) bytes: u64,
    /// Observations that were too large.
    pub(super) oversized: u64,
    /// Bytes of these.
    pub(super) oversized_bytes: u64,
}

/// Encodes observations in order. `sender` is added to every resource that does not say it already.
pub(super) fn encode(observations: &[Observation], sender: &[KeyValue]) -> Encoded {
    let mut encoded = Encoded::default();
    let mut payload = Vec::new();
    let mut writer: Option<(&Observation, Writer)> = None;
    for observation in observations {
        payload.clear();
        record::write(observation, &mut payload);
        if payload.len() > MAX_RECORD {
            encoded.oversized += 1;
            encoded.oversized_bytes += payload.len() as u64;
            continue;
        }
        let (of, mut open) = match writer.take() {
            Some((of, open)) if same_resource(of, observation) => (of, open),
            other => {
                if let Some((_, full)) = other {
                    encoded.take(full);
                }
                (observation, Writer::new(resource(observation, sender)))
            }
        };
        if open.is_full() {
            let next = Writer::new(open.resource().to_vec());
            encoded.take(std::mem::replace(&mut open, next));
        }
        open.add(&Record {
            flags: flags(observation),
            worker: observation.envelope.worker.as_ref().map(WorkerId::as_str),
            wall: observation.envelope.wall.map(|wall| wall.0),
            payload: &payload,
        });
        writer = Some((of, open));
    }
    if let Some((_, last)) = writer {
        encoded.take(last);
    }
    encoded
}

fn same_resource(one: &Observation, other: &Observation) -> bool {
    one.envelope.node == other.envelope.node
        && one.envelope.boot_id == other.envelope.boot_id
        && one.resource == other.resource
}

/// The OTLP Resource of an observation, with what describes the sender.
fn resource(observation: &Observation, sender: &[KeyValue]) -> Vec<u8> {
    let request = otlp::to_request(std::slice::from_ref(observation));
    let mut resource =
        request.resource_logs.into_iter().next().and_then(|group| group.resource).unwrap_or_default();
    for attribute in sender {
        if resource.attributes.iter().all(|known| known.key != attribute.key) {
            resource.attributes.push(attribute.clone());
        }
    }
    resource.encode_to_vec()
}

/// What the queue has to know of an observation without decoding it.
fn flags(observation: &Observation) -> u8 {
    match &observation.body {
        Body::Loss(_) if observation.envelope.stream == QUEUE_STREAM => ESSENTIAL | OWN_LOSS,
        // Few, and without them many others mean nothing.
        Body::Worker(_) | Body::WorkerGone(_) | Body::Factor(_) | Body::Loss(_) | Body::AdminCall(_) => {
            ESSENTIAL
        }
        Body::Alive(_) => ALIVE,
        _ => 0,
    }
}

// === impl Encoded ===

impl Encoded {
    /// Takes a frame.
    pub(super) fn take(&mut self, writer: Writer) {
        if let Some(written) = writer.finish() {
            self.records += u64::from(written.records);
            self.bytes += written.bytes.len() as u64;
            self.frames.push(written);
        }
    }
}
