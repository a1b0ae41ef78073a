//! Hands one log of a bundle to the log reader.

use crate::bundle::declared::Identity;
use crate::bundle::report::LineCounts;
use crate::bundle::spec::SourceSpec;
use crate::logs::{Copied, LogOptions, LogReader, MAX_COPIED};
use crate::source::{Losses, Sink, SourceContext};
use kvprov_model::clock::WallTime;
use kvprov_packs::{Matcher, Packs};

/// Reads one log in chunks.
pub(crate) struct LogInput<'p>(LogReader<'p>);

// === impl LogInput ===

impl<'p> LogInput<'p> {
    pub(crate) fn new(
        context: SourceContext,
        source: &SourceSpec,
        identity: &Identity,
        packs: &'p Packs,
        matcher: &'p Matcher,
    ) -> Self {
        let options = LogOptions {
            engine: identity.engine.clone(),
            version: identity.engine_version.clone(),
            timezone_seconds: source.zone_seconds,
            year: source.year,
            mtime: modified(source),
            copied: copied(source),
        };
        Self(LogReader::new(context, options, matcher, packs))
    }

    pub(crate) fn feed(&mut self, chunk: &[u8], sink: Sink<'_>) {
        self.0.push(chunk, sink);
    }

    pub(crate) fn finish(mut self, sink: Sink<'_>) -> (LineCounts, Losses) {
        self.0.finish(sink);
        let counts = self.0.counts();
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

/// Whether a log may be a person's copy. What cannot be read is told when it is read in earnest.
fn copied(source: &SourceSpec) -> Option<Copied> {
    let metadata = source.path.metadata().ok()?;
    if !metadata.is_file() || metadata.len() > MAX_COPIED {
        return None;
    }
    Some(Copied::of(&std::fs::read(&source.path).ok()?))
}
