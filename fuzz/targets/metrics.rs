//! The metrics reader over pairs of arbitrary pages: increases are never negative.
//!
//! The pages are divided by a zero byte.

#![no_main]

use kvprov_agent::metrics::MetricsReader;
use kvprov_agent::source::Place;
use kvprov_fuzz::{Checks, source};
use kvprov_model::clock::WallTime;
use kvprov_model::observation::Body;
use kvprov_packs::Packs;

libfuzzer_sys::fuzz_target!(|data: &[u8]| {
    let mut checks = Checks::default();
    let mut reader = MetricsReader::new(Packs::builtin(), None);
    for (index, page) in data.split(|byte| *byte == 0).take(8).enumerate() {
        let at = WallTime(index as i64 * 1_000_000_000);
        let place = Place { position: 0, offset: index as u64 };
        reader.snapshot(Some(at), &source("m.prom"), place, page, &mut |observation| {
            checks.take(&observation);
            if let Body::Counters(counters) = &observation.body {
                assert!(counters.values.values().all(|increase| *increase >= 0.0), "{counters:?}");
            }
        });
    }
});
