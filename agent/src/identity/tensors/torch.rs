//! A checkpoint of PyTorch (`.bin`, `.pt`, `.pth`): a ZIP archive without compression, in which a pickle names the tensors
//! and each storage is a file.
//!
//! Its lines are those of safetensors, so that one checkpoint in both forms compares equal. Fails closed: tensors that share
//! bytes (tied weights), lie in another order than their shape says, or stand beside anything that is none give
//! nothing; so does the form that PyTorch wrote before 1.6.
//! Source: `torch/serialization.py` (`_save`, `persistent_id`), `c10/core/ScalarType.h`.

use super::{Layout, MAX_TENSORS, Tensor, pickle, safetensors};
use rawzip::{CompressionMethod, RECOMMENDED_BUFFER_SIZE, ReaderAt, ZipLocator};
use std::collections::BTreeMap;
use std::fs::File;
use std::os::unix::fs::FileExt;

/// Longest pickle that is read, in bytes; a thousand tensors take about 150 KiB.
const MAX_PICKLE: u64 = 8 << 20;

/// Storages, the type of their elements as safetensors names it, and bytes of an element.
const TYPES: [(&str, &str, u64); 10] = [
    ("DoubleStorage", "F64", 8),
    ("FloatStorage", "F32", 4),
    ("HalfStorage", "F16", 2),
    ("BFloat16Storage", "BF16", 2),
    ("LongStorage", "I64", 8),
    ("IntStorage", "I32", 4),
    ("ShortStorage", "I16", 2),
    ("CharStorage", "I8", 1),
    ("ByteStorage", "U8", 1),
    ("BoolStorage", "BOOL", 1),
];

/// Reads without the position of the file, which others use.
struct At<'f>(&'f File);

impl ReaderAt for At<'_> {
    fn read_at(&self, buffer: &mut [u8], offset: u64) -> std::io::Result<usize> {
        FileExt::read_at(self.0, buffer, offset)
    }
}

pub(super) fn layout(file: &File, size: u64) -> Option<Layout> {
    let files = files(file, size)?;
    let (root, pickled) =
        files.iter().find_map(|(name, range)| Some((name.strip_suffix("data.pkl")?, *range)))?;
    let bytes = |(begin, end): (u64, u64)| {
        let length = end.checked_sub(begin).filter(|length| *length <= MAX_PICKLE)?;
        let mut bytes = vec![0; usize::try_from(length).ok()?];
        file.read_exact_at(&mut bytes, begin).ok()?;
        Some(bytes)
    };
    if let Some(order) = files.get(&format!("{root}byteorder"))
        && bytes(*order)? != b"little"
    {
        return None;
    }
    let mut named = pickle::tensors(&bytes(pickled)?)?;
    named.retain(|(name, _)| !safetensors::is_computed(name));
    named.sort_by(|(a, _), (b, _)| a.cmp(b));
    if named.len() > MAX_TENSORS || named.windows(2).any(|pair| pair[0].0 == pair[1].0) {
        return None;
    }
    let tensor = |(name, tensor): &(String, std::rc::Rc<pickle::PickledTensor>)| {
        let (_, kind, width) = TYPES.iter().find(|(storage, ..)| *storage == tensor.storage.as_ref())?;
        let count = tensor.shape.iter().try_fold(1_u64, |count, side| count.checked_mul(*side))?;
        if count > 1 && !is_in_order(&tensor.shape, &tensor.strides) {
            return None;
        }
        let (first, end) = *files.get(&format!("{root}data/{}", tensor.key))?;
        let begin = first.checked_add(tensor.offset.checked_mul(*width)?)?;
        let length = count.checked_mul(*width)?;
        (begin.checked_add(length)? <= end).then(|| Tensor::new(name, kind, &tensor.shape, begin, length))
    };
    Some(Layout { tensors: named.iter().map(tensor).collect::<Option<_>>()?, ..Layout::default() })
}

/// Where the bytes of the archive's files are; `None` where any is compressed.
fn files(file: &File, size: u64) -> Option<BTreeMap<String, (u64, u64)>> {
    let mut buffer = vec![0; RECOMMENDED_BUFFER_SIZE];
    let archive = ZipLocator::new().locate_in_reader(At(file), &mut buffer, size).ok()?;
    let mut files = BTreeMap::new();
    let mut entries = archive.entries(&mut buffer);
    while let Some(entry) = entries.next_entry().ok()? {
        if entry.compression_method() != CompressionMethod::STORE || files.len() >= MAX_TENSORS {
            return None;
        }
        let name = String::from_utf8(entry.file_path().as_bytes().to_vec()).ok()?;
        let range = archive.get_entry(entry.wayfinder()).ok()?.compressed_data_range();
        files.insert(name, range);
    }
    Some(files)
}

/// Whether elements lie one behind the other, the last dimension first.
fn is_in_order(shape: &[u64], strides: &[u64]) -> bool {
    let mut wanted = 1_u64;
    shape.len() == strides.len()
        && shape.iter().zip(strides).rev().all(|(side, stride)| {
            let fits = *side == 1 || *stride == wanted;
            wanted = wanted.saturating_mul(*side);
            fits
        })
}
