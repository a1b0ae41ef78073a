//! The collector's process: receives observations, concludes, serves.

use crate::config::CollectorSection;
use crate::live::agent::stop_on_signals;
use crate::live::arguments::{Common, Half};
use crate::live::{logging, words};
use kvprov_collector::evaluate::Transition;
use kvprov_collector::export::traces::{Endpoint, Settings};
use kvprov_collector::receive::ReceiveConfig;
use kvprov_collector::run::Subscriber;
use kvprov_collector::serve::{Collector, Config};
use kvprov_loader::supervise::child;
use kvprov_model::finding::{Cause, Confidence, FindingState};
use kvprov_model::id::FindingId;
use kvprov_packs::Packs;
use std::collections::BTreeMap;
use std::process::ExitCode;
use std::sync::atomic::Ordering;
use std::time::Duration;

/// Where OpenTelemetry's own programs send traces.
const ENDPOINT: &str = "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT";
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

/// Where requests are traced. `environment`: the endpoint that the environment names for every program.
fn traces(collector: &CollectorSection, environment: Option<String>) -> anyhow::Result<Option<Settings>> {
    let own = [collector.otlp_grpc, collector.otlp_http];
    let endpoint = match (&collector.traces_endpoint, environment.filter(|endpoint| !endpoint.is_empty())) {
        (Some(endpoint), _) => Endpoint::parse(endpoint)?,
        (None, Some(endpoint)) => {
            let endpoint = Endpoint::parse(&endpoint)?;
            if endpoint.is_one_of(&own) {
                // Meant for the engines on this machine, which are to send their spans here.
                tracing::info!(%endpoint, "{ENDPOINT} names this collector; requests are not traced");
                return Ok(None);
            }
            endpoint
        }
        (None, None) => return Ok(None),
    };
    Ok(Some(Settings {
        sample: collector.trace_sample,
        forward: collector.traces_forward.unwrap_or(true),
        queue_bytes: collector.traces_queue_bytes,
        ..Settings::new(endpoint)
    }))
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
        traces: traces(&config.collector, std::env::var(ENDPOINT).ok())?,
        expected: config.collector.expected_file.clone(),
        packs: match &config.collector.packs {
            Some(directory) => Box::leak(Box::new(crate::packs::with_overrides(directory)?)),
            None => Packs::builtin(),
        },
        ..Config::default()
    })?;
    while !stop.load(Ordering::Relaxed) {
        let has_failed = collector.has_failed_within(Duration::from_millis(100));
        anyhow::ensure!(!has_failed, "the ledger's thread ended; what it said last stands above");
    }
    collector.stop();
    Ok(ExitCode::SUCCESS)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn endpoint(configured: Option<&str>, environment: Option<&str>) -> anyhow::Result<Option<String>> {
        let traces_endpoint = configured.map(str::to_owned);
        let collector = CollectorSection { traces_endpoint, ..CollectorSection::default() };
        Ok(traces(&collector, environment.map(str::to_owned))?.map(|settings| settings.endpoint.url))
    }

    #[test]
    fn requests_are_traced_where_the_configuration_or_the_environment_says() {
        let url = |endpoint: anyhow::Result<Option<String>>| endpoint.expect("usable");
        assert_eq!(url(endpoint(None, None)), None);
        assert_eq!(url(endpoint(Some("http://a:1"), Some("http://b:2"))).as_deref(), Some("http://a:1"));
        assert_eq!(url(endpoint(None, Some("http://b:4318"))).as_deref(), Some("http://b:4318/v1/traces"));
        assert!(endpoint(Some("nonsense"), None).is_err());
    }

    #[test]
    fn an_environment_that_means_the_engines_turns_nothing_on() {
        assert_eq!(endpoint(None, Some("http://127.0.0.1:4318/v1/traces")).expect("usable"), None);
    }
}
