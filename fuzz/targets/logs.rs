//! The log reader over arbitrary bytes, in arbitrary cutting.
//!
//! The first byte sets the size of the pieces; the cutting must not change what is read.

#![no_main]

use kvprov_agent::logs::{LogOptions, LogReader};
use kvprov_fuzz::{Checks, source};
use kvprov_packs::Packs;

libfuzzer_sys::fuzz_target!(|data: &[u8]| {
    let Some((size, bytes)) = data.split_first() else { return };
    let pieces = read(bytes, usize::from(*size).max(1));
    let whole = read(bytes, bytes.len().max(1));
    assert_eq!(pieces, whole, "the cutting into pieces changes what is read");
});

fn read(bytes: &[u8], size: usize) -> usize {
    let packs = Packs::builtin();
    let mut checks = Checks::default();
    let mut count = 0;
    let mut sink = |observation| {
        checks.take(&observation);
        count += 1;
    };
    let mut reader = LogReader::new(source("d.log"), LogOptions::default(), packs.matcher(), packs);
    for piece in bytes.chunks(size) {
        reader.push(piece, &mut sink);
    }
    reader.finish(&mut sink);
    count
}
