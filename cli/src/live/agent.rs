//! The agent's process: holds no capability and parses what engines show.

use crate::config::Config;
use crate::live::arguments::{Common, Half};
use crate::live::{logging, words};
use anyhow::Context;
use kvprov_agent::http::ReadPath;
use kvprov_agent::identity::TensorDigests;
use kvprov_agent::run::{self, LogFile, Options, Sources};
use kvprov_agent::ship::Protocol;
use kvprov_loader::attach;
use kvprov_loader::client::Client;
use kvprov_loader::supervise::child;
use kvprov_packs::Packs;
use std::path::Path;
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

/// Runs as the child of a parent that holds the capabilities.
pub(crate) fn run_child(common: &Common) -> anyhow::Result<ExitCode> {
    // Before anything is read that somebody else wrote, and before a second thread starts.
    child::enter()?;
    logging::begin(common.level());
    let config = common.config(Half::Agent)?;
    let stop = stop_on_signals()?;
    let loader = Client::from_stdin().map(Arc::new);
    let packs = packs(&config)?;
    run::run(&options(&config, common)?, packs, loader.as_ref(), &say, &stop)?;
    Ok(ExitCode::SUCCESS)
}

#[allow(clippy::needless_pass_by_value, reason = "called with what is reported, which nobody needs after it")]
fn say(report: run::Report) {
    if let Some(line) = words::report(&report) {
        println!("{line}");
    }
}

/// The packs for the whole life of the process.
fn packs(config: &Config) -> anyhow::Result<&'static Packs> {
    match &config.agent.packs {
        Some(directory) => Ok(Box::leak(Box::new(crate::packs::with_overrides(directory)?))),
        None => Ok(Packs::builtin()),
    }
}

fn options(config: &Config, common: &Common) -> anyhow::Result<Options> {
    let agent = &config.agent;
    let environment = || std::env::var("NODE_NAME").ok();
    let is_http = agent.endpoint.contains(":4318") || agent.endpoint.ends_with("/v1/logs");
    Ok(Options {
        node: agent.node.clone().or_else(environment),
        data: agent.data.clone().context("no data directory; give one with --data")?,
        endpoint: (!common.no_ship).then(|| agent.endpoint.clone()),
        protocol: if is_http { Protocol::Http } else { Protocol::Grpc },
        listen: agent.listen,
        sources: Sources {
            logs: agent.logs,
            kernel: agent.kernel,
            metrics: agent.metrics,
            events: agent.events,
        },
        scope: agent
            .scope
            .as_deref()
            .and_then(|scope| scope.strip_prefix("cgroup:"))
            .map(|scope| attach::scope_name(Path::new(scope))),
        queue_bytes: agent.queue_bytes,
        hash_bytes_per_second: agent.hash_bytes_per_second,
        hash_threads: agent.hash_threads,
        tensor_digests: tensor_digests(&agent.tensor_digests)?,
        log_files: agent
            .log_files
            .iter()
            .map(|file| LogFile {
                path: file.path.clone().into(),
                engine: file.engine.clone(),
                of: file.of.clone(),
            })
            .collect(),
        content_key_file: agent.content_key_file.clone(),
        annotations_file: agent.annotations_file.clone(),
        containers: agent.container_runtime != "off",
        scrape_interval: Duration::from_secs_f64(agent.scrape_seconds),
        scrape_bytes: agent.scrape_bytes,
        answers: answers(&agent.endpoints)?,
        recording: common.record.clone(),
    })
}

/// Whose tensors are hashed one by one.
fn tensor_digests(word: &str) -> anyhow::Result<TensorDigests> {
    TensorDigests::from_word(word).with_context(|| {
        format!("agent.tensor_digests: {word:?} is none of {}", TensorDigests::WORDS.join(", "))
    })
}

/// What is asked for beside the counters.
fn answers(names: &[String]) -> anyhow::Result<Vec<ReadPath>> {
    let path = |name: &String| {
        ReadPath::from_name(name).filter(|path| *path != ReadPath::Metrics).with_context(|| {
            let known: Vec<&str> = ReadPath::ALL.iter().skip(1).map(|path| path.as_str()).collect();
            format!("agent.endpoints: {name:?} is not read; use some of {}", known.join(", "))
        })
    };
    names.iter().map(path).collect()
}

/// A flag that SIGTERM and SIGINT set.
pub(crate) fn stop_on_signals() -> anyhow::Result<Arc<AtomicBool>> {
    let stop = Arc::new(AtomicBool::new(false));
    for signal in [signal_hook::consts::SIGTERM, signal_hook::consts::SIGINT] {
        signal_hook::flag::register(signal, Arc::clone(&stop)).context("waiting for signals")?;
    }
    Ok(stop)
}
