//! The handle that every source has: puts observations into the queue, and signs of life.

use super::encode::QUEUE_STREAM;
use super::queue::{Committed, Queue};
use super::stats::QueueStats;
use super::{QueueConfig, QueueError};
use kvprov_model::clock::{MonotonicTime, WallTime};
use kvprov_model::id::ObservationId;
use kvprov_model::observation::{Alive, Body, Clock, Envelope, Observation, SCHEMA_VERSION, SourceKind};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

/// Puts observations into a queue. Clones share it.
#[derive(Debug, Clone)]
pub struct Outbox {
    queue: Arc<Queue>,
}

impl Outbox {
    /// Opens the queue of a directory; see [`Queue::open`].
    pub fn open(config: QueueConfig) -> Result<Self, QueueError> {
        Ok(Self { queue: Arc::new(Queue::open(config)?) })
    }

    /// Appends observations. When it returns they survive the end of this process, unless
    /// [`Committed::durable`] says otherwise; a source may then save a position behind them.
    pub fn append(&self, observations: &[Observation]) -> Result<Committed, QueueError> {
        self.queue.append(observations)
    }

    /// Everything that was appended is on disk.
    pub fn is_durable(&self) -> bool {
        self.queue.is_durable()
    }

    /// Forces what was written to the disk: then it survives a loss of power too. May take as long as the disk does.
    pub fn sync(&self) -> Result<(), QueueError> {
        self.queue.sync()
    }

    /// Waits until everything appended so far has been delivered, or for at most `patience`; true when it has.
    pub fn flush(&self, patience: Duration) -> bool {
        self.queue.flush(patience)
    }

    /// Takes no more appends; what waits is kept on disk.
    pub fn close(&self) {
        self.queue.close();
    }

    /// Says that everything up to `wall` was appended for these streams. To be called about once a second, after the
    /// sources appended what they had.
    pub fn alive(&self, streams: Vec<String>, wall: WallTime) -> Result<Committed, QueueError> {
        self.append(&[self.own("alive", wall, None, Body::Alive(Alive { streams }))])
    }

    /// Says what both clocks of the node show at one moment. To be called once a minute, and after the wall clock was
    /// set. The collector estimates the offset from when it arrives.
    pub fn clock(&self, monotonic: MonotonicTime, wall: WallTime) -> Result<Committed, QueueError> {
        self.append(&[self.own("clock", wall, Some(monotonic), Body::Clock(Clock::default()))])
    }

    /// What the queue holds and what became of the rest.
    pub fn stats(&self) -> QueueStats {
        self.queue.stats()
    }

    /// The queue, for a shipper.
    pub fn queue(&self) -> Arc<Queue> {
        Arc::clone(&self.queue)
    }

    fn own(&self, what: &str, wall: WallTime, monotonic: Option<MonotonicTime>, body: Body) -> Observation {
        let speaker = &self.queue.speaker;
        let boot = speaker.boot_id.as_deref().unwrap_or("");
        let instance = format!("{QUEUE_STREAM}/{what}/{}/{boot}", speaker.node);
        Observation {
            envelope: Envelope {
                schema_version: SCHEMA_VERSION,
                // A clock that was set back may show a time again; it then says the same.
                id: ObservationId::derive(&instance, 0, wall.0.cast_unsigned(), 0),
                node: speaker.node.clone(),
                boot_id: speaker.boot_id.clone(),
                worker: None,
                source: SourceKind::Other("agent".to_owned()),
                stream: what.to_owned(),
                position: 0,
                monotonic,
                wall: Some(wall),
                says: None,
            },
            body,
            extra: BTreeMap::new(),
            resource: BTreeMap::new(),
        }
    }
}
