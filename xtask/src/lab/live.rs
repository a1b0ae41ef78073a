//! One `kvprov up` beside a rig: where it listens, what it has found so far, and since when.

use crate::lab::http;
use anyhow::{Context, Result, bail};
use serde_json::Value;
use std::collections::BTreeMap;
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// A finding as it was first stated with this confidence.
#[derive(Debug, Clone)]
pub(crate) struct Sighting {
    pub(crate) id: String,
    pub(crate) workers: Vec<String>,
    pub(crate) detector: String,
    pub(crate) cause: String,
    pub(crate) confidence: String,
    /// Seconds from the event that completed the evidence to its sight in the API.
    pub(crate) seconds: f64,
    /// When it was seen, in seconds since the epoch.
    pub(crate) at: f64,
}

/// Where it listens.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Ports {
    /// Anywhere, so that it disturbs no other.
    Free,
    /// Where users expect it.
    Usual,
}

/// How long the halves of a killed one may take to end.
const ENDS_WITHIN: Duration = Duration::from_secs(20);
/// API, agent, OTLP over gRPC and over HTTP, as documented.
const USUAL: [u16; 4] = [9470, 9471, 4317, 4318];

/// A running kvprov.
pub(crate) struct Live {
    child: Child,
    data: PathBuf,
    api: SocketAddr,
    agent: SocketAddr,
    sightings: BTreeMap<(String, String), Sighting>,
    /// When a finding was first seen to name a request, in seconds since the epoch, by finding and request.
    named: BTreeMap<(String, String), f64>,
}

// === impl Live ===

impl Live {
    /// Starts it with its data and its output below a directory, and waits until it is ready.
    pub(crate) fn start(
        binary: &Path,
        directory: &Path,
        recording: Option<&Path>,
        ports: Ports,
    ) -> Result<Self> {
        let ports = match ports {
            Ports::Free => free_ports(4)?,
            Ports::Usual => USUAL.map(|port| SocketAddr::from(([127, 0, 0, 1], port))).to_vec(),
        };
        let [api, agent, grpc, http] = ports.as_slice() else { bail!("no four free ports") };
        let data = directory.join("data");
        let output = std::fs::File::create(directory.join("kvprov.log"))?;
        let mut command = Command::new(binary);
        command.arg("up").arg("--data").arg(&data);
        if let Some(recording) = recording {
            command.arg("--record").arg(recording);
        }
        let child = command
            .env("KVPROV_COLLECTOR_LISTEN", api.to_string())
            .env("KVPROV_AGENT_LISTEN", agent.to_string())
            .env("KVPROV_COLLECTOR_OTLP_GRPC", grpc.to_string())
            .env("KVPROV_COLLECTOR_OTLP_HTTP", http.to_string())
            .env("KVPROV_AGENT_ENDPOINT", format!("http://{grpc}"))
            .stdin(Stdio::null())
            .stdout(output.try_clone()?)
            .stderr(output)
            .spawn()
            .with_context(|| format!("starting {}", binary.display()))?;
        let mut live = Self {
            child,
            data,
            api: *api,
            agent: *agent,
            sightings: BTreeMap::new(),
            named: BTreeMap::new(),
        };
        live.wait_until_ready(directory)?;
        Ok(live)
    }

    fn wait_until_ready(&mut self, directory: &Path) -> Result<()> {
        let begun = Instant::now();
        let ready = |address| http::get(address, "/readyz").is_ok();
        while !(ready(self.api) && ready(self.agent)) {
            let log = || std::fs::read_to_string(directory.join("kvprov.log")).unwrap_or_default();
            if let Some(status) = self.child.try_wait()? {
                bail!("kvprov up ended ({status}):\n{}", log());
            }
            if begun.elapsed() > Duration::from_secs(60) {
                bail!("kvprov up is not ready after a minute:\n{}", log());
            }
            std::thread::sleep(Duration::from_millis(100));
        }
        Ok(())
    }

