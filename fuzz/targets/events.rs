//! The reader of KV events over arbitrary lines.

#![no_main]

use kvprov_agent::events::EventReader;
use kvprov_agent::source::lines::Lines;
use kvprov_fuzz::{Checks, source};
use kvprov_model::content::FleetKey;

libfuzzer_sys::fuzz_target!(|data: &[u8]| {
    let key = FleetKey::from_secret(b"fuzz");
    let mut checks = Checks::default();
    let mut reader = EventReader::new(source("kv-events.jsonl"), &key);
    let mut lines = Lines::new();
    let mut sink = |observation| checks.take(&observation);
    lines.feed(data, |place, line| reader.line(place, line, &mut sink));
    lines.finish(|place, line| reader.line(place, line, &mut sink));
});
