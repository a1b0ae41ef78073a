//! A running collector says what replay says, as soon as the evidence is there, and takes nothing back that it proved.
//!
//! The observations of every incident come in slices of event time, and after each slice the nodes say that they are
//! complete up to there.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a test states what it expects")]

use kvprov_collector::evaluate::{all_subjects, evaluate_running};
use kvprov_collector::ledger::{Ledger, Limits, MemoryLedger};
use kvprov_collector::run::Core;
use kvprov_collector::view::Hearing;
use kvprov_model::clock::{SECOND, WallTime};
use kvprov_model::finding::{Confidence, Finding, FindingState};
use kvprov_model::id::{NodeId, ObservationId};
use kvprov_model::observation::{Alive, Body, Envelope, Observation, SCHEMA_VERSION, SourceKind};
use kvprov_tests::bundle::Bundle;
use kvprov_tests::{corpus, pipeline, pool};
use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};

/// Slices of one incident.
const SLICES: usize = 24;
/// How far the watermarks move on when the last observation has come.
const AFTERWARDS: i64 = 600 * SECOND;

/// What has to agree: id, detector, cause, confidence.
type Stated = (String, String, String, String);

#[test]
fn slices_of_time_end_in_the_findings_of_a_replay_and_nothing_confirmed_is_taken_back() {
    let directories = corpus::bundles(&corpus::root()).unwrap();
    let wrong = pool::map(&directories, |directory| {
        let bundle = Bundle::load(directory).unwrap();
        let observed = pipeline::observe(&bundle).unwrap();
        let expected = replayed(&observed);
        let (stated, taken_back) = run(&observed);
        let mut wrong = Vec::new();
        if stated != expected {
            wrong.push(format!(
                "{}: missing {:#?}, beyond {:#?}",
                bundle.name,
                expected.difference(&stated).collect::<Vec<_>>(),
                stated.difference(&expected).collect::<Vec<_>>()
            ));
        }
        wrong.extend(taken_back.into_iter().map(|what| format!("{}: {what}", bundle.name)));
        wrong
    });
    let wrong: Vec<String> = wrong.into_iter().flatten().collect();
    assert!(wrong.is_empty(), "{}\n{} in all", wrong.join("\n"), wrong.len());
}

fn stated<'f>(findings: impl IntoIterator<Item = &'f Finding>) -> BTreeSet<Stated> {
    findings
        .into_iter()
        .map(|finding| {
            (
                finding.id.as_str().to_owned(),
                finding.detector.to_string(),
                finding.cause.to_string(),
                format!("{:?}", finding.confidence).to_lowercase(),
            )
        })
        .collect()
}

fn replayed(observed: &[Observation]) -> BTreeSet<Stated> {
    let found = pipeline::conclude(observed).unwrap();
    found
        .iter()
        .map(|found| {
            (
                found.id.clone(),
                found.detector.clone(),
                found.cause.clone().unwrap_or_default(),
                found.confidence.to_string(),
            )
        })
        .collect()
}

/// Runs an incident in slices: what is stated at the end, and what was confirmed in between and does not stand.
fn run(observed: &[Observation]) -> (BTreeSet<Stated>, Vec<String>) {
    let mut ledger = MemoryLedger::new(Limits::unbounded());
    let nodes: BTreeSet<_> = observed.iter().map(|o| o.envelope.node.clone()).collect();
    // Every finding that was confirmed at some time, and what became of it.
    let mut confirmed: BTreeMap<String, (Finding, String)> = BTreeMap::new();
    let slices = slices(observed);
    let last = slices.last().map_or(WallTime(0), |(until, _)| *until);
    let end = (last.plus(AFTERWARDS), Vec::new());
    for (until, slice) in slices.into_iter().chain([end]) {
        ledger.merge(&slice).unwrap();
        let complete = nodes.iter().map(|node| (node.clone(), until)).collect();
        let hearing = Hearing { complete, ..Hearing::default() };
        let subjects = all_subjects(&ledger).unwrap();
        let evaluated = evaluate_running(&mut ledger, &subjects, &hearing).unwrap();
        for finding in evaluated.transitions.into_iter().map(|transition| transition.finding) {
            let id = finding.id.as_str().to_owned();
            let at = until.to_rfc3339();
            match finding.state {
                FindingState::Opened | FindingState::Changed => {
                    if finding.confidence == Confidence::Confirmed {
                        confirmed.insert(id, (finding, format!("confirmed at {at}")));
                    } else if let Some((_, fate)) = confirmed.get_mut(&id) {
                        *fate = format!("weakened at {at}");
                    }
                }
                FindingState::Superseded => {
                    confirmed.remove(&id);
                }
                FindingState::Resolved => {
                    if let Some((_, fate)) = confirmed.get_mut(&id) {
                        *fate = format!("resolved at {at}");
                    }
                }
            }
        }
    }
    let findings: Vec<Finding> = ledger.all_findings().unwrap().into_values().flatten().collect();
    let stands =
        |id: &str| findings.iter().any(|f| f.id.as_str() == id && f.confidence == Confidence::Confirmed);
    let taken_back = confirmed
        .iter()
        .filter(|(id, _)| !stands(id))
        .map(|(id, (finding, fate))| {
            format!(
                "{id} {} ({}) on {} was confirmed and then {fate}: {}",
                finding.detector, finding.cause, finding.subject, finding.summary
            )
        })
        .collect();
    (stated(&findings), taken_back)
}

