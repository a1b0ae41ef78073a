//! Bundles whose incident.toml and files are arbitrary.
//!
//! Zero bytes divide incident.toml from three files, which it may name a.log, b.prom and c.jsonl.

#![no_main]

use kvprov_agent::bundle::Bundle;
use kvprov_fuzz::Checks;
use kvprov_packs::Packs;

libfuzzer_sys::fuzz_target!(|data: &[u8]| {
    let directory = tempfile::tempdir().expect("a directory for the bundle");
    for (name, bytes) in ["incident.toml", "a.log", "b.prom", "c.jsonl"].iter().zip(data.splitn(4, |byte| *byte == 0)) {
        std::fs::write(directory.path().join(name), bytes).expect("a file of the bundle");
    }
    let packs = Packs::builtin();
    let mut checks = Checks::default();
    if let Ok(bundle) = Bundle::open(&[directory.path().to_owned()]) {
        bundle.read(packs, packs.matcher(), &mut |observation| checks.take(&observation), &mut |_, _| {});
    }
});
