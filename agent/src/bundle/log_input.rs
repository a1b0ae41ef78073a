//! Hands one log of a bundle to the log reader.

use crate::bundle::declared::Identity;
use crate::bundle::pasted::Pasted;
use crate::bundle::report::LineCounts;
use crate::bundle::spec::SourceSpec;
use crate::logs::{Copied, LogOptions, LogReader, MAX_COPIED};
use crate::source::{Losses, Sink, SourceContext};
use kvprov_model::clock::WallTime;
use kvprov_packs::{Matcher, Packs};

/// Reads one log in chunks.
pub(crate) struct LogInput<'p> {
    reader: LogReader<'p>,
    /// What a paste put around the log, and the text until it is whole: at most [`MAX_COPIED`] bytes.
    pasted: Option<(Pasted, Vec<u8>)>,
}

// === impl LogInput ===

impl<'p> LogInput<'p> {
    pub(crate) fn new(
        context: SourceContext,
        source: &SourceSpec,
        identity: &Identity,
        packs: &'p Packs,
        matcher: &'p Matcher,
    ) -> Self {
        let text = copy(source);
        let pasted = text.as_deref().and_then(Pasted::of);
        let copied = text.map(|text| match pasted {
            Some(pasted) => Copied::of(&pasted.clean(&text)),
            None => Copied::of(&text),
        });
        let options = LogOptions {
            engine: identity.engine.clone(),
            version: identity.engine_version.clone(),
            timezone_seconds: source.zone_seconds,
            year: source.year,
            mtime: modified(source),
            copied,
        };
        let reader = LogReader::new(context, options, matcher, packs);
        Self { reader, pasted: pasted.map(|pasted| (pasted, Vec::new())) }
    }

    pub(crate) fn feed(&mut self, chunk: &[u8], sink: Sink<'_>) {
        match &mut self.pasted {
            Some((_, held)) => held.extend_from_slice(chunk),
            None => self.reader.push(chunk, sink),
        }
    }

    pub(crate) fn finish(mut self, sink: Sink<'_>) -> (LineCounts, Losses) {
        if let Some((pasted, held)) = self.pasted.take() {
            self.reader.push(&pasted.clean(&held), &mut *sink);
        }
        self.reader.finish(sink);
        let counts = self.reader.counts();
        let mut losses = Losses::default();
        losses.add("line too long", counts.too_long);
        losses.add("no UTF-8", counts.not_utf8);
        losses.add("part of a split line without its end", counts.partial_dropped);
        losses.add("too many different troubles", counts.troubles_dropped);
        let lines = LineCounts {
            total: counts.total,
            matched: counts.matched,
            ignored: counts.ignored,
            unparsed: counts.unparsed,
        };
        (lines, losses)
    }
}

fn modified(source: &SourceSpec) -> Option<WallTime> {
    let time = source.path.metadata().ok()?.modified().ok()?;
    let since = time.duration_since(std::time::UNIX_EPOCH).ok()?;
    i64::try_from(since.as_nanos()).ok().map(WallTime)
}

/// The text of a log that may be a person's copy. What cannot be read is told when it is read in earnest.
fn copy(source: &SourceSpec) -> Option<Vec<u8>> {
    let metadata = source.path.metadata().ok()?;
    if !metadata.is_file() || metadata.len() > MAX_COPIED {
        return None;
    }
    std::fs::read(&source.path).ok()
}