/// The observations by event time. What nothing dates comes with what stands before it in its stream, and settings
/// come first.
fn slices(observed: &[Observation]) -> Vec<(WallTime, Vec<Observation>)> {
    let mut in_streams: Vec<&Observation> = observed.iter().collect();
    in_streams.sort_by_key(|o| (&o.envelope.node, &o.envelope.stream, o.envelope.position));
    let mut dated: Vec<(WallTime, &Observation)> = Vec::new();
    let mut before = (None, WallTime(i64::MIN));
    for observation in in_streams {
        let envelope = &observation.envelope;
        let stream = Some((&envelope.node, &envelope.stream));
        if before.0 != stream || envelope.source == SourceKind::Config {
            before = (stream, WallTime(i64::MIN));
        }
        if let Some(wall) = envelope.wall {
            before.1 = wall;
        }
        dated.push((before.1, observation));
    }
    dated.sort_by_key(|(at, _)| *at);
    let times: BTreeSet<WallTime> = dated.iter().map(|(at, _)| *at).collect();
    let times: Vec<WallTime> = times.into_iter().collect();
    let mut slices: Vec<(WallTime, Vec<Observation>)> = times
        .chunks(times.len().div_ceil(SLICES).max(1))
        .filter_map(|some| Some((*some.last()?, Vec::new())))
        .collect();
    for (at, observation) in dated {
        let slice = slices.partition_point(|(until, _)| *until < at);
        if let Some((_, slice)) = slices.get_mut(slice) {
            slice.push(observation.clone());
        }
    }
    slices
}

#[test]
fn a_running_collector_that_evaluates_only_what_is_due_ends_in_the_findings_of_a_replay() {
    let directories = corpus::bundles(&corpus::root()).unwrap();
    let wrong = pool::map(&directories, |directory| {
        let bundle = Bundle::load(directory).unwrap();
        let observed = pipeline::observe(&bundle).unwrap();
        let (expected, stated) = (replayed(&observed), scheduled(&observed));
        (stated != expected).then(|| {
            format!(
                "{}: missing {:#?}, beyond {:#?}",
                bundle.name,
                expected.difference(&stated).collect::<Vec<_>>(),
                stated.difference(&expected).collect::<Vec<_>>()
            )
        })
    });
    let wrong: Vec<String> = wrong.into_iter().flatten().collect();
    assert!(wrong.is_empty(), "{}\n{} in all", wrong.join("\n"), wrong.len());
}

/// What is stated when the collector itself decides what to evaluate, a few seconds after everything was heard.
fn scheduled(observed: &[Observation]) -> BTreeSet<Stated> {
    let ledger = MemoryLedger::new(Limits { selection: 200_000, ..Limits::unbounded() });
    let mut now = Instant::now();
    let mut core = Core::new(Box::new(ledger), None, now).unwrap();
    let nodes: BTreeSet<_> = observed.iter().map(|o| o.envelope.node.clone()).collect();
    let slices = slices(observed);
    let last = slices.last().map_or(WallTime(0), |(until, _)| *until);
    let end = (last.plus(AFTERWARDS), Vec::new());
    for (until, mut slice) in slices.into_iter().chain([end]) {
        slice.extend(nodes.iter().map(|node| sign(node, until)));
        core.take(slice, now, until).unwrap();
        for _ in 0..30 {
            now += Duration::from_millis(100);
            core.evaluate(now).unwrap();
        }
    }
    stated(&core.findings().unwrap())
}

/// A node says that it is complete up to a time.
fn sign(node: &NodeId, until: WallTime) -> Observation {
    let envelope = Envelope {
        schema_version: SCHEMA_VERSION,
        id: ObservationId::derive(node.as_str(), 0, until.0 as u64, 0),
        node: node.clone(),
        boot_id: None,
        worker: None,
        source: SourceKind::Config,
        stream: "agent".to_owned(),
        position: 0,
        monotonic: None,
        wall: Some(until),
        says: None,
    };
    Observation {
        envelope,
        body: Body::Alive(Alive::default()),
        extra: BTreeMap::new(),
        resource: BTreeMap::new(),
    }
}
