//! What the agent itself costs, from its own `/proc/self`, under Prometheus' standard names, and the figures of queue
//! and shipper.

use super::Stats;
use super::metric;
use crate::ship::{Outbox, ShipStats};
use procfs::process::Process;

/// Adds what this process costs.
pub fn process(stats: &Stats) {
    stats.value(metric::PROCESS_CPU, || {
        let stat = Process::myself().ok()?.stat().ok()?;
        Some((stat.utime + stat.stime) as f64 / procfs::ticks_per_second() as f64)
    });
    stats.value(metric::PROCESS_RESIDENT, || {
        Some(Process::myself().ok()?.stat().ok()?.rss as f64 * procfs::page_size() as f64)
    });
    stats.value(metric::PROCESS_VIRTUAL, || Some(Process::myself().ok()?.stat().ok()?.vsize as f64));
    stats.value(metric::PROCESS_THREADS, || Some(Process::myself().ok()?.stat().ok()?.num_threads as f64));
    stats.value(metric::PROCESS_FDS, || Some(Process::myself().ok()?.fd_count().ok()? as f64));
    stats.value(metric::PROCESS_MAX_FDS, || {
        match Process::myself().ok()?.limits().ok()?.max_open_files.soft_limit {
            procfs::process::LimitValue::Value(limit) => Some(limit as f64),
            procfs::process::LimitValue::Unlimited => None,
        }
    });
    stats.value(metric::PROCESS_START, || {
        let ticks = Process::myself().ok()?.stat().ok()?.starttime as f64;
        Some(procfs::boot_time_secs().ok()? as f64 + ticks / procfs::ticks_per_second() as f64)
    });
}

/// Adds the figures of a queue.
pub fn queue(stats: &Stats, outbox: &Outbox) {
    let with = |read: fn(crate::ship::QueueStats) -> Option<f64>| {
        let outbox = outbox.clone();
        move || read(outbox.stats())
    };
    stats.value(metric::QUEUE_CAPACITY, with(|queue| Some(queue.capacity_bytes as f64)));
    stats.value(metric::QUEUE_SEGMENTS, with(|queue| Some(queue.segments as f64)));
    stats.value(metric::QUEUE_RECORDS, with(|queue| Some(queue.waiting as f64)));
    stats.value(metric::QUEUE_OLDEST, with(|queue| Some(queue.oldest.unwrap_or_default().as_secs_f64())));
    stats.value(metric::QUEUE_DISK_FAILURES, with(|queue| Some(queue.disk_failures as f64)));
    stats.value(metric::QUEUE_TORN_BYTES, with(|queue| Some(queue.torn_bytes as f64)));
    stats.value(metric::DELIVERED, with(|queue| Some(queue.delivered as f64)));
    let of = outbox.clone();
    stats.source(metric::QUEUE_BYTES, move || {
        let queue = of.stats();
        vec![
            (vec!["disk".to_owned()], queue.disk_bytes as f64),
            (vec!["memory".to_owned()], queue.memory_bytes as f64),
        ]
    });
    let of = outbox.clone();
    stats.source(metric::OBSERVATIONS, move || {
        of.stats().kinds.into_iter().map(|(kind, count)| (vec![kind.to_owned()], count as f64)).collect()
    });
    let of = outbox.clone();
    stats.source(metric::LOST, move || {
        let labels = |reason: crate::ship::Reason| vec!["ship".to_owned(), reason.as_str().to_owned()];
        of.stats().lost.into_iter().map(|(reason, count)| (labels(reason), count as f64)).collect()
    });
}

/// Adds the figures of a shipper ([`crate::ship::Shipper::watch`]).
pub fn shipper(stats: &Stats, read: impl Fn() -> ShipStats + Clone + Send + Sync + 'static) {
    let of = read.clone();
    stats.source(metric::SHIP_REQUESTS, move || {
        let ship = of();
        let counts = [
            ("taken", ship.taken),
            ("retried", ship.retried),
            ("split", ship.split),
            ("refused", ship.refused),
        ];
        counts.into_iter().map(|(outcome, count)| (vec![outcome.to_owned()], count as f64)).collect()
    });
    let of = read.clone();
    stats.value(metric::SHIP_BYTES, move || Some(of().taken_bytes as f64));
    stats.value(metric::SHIP_LAST, move || read().last_taken.map(|taken| taken.elapsed().as_secs_f64()));
}
