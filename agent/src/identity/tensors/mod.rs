//! What a file of weights holds, tensor by tensor, so that the same tensors compare equal in whatever files they stand.
//!
//! Each tensor is one line: name, type of its elements, shape, sha256 of its bytes, parted by NUL. The lines of all files
//! of a model are summed up ([`TensorSum`]), in any order and over any number of files. A header is read with bounds: tensors
//! that overlap or leave the file, a type of unknown size, a header that is too long give no lines, never wrong ones.

mod gguf;
mod pickle;
mod reader;
mod safetensors;
mod sum;
mod torch;

pub(super) use sum::TensorSum;

use reader::HeaderReader;
use sha2::{Digest, Sha256};
use std::fs::File;

/// Longest header that is read, in bytes; the longest known are of some megabytes.
const MAX_HEADER: u64 = 64 << 20;
/// Most tensors of one file.
const MAX_TENSORS: usize = 1 << 20;

/// What the files of one format have in common.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Format {
    /// A header in JSON, then the bytes.
    Safetensors,
    /// An archive of PyTorch.
    Torch,
    /// llama.cpp: settings and the tokenizer are in the file too.
    Gguf,
}

/// Where the bytes of one tensor are.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Tensor {
    /// Name, type and shape, parted by NUL.
    pub head: String,
    /// First byte, counted from the begin of the file.
    pub begin: u64,
    /// Bytes.
    pub length: u64,
}

/// What a header says.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Layout {
    /// In the order of the file; none overlaps another.
    pub tensors: Vec<Tensor>,
    /// Lines of what is no tensor and changes what the tensors mean.
    pub settings: Vec<String>,
    /// sha256 of the text of the chat template, where the file holds one.
    pub template: Option<String>,
}

// === impl Format ===

impl Format {
    /// The format of a file by its name.
    pub(super) fn of(path: &[u8]) -> Option<Self> {
        if path.ends_with(b".safetensors") {
            Some(Self::Safetensors)
        } else if [&b".bin"[..], b".pt", b".pth"].iter().any(|ending| path.ends_with(ending)) {
            Some(Self::Torch)
        } else if path.ends_with(b".gguf") {
            Some(Self::Gguf)
        } else {
            None
        }
    }

    /// Names the algorithm of a sum: lines of two formats do not compare.
    pub(super) fn algorithm(self) -> &'static str {
        match self {
            Self::Safetensors | Self::Torch => "tensors-v1",
            Self::Gguf => "gguf-v1",
        }
    }

    /// Reads the header of a file of `size` bytes. `None`: it is damaged, or holds what is not known.
    pub(super) fn layout(self, file: &File, size: u64) -> Option<Layout> {
        let mut reader = HeaderReader::new(file, size, MAX_HEADER);
        let mut layout = match self {
            Self::Safetensors => safetensors::layout(&mut reader)?,
            Self::Torch => torch::layout(file, size)?,
            Self::Gguf => gguf::layout(&mut reader)?,
        };
        layout.tensors.sort_by_key(|tensor| (tensor.begin, tensor.length));
        // A reader that was not asked stands at the begin.
        let mut end = reader.position();
        for tensor in &layout.tensors {
            let begins_late = tensor.begin >= end || tensor.length == 0;
            end = end.max(tensor.begin.checked_add(tensor.length)?);
            if !begins_late || end > size {
                return None;
            }
        }
        Some(layout)
    }
}

// === impl Tensor ===

impl Tensor {
    fn new(name: &str, kind: &str, shape: &[u64], begin: u64, length: u64) -> Self {
        let shape: Vec<String> = shape.iter().map(u64::to_string).collect();
        Self { head: format!("{name}\0{kind}\0{}", shape.join(",")), begin, length }
    }
}

