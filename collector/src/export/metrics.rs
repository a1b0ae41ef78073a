//! Prometheus metrics, made from a snapshot at every scrape.
//!
//! Names that start with `kvprov_` and are fixed are part of the interface. Labels are bounded: closed words, pools (at
//! most some dozens), workers (at most [`WORKERS`]); never a request, a key, a process or a path.

use super::process;
use super::traces::TraceStats;
use crate::receive::{NodeClock, Outcome, ReceiveStats};
use crate::run::totals::{OTHER, UNKNOWN};
use crate::run::{Numbers, Seen};
use kvprov_model::factor::FactorState;
use kvprov_model::id::NodeId;
use prometheus::core::{AtomicU64, GenericCounterVec};
use prometheus::{
    Counter, Encoder, GaugeVec, IntCounter, IntGauge, IntGaugeVec, Opts, Registry, TextEncoder,
};
use std::collections::{BTreeMap, BTreeSet};

/// The content type of the text.
pub const CONTENT_TYPE: &str = prometheus::TEXT_FORMAT;
/// Workers that are exported one by one.
const WORKERS: usize = 1_000;
/// Pools, roles and revisions that are told apart.
const REVISIONS: usize = 128;
/// Nodes that are exported one by one.
const NODES: usize = 1_000;
/// Stages and reasons of losses that are told apart.
const LOSSES: usize = 64;

type CounterVec = GenericCounterVec<AtomicU64>;

