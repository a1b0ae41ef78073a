//! One TOML file for both halves; the environment overrides it, and arguments override both.
//!
//! `KVPROV_<SECTION>_<KEY>` is the override of a key, for example `KVPROV_AGENT_LISTEN` or `KVPROV_COLLECTOR_DATA`. A
//! key or variable that is not known is an error: a typing mistake must not leave a source on or off.

use anyhow::{Context, bail};
use serde::Deserialize;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};

const PREFIX: &str = "KVPROV_";

/// What may be configured.
#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct Config {
    /// The agent.
    pub(crate) agent: AgentSection,
    /// The collector.
    pub(crate) collector: CollectorSection,
}

/// `[agent]`.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct AgentSection {
    /// Name of the node; left out: `NODE_NAME` of the environment, else the host's name.
    pub(crate) node: Option<String>,
    /// Queue, positions, caches.
    pub(crate) data: Option<PathBuf>,
    /// `/metrics`, `/healthz`, `/readyz`.
    pub(crate) listen: SocketAddr,
    /// The collector: `http://host:4317` (OTLP/gRPC) or `http://host:4318/v1/logs` (OTLP/HTTP).
    pub(crate) endpoint: String,
    /// Read logs.
    pub(crate) logs: bool,
    /// Watch system calls.
    pub(crate) kernel: bool,
    /// Scrape metrics.
    pub(crate) metrics: bool,
    /// Subscribe to KV events.
    pub(crate) events: bool,
    /// Seconds between two pages of counters of one endpoint; a page that costs much is read more seldom.
    pub(crate) scrape_seconds: f64,
    /// Bytes of a page of counters; a longer one is not used.
    pub(crate) scrape_bytes: usize,
    /// What else is asked for over HTTP, of a closed list of paths.
    pub(crate) endpoints: Vec<String>,
    /// `cgroup:PATH`: only what runs below it.
    pub(crate) scope: Option<String>,
    /// Bytes of the ring between kernel and agent; a power of two.
    pub(crate) ring_bytes: u32,
    /// Have the kernel measure the run time of its programs: about 30 ns a run, of every program on the machine. Needs
    /// CAP_SYS_ADMIN at the start.
    pub(crate) kernel_statistics: bool,
    /// Bytes of the disk queue.
    pub(crate) queue_bytes: u64,
    /// Bytes a second that are read to hash model files.
    pub(crate) hash_bytes_per_second: u64,
    /// Threads that hash them, 1 to 64; together they keep the rate.
    pub(crate) hash_threads: usize,
    /// Whose tensors are hashed one by one: `auto` (weights that were read anyway), `always` or `off`.
    pub(crate) tensor_digests: String,
    /// Log files that no process has open as its output: path or glob.
    pub(crate) log_files: Vec<LogFile>,
    /// The key of content hashes: a file with the same random bytes on all nodes whose content is compared. Left out: each
    /// node makes its own.
    pub(crate) content_key_file: Option<PathBuf>,
    /// The file of the downward API with the annotations of a worker's pod, as the worker sees it (`/etc/podinfo/annotations`): what
    /// `kvprov.io/revision` declares there is expected of the worker.
    pub(crate) annotations_file: Option<PathBuf>,
    /// Who is asked what containers are called: `auto` (the usual sockets), the path of a CRI socket, or `off`.
    pub(crate) container_runtime: String,
    /// Signature packs that take the place of built-in files of the same name.
    pub(crate) packs: Option<PathBuf>,
}

/// `[[agent.log_files]]`.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct LogFile {
    /// Path or glob.
    pub(crate) path: String,
    /// The engine that writes it.
    #[serde(default)]
    pub(crate) engine: Option<String>,
    /// Words of the arguments of the process that writes it; left out: a worker of its own.
    #[serde(default)]
    pub(crate) of: Option<String>,
}

