//! The header of a GGUF file: settings by key, then the tensors, then their bytes at an alignment.
//!
//! Source: `docs/gguf.md` and `ggml/src/ggml.c` of ggml-org/ggml, versions 2 and 3. Settings change what the tensors mean
//! (rope, attention, the tokenizer) and are lines of their own. Left out are those of `general.` but the architecture and the
//! version of the quantisation (names, authors, licences), those of `split.`, which say how the tensors are spread over files,
//! and the chat template, which is another factor.

use super::reader::HeaderReader;
use super::{Layout, MAX_TENSORS, Tensor};
use kvprov_model::id::hex;
use sha2::{Digest, Sha256};

/// Most settings of one file.
const MAX_SETTINGS: u64 = 64 << 10;
/// Arrays in arrays, at most.
const MAX_DEPTH: u32 = 4;
/// Where tensors begin if `general.alignment` says nothing.
const ALIGNMENT: u64 = 32;
/// Most dimensions of a tensor (`GGML_MAX_DIMS`).
const MAX_DIMENSIONS: u32 = 4;
/// Settings of `general.` that change what tensors mean.
const GENERAL: [&str; 2] = ["general.architecture", "general.quantization_version"];

/// Types of settings.
mod kind {
    pub(super) const U32: u32 = 4;
    pub(super) const TEXT: u32 = 8;
    pub(super) const ARRAY: u32 = 9;
}

pub(super) fn layout(reader: &mut HeaderReader<'_>) -> Option<Layout> {
    if reader.bytes(4)? != b"GGUF" || !matches!(reader.u32()?, 2 | 3) {
        return None;
    }
    let count = usize::try_from(reader.u64()?).ok().filter(|count| *count <= MAX_TENSORS)?;
    let settings = reader.u64().filter(|settings| *settings <= MAX_SETTINGS)?;
    let mut layout = Layout::default();
    let mut alignment = ALIGNMENT;
    for _ in 0..settings {
        let key = text(reader)?;
        let kind = reader.u32()?;
        let mut hash = Sha256::new();
        let first = value(reader, kind, MAX_DEPTH, &mut hash)?;
        let digest = hex(&hash.finalize());
        match (key.as_str(), kind) {
            ("general.alignment", kind::U32) => {
                alignment = u64::from(u32::from_le_bytes(first?)).max(1);
            }
            // The digest of a text is over its bytes alone.
            ("tokenizer.chat_template", kind::TEXT) => layout.template = Some(digest),
            (key, _) if is_setting(key) => layout.settings.push(format!("{key}\0{kind}\0{digest}")),
            _ => {}
        }
    }
    layout.settings.sort();
    for _ in 0..count {
        let name = text(reader)?;
        let dimensions = reader.u32().filter(|dimensions| *dimensions <= MAX_DIMENSIONS)?;
        let shape = (0..dimensions).map(|_| reader.u64()).collect::<Option<Vec<u64>>>()?;
        let kind = reader.u32()?;
        let begin = reader.u64()?;
        layout.tensors.push(Tensor::new(&name, &kind.to_string(), &shape, begin, bytes_of(kind, &shape)?));
    }
    let data = reader.position().checked_next_multiple_of(alignment)?;
    for tensor in &mut layout.tensors {
        tensor.begin = tensor.begin.checked_add(data)?;
    }
    Some(layout)
}

fn is_setting(key: &str) -> bool {
    GENERAL.contains(&key)
        || !["general.", "split.", "tokenizer.chat_template"].iter().any(|of| key.starts_with(of))
}

fn text(reader: &mut HeaderReader<'_>) -> Option<String> {
    let length = reader.u64()?;
    String::from_utf8(reader.bytes(length)?.to_vec()).ok()
}

/// Takes a value into a digest, and gives its first four bytes where it has no more.
fn value(reader: &mut HeaderReader<'_>, kind: u32, depth: u32, hash: &mut Sha256) -> Option<Option<[u8; 4]>> {
    match kind {
        kind::TEXT => {
            let length = reader.u64()?;
            hash.update(reader.bytes(length)?);
            Some(None)
        }
        kind::ARRAY => {
            let (of, count) = (reader.u32()?, reader.u64()?);
            let depth = depth.checked_sub(1)?;
            hash.update(of.to_le_bytes());
            hash.update(count.to_le_bytes());
            // Every value takes a byte at least, so that the bound of the header ends a count that is too great.
            for _ in 0..count {
                if of == kind::TEXT {
                    let length = reader.u64()?;
                    hash.update(length.to_le_bytes());
                    hash.update(reader.bytes(length)?);
                } else {
                    value(reader, of, depth, hash)?;
                }
            }
            Some(None)
        }
        _ => {
            let bytes = reader.bytes(size_of(kind)?)?;
            hash.update(bytes);
            Some(bytes.try_into().ok())
        }
    }
}

/// Bytes of a number or flag.
fn size_of(kind: u32) -> Option<u64> {
    match kind {
        0 | 1 | 7 => Some(1),
        2 | 3 => Some(2),
        4..=6 => Some(4),
        10..=12 => Some(8),
        _ => None,
    }
}

/// Bytes of a tensor. `None`: the type is not known, or the first dimension is no multiple of its block.
fn bytes_of(kind: u32, shape: &[u64]) -> Option<u64> {
    let (block, bytes) = match kind {
        0 | 26 => (1, 4),      // F32, I32
        1 | 25 | 30 => (1, 2), // F16, I16, BF16
        24 => (1, 1),          // I8
        27 | 28 => (1, 8),     // I64, F64
        2 => (32, 18),         // Q4_0
        3 => (32, 20),         // Q4_1
        6 => (32, 22),         // Q5_0
        7 => (32, 24),         // Q5_1
        8 => (32, 34),         // Q8_0
        9 => (32, 36),         // Q8_1
        10 => (256, 84),       // Q2_K
        11 => (256, 110),      // Q3_K
        12 => (256, 144),      // Q4_K
        13 => (256, 176),      // Q5_K
        14 => (256, 210),      // Q6_K
        15 => (256, 292),      // Q8_K
        16 => (256, 66),       // IQ2_XXS
        17 => (256, 74),       // IQ2_XS
        18 => (256, 98),       // IQ3_XXS
        19 => (256, 50),       // IQ1_S
        20 => (32, 18),        // IQ4_NL
        21 => (256, 110),      // IQ3_S
        22 => (256, 82),       // IQ2_S
        23 => (256, 136),      // IQ4_XS
        29 => (256, 56),       // IQ1_M
        34 => (256, 54),       // TQ1_0
        35 => (256, 66),       // TQ2_0
        39 => (32, 17),        // MXFP4
        _ => return None,
    };
    let row = shape.first().copied().unwrap_or(1);
    if !row.is_multiple_of(block) {
        return None;
    }
    let elements = shape.iter().try_fold(1u64, |all, one| all.checked_mul(*one))?;
    (elements / block).checked_mul(bytes)
}
