//! The same tensors in other files.

use crate::rig::{Counting, Rig, options, safetensors};
use kvprov_agent::identity::{Identities, TensorDigests};
use kvprov_model::factor::Comparison;
use std::sync::Arc;
use std::sync::atomic::Ordering;

const A: &[u8] = b"the first tensor";
const B: &[u8] = b"the other tensor, which is longer";

/// Worker `one` has both tensors in one file, worker `two` each in a file of its own.
fn sharded(rig: &mut Rig, second: &[u8]) {
    let whole = rig.write("m/model.safetensors", &safetensors(&[("a", A), ("b", B)]));
    rig.open_as("one", "weights", &whole);
    for (name, tensor) in [
        ("n/model-00001-of-00002.safetensors", ("b", second)),
        ("n/model-00002-of-00002.safetensors", ("a", A)),
    ] {
        let shard = rig.write(name, &safetensors(&[tensor]));
        rig.open_as("two", "weights", &shard);
    }
}

#[test]
fn a_resharded_copy_is_equal_once_its_tensors_are_known() {
    let mut rig = Rig::new();
    sharded(&mut rig, B);
    rig.wait(3);
    assert_eq!(rig.compared("one", "two", "weights"), Some(Comparison::Equal));
    let (one, two) = (rig.last_of("one", "weights").unwrap(), rig.last_of("two", "weights").unwrap());
    assert_ne!(one.value, two.value);
    assert_eq!(one.meaning, two.meaning);
}

#[test]
fn until_its_tensors_are_known_it_is_neither() {
    let mut rig = Rig::with(|options| options.tensors = TensorDigests::Off);
    sharded(&mut rig, B);
    rig.wait(3);
    assert_eq!(rig.compared("one", "two", "weights"), Some(Comparison::Unknown));
}

#[test]
fn a_resharded_copy_with_another_byte_is_different() {
    let mut rig = Rig::new();
    sharded(&mut rig, b"the other tensor, which is lonGer");
    rig.wait(3);
    assert_eq!(rig.compared("one", "two", "weights"), Some(Comparison::Different));
}

#[test]
fn a_file_under_another_name_with_other_words_in_its_header_is_equal() {
    let mut rig = Rig::new();
    let plain = safetensors(&[("a", A)]);
    let length = u64::from_le_bytes(plain[..8].try_into().unwrap()) as usize;
    let header = std::str::from_utf8(&plain[8..8 + length]).unwrap();
    let header = header.replacen('{', r#"{"__metadata__":{"saved_by":"somebody"},"#, 1);
    let mut other = (header.len() as u64).to_le_bytes().to_vec();
    other.extend_from_slice(header.as_bytes());
    other.extend_from_slice(A);
    for (worker, name, content) in
        [("one", "m/model.safetensors", plain), ("two", "n/weights.safetensors", other)]
    {
        let path = rig.write(name, &content);
        rig.open_as(worker, "weights", &path);
    }
    rig.wait(61);
    assert_eq!(rig.compared("one", "two", "weights"), Some(Comparison::Equal));
}

#[test]
fn what_is_no_file_of_tensors_has_a_digest_all_the_same() {
    let mut rig = Rig::new();
    let path = rig.write("m/model.safetensors", b"nonsense");
    rig.open("weights", &path);
    rig.wait(3);
    assert_eq!(rig.last_of("w", "weights").unwrap().meaning, None);
}

#[test]
fn the_value_is_told_before_the_tensors_and_dated_alike() {
    let mut rig = Rig::new();
    let path = rig.write("m/model.safetensors", &safetensors(&[("a", A)]));
    rig.open("weights", &path);
    rig.wait(3);
    let meanings: Vec<bool> = rig.factors().iter().map(|factor| factor.meaning.is_some()).collect();
    assert_eq!(meanings.last(), Some(&true));
    let full = rig.full();
    assert!(full.len() == 2 && full[0] == full[1], "{full:?}");
    let walls: Vec<_> = rig.found.iter().map(|observation| observation.envelope.wall).collect();
    assert!(walls.windows(2).all(|pair| pair[0] == pair[1]));
}

#[test]
fn tensors_are_known_after_a_restart_without_reading() {
    let mut rig = Rig::new();
    let path = rig.write("m/model.safetensors", &safetensors(&[("a", A)]));
    let open = rig.open_of("weights", &path);
    rig.take(&open);
    rig.wait(3);
    let (opens, before) = (rig.opens.load(Ordering::Relaxed), rig.last_of("w", "weights"));
    rig.found.clear();
    let opener = Counting(Arc::clone(&rig.opens));
    rig.identities = Identities::new(options(rig.folder.path()), Box::new(opener)).unwrap();
    rig.take(&open);
    rig.wait(0);
    assert_eq!((rig.opens.load(Ordering::Relaxed), rig.last_of("w", "weights")), (opens, before));
}

/// Checkpoints that PyTorch 2.11 and safetensors wrote of one dictionary of tensors (`checkpoints/`), or of a part of it.
macro_rules! checkpoint {
    ($name:literal) => {
        include_bytes!(concat!("checkpoints/", $name))
    };
}

/// The weights of one worker in safetensors, those of another in the file of PyTorch.
fn in_both_forms(name: &str, content: &[u8]) -> Rig {
    let mut rig = Rig::new();
    let files =
        [("one", "m/model.safetensors", &checkpoint!("model.safetensors")[..]), ("two", name, content)];
    for (worker, name, content) in files {
        let path = rig.write(name, content);
        rig.open_as(worker, "weights", &path);
    }
    rig.wait(61);
    rig
}

#[test]
fn a_checkpoint_of_pytorch_equals_the_same_tensors_in_safetensors() {
    for (name, content) in [
        ("n/pytorch_model.bin", &checkpoint!("pytorch_model.bin")[..]),
        ("n/pytorch_model.pt", checkpoint!("parameters.pt")),
    ] {
        let rig = in_both_forms(name, content);
        assert_eq!(rig.compared("one", "two", "weights"), Some(Comparison::Equal), "{name}");
    }
}

#[test]
fn a_checkpoint_of_pytorch_with_another_byte_is_different() {
    let mut content = checkpoint!("pytorch_model.bin").to_vec();
    let data = content.windows(7).position(|name| name == b"/data/0").unwrap();
    // Behind the name comes what aligns the bytes of the storage to 64.
    let first = (data + 7).next_multiple_of(64);
    content[first] ^= 1;
    let rig = in_both_forms("n/pytorch_model.bin", &content);
    assert_eq!(rig.compared("one", "two", "weights"), Some(Comparison::Different));
}

#[test]
fn what_is_no_plain_dictionary_of_tensors_is_neither() {
    for (name, content) in [
        ("tied", &checkpoint!("tied.bin")[..]),
        ("transposed", checkpoint!("transposed.bin")),
        ("nested", checkpoint!("nested.pt")),
        ("more", checkpoint!("more.pt")),
        ("legacy", checkpoint!("legacy.bin")),
    ] {
        let rig = in_both_forms("n/pytorch_model.bin", content);
        assert_eq!(rig.compared("one", "two", "weights"), Some(Comparison::Unknown), "{name}");
        assert_eq!(rig.last_of("two", "weights").unwrap().meaning, None, "{name}");
    }
}