/// `[collector]`.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct CollectorSection {
    /// The ledger.
    pub(crate) data: Option<PathBuf>,
    /// The page, the API, `/metrics`, `/healthz`, `/readyz`.
    pub(crate) listen: SocketAddr,
    /// OTLP/gRPC.
    pub(crate) otlp_grpc: SocketAddr,
    /// OTLP/HTTP.
    pub(crate) otlp_http: SocketAddr,
    /// Where requests are told as traces: `http://host:4317` (OTLP/gRPC) or `http://host:4318/v1/traces` (OTLP/HTTP). Left
    /// out: `OTEL_EXPORTER_OTLP_TRACES_ENDPOINT` of the environment, else nowhere.
    pub(crate) traces_endpoint: Option<String>,
    /// The share of requests that are told although nothing is amiss; 0 to 1.
    pub(crate) trace_sample: f64,
    /// Hand on the spans that engines send here; left out: yes, where there is an endpoint.
    pub(crate) traces_forward: Option<bool>,
    /// Bytes of spans that may wait on disk.
    pub(crate) traces_queue_bytes: u64,
    /// The file in which operators declare what names should mean (docs/identity.md). Read again when it changes.
    pub(crate) expected_file: Option<PathBuf>,
    /// Signature packs that take the place of built-in files of the same name.
    pub(crate) packs: Option<PathBuf>,
}

// === impl Config ===

impl Config {
    /// Reads the file, if one is named, then the environment.
    pub(crate) fn load(
        file: Option<&Path>,
        environment: impl Iterator<Item = (String, String)>,
    ) -> anyhow::Result<Self> {
        let mut table = match file {
            Some(path) => std::fs::read_to_string(path)
                .with_context(|| format!("reading the configuration {}", path.display()))?
                .parse::<toml::Table>()
                .with_context(|| format!("parsing the configuration {}", path.display()))?,
            None => toml::Table::new(),
        };
        for (name, value) in environment {
            let Some(key) = name.strip_prefix(PREFIX) else { continue };
            set(&mut table, key, &value).with_context(|| format!("environment variable {name}"))?;
        }
        let config: Self = table.try_into().with_context(|| match file {
            Some(path) => format!("configuration {}", path.display()),
            None => "configuration from the environment".to_owned(),
        })?;
        if !config.agent.ring_bytes.is_power_of_two() || config.agent.ring_bytes < 4096 {
            bail!("agent.ring_bytes is {}; take a power of two from 4096 on", config.agent.ring_bytes);
        }
        if !(0.0..=1.0).contains(&config.collector.trace_sample) {
            bail!("collector.trace_sample is {}; take a share from 0 to 1", config.collector.trace_sample);
        }
        if !(0.1..=3600.0).contains(&config.agent.scrape_seconds) {
            bail!("agent.scrape_seconds is {}; take 0.1 to 3600", config.agent.scrape_seconds);
        }
        if config.agent.scrape_bytes < 4096 {
            bail!("agent.scrape_bytes is {}; take at least 4096", config.agent.scrape_bytes);
        }
        Ok(config)
    }
}

/// Sets `SECTION_KEY` in a table. A value that reads as TOML is one, else it is a text.
fn set(table: &mut toml::Table, key: &str, value: &str) -> anyhow::Result<()> {
    let key = key.to_lowercase();
    let Some((section, name)) = key.split_once('_') else { return Ok(()) };
    if section != "agent" && section != "collector" {
        // Variables of tools around kvprov.
        return Ok(());
    }
    let value = format!("v = {value}")
        .parse::<toml::Table>()
        .ok()
        .and_then(|mut table| table.remove("v"))
        .unwrap_or_else(|| toml::Value::String(value.to_owned()));
    let section = table.entry(section).or_insert_with(|| toml::Value::Table(toml::Table::new()));
    let Some(section) = section.as_table_mut() else { bail!("the section {section} is no table") };
    section.insert(name.to_owned(), value);
    Ok(())
}

