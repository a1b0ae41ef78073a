//! A parcel: one export request on disk.
//!
//! The file: `kvt1`, a byte for who made the spans, their number (u32, little endian), the first eight bytes of the SHA-256
//! of the request, the request. It is written beside its place and renamed, so that a killed process leaves it whole or
//! not at all; a loss of power may leave less, which the hash shows.

use super::stats::Origin;
use prost::bytes::Bytes;
use sha2::{Digest as _, Sha256};

const MAGIC: &[u8; 4] = b"kvt1";
const HEAD: usize = 4 + 1 + 4 + 8;

/// A request that waits.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Parcel {
    /// Who made the spans.
    pub(super) origin: Origin,
    /// How many there are.
    pub(super) spans: u64,
    /// An `ExportTraceServiceRequest`.
    pub(super) request: Bytes,
}

/// The bytes of a file.
pub(super) fn write(origin: Origin, spans: u64, request: &[u8]) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(HEAD + request.len());
    bytes.extend_from_slice(MAGIC);
    bytes.push(match origin {
        Origin::Kvprov => b'k',
        Origin::Engine => b'e',
    });
    bytes.extend_from_slice(&u32::try_from(spans).unwrap_or(u32::MAX).to_le_bytes());
    bytes.extend_from_slice(&Sha256::digest(request)[..8]);
    bytes.extend_from_slice(request);
    bytes
}

/// Reads a file; `None`: it is damaged.
pub(super) fn read(bytes: Vec<u8>) -> Option<Parcel> {
    let (origin, spans) = head(&bytes)?;
    let hash = bytes.get(9..HEAD)?;
    if Sha256::digest(bytes.get(HEAD..)?)[..8] != *hash {
        return None;
    }
    let mut request = Bytes::from(bytes);
    Some(Parcel { origin, spans, request: request.split_off(HEAD) })
}

/// Who made the spans and how many there are, from the begin of a file.
pub(super) fn head(bytes: &[u8]) -> Option<(Origin, u64)> {
    let origin = match (bytes.get(..4)? == MAGIC, bytes.get(4)?) {
        (true, b'k') => Origin::Kvprov,
        (true, b'e') => Origin::Engine,
        _ => return None,
    };
    let spans: [u8; 4] = bytes.get(5..9)?.try_into().ok()?;
    Some((origin, u64::from(u32::from_le_bytes(spans))))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn a_file_is_read_as_it_was_written_or_not_at_all(
            request in proptest::collection::vec(any::<u8>(), 0..200), cut in 0usize..250, flip in 0usize..250
        ) {
            let bytes = write(Origin::Engine, 7, &request);
            let whole = Parcel { origin: Origin::Engine, spans: 7, request: Bytes::from(request) };
            prop_assert_eq!(read(bytes.clone()), Some(whole.clone()));
            let short = bytes[..cut.min(bytes.len())].to_vec();
            prop_assert!(short.len() == bytes.len() || read(short).is_none());
            let mut flipped = bytes.clone();
            if let Some(byte) = flipped.get_mut(9 + flip) {
                *byte ^= 1;
                prop_assert_eq!(read(flipped), None);
            }
            let _ = read(bytes[4..].to_vec());
        }
    }
}
