//! The reader of kernel records over arbitrary lines.

#![no_main]

use kvprov_agent::kernel::KernelReader;
use kvprov_agent::source::lines::Lines;
use kvprov_fuzz::{Checks, source};
use kvprov_packs::Packs;

libfuzzer_sys::fuzz_target!(|data: &[u8]| {
    let mut checks = Checks::default();
    let mut sink = |observation| checks.take(&observation);
    let mut reader = KernelReader::new(source("kernel.jsonl"), Packs::builtin());
    let mut lines = Lines::new();
    lines.feed(data, |place, line| reader.line(place, line, &mut sink));
    lines.finish(|place, line| reader.line(place, line, &mut sink));
    reader.finish(&mut sink);
});
