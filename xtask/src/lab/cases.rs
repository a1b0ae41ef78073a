//! The cases of the store rigs and what each is made to show.

/// One case.
#[derive(Debug)]
pub(crate) struct Case {
    /// As the rig names it.
    pub(crate) name: &'static str,
    /// Detector and cause that have to be found, confirmed; `None`: nothing but risks. Where the course of events decides
    /// between two causes, both, divided by `|`.
    pub(crate) expected: Option<(&'static str, &'static str)>,
    /// Detectors that may be found beside it.
    pub(crate) also: &'static [&'static str],
}

/// Every case that needs no server.
pub(crate) const CASES: [Case; 14] = [
    Case { name: "hicache-fork-tp", expected: Some(("keyspace_fork", "tp_size")), also: &[] },
    Case { name: "hicache-fork-path", expected: Some(("keyspace_fork", "model_name")), also: &[] },
    Case { name: "hicache-mla", expected: None, also: &[] },
    Case { name: "hicache-fp8-collision", expected: Some(("store_conflict", "size_mismatch")), also: &[] },
    Case { name: "hicache-solo", expected: None, also: &[] },
    Case { name: "hicache-mutual-eviction", expected: Some(("mutual_eviction", "unknown")), also: &[] },
    Case {
        name: "hicache-minfree",
        expected: Some(("mutual_eviction", "unknown")),
        also: &["store_pressure"],
    },
    Case {
        name: "hicache-minfree-fork",
        expected: Some(("store_pressure", "refused_writes|keyspace_starved")),
        also: &["keyspace_fork"],
    },
    Case { name: "hicache-clear", expected: Some(("store_conflict", "cleared")), also: &[] },
    Case { name: "hicache-rev-swap", expected: Some(("cross_revision_hit", "weights")), also: &[] },
    Case { name: "hicache-rev-same", expected: None, also: &[] },
    Case { name: "lmcache-fork", expected: Some(("keyspace_fork", "tp_size")), also: &[] },
    Case { name: "lmcache-shared-dir", expected: Some(("mutual_eviction", "unknown")), also: &[] },
    Case { name: "vllm-fs-fork", expected: Some(("keyspace_fork", "tp_size")), also: &[] },
];
