//! What is shown of large files until they are read.

use crate::rig::Rig;
use kvprov_model::factor::{Comparison, FactorState};
use std::os::unix::fs::FileExt;
use std::path::PathBuf;

/// Larger than what is read at once.
const LARGE: u64 = 65 << 20;

fn large(rig: &Rig, name: &str, last: u8) -> PathBuf {
    let path = rig.write(name, b"");
    let file = std::fs::File::options().write(true).open(&path).unwrap();
    file.set_len(LARGE).unwrap();
    file.write_all_at(&[last], LARGE - 1).unwrap();
    path
}

#[test]
fn a_sample_stands_until_the_digest_is_known() {
    let mut rig = Rig::new();
    let path = large(&rig, "m/model.safetensors", 1);
    rig.open("weights", &path);
    rig.poll();
    rig.seconds += 3;
    rig.until(|rig| rig.factors().last().is_some_and(|factor| factor.value.is_some()));
    let first = rig.factors().into_iter().find(|factor| factor.value.is_some()).unwrap().clone();
    rig.wait(0);
    if first.state == Some(FactorState::Provisional) {
        assert_eq!(first.algorithm.as_deref(), Some("samples-v1"));
        assert_eq!(first.reason.as_deref(), Some("not all of it is read yet"));
        assert!(rig.says().iter().any(|says| says.contains("68157440 bytes")), "{:?}", rig.says());
    }
    assert_eq!(rig.factors().last().unwrap().state, Some(FactorState::Full));
}

#[test]
fn samples_are_neither_equal_nor_different() {
    let mut rig = Rig::with(|options| options.rate = 1 << 20);
    for (worker, last) in [("a", 1), ("b", 1), ("c", 2)] {
        let path = large(&rig, &format!("{worker}/model.safetensors"), last);
        rig.open_as(worker, "weights", &path);
    }
    rig.seconds += 3;
    rig.until(|rig| ["a", "b", "c"].iter().all(|worker| rig.last_of(worker, "weights").is_some()));
    let value = |worker: &str| rig.last_of(worker, "weights").unwrap().value;
    assert_eq!(value("a"), value("b"));
    assert_ne!(value("a"), value("c"));
    for other in ["b", "c"] {
        assert_eq!(rig.compared("a", other, "weights"), Some(Comparison::Unknown));
    }
}
