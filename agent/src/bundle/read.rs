//! Reads the sources of a bundle, worker by worker, into observations.
//!
//! The order of declaration does not matter: workers are read by name, sources by kind (logs first, because they may
//! tell engine and version), then by time and file name. Files are read in chunks.

use crate::bundle::Bundle;
use crate::bundle::declared::{Identity, tell};
use crate::bundle::log_input::LogInput;
use crate::bundle::problem::Problem;
use crate::bundle::report::Report;
use crate::bundle::spec::{InputKind, SourceSpec, WorkerSpec};
use crate::events::EventReader;
use crate::kernel::{KernelReader, Mounts, Record};
use crate::logs::MAX_COPIED;
use crate::metrics::MetricsReader;
use crate::metrics::query_answer;
use crate::metrics::recorded::{RecordedPage, RecordedPages};
use crate::source::lines::Lines;
use crate::source::{Losses, Place, Sink, SourceContext};
use kvprov_model::content::FleetKey;
use kvprov_model::expected;
use kvprov_model::id::{NodeId, WorkerId};
use kvprov_model::observation::{Body, Loss, Observation, SourceKind};
use kvprov_packs::{Matcher, Packs};
use std::collections::BTreeSet;
use std::io::Read;
use std::path::Path;

const CHUNK: usize = 256 * 1024;

/// The key of content hashes made in a replay: fixed, so that the same bundle always gives the same hashes. They never
/// leave the machine together with those of a fleet.
const REPLAY_SECRET: &[u8] = b"kvprov replay";

/// Called with bytes done and bytes in all.
pub(crate) type Progress<'a> = &'a mut dyn FnMut(u64, u64);

/// One pass over a bundle.
pub(crate) struct Pass<'a> {
    pub packs: &'a Packs,
    pub matcher: &'a Matcher,
    pub sink: Sink<'a>,
    pub progress: Progress<'a>,
    pub done: u64,
    pub total: u64,
    pub report: Report,
    pub key: FleetKey,
    pub mounts: Mounts,
}

// === impl Pass ===

impl<'a> Pass<'a> {
    pub(crate) fn new(
        bundle: &Bundle,
        packs: &'a Packs,
        matcher: &'a Matcher,
        sink: Sink<'a>,
        progress: Progress<'a>,
    ) -> Self {
        let report = Report { problems: bundle.problems.clone(), ..Report::default() };
        let key = FleetKey::from_secret(REPLAY_SECRET);
        Self {
            packs,
            matcher,
            sink,
            progress,
            done: 0,
            total: bundle.total_bytes(),
            report,
            key,
            mounts: Mounts::default(),
        }
    }

    pub(crate) fn run(mut self, bundle: &Bundle) -> Report {
        let mut workers: Vec<&WorkerSpec> = bundle.workers.iter().collect();
        workers.sort_by(|a, b| a.name.cmp(&b.name));
        self.compare_mounts(bundle);
        for (stream, list) in &bundle.expected {
            expected::observations(list, stream, None).into_iter().for_each(&mut *self.sink);
        }
        for worker in workers {
            let mut sources: Vec<&SourceSpec> =
                bundle.sources.iter().filter(|source| source.worker == worker.name).collect();
            sources.sort_by(|a, b| (a.kind, a.at, &a.stream).cmp(&(b.kind, b.at, &b.stream)));
            self.worker(worker, &sources);
        }
        self.report
    }

