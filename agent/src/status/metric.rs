//! The metrics of the agent: a closed list, by Prometheus' naming, with bounded labels.
//!
//! Invariant: no label holds a request id, key, pid or path. Whoever has the figures gives a source for a metric of this
//! list ([`super::Stats::source`]); a metric without a source is absent, not zero.

/// How a metric moves.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// Only up, from the start of the process.
    Counter,
    /// Up and down.
    Gauge,
}

/// One metric.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Metric {
    /// Its name.
    pub name: &'static str,
    /// What it says.
    pub help: &'static str,
    /// How it moves.
    pub kind: Kind,
    /// Names of its labels.
    pub labels: &'static [&'static str],
}

macro_rules! metrics {
    ($($(#[doc = $doc:literal])+ $constant:ident: $kind:ident $name:literal [$($label:literal),*] $help:literal,)+) => {
        $($(#[doc = $doc])+
        pub const $constant: Metric =
            Metric { name: $name, help: $help, kind: Kind::$kind, labels: &[$($label),*] };)+

        /// All of them.
        pub const ALL: &[Metric] = &[$($constant),+];
    };
}

metrics! {
    /// Observations that were made.
    OBSERVATIONS: Counter "kvprov_observations_total" ["kind"]
        "Observations that were made, by kind.",
    /// Observations or records that were lost.
    LOST: Counter "kvprov_observations_lost_total" ["stage", "reason"]
        "Records that were lost, by stage and reason.",
    /// Log lines by what became of them.
    LOG_LINES: Counter "kvprov_log_lines_total" ["engine", "outcome"]
        "Log lines by engine and what became of them.",
    /// Log files that are followed.
    LOG_FILES: Gauge "kvprov_log_files" []
        "Log files that are followed.",
    /// Pages of counters.
    SCRAPE_PAGES: Counter "kvprov_scrape_pages_total" []
        "Pages of counters that were read of workers.",
    /// Other answers.
    SCRAPE_ANSWERS: Counter "kvprov_scrape_answers_total" []
        "Answers about models and versions that were read of workers.",
    /// Bytes of both.
    SCRAPE_BYTES: Counter "kvprov_scrape_bytes_total" []
        "Bytes of pages and answers that were read of workers.",
    /// Time of both.
    SCRAPE_SECONDS: Counter "kvprov_scrape_seconds_total" []
        "Time that questions to workers took, failed ones included.",
    /// Processor time of both.
    SCRAPE_CPU: Counter "kvprov_scrape_cpu_seconds_total" []
        "Processor time that finding sockets and reading pages took.",
    /// What failed.
    SCRAPE_FAILURES: Counter "kvprov_scrape_failures_total" ["reason"]
        "Questions to workers that gave nothing, by reason.",
    /// Endpoints.
    SCRAPE_ENDPOINTS: Gauge "kvprov_scrape_endpoints" ["state"]
        "Endpoints with counters by what becomes of them: read, waiting, failing, refused.",
    /// Kernel events: fired, filtered, delivered, dropped.
    KERNEL_EVENTS: Counter "kvprov_kernel_events_total" ["kind", "outcome"]
        "Kernel events by kind and what became of them: fired, filtered, delivered or dropped.",
    /// Time that kernel programs ran.
    KERNEL_SECONDS: Counter "kvprov_kernel_program_seconds_total" ["program"]
        "Time that a kernel program ran; there only where the kernel counts it.",
    /// Runs of kernel programs.
    KERNEL_RUNS: Counter "kvprov_kernel_program_runs_total" ["program"]
        "Runs of a kernel program; there only where the kernel counts them.",
    /// Files of models.
    MODEL_FILES: Gauge "kvprov_model_files_waiting" []
        "Files of models whose digest, or that of their tensors, is not known yet.",
    /// Bytes of files of models.
    MODEL_BYTES: Counter "kvprov_model_bytes_read_total" []
        "Bytes of model files that were read to tell their digests, parts without blocks included.",
    /// Bytes of the ring that wait.
    RING_BYTES: Gauge "kvprov_kernel_ring_bytes" ["state"]
        "Bytes of the ring between kernel and agent: used, size.",
    /// KV events.
    KV_EVENTS: Counter "kvprov_kv_events_total" ["action"]
        "KV events that were taken, by what they say: stored, removed, cleared.",
    /// Publishers of KV events.
    KV_PUBLISHERS: Gauge "kvprov_kv_event_publishers" ["state"]
        "Publishers of KV events of the workers that are watched: subscribed, or waiting.",
    /// Workers that are watched.
    WORKERS: Gauge "kvprov_workers" ["engine"]
        "Workers that are watched, by engine.",
    /// Containers that workers are in.
    CONTAINERS: Gauge "kvprov_containers" ["told_by"]
        "Containers that workers are in, by who told what they are called: runtime, file, nobody.",
    /// Bytes of the queue.
    QUEUE_BYTES: Gauge "kvprov_queue_bytes" ["place"]
        "Bytes that wait to be delivered: on disk, or in memory while the disk is full.",
    /// Bytes that the queue may take.
    QUEUE_CAPACITY: Gauge "kvprov_queue_capacity_bytes" []
        "Bytes that the queue may take on disk.",
    /// Segments of the queue.
    QUEUE_SEGMENTS: Gauge "kvprov_queue_segments" []
        "Segments of the queue.",
    /// Records of the queue.
    QUEUE_RECORDS: Gauge "kvprov_queue_records" []
        "Records that wait to be delivered.",
    /// Age of the oldest segment.
    QUEUE_OLDEST: Gauge "kvprov_queue_oldest_seconds" []
        "How long the oldest segment that waits has been there.",
    /// Failed writes.
    QUEUE_DISK_FAILURES: Counter "kvprov_queue_disk_failures_total" []
        "Writes that the disk under the queue refused.",
    /// Torn writes.
    QUEUE_TORN_BYTES: Counter "kvprov_queue_torn_bytes_total" []
        "Bytes of writes that the end of an earlier process cut off; nothing that was committed.",
    /// Delivered records.
    DELIVERED: Counter "kvprov_observations_delivered_total" []
        "Observations that the receiver took.",
    /// Requests to the receiver.
    SHIP_REQUESTS: Counter "kvprov_ship_requests_total" ["outcome"]
        "Requests to the receiver by what became of them: taken, retried, split, refused.",
    /// Bytes to the receiver.
    SHIP_BYTES: Counter "kvprov_ship_bytes_total" []
        "Bytes that the receiver took, before compression.",
    /// Age of the last success.
    SHIP_LAST: Gauge "kvprov_ship_last_taken_seconds" []
        "How long ago the receiver took a request last.",
    /// Series that were left out.
    SERIES_CUT: Gauge "kvprov_metric_series_cut" ["metric"]
        "Series that this page leaves out because a metric has too many.",
    /// CPU time.
    PROCESS_CPU: Counter "process_cpu_seconds_total" []
        "CPU time of the agent.",
    /// Resident memory.
    PROCESS_RESIDENT: Gauge "process_resident_memory_bytes" []
        "Resident memory of the agent.",
    /// Virtual memory.
    PROCESS_VIRTUAL: Gauge "process_virtual_memory_bytes" []
        "Virtual memory of the agent.",
    /// Open descriptors.
    PROCESS_FDS: Gauge "process_open_fds" []
        "Open descriptors of the agent.",
    /// Limit of descriptors.
    PROCESS_MAX_FDS: Gauge "process_max_fds" []
        "Descriptors that the agent may have open.",
    /// Threads.
    PROCESS_THREADS: Gauge "process_threads" []
        "Threads of the agent.",
    /// Start.
    PROCESS_START: Gauge "process_start_time_seconds" []
        "When the agent started, in seconds since 1970.",
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_follow_the_conventions() {
        for metric in ALL {
            let counter = metric.kind == Kind::Counter;
            assert_eq!(metric.name.ends_with("_total"), counter, "{}", metric.name);
            assert!(metric.name.starts_with("kvprov_") || metric.name.starts_with("process_"));
            assert!(metric.help.ends_with('.'), "{}", metric.name);
        }
    }
}
