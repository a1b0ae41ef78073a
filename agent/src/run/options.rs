//! What the agent is told.

use crate::http::ReadPath;
use crate::identity::TensorDigests;
use crate::ship::Protocol;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

/// Which sources are read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Sources {
    /// Logs.
    pub logs: bool,
    /// System calls.
    pub kernel: bool,
    /// KV events.
    pub events: bool,
    /// Counters over HTTP.
    pub metrics: bool,
}

/// A log that is followed although no process has it open as its output.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LogFile {
    /// Path or glob.
    pub path: PathBuf,
    /// Engine that writes it.
    pub engine: Option<String>,
    /// Words of the arguments of the process that writes it; `None`: a worker of its own, called after the file.
    pub of: Option<String>,
}

/// The agent's options.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Options {
    /// Name of the node; `None`: as the environment or the host says.
    pub node: Option<String>,
    /// Queue, positions, journal, caches.
    pub data: PathBuf,
    /// The collector; `None`: nothing is sent.
    pub endpoint: Option<String>,
    /// How.
    pub protocol: Protocol,
    /// Where metrics and health are served.
    pub listen: SocketAddr,
    /// What is read.
    pub sources: Sources,
    /// A control group; what runs outside of it is left alone.
    pub scope: Option<String>,
    /// Bytes of the disk queue.
    pub queue_bytes: u64,
    /// Bytes a second that are read to hash model files.
    pub hash_bytes_per_second: u64,
    /// Threads that hash them.
    pub hash_threads: usize,
    /// Of which weights the tensors are hashed one by one.
    pub tensor_digests: TensorDigests,
    /// Further logs.
    pub log_files: Vec<LogFile>,
    /// The key of content hashes, the same on all nodes whose content is compared; `None`: one of this node's own.
    pub content_key_file: Option<PathBuf>,
    /// The file of the downward API with the annotations of a worker's pod, as the worker sees it; `None`: not read.
    pub annotations_file: Option<PathBuf>,
    /// Ask what the containers around workers are called.
    pub containers: bool,
    /// Between two pages of counters of one endpoint.
    pub scrape_interval: Duration,
    /// Bytes of a page of counters; a longer one is not used.
    pub scrape_bytes: usize,
    /// What else is asked for over HTTP: served models, the version.
    pub answers: Vec<ReadPath>,
    /// Where to keep a recording.
    pub recording: Option<PathBuf>,
}