    /// Looks at the findings and notes those that are new, or surer than before.
    pub(crate) fn look(&mut self) -> Result<()> {
        let now = now();
        let answer: Value = serde_json::from_str(&http::get(self.api, "/api/v1/findings")?)?;
        for finding in answer["findings"].as_array().map(Vec::as_slice).unwrap_or_default() {
            let text = |name: &str| finding[name].as_str().unwrap_or_default().to_owned();
            let key = (text("id"), text("confidence"));
            for request in finding["requests"].as_array().into_iter().flatten().filter_map(Value::as_str) {
                self.named.entry((text("id"), request.to_owned())).or_insert(now);
            }
            let seen: Option<f64> = finding["last_seen"].as_str().and_then(unix_seconds);
            self.sightings.entry(key).or_insert_with(|| Sighting {
                id: text("id"),
                workers: finding["workers"]
                    .as_array()
                    .into_iter()
                    .flatten()
                    .filter_map(|worker| worker.as_str().map(str::to_owned))
                    .collect(),
                detector: text("detector"),
                cause: text("cause"),
                confidence: text("confidence"),
                seconds: seen.map_or(f64::NAN, |seen| now - seen),
                at: now,
            });
        }
        Ok(())
    }

    /// Every finding that was ever stated, with every confidence it had.
    pub(crate) fn sightings(&self) -> impl Iterator<Item = &Sighting> {
        self.sightings.values()
    }

    /// When each finding was first seen to name each of its requests, in seconds since the epoch.
    pub(crate) fn named(&self) -> &BTreeMap<(String, String), f64> {
        &self.named
    }

    /// The findings as they stand, as JSON.
    pub(crate) fn findings(&self) -> Result<Value> {
        Ok(serde_json::from_str(&http::get(self.api, "/api/v1/findings")?)?)
    }

    /// Where the ledger is once it is stopped.
    pub(crate) fn ledger(&self) -> PathBuf {
        self.data.join("ledger")
    }

    /// The parent of agent and collector.
    pub(crate) fn pid(&self) -> u32 {
        self.child.id()
    }

    /// A page of the agent.
    pub(crate) fn agent_page(&self, path: &str) -> Result<String> {
        http::get(self.agent, path)
    }

    /// A page of the collector.
    pub(crate) fn page(&self, path: &str) -> Result<String> {
        http::get(self.api, path)
    }

    /// The pid of the half of that name, where it runs.
    pub(crate) fn child_of(&self, half: &str) -> Result<Option<u32>> {
        let parent = self.child.id();
        let children = std::fs::read_to_string(format!("/proc/{parent}/task/{parent}/children"))
            .context("listing the halves of kvprov up")?;
        let is_it = |pid: &u32| {
            let arguments = std::fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
            arguments.split(|byte| *byte == 0).nth(1) == Some(half.as_bytes())
        };
        Ok(children.split_whitespace().filter_map(|pid| pid.parse().ok()).find(is_it))
    }

    /// Asks it to stop and waits for it.
    pub(crate) fn stop(&mut self) -> Result<()> {
        let status = Command::new("kill").args(["-TERM", &self.child.id().to_string()]).status()?;
        if !status.success() {
            bail!("kill -TERM {} failed", self.child.id());
        }
        let begun = Instant::now();
        while self.child.try_wait()?.is_none() {
            if begun.elapsed() > Duration::from_secs(15) {
                self.child.kill()?;
                bail!("kvprov up did not stop within 15 s of SIGTERM");
            }
            std::thread::sleep(Duration::from_millis(50));
        }
        Ok(())
    }
}

impl Drop for Live {
    fn drop(&mut self) {
        // One that has ended cannot be ended again.
        let _ = self.child.kill();
        let _ = self.child.wait();
        // The halves end by themselves when their parent has gone; the next one needs their ports.
        let begun = Instant::now();
        let is_there = |address| TcpStream::connect(address).is_ok();
        while begun.elapsed() < ENDS_WITHIN && (is_there(self.api) || is_there(self.agent)) {
            std::thread::sleep(Duration::from_millis(100));
        }
    }
}

/// Free ports of the loopback, which somebody else may take before they are used.
fn free_ports(count: usize) -> Result<Vec<SocketAddr>> {
    let held: Vec<TcpListener> =
        (0..count).map(|_| TcpListener::bind(("127.0.0.1", 0))).collect::<std::io::Result<_>>()?;
    Ok(held.iter().map(TcpListener::local_addr).collect::<std::io::Result<_>>()?)
}

fn now() -> f64 {
    std::time::SystemTime::now()
        .duration_since(std::time::UNIX_EPOCH)
        .map_or(0.0, |since| since.as_secs_f64())
}

pub(crate) fn unix_seconds(text: &str) -> Option<f64> {
    let time = kvprov_model::clock::WallTime::parse_rfc3339(text)?;
    Some(time.0 as f64 / 1e9)
}
