//! What `up`, `agent`, `collector` and `record` have in common.

use crate::config::{self, Config};
use crate::live::logging;
use anyhow::Context;
use std::ffi::OsString;
use std::net::SocketAddr;
use std::path::PathBuf;

/// The common arguments.
#[derive(Debug, Clone, clap::Args)]
pub(crate) struct Common {
    /// Configuration of both halves; the environment (`KVPROV_AGENT_LISTEN` …) overrides it.
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
    /// Ledger, queue, positions and caches; left out: `kvprov` below the XDG state directory.
    #[arg(long, value_name = "DIR")]
    data: Option<PathBuf>,
    /// Where to serve the page, the API and the metrics (of the agent: its metrics); loopback unless told.
    #[arg(long, value_name = "ADDR")]
    listen: Option<SocketAddr>,
    /// Leaves logs alone.
    #[arg(long)]
    no_logs: bool,
    /// Watches no system calls.
    #[arg(long)]
    no_kernel: bool,
    /// Reads no counters over HTTP.
    #[arg(long)]
    no_metrics: bool,
    /// Subscribes to no KV events.
    #[arg(long)]
    no_events: bool,
    /// Looks only at what runs in a control group: `cgroup:PATH`.
    #[arg(long, value_name = "SCOPE")]
    scope: Option<String>,
    /// Keeps what the agent sees in this directory, for `kvprov replay`.
    #[arg(long, value_name = "DIR")]
    pub(crate) record: Option<PathBuf>,
    /// A half that a parent started.
    #[arg(long, hide = true)]
    pub(crate) child: bool,
    /// A person looks on.
    #[arg(long, hide = true)]
    pub(crate) person: bool,
    /// Sends nothing.
    #[arg(long, hide = true)]
    pub(crate) no_ship: bool,
}

/// Which half `--listen` is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Half {
    Agent,
    Collector,
}

// === impl Common ===

impl Common {
    /// How much is logged.
    pub(crate) fn level(&self) -> &'static str {
        if self.person { logging::PERSON } else { logging::SERVICE }
    }

    /// File, environment and arguments together.
    pub(crate) fn config(&self, half: Half) -> anyhow::Result<Config> {
        let mut config = Config::load(self.config.as_deref(), std::env::vars())?;
        if let Some(address) = self.listen {
            match half {
                Half::Agent => config.agent.listen = address,
                Half::Collector => config.collector.listen = address,
            }
        }
        let data = self.data.clone();
        config.collector.data =
            data.clone().or(config.collector.data).or_else(|| Some(config::default_data()));
        config.agent.data = data
            .map(|data| data.join("agent"))
            .or(config.agent.data)
            .or_else(|| Some(config::default_data().join("agent")));
        config.agent.logs &= !self.no_logs;
        config.agent.kernel &= !self.no_kernel;
        config.agent.metrics &= !self.no_metrics;
        config.agent.events &= !self.no_events;
        config.agent.scope = self.scope.clone().or(config.agent.scope);
        if let Some(scope) = &config.agent.scope {
            scope
                .strip_prefix("cgroup:")
                .with_context(|| format!("--scope {scope:?}: write it as cgroup:PATH"))?;
        }
        Ok(config)
    }

    /// The arguments of a child of this command: the same, under another command.
    pub(crate) fn of_child(&self, command: &str) -> Vec<OsString> {
        let mut arguments: Vec<OsString> = vec![command.into(), "--child".into()];
        let mut option = |name: &str, value: Option<OsString>| {
            if let Some(value) = value {
                arguments.push(name.into());
                arguments.push(value);
            }
        };
        option("--config", self.config.clone().map(Into::into));
        option("--data", self.data.clone().map(Into::into));
        option("--scope", self.scope.clone().map(Into::into));
        let is_agent = command == "agent";
        option("--record", self.record.clone().filter(|_| is_agent).map(Into::into));
        let switches = [
            ("--no-logs", self.no_logs),
            ("--no-kernel", self.no_kernel),
            ("--no-metrics", self.no_metrics),
            ("--no-events", self.no_events),
            ("--no-ship", self.no_ship),
            ("--person", self.person),
        ];
        arguments.extend(switches.iter().filter(|(_, on)| *on).map(|(name, _)| OsString::from(name)));
        arguments
    }

    /// As [`Self::of_child`], with the address that `--listen` names for this half.
    pub(crate) fn of_listening_child(&self, command: &str) -> Vec<OsString> {
        let mut arguments = self.of_child(command);
        if let Some(address) = self.listen {
            arguments.push("--listen".into());
            arguments.push(address.to_string().into());
        }
        arguments
    }
}
