//! What every reader shares: who speaks, and how a place in a source becomes an observation with a stable id.

pub mod bounded;
pub mod lines;
pub mod losses;

use kvprov_model::clock::WallTime;
use kvprov_model::id::{NodeId, ObservationId, WorkerId};
use kvprov_model::observation::{Body, Envelope, Observation, SCHEMA_VERSION, SourceKind};
use std::collections::BTreeMap;

/// Takes the observations of a reader.
pub type Sink<'a> = &'a mut dyn FnMut(Observation);

pub use losses::Losses;

/// One source of one worker.
#[derive(Debug, Clone)]
pub struct SourceContext {
    /// The node on which the source is.
    pub node: NodeId,
    /// The worker that the source belongs to.
    pub worker: Option<WorkerId>,
    /// The name by which people know the source: a file name, an endpoint.
    pub stream: String,
    /// What makes ids unique: worker and stream in a bundle; boot, inode and path live.
    pub instance: String,
    /// Counts rotations or restarts of the stream.
    pub generation: u64,
}

/// A place in a source.
#[derive(Debug, Clone, Copy, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct Place {
    /// Line or record from 1, for people.
    pub position: u64,
    /// Byte offset or sequence number, for the id.
    pub offset: u64,
}

impl SourceContext {
    /// An observation at a place. `index` tells apart several observations of one place.
    pub fn observe(
        &self,
        source: SourceKind,
        place: Place,
        index: u32,
        wall: Option<WallTime>,
        says: Option<String>,
        body: Body,
    ) -> Observation {
        Observation {
            envelope: Envelope {
                schema_version: SCHEMA_VERSION,
                id: ObservationId::derive(&self.instance, self.generation, place.offset, index),
                node: self.node.clone(),
                boot_id: None,
                worker: self.worker.clone(),
                source,
                stream: self.stream.clone(),
                position: i64::try_from(place.position).unwrap_or(i64::MAX),
                monotonic: None,
                wall,
                says,
            },
            body,
            extra: BTreeMap::new(),
            resource: BTreeMap::new(),
        }
    }
}
