//! Reads a log from memory as that of one worker.
#![allow(dead_code, reason = "each test file uses its own part")]

use kvprov_agent::logs::{LineCounts, LogOptions, LogReader};
use kvprov_agent::source::SourceContext;
use kvprov_model::observation::Observation;
use kvprov_packs::Packs;

/// A source of worker `w`.
pub(crate) fn source() -> SourceContext {
    SourceContext {
        node: "n".into(),
        worker: Some("w".into()),
        stream: "e.log".to_owned(),
        instance: "w/e.log".to_owned(),
        generation: 0,
    }
}

/// A log of an engine in the year of these tests.
pub(crate) fn options_of(engine: &str) -> LogOptions {
    LogOptions { engine: Some(engine.to_owned()), ..undeclared() }
}

/// A log of an engine that nobody names.
pub(crate) fn undeclared() -> LogOptions {
    LogOptions { year: Some(2026), ..LogOptions::default() }
}

/// A reader of a log of worker `w`.
pub(crate) fn reader(packs: &Packs, options: LogOptions) -> LogReader<'_> {
    LogReader::new(source(), options, packs.matcher(), packs)
}

/// What a reader tells of bytes that come in chunks, and what became of the lines.
pub(crate) fn read<'b>(
    mut reader: LogReader<'_>,
    chunks: impl IntoIterator<Item = &'b [u8]>,
) -> (Vec<Observation>, LineCounts) {
    let mut seen = Vec::new();
    let mut sink = |observation: Observation| seen.push(observation);
    for chunk in chunks {
        reader.push(chunk, &mut sink);
    }
    reader.finish(&mut sink);
    (seen, *reader.counts())
}

/// The same where each line is read: what is recorded has to be seen whole.
pub(crate) fn recording(mut reader: LogReader<'_>) -> LogReader<'_> {
    reader.record();
    reader
}