/// The line of something with a head and a digest.
pub(super) fn line(head: &str, digest: &[u8]) -> [u8; 32] {
    let mut hash = Sha256::new();
    hash.update(head.as_bytes());
    hash.update([0]);
    hash.update(digest);
    hash.finalize().into()
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test fails by panicking")]
mod tests {
    use super::*;
    use std::io::Write;

    fn layout(format: Format, bytes: &[u8]) -> Option<Layout> {
        let mut file = tempfile::tempfile().unwrap();
        file.write_all(bytes).unwrap();
        format.layout(&file, bytes.len() as u64)
    }

    fn safetensors(header: &str, data: usize) -> Vec<u8> {
        let mut bytes = (header.len() as u64).to_le_bytes().to_vec();
        bytes.extend_from_slice(header.as_bytes());
        bytes.resize(bytes.len() + data, 7);
        bytes
    }

    #[test]
    fn tensors_of_a_safetensors_file_are_found_and_its_metadata_is_not_one() {
        let header = r#"{"__metadata__":{"format":"pt"},"b":{"dtype":"F16","shape":[2,2],"data_offsets":[4,12]},"a":{"dtype":"U8","shape":[4],"data_offsets":[0,4]}}"#;
        let found = layout(Format::Safetensors, &safetensors(header, 12)).unwrap();
        let begin = 8 + header.len() as u64;
        let expected =
            [Tensor::new("a", "U8", &[4], begin, 4), Tensor::new("b", "F16", &[2, 2], begin + 4, 8)];
        assert_eq!(found.tensors, expected);
    }

    #[test]
    fn tensors_that_overlap_or_leave_the_file_give_nothing() {
        for (offsets, data) in [("[0,8],[4,12]", 12), ("[0,8],[8,16]", 12), ("[8,4],[8,9]", 12)] {
            let (a, b) = offsets.split_once("],[").unwrap();
            let header = format!(
                r#"{{"a":{{"dtype":"U8","shape":[8],"data_offsets":{a}]}},"b":{{"dtype":"U8","shape":[8],"data_offsets":[{b}}}}}"#
            );
            assert_eq!(layout(Format::Safetensors, &safetensors(&header, data)), None, "{offsets}");
        }
    }

    #[test]
    fn a_header_that_is_damaged_or_too_long_gives_nothing() {
        let sound = safetensors(r#"{"a":{"dtype":"U8","shape":[4],"data_offsets":[0,4]}}"#, 4);
        assert!(layout(Format::Safetensors, &sound).is_some());
        for length in 0..sound.len() {
            assert_eq!(layout(Format::Safetensors, &sound[..length]), None, "{length}");
        }
        let mut huge = sound;
        huge[..8].copy_from_slice(&u64::MAX.to_le_bytes());
        assert_eq!(layout(Format::Safetensors, &huge), None);
        assert_eq!(layout(Format::Gguf, b"GGUF\x03\0\0\0"), None);
    }

    fn text(out: &mut Vec<u8>, text: &str) {
        out.extend_from_slice(&(text.len() as u64).to_le_bytes());
        out.extend_from_slice(text.as_bytes());
    }

    /// A file with these texts as settings and two tensors of four floats.
    fn gguf(settings: &[(&str, &str)]) -> Vec<u8> {
        let mut out = b"GGUF".to_vec();
        out.extend_from_slice(&3u32.to_le_bytes());
        out.extend_from_slice(&2u64.to_le_bytes());
        out.extend_from_slice(&(settings.len() as u64 + 1).to_le_bytes());
        for (key, value) in settings {
            text(&mut out, key);
            out.extend_from_slice(&8u32.to_le_bytes());
            text(&mut out, value);
        }
        // An array of two numbers of 32 bits.
        text(&mut out, "llama.some_list");
        for number in [9u32, 4] {
            out.extend_from_slice(&number.to_le_bytes());
        }
        out.extend_from_slice(&2u64.to_le_bytes());
        out.extend_from_slice(&[0; 8]);
        for (index, name) in ["one", "two"].iter().enumerate() {
            text(&mut out, name);
            out.extend_from_slice(&1u32.to_le_bytes());
            out.extend_from_slice(&4u64.to_le_bytes());
            out.extend_from_slice(&0u32.to_le_bytes());
            out.extend_from_slice(&(index as u64 * 32).to_le_bytes());
        }
        out.resize(out.len().next_multiple_of(32), 0);
        out.resize(out.len() + 48, 7);
        out
    }

    #[test]
    fn tensors_and_settings_of_a_gguf_file_are_found() {
        let settings = [
            ("general.architecture", "llama"),
            ("general.name", "My Model"),
            ("tokenizer.chat_template", "{{ messages }}"),
        ];
        let bytes = gguf(&settings);
        let found = layout(Format::Gguf, &bytes).unwrap();
        let data = bytes.len() as u64 - 48;
        let expected =
            [Tensor::new("one", "0", &[4], data, 16), Tensor::new("two", "0", &[4], data + 32, 16)];
        assert_eq!(found.tensors, expected);
        // A name is no setting, and the template is a factor of its own.
        let names: Vec<&str> = found.settings.iter().map(|line| line.split('\0').next().unwrap()).collect();
        assert_eq!(names, ["general.architecture", "llama.some_list"]);
        assert_eq!(found.template, Some(kvprov_model::id::hex(&Sha256::digest("{{ messages }}"))));
    }

    proptest::proptest! {
        #[test]
        fn whatever_stands_in_a_header_tensors_lie_in_the_file_side_by_side(
            is_gguf: bool,
            changes in proptest::collection::vec((proptest::prelude::any::<u16>(), proptest::prelude::any::<u8>()), 0..8),
        ) {
            let header = r#"{"a":{"dtype":"U8","shape":[4],"data_offsets":[0,4]},"b":{"dtype":"U8","shape":[2],"data_offsets":[4,6]}}"#;
            let mut bytes = if is_gguf { gguf(&[("general.alignment", "x")]) } else { safetensors(header, 6) };
            let length = bytes.len();
            for (at, byte) in changes {
                bytes[usize::from(at) % length] = byte;
            }
            let format = if is_gguf { Format::Gguf } else { Format::Safetensors };
            let mut end = 0;
            for tensor in layout(format, &bytes).unwrap_or_default().tensors {
                assert!(tensor.begin >= end || tensor.length == 0);
                end = end.max(tensor.begin + tensor.length);
            }
            assert!(end <= length as u64);
        }
    }

    const TORCH: &[u8] = include_bytes!("../../../tests/identity/checkpoints/pytorch_model.bin");

    #[test]
    fn an_archive_of_pytorch_lies_where_it_says() {
        let found = layout(Format::Torch, TORCH).unwrap();
        let heads: Vec<&str> = found.tensors.iter().map(|tensor| tensor.head.as_str()).collect();
        let expected = [
            ("model.b.weight", "BF16", &[5][..]),
            ("model.a.weight", "F32", &[3, 4]),
            ("model.c", "I64", &[2, 3]),
        ];
        let expected = expected.map(|(name, kind, shape)| Tensor::new(name, kind, shape, 0, 0).head);
        assert_eq!(heads, expected);
        let lengths: Vec<u64> = found.tensors.iter().map(|tensor| tensor.length).collect();
        assert_eq!(lengths, [10, 48, 48]);
    }

    #[test]
    fn an_archive_cut_anywhere_gives_nothing() {
        for length in 0..TORCH.len() {
            assert_eq!(layout(Format::Torch, &TORCH[..length]), None, "{length}");
        }
    }

    proptest::proptest! {
        #[test]
        fn whatever_stands_in_an_archive_tensors_lie_in_the_file_side_by_side(
            changes in proptest::collection::vec((proptest::prelude::any::<u16>(), proptest::prelude::any::<u8>()), 0..8),
        ) {
            let mut bytes = TORCH.to_vec();
            for (at, byte) in changes {
                bytes[usize::from(at) % TORCH.len()] = byte;
            }
            let mut end = 0;
            for tensor in layout(Format::Torch, &bytes).unwrap_or_default().tensors {
                assert!(tensor.begin >= end || tensor.length == 0);
                end = end.max(tensor.begin + tensor.length);
            }
            assert!(end <= bytes.len() as u64);
        }
    }

    #[test]
    fn a_pickle_of_nothing_but_nesting_ends() {
        // A tuple in a tuple, and a dictionary in itself.
        let deep = [b"\x80\x02)".to_vec(), vec![0x85; 1 << 20], b".".to_vec()].concat();
        let circular = b"\x80\x02}q\0h\0X\x01\0\0\0ah\0s.".to_vec();
        let many = vec![b'N'; 1 << 20];
        for text in [deep, circular, many] {
            assert!(pickle::tensors(&text).is_none());
        }
    }

    #[test]
    fn a_gguf_file_cut_anywhere_gives_nothing() {
        let bytes = gguf(&[("general.architecture", "llama")]);
        for length in 0..bytes.len() {
            assert_eq!(layout(Format::Gguf, &bytes[..length]), None, "{length}");
        }
    }
}