    fn worker(&mut self, worker: &WorkerSpec, sources: &[&SourceSpec]) {
        let kinds: BTreeSet<InputKind> = sources.iter().map(|source| source.kind).collect();
        let kinds: Vec<InputKind> = kinds.into_iter().collect();
        let config = context(worker, &worker.declared_in);
        tell(worker, &kinds, self.packs, &config, self.sink);
        let declared = Identity::declared(worker);
        let mut identity = declared.clone();
        for source in sources.iter().filter(|source| source.kind == InputKind::Log) {
            self.log(worker, source, &mut identity);
        }
        if identity != declared {
            let place = Place { position: worker.line, offset: u64::MAX };
            let says = format!("worker {}: engine, version or settings as its log tells them", worker.name);
            let body = Body::Worker(identity.body(self.packs));
            (self.sink)(config.observe(SourceKind::Config, place, 0, None, Some(says), body));
        }
        let mut metrics = MetricsReader::new(self.packs, identity.version());
        let mut last_metrics = None;
        for source in sources {
            match source.kind {
                InputKind::Log => {}
                InputKind::Kernel => self.kernel(worker, source),
                InputKind::Events => self.events(worker, source),
                InputKind::Metrics => {
                    self.metrics(worker, source, &mut metrics);
                    last_metrics = Some(*source);
                }
            }
        }
        if let Some(source) = last_metrics {
            let counts = metrics.counts().clone();
            self.report.records += counts.matched + counts.ignored;
            self.lose(&context(worker, &source.stream), InputKind::Metrics, &counts.losses);
        }
    }

    fn log(&mut self, worker: &WorkerSpec, source: &SourceSpec, identity: &mut Identity) {
        let context = context(worker, &source.stream);
        let mut input = LogInput::new(context.clone(), source, identity, self.packs, self.matcher);
        self.chunks(source, |pass, chunk| {
            let sink = &mut *pass.sink;
            input.feed(chunk, &mut |observation| learn_and_pass(observation, identity, sink));
        });
        let sink = &mut *self.sink;
        let (lines, losses) = input.finish(&mut |observation| learn_and_pass(observation, identity, sink));
        self.report.lines += lines;
        self.lose(&context, InputKind::Log, &losses);
    }

    /// Looks through the kernel records of all nodes for stores on common file systems. What cannot be read is told
    /// when the records are read in earnest.
    fn compare_mounts(&mut self, bundle: &Bundle) {
        let kernel: Vec<&SourceSpec> =
            bundle.sources.iter().filter(|source| source.kind == InputKind::Kernel).collect();
        if kernel.len() < 2 {
            return;
        }
        for source in kernel {
            let Some(worker) = bundle.workers.iter().find(|worker| worker.name == source.worker) else {
                continue;
            };
            let node = context(worker, "").node;
            let mut lines = Lines::new();
            let mounts = &mut self.mounts;
            let packs = self.packs;
            let mut note = |_: Place, line: &[u8]| {
                if memchr::memmem::find(line, b"\"fs\"").is_some()
                    && let Ok(record) = Record::parse(line)
                {
                    mounts.note(node.as_str(), &record, packs);
                }
            };
            // Not readable: told when it is read in earnest.
            let _ = each_chunk(&source.path, &mut |chunk| lines.feed(chunk, &mut note));
            lines.finish(&mut note);
        }
    }

    fn kernel(&mut self, worker: &WorkerSpec, source: &SourceSpec) {
        let context = context(worker, &source.stream);
        let mut reader = KernelReader::new(context.clone(), self.packs).with_mounts(self.mounts.clone());
        let mut lines = Lines::new();
        self.chunks(source, |pass, chunk| {
            lines.feed(chunk, |place, line| reader.line(place, line, pass.sink));
        });
        let overlong = lines.finish(|place, line| reader.line(place, line, self.sink));
        let mut counts = reader.finish(self.sink);
        counts.losses.add("line too long", overlong);
        self.report.records += counts.records;
        self.lose(&context, InputKind::Kernel, &counts.losses);
    }

    fn events(&mut self, worker: &WorkerSpec, source: &SourceSpec) {
        let context = context(worker, &source.stream);
        let key = self.key.clone();
        let mut reader = EventReader::new(context.clone(), &key);
        let mut lines = Lines::new();
        self.chunks(source, |pass, chunk| {
            lines.feed(chunk, |place, line| reader.line(place, line, pass.sink));
        });
        let overlong = lines.finish(|place, line| reader.line(place, line, self.sink));
        let mut counts = reader.counts();
        counts.losses.add("line too long", overlong);
        self.report.records += counts.events;
        self.lose(&context, InputKind::Events, &counts.losses);
    }

