//! The collector's process: receives observations, concludes, serves.

use crate::live::agent::stop_on_signals;
use crate::live::arguments::{Common, Half};
use crate::live::{logging, words};
use kvprov_collector::evaluate::Transition;
use kvprov_collector::receive::ReceiveConfig;
use kvprov_collector::run::Subscriber;
use kvprov_collector::serve::{Collector, Config};
use kvprov_loader::supervise::child;
use kvprov_model::finding::{Cause, Confidence, FindingState};
use kvprov_model::id::FindingId;
use std::collections::BTreeMap;
use std::process::ExitCode;
use std::sync::atomic::Ordering;
use std::time::Duration;

/// Findings whose last words are remembered.
const REMEMBERED: usize = 10_000;

/// Says what becomes of findings. One that only grows is not said again.
#[derive(Default)]
struct Speaker(BTreeMap<FindingId, (Confidence, Cause)>);

impl Subscriber for Speaker {
    fn changed(&mut self, transition: &Transition) {
        let finding = &transition.finding;
        let says = (finding.confidence, finding.cause.clone());
        if finding.state == FindingState::Changed && self.0.get(&finding.id) == Some(&says) {
            return;
        }
        if self.0.len() >= REMEMBERED {
            self.0.pop_first();
        }
        self.0.insert(finding.id.clone(), says);
        println!("{}", words::transition(transition));
    }
}

/// Runs until it is told to stop.
pub(crate) fn run(common: &Common) -> anyhow::Result<ExitCode> {
    // It parses what agents send and needs no right for anything.
    child::enter()?;
    logging::begin(common.level());
    let config = common.config(Half::Collector)?;
    let stop = stop_on_signals()?;
    let collector = Collector::start(Config {
        data: config.collector.data.clone(),
        http: config.collector.listen,
        receive: Some(ReceiveConfig {
            grpc: Some(config.collector.otlp_grpc),
            http: Some(config.collector.otlp_http),
            ..ReceiveConfig::default()
        }),
        subscribers: vec![Box::new(Speaker::default())],
        ..Config::default()
    })?;
    while !stop.load(Ordering::Relaxed) {
        let has_failed = collector.has_failed_within(Duration::from_millis(100));
        anyhow::ensure!(!has_failed, "the ledger's thread ended; what it said last stands above");
    }
    collector.stop();
    Ok(ExitCode::SUCCESS)
}