/// The metrics could not be made.
#[derive(Debug, thiserror::Error)]
#[error("could not make the metrics: {0}")]
pub struct MetricsError(#[from] prometheus::Error);

/// What the receivers tell, where there are any.
pub type Received = (ReceiveStats, BTreeMap<NodeId, NodeClock>);

/// Everything, in the text format. `queued`: observations that wait in front of the ledger.
pub fn text(
    seen: &Seen,
    queued: usize,
    received: Option<&Received>,
    traces: Option<&TraceStats>,
) -> Result<Vec<u8>, MetricsError> {
    let made = Made { registry: Registry::new() };
    findings(&made, seen)?;
    workers(&made, seen)?;
    requests(&made, seen)?;
    own_cost(&made, &seen.numbers, queued)?;
    losses(&made, seen)?;
    if let Some((stats, clocks)) = received {
        receivers(&made, stats, clocks)?;
    }
    if let Some(stats) = traces {
        tracing(&made, stats)?;
    }
    process_cost(&made)?;
    let mut text = Vec::with_capacity(16 << 10);
    TextEncoder::new().encode(&made.registry.gather(), &mut text)?;
    Ok(text)
}

struct Made {
    registry: Registry,
}

impl Made {
    fn counters(&self, name: &str, help: &str, labels: &[&str]) -> Result<CounterVec, prometheus::Error> {
        let counters = CounterVec::new(Opts::new(name, help), labels)?;
        self.registry.register(Box::new(counters.clone()))?;
        Ok(counters)
    }

    fn gauges(&self, name: &str, help: &str, labels: &[&str]) -> Result<IntGaugeVec, prometheus::Error> {
        let gauges = IntGaugeVec::new(Opts::new(name, help), labels)?;
        self.registry.register(Box::new(gauges.clone()))?;
        Ok(gauges)
    }

    fn counter(&self, name: &str, help: &str, value: u64) -> Result<(), prometheus::Error> {
        let counter = IntCounter::new(name, help)?;
        counter.inc_by(value);
        self.registry.register(Box::new(counter))
    }

    fn seconds(&self, name: &str, help: &str, value: f64) -> Result<(), prometheus::Error> {
        let counter = Counter::new(name, help)?;
        counter.inc_by(value.max(0.0));
        self.registry.register(Box::new(counter))
    }

    fn gauge(&self, name: &str, help: &str, value: u64) -> Result<(), prometheus::Error> {
        let gauge = IntGauge::new(name, help)?;
        gauge.set(i64::try_from(value).unwrap_or(i64::MAX));
        self.registry.register(Box::new(gauge))
    }
}

fn findings(made: &Made, seen: &Seen) -> Result<(), prometheus::Error> {
    let opened = made.counters(
        "kvprov_findings_total",
        "Findings, counted when they open for the first time.",
        &["detector", "cause"],
    )?;
    for ((detector, cause), count) in &seen.totals.opened {
        opened.with_label_values(&[detector, cause]).inc_by(*count);
    }
    let open = made.gauges("kvprov_findings_open", "Findings that stand.", &["detector", "confidence"])?;
    for finding in seen.findings.iter() {
        let confidence = match finding.confidence {
            kvprov_model::finding::Confidence::Confirmed => "confirmed",
            kvprov_model::finding::Confidence::Suspected => "suspected",
            kvprov_model::finding::Confidence::Risk => "risk",
        };
        open.with_label_values(&[finding.detector.as_str(), confidence]).inc();
    }
    let costs = [
        (
            "kvprov_cross_revision_hits_total",
            "Requests, or artifacts where no request is known, that used KV of another compatibility group.",
            &seen.totals.cross_hits,
        ),
        (
            "kvprov_cross_revision_tokens_total",
            "Tokens of KV that were used under another compatibility group.",
            &seen.totals.cross_tokens,
        ),
        (
            "kvprov_recomputed_prompt_tokens_total",
            "Prompt tokens that were computed although their KV should have come from elsewhere.",
            &seen.totals.recomputed_tokens,
        ),
    ];
    for (name, help, totals) in costs {
        let counters = made.counters(name, help, &["pool", "cause"])?;
        for ((pool, cause), count) in totals {
            counters.with_label_values(&[pool, cause]).inc_by(*count);
        }
    }
    Ok(())
}

fn workers(made: &Made, seen: &Seen) -> Result<(), prometheus::Error> {
    let labels = ["worker", "node", "pool", "role", "engine", "engine_version", "revision"];
    let info = made.gauges(
        "kvprov_worker_info",
        "Workers that live, with what is known of them; always 1.",
        &labels,
    )?;
    let states = made.gauges(
        "kvprov_worker_factors",
        "Semantic and other factors of workers that live, by how much is known of them.",
        &["factor", "state"],
    )?;
    let living = seen.workers.iter().filter(|worker| worker.gone.is_none());
    for worker in living.clone().take(WORKERS) {
        let revision = worker.revision.as_deref().unwrap_or(UNKNOWN);
        let values =
            [&worker.id, &worker.node, &worker.pool, &worker.role, &worker.engine, &worker.engine_version];
        let mut values: Vec<&str> = values.into_iter().map(String::as_str).collect();
        values.push(revision);
        info.with_label_values(&values).set(1);
        for factor in &worker.factors {
            let name = kvprov_model::factor::SEMANTIC
                .iter()
                .find(|name| **name == factor.factor)
                .unwrap_or(&"other");
            let state = FactorState::ALL.iter().find(|state| **state == factor.state).unwrap_or(&UNKNOWN);
            states.with_label_values(&[*name, *state]).inc();
        }
    }
    let by_revision = made.gauges(
        "kvprov_revision_workers",
        "Workers that live, by what they run.",
        &["pool", "role", "revision"],
    )?;
    let mut told: BTreeSet<[&str; 3]> = BTreeSet::new();
    for worker in living.clone() {
        let revision = worker.revision.as_deref().unwrap_or(UNKNOWN);
        let place = [worker.pool.as_str(), worker.role.as_str(), revision];
        let has_room = told.contains(&place) || told.len() < REVISIONS;
        let place = if has_room { place } else { [OTHER, OTHER, OTHER] };
        told.insert(place);
        by_revision.with_label_values(&place).inc();
    }
    made.gauge("kvprov_workers", "Workers that live.", living.count() as u64)?;
    let failing = u64::from(seen.misdeclared.is_some());
    let help = "1 while the file of expected revisions cannot be used; what was declared before stands.";
    made.gauge("kvprov_expected_file_failing", help, failing)
}

fn requests(made: &Made, seen: &Seen) -> Result<(), prometheus::Error> {
    let by_status = made.counters(
        "kvprov_requests_total",
        "Requests by the status of their lineage, counted when nothing more was said of them.",
        &["status"],
    )?;
    for (status, count) in &seen.totals.requests {
        by_status.with_label_values(&[status]).inc_by(*count);
    }
    let points = made.counters(
        "kvprov_revision_points_total",
        "Points of the lineages of these requests, by whether their revision is known.",
        &["point", "known"],
    )?;
    for ((point, known), count) in &seen.totals.points {
        points.with_label_values(&[point, known]).inc_by(*count);
    }
    let revisions = made.counters(
        "kvprov_revision_requests_total",
        "Points of the lineages of these requests, by revision.",
        &["point", "revision"],
    )?;
    for ((point, revision), count) in &seen.totals.revisions {
        revisions.with_label_values(&[point, revision]).inc_by(*count);
    }
    let evictions = made.counters(
        "kvprov_store_evictions_total",
        "Artifacts of a store that one worker removed although another had written them.",
        &["store", "by_pool", "of_pool"],
    )?;
    for removed in &seen.totals.evictions {
        let labels = [&removed.store, &removed.by_pool, &removed.of_pool];
        evictions.with_label_values(&labels).inc_by(removed.total);
    }
    let Some(survey) = &seen.survey else { return Ok(()) };
    made.gauge("kvprov_stores", "Stores that the ledger knows.", survey.stores.len() as u64)?;
    made.gauge("kvprov_keyspaces", "Keyspaces that the ledger knows.", survey.keyspaces.len() as u64)
}

fn own_cost(made: &Made, numbers: &Numbers, queued: usize) -> Result<(), prometheus::Error> {
    let observations =
        made.counters("kvprov_observations_total", "Observations received, duplicates too.", &["kind"])?;
    for (kind, count) in &numbers.observations {
        observations.with_label_values(&[kind]).inc_by(*count);
    }
    made.counter(
        "kvprov_ledger_observations_added_total",
        "Observations that were new to the ledger.",
        numbers.added,
    )?;
    made.counter(
        "kvprov_ledger_observations_duplicate_total",
        "Observations that the ledger held already.",
        numbers.duplicates,
    )?;
    made.counter(
        "kvprov_ledger_observations_removed_total",
        "Observations that grew too old, or that the ledger had no room for any more.",
        numbers.removed,
    )?;
    made.counter("kvprov_ledger_batches_total", "Batches merged into the ledger.", numbers.batches)?;
    made.counter(
        "kvprov_ledger_failures_total",
        "Times at which the ledger could not be read or written.",
        numbers.failures,
    )?;
    made.seconds(
        "kvprov_ledger_merge_seconds_total",
        "Time spent on merging.",
        numbers.merging.as_secs_f64(),
    )?;
    made.counter("kvprov_evaluations_total", "Evaluations of subjects.", numbers.evaluations)?;
    made.seconds(
        "kvprov_evaluation_seconds_total",
        "Time spent on evaluating subjects.",
        numbers.evaluating.as_secs_f64(),
    )?;
    let longest = GaugeVec::new(
        Opts::new("kvprov_evaluation_longest_seconds", "What the longest evaluation took."),
        &[],
    )?;
    made.registry.register(Box::new(longest.clone()))?;
    longest.with_label_values::<&str>(&[]).set(numbers.longest.as_secs_f64());
    let subjects = made.gauges(
        "kvprov_subjects",
        "Subjects, by whether they are due for evaluation or wait for a node to be heard.",
        &["state"],
    )?;
    let states = [("known", numbers.subjects), ("due", numbers.due), ("awaiting", numbers.awaiting)];
    for (state, count) in states {
        subjects.with_label_values(&[state]).set(count as i64);
    }
    let nodes = made.gauges("kvprov_nodes", "Nodes that were heard of.", &["state"])?;
    nodes.with_label_values(&["silent"]).set(numbers.silent as i64);
    nodes.with_label_values(&["speaking"]).set(numbers.nodes.saturating_sub(numbers.silent) as i64);
    made.gauge(
        "kvprov_intake_queue_observations",
        "Observations that wait in front of the ledger.",
        queued as u64,
    )?;
    if let Some(bytes) = numbers.ledger_bytes {
        made.gauge("kvprov_ledger_bytes", "Bytes of the ledger on disk.", bytes)?;
    }
    Ok(())
}

/// Requests of agents, and their clocks.
fn receivers(
    made: &Made,
    stats: &ReceiveStats,
    clocks: &BTreeMap<NodeId, NodeClock>,
) -> Result<(), prometheus::Error> {
    let requests = made.counters(
        "kvprov_receive_requests_total",
        "Requests of agents, by what became of them.",
        &["outcome"],
    )?;
    for outcome in Outcome::ALL {
        requests.with_label_values(&[outcome.as_str()]).inc_by(stats.of(outcome));
    }
    made.counter(
        "kvprov_receive_unknown_kinds_total",
        "Observations of a kind that this version does not know; kept.",
        stats.unknown_kinds,
    )?;
    made.counter(
        "kvprov_receive_unknown_attributes_total",
        "Attributes that this version does not know; kept.",
        stats.unknown_attributes,
    )?;
    made.counter(
        "kvprov_receive_far_ahead_total",
        "Observations whose time was too far ahead of the collector's clock to be used.",
        stats.far_ahead,
    )?;
    let requests = made.counters(
        "kvprov_engine_span_requests_total",
        "Requests of engines with spans, by what became of them.",
        &["outcome"],
    )?;
    for (outcome, count) in Outcome::ALL.iter().zip(stats.spans.requests) {
        requests.with_label_values(&[outcome.as_str()]).inc_by(count);
    }
    let spans = made.counters(
        "kvprov_engine_spans_total",
        "Spans of engines: those that tell of a request, those that no pack knows, and those without usable ids or beyond \
         what is kept.",
        &["outcome"],
    )?;
    let outcomes =
        [("told", stats.spans.told), ("unknown", stats.spans.unknown), ("dropped", stats.spans.dropped)];
    for (outcome, count) in outcomes {
        spans.with_label_values(&[outcome]).inc_by(count);
    }
    made.counter(
        "kvprov_engine_span_content_removed_total",
        "Attributes and events with prompts or answers that were taken out of spans before they were handed on.",
        stats.spans.content_removed,
    )?;
    let ahead = GaugeVec::new(
        Opts::new(
            "kvprov_node_clock_ahead_seconds",
            "How far a node's clock is ahead of the collector's, as well as arrivals tell.",
        ),
        &["node"],
    )?;
    made.registry.register(Box::new(ahead.clone()))?;
    for (node, clock) in clocks.iter().take(NODES) {
        if let Some(nanoseconds) = clock.ahead_ns {
            ahead.with_label_values(&[node.as_str()]).set(nanoseconds as f64 / 1e9);
        }
    }
    Ok(())
}

/// Requests told as traces, and what waits for the tracing endpoint.
fn tracing(made: &Made, stats: &TraceStats) -> Result<(), prometheus::Error> {
    let told = made.counters(
        "kvprov_traces_requests_total",
        "Requests told as a trace for the first time, by why.",
        &["reason"],
    )?;
    for (reason, count) in &stats.told {
        told.with_label_values(&[*reason]).inc_by(*count);
    }
    made.counter(
        "kvprov_traces_requests_again_total",
        "Requests told again under the same ids, because something about them became another.",
        stats.told_again,
    )?;
    made.gauge(
        "kvprov_traces_waiting_requests",
        "Requests that wait until their nodes have been heard past their end.",
        stats.waiting,
    )?;
    let queued =
        made.counters("kvprov_traces_spans_queued_total", "Spans put into the queue.", &["origin"])?;
    let delivered =
        made.counters("kvprov_traces_spans_delivered_total", "Spans that the endpoint took.", &["origin"])?;
    for (counters, counts) in [(queued, &stats.queued), (delivered, &stats.delivered)] {
        for (origin, count) in counts {
            counters.with_label_values(&[origin.as_str()]).inc_by(*count);
        }
    }
    let lost = made.counters(
        "kvprov_traces_lost_total",
        "Spans that went nowhere; requests, where the reason is undated or too_many_waiting.",
        &["origin", "reason"],
    )?;
    for ((origin, reason), count) in &stats.lost {
        lost.with_label_values(&[origin.as_str(), reason.as_str()]).inc_by(*count);
    }
    made.counter("kvprov_traces_exports_total", "Exports that the endpoint took.", stats.exports)?;
    made.counter("kvprov_traces_retries_total", "Exports that were tried again.", stats.retries)?;
    made.gauge("kvprov_traces_queue_bytes", "Bytes of spans that wait.", stats.holds.bytes)?;
    made.gauge(
        "kvprov_traces_queue_capacity_bytes",
        "Bytes of spans that may wait.",
        stats.holds.capacity_bytes,
    )?;
    made.gauge("kvprov_traces_queue_spans", "Spans that wait.", stats.holds.spans)?;
    let oldest = stats.holds.oldest.unwrap_or_default().as_secs();
    made.gauge("kvprov_traces_queue_oldest_seconds", "How long the oldest of them has waited.", oldest)?;
    let failing = u64::from(stats.failing.is_some());
    made.gauge("kvprov_traces_failing", "1 while the endpoint takes nothing.", failing)
}

/// What was lost on the way here and what agents say that they lost.
fn losses(made: &Made, seen: &Seen) -> Result<(), prometheus::Error> {
    let counters = made.counters(
        "kvprov_observations_lost_total",
        "Records lost, by where and why; of sources, as their agents say.",
        &["stage", "reason"],
    )?;
    let mut lost: BTreeMap<(String, String), u64> = seen.numbers.lost.clone();
    for loss in seen.workers.iter().flat_map(|worker| &worker.losses) {
        // Agents use words of a closed list; what does not look like one is not taken for a label.
        let is_word = |text: &str| {
            text.len() <= 48 && text.bytes().all(|b| b.is_ascii_alphanumeric() || b"_ ".contains(&b))
        };
        let word = |text: &str| if is_word(text) { text.to_owned() } else { "other".to_owned() };
        let mut key = (word(&loss.stage), word(&loss.reason));
        if !lost.contains_key(&key) && lost.len() >= LOSSES {
            key = ("other".to_owned(), "other".to_owned());
        }
        let total = lost.entry(key).or_insert(0);
        *total = total.saturating_add(loss.records);
    }
    for ((stage, reason), records) in lost {
        counters.with_label_values(&[stage, reason]).inc_by(records);
    }
    Ok(())
}

fn process_cost(made: &Made) -> Result<(), prometheus::Error> {
    let usage = process::usage();
    if let Some(cpu) = usage.cpu {
        made.seconds("process_cpu_seconds_total", "Processor time of this process.", cpu.as_secs_f64())?;
    }
    if let Some(bytes) = usage.resident {
        made.gauge("process_resident_memory_bytes", "Memory of this process.", bytes)?;
    }
    if let Some(bytes) = usage.virtual_memory {
        made.gauge("process_virtual_memory_bytes", "Address space of this process.", bytes)?;
    }
    if let Some(open) = usage.descriptors {
        made.gauge("process_open_fds", "Open descriptors of this process.", open)?;
    }
    if let Some(threads) = usage.threads {
        made.gauge("process_threads", "Threads of this process.", threads)?;
    }
    Ok(())
}