    fn metrics(&mut self, worker: &WorkerSpec, source: &SourceSpec, reader: &mut MetricsReader<'_>) {
        let context = context(worker, &source.stream);
        let mut pages = RecordedPages::default();
        let mut read = |page: &RecordedPage<'_>, sink: Sink<'_>| {
            let place = Place { position: page.number, offset: page.offset };
            match page.mark {
                Some(mark) => {
                    reader.snapshot_of(&mark.endpoint, Some(mark.at), &context, place, page.text, sink);
                }
                None => reader.snapshot(source.at, &context, place, page.text, sink),
            }
        };
        match query_answer_in(&source.path) {
            Some(answer) => pages.feed(&answer, |page| read(page, self.sink)),
            None => self.chunks(source, |pass, chunk| pages.feed(chunk, |page| read(page, pass.sink))),
        }
        pages.finish(|page| read(page, self.sink));
    }

    /// Hands a file on in chunks. What cannot be read is a problem.
    fn chunks(&mut self, source: &SourceSpec, mut take: impl FnMut(&mut Self, &[u8])) {
        let result = each_chunk(&source.path, &mut |chunk| {
            take(self, chunk);
            // A file that grows while it is read does not overrun the total.
            self.done = self.done.saturating_add(chunk.len() as u64).min(self.total);
            (self.progress)(self.done, self.total);
        });
        if let Err(error) = result {
            self.report.problems.push(Problem::new(
                &source.stream,
                format!("{} of worker {:?} not readable: {error}", source.kind.as_str(), source.worker),
                "check the file and its permissions; everything else was read",
            ));
        }
    }

    /// Counts losses of a source, and tells them where the collector weighs absence.
    fn lose(&mut self, context: &SourceContext, kind: InputKind, losses: &Losses) {
        self.report.lose(kind.as_str(), losses);
        let source_kind = match kind {
            InputKind::Log => SourceKind::Log,
            InputKind::Kernel => SourceKind::Kernel,
            InputKind::Events => SourceKind::Events,
            InputKind::Metrics => SourceKind::Metrics,
        };
        for (index, (reason, count)) in losses.iter().enumerate() {
            let body = Body::Loss(Loss {
                stage: Some("read".to_owned()),
                reason: Some(reason.to_owned()),
                records: i64::try_from(count).ok(),
                bytes: None,
            });
            let place = Place { position: 0, offset: u64::MAX };
            let index = u32::try_from(index).unwrap_or(u32::MAX);
            let says = format!("{count} records of {} skipped: {reason}", context.stream);
            (self.sink)(context.observe(source_kind.clone(), place, index, None, Some(says), body));
        }
    }
}

/// The pages of a file that is an answer of Prometheus' query API.
fn query_answer_in(path: &Path) -> Option<Vec<u8>> {
    let metadata = path.metadata().ok()?;
    let may_be = metadata.is_file() && metadata.len() <= MAX_COPIED;
    may_be.then(|| std::fs::read(path).ok()).flatten().and_then(|text| query_answer::pages(&text))
}

fn each_chunk(path: &Path, take: &mut dyn FnMut(&[u8])) -> std::io::Result<()> {
    let mut buffer = vec![0; CHUNK];
    let mut file = std::fs::File::open(path)?;
    loop {
        match file.read(&mut buffer) {
            Ok(0) => return Ok(()),
            Ok(read) => take(&buffer[..read]),
            Err(error) if error.kind() == std::io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
}

fn learn_and_pass(observation: Observation, identity: &mut Identity, sink: Sink<'_>) {
    if let Body::Worker(said) = &observation.body {
        identity.learn(said);
    }
    sink(observation);
}

/// A source of a worker. The node of a worker that names none is its own and no one else's: unknown is never equal.
fn context(worker: &WorkerSpec, stream: &str) -> SourceContext {
    let node = worker.node.clone().unwrap_or_else(|| format!("unknown/{}", worker.name));
    SourceContext {
        node: NodeId(node),
        worker: Some(WorkerId(worker.name.clone())),
        stream: stream.to_owned(),
        instance: format!("{}\u{0}{stream}", worker.name),
        generation: 0,
    }
}
