//! The collector's process: receives observations, concludes, serves.

use crate::live::agent::stop_on_signals;
use crate::live::arguments::{Common, Half};
use crate::live::{logging, words};
use anyhow::Context;
use kvprov_collector::evaluate::Transition;
use kvprov_collector::receive::{ReceiveConfig, Receivers};
use kvprov_collector::run::Subscriber;
use kvprov_collector::serve::{Collector, Config};
use kvprov_loader::supervise::child;
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

/// Says what becomes of findings.
struct Speaker;

impl Subscriber for Speaker {
    fn changed(&mut self, transition: &Transition) {
        println!("{}", words::transition(transition));
    }
}

/// Runs until it is told to stop.
pub(crate) fn run(common: &Common) -> anyhow::Result<ExitCode> {
    // It parses what agents send and needs no right for anything.
    child::enter()?;
    logging::begin("info");
    let config = common.config(Half::Collector)?;
    let stop = stop_on_signals()?;
    let collector = Collector::start(Config {
        data: config.collector.data.clone(),
        http: config.collector.listen,
        subscribers: vec![Box::new(Speaker)],
        ..Config::default()
    })?;
    let threads = collector.threads().context("the collector has no threads")?;
    let receive = ReceiveConfig {
        grpc: Some(config.collector.otlp_grpc),
        http: Some(config.collector.otlp_http),
        ..ReceiveConfig::default()
    };
    let receivers = threads.block_on(Receivers::start(receive, Arc::new(collector.intake())))?;
    while !stop.load(Ordering::Relaxed) {
        anyhow::ensure!(!collector.has_ended(), "the ledger's thread ended; what it said last stands above");
        std::thread::sleep(Duration::from_millis(100));
    }
    threads.block_on(receivers.stop());
    collector.stop();
    Ok(ExitCode::SUCCESS)
}