impl Default for AgentSection {
    fn default() -> Self {
        Self {
            node: None,
            data: None,
            listen: SocketAddr::from(([127, 0, 0, 1], 9471)),
            endpoint: "http://127.0.0.1:4317".to_owned(),
            logs: true,
            kernel: true,
            metrics: true,
            events: true,
            scrape_seconds: 5.0,
            scrape_bytes: 16 << 20,
            endpoints: vec!["/v1/models".to_owned(), "/version".to_owned()],
            scope: None,
            ring_bytes: 16 << 20,
            kernel_statistics: false,
            queue_bytes: 256 << 20,
            hash_bytes_per_second: 200 << 20,
            hash_threads: 1,
            tensor_digests: "auto".to_owned(),
            log_files: Vec::new(),
            content_key_file: None,
            annotations_file: None,
            container_runtime: "auto".to_owned(),
            packs: None,
        }
    }
}

impl Default for CollectorSection {
    fn default() -> Self {
        Self {
            data: None,
            listen: SocketAddr::from(([127, 0, 0, 1], 9470)),
            otlp_grpc: SocketAddr::from(([127, 0, 0, 1], 4317)),
            otlp_http: SocketAddr::from(([127, 0, 0, 1], 4318)),
            traces_endpoint: None,
            trace_sample: 0.01,
            traces_forward: None,
            traces_queue_bytes: 64 << 20,
            expected_file: None,
            packs: None,
        }
    }
}

/// Where data lies when nothing says otherwise: the state directory of the XDG base directories.
pub(crate) fn default_data() -> PathBuf {
    let state = std::env::var_os("XDG_STATE_HOME").map(PathBuf::from).filter(|path| path.is_absolute());
    let home = || std::env::var_os("HOME").map(|home| PathBuf::from(home).join(".local/state"));
    state.or_else(home).unwrap_or_else(|| PathBuf::from("/var/lib")).join("kvprov")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn with(variables: &[(&str, &str)]) -> anyhow::Result<Config> {
        Config::load(None, variables.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())))
    }

    #[test]
    fn everything_listens_on_loopback_unless_told() {
        let config = Config::default();
        let addresses = [
            config.agent.listen,
            config.collector.listen,
            config.collector.otlp_grpc,
            config.collector.otlp_http,
        ];
        assert!(addresses.iter().all(|address| address.ip().is_loopback()));
    }

    #[test]
    fn the_environment_overrides() {
        let config =
            with(&[("KVPROV_AGENT_LISTEN", "127.0.0.1:1"), ("KVPROV_AGENT_LOGS", "false")]).expect("config");
        assert_eq!(config.agent.listen.port(), 1);
        assert!(!config.agent.logs);
    }

    #[test]
    fn a_key_that_is_not_known_is_an_error() {
        let error = with(&[("KVPROV_AGENT_LISTN", "127.0.0.1:1")]).expect_err("typing mistake");
        assert!(format!("{error:#}").contains("listn"), "{error:#}");
    }

    #[test]
    fn a_share_is_a_share() {
        let config = with(&[("KVPROV_COLLECTOR_TRACE_SAMPLE", "0.5")]).expect("config");
        assert!((config.collector.trace_sample - 0.5).abs() < f64::EPSILON);
        for share in ["1.5", "-0.1", "nan"] {
            assert!(with(&[("KVPROV_COLLECTOR_TRACE_SAMPLE", share)]).is_err(), "{share}");
        }
    }

    #[test]
    fn variables_of_other_tools_are_left_alone() {
        assert_eq!(
            with(&[("KVPROV_LAB", "/tmp"), ("KVPROV_BPF_LINKER", "x")]).expect("config"),
            Config::default()
        );
    }

    #[test]
    fn an_interval_that_is_none_is_refused() {
        for seconds in ["0", "-1", "nan", "1e9"] {
            assert!(with(&[("KVPROV_AGENT_SCRAPE_SECONDS", seconds)]).is_err(), "{seconds}");
        }
        let config =
            with(&[("KVPROV_AGENT_SCRAPE_SECONDS", "1"), ("KVPROV_AGENT_ENDPOINTS", "[\"/version\"]")]);
        let agent = config.expect("config").agent;
        assert_eq!((agent.scrape_seconds, agent.endpoints), (1.0, vec!["/version".to_owned()]));
    }

    #[test]
    fn a_ring_of_no_power_of_two_is_refused() {
        assert!(with(&[("KVPROV_AGENT_RING_BYTES", "5000")]).is_err());
    }
}
