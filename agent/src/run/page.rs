//! The agent's page: metrics of all its parts, health, readiness.

use super::hub::Hub;
use crate::ship::{Outbox, Shipper};
use crate::status::{Readiness, Stats, StatusError, StatusPage, metric, own};
use kvprov_agent_common::Kind;
use kvprov_loader::client::Client;
use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::Arc;

/// The labels of a series and its value.
type Sample = (Vec<String>, f64);

/// Serves it.
pub(crate) fn serve(
    address: SocketAddr,
    hub: &Arc<Hub>,
    outbox: &Outbox,
    shipper: Option<&Shipper>,
    loader: Option<&Arc<Client>>,
    readiness: Arc<Readiness>,
) -> Result<StatusPage, StatusError> {
    let stats = Arc::new(Stats::default());
    own::process(&stats);
    own::queue(&stats, outbox);
    if let Some(shipper) = shipper {
        own::shipper(&stats, shipper.watch());
    }
    let series = |read: fn(&Hub) -> Vec<Sample>| {
        let hub = Arc::clone(hub);
        move || read(&hub)
    };
    stats.source(metric::OBSERVATIONS, series(Hub::kinds));
    stats.source(metric::LOST, series(Hub::losses));
    stats.source(metric::WORKERS, series(Hub::workers_by_engine));
    stats.source(metric::CONTAINERS, series(Hub::containers_by_teller));
    stats.source(metric::LOG_LINES, series(Hub::line_outcomes));
    stats.source(metric::RING_BYTES, series(Hub::ring_bytes));
    stats.source(metric::KV_EVENTS, series(Hub::kv_events));
    stats.source(metric::KV_PUBLISHERS, series(Hub::kv_publishers));
    let files = Arc::clone(hub);
    stats.value(metric::LOG_FILES, move || Some(files.followed_files()));
    let models = Arc::clone(hub);
    stats.value(metric::MODEL_FILES, move || Some(models.models().0 as f64));
    let models = Arc::clone(hub);
    stats.value(metric::MODEL_BYTES, move || Some(models.models().1 as f64));
    scraping(&stats, hub);
    if let Some(loader) = loader {
        kernel(&stats, loader);
    }
    StatusPage::start(address, stats, readiness)
}

/// What reading counters over HTTP costs, and what comes of it.
fn scraping(stats: &Stats, hub: &Arc<Hub>) {
    type Figure = fn(&Hub) -> f64;
    let values: [(metric::Metric, Figure); 5] = [
        (metric::SCRAPE_PAGES, |hub| hub.scraping().pages as f64),
        (metric::SCRAPE_ANSWERS, |hub| hub.scraping().answers as f64),
        (metric::SCRAPE_BYTES, |hub| hub.scraping().bytes as f64),
        (metric::SCRAPE_SECONDS, |hub| hub.scraping().spent.as_secs_f64()),
        (metric::SCRAPE_CPU, |hub| hub.scraping().worked.as_secs_f64()),
    ];
    for (metric, read) in values {
        let hub = Arc::clone(hub);
        stats.value(metric, move || Some(read(&hub)));
    }
    let series = |counts: &BTreeMap<&'static str, u64>| -> Vec<Sample> {
        counts.iter().map(|(word, count)| (vec![(*word).to_owned()], *count as f64)).collect()
    };
    let failures = Arc::clone(hub);
    stats.source(metric::SCRAPE_FAILURES, move || series(&failures.scraping().failures));
    let endpoints = Arc::clone(hub);
    stats.source(metric::SCRAPE_ENDPOINTS, move || series(&endpoints.scraping().endpoints));
}

/// What the kernel programs count. A loader that does not answer gives no series.
fn kernel(stats: &Stats, loader: &Arc<Client>) {
    let events = Arc::clone(loader);
    stats.source(metric::KERNEL_EVENTS, move || {
        let mut series = Vec::new();
        for counter in events.counters().unwrap_or_default().by_kind {
            let kind =
                Kind::from_number(counter.kind).map_or("unknown".to_owned(), |kind| format!("{kind:?}"));
            let outcomes = [
                ("fired", counter.fired),
                ("filtered", counter.filtered),
                ("delivered", counter.delivered),
                ("dropped", counter.dropped),
            ];
            for (outcome, count) in outcomes.into_iter().filter(|(_, count)| *count > 0) {
                series.push((vec![kind.to_lowercase(), outcome.to_owned()], count as f64));
            }
        }
        series
    });
    let seconds = Arc::clone(loader);
    stats.source(metric::KERNEL_SECONDS, move || {
        let programs = seconds.programs().unwrap_or_default();
        let ran = programs.into_iter().filter_map(|program| Some((program.name, program.run_time_ns?)));
        ran.map(|(name, nanos)| (vec![name], nanos as f64 / 1e9)).collect()
    });
    let runs = Arc::clone(loader);
    stats.source(metric::KERNEL_RUNS, move || {
        let programs = runs.programs().unwrap_or_default();
        let ran = programs.into_iter().filter_map(|program| Some((program.name, program.run_count?)));
        ran.map(|(name, count)| (vec![name], count as f64)).collect()
    });
}
