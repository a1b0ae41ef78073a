//! Where an observation stands in the order of its node and of every view, and where its record lies.
//!
//! A *position* sorts the observations of a view: undated ones first by (hash of stream, position in it, id), then
//! by (wall time, id). It is a function of the observation. A *place* is where this replica happens to keep it.

use super::codec::time_order;
use super::key::hash_name;
use kvprov_model::id::ObservationId;
use kvprov_model::observation::Envelope;
use std::cmp::Ordering;

const ID_BYTES: usize = 16;
const DATED_BYTES: usize = 1 + 8 + ID_BYTES;
const UNDATED_BYTES: usize = 1 + 8 + 8 + ID_BYTES;

/// A position, held in place.
#[derive(Debug, Clone, Copy)]
pub(super) struct Position {
    bytes: [u8; UNDATED_BYTES],
    dated: bool,
}

/// Where a record lies: in a batch, by its number there.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Place {
    /// The batch it came in.
    pub(super) batch: u64,
    /// Its number in the batch; blocks begin at the multiples of [`super::block::SLOTS`].
    pub(super) index: u32,
}

// === impl Position ===

impl Position {
    /// The position of an observation.
    pub(super) fn of(envelope: &Envelope) -> Self {
        let mut position = Self { bytes: [0; UNDATED_BYTES], dated: envelope.wall.is_some() };
        match envelope.wall {
            Some(wall) => position.bytes[..9].copy_from_slice(&time_order(wall)),
            None => {
                position.bytes[1..9].copy_from_slice(&hash_name(&envelope.stream)[..8]);
                let order = envelope.position.cast_unsigned() ^ (1 << 63);
                position.bytes[9..17].copy_from_slice(&order.to_be_bytes());
            }
        }
        let length = Self::length(position.dated);
        position.bytes[length - ID_BYTES..length].copy_from_slice(&envelope.id.0);
        position
    }

    /// Reads what [`Position::as_bytes`] gave.
    pub(super) fn read(bytes: &[u8]) -> Option<Self> {
        let dated = *bytes.first()? == 1;
        if bytes.len() != Self::length(dated) {
            return None;
        }
        let mut position = Self { bytes: [0; UNDATED_BYTES], dated };
        position.bytes[..bytes.len()].copy_from_slice(bytes);
        Some(position)
    }

    /// Bytes that the positions of a lane take.
    pub(super) fn length(dated: bool) -> usize {
        if dated { DATED_BYTES } else { UNDATED_BYTES }
    }

    pub(super) fn as_bytes(&self) -> &[u8] {
        &self.bytes[..Self::length(self.dated)]
    }

    /// Whether a clock dated it.
    pub(super) fn is_dated(&self) -> bool {
        self.dated
    }

    /// The least position that is greater, as a floor.
    pub(super) fn successor(&self) -> Vec<u8> {
        [self.as_bytes(), &[0]].concat()
    }

    /// The observation that stands here.
    pub(super) fn id(&self) -> ObservationId {
        let mut id = [0; ID_BYTES];
        let bytes = self.as_bytes();
        id.copy_from_slice(&bytes[bytes.len() - ID_BYTES..]);
        ObservationId(id)
    }
}

impl PartialEq for Position {
    fn eq(&self, other: &Self) -> bool {
        self.as_bytes() == other.as_bytes()
    }
}

impl Eq for Position {}

impl PartialOrd for Position {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Position {
    fn cmp(&self, other: &Self) -> Ordering {
        self.as_bytes().cmp(other.as_bytes())
    }
}

// === impl Place ===

impl Place {
    pub(super) fn to_bytes(self) -> [u8; 12] {
        let mut bytes = [0; 12];
        bytes[..8].copy_from_slice(&self.batch.to_be_bytes());
        bytes[8..].copy_from_slice(&self.index.to_be_bytes());
        bytes
    }

    pub(super) fn read(bytes: &[u8]) -> Option<Self> {
        let (batch, index) = bytes.split_first_chunk::<8>()?;
        Some(Self { batch: u64::from_be_bytes(*batch), index: u32::from_be_bytes(index.try_into().ok()?) })
    }
}
