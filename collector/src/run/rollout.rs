//! How far a rollout is: which share of the workers and of the requests has which revision, by model and role, and over time.
//!
//! A pure function of what readers are shown. A worker whose revision is not known counts as `unknown`, never as one of the others;
//! one that ended counts for the time that it ran. Times are of the nodes' own clocks.

use super::pages::WorkerEntry;
use super::totals::UNKNOWN;
use crate::lineage::record::Record;
use kvprov_model::clock::{SECOND, WallTime};
use kvprov_model::fact;
use kvprov_model::lineage::Point;
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// Steps of one group that are told; the latest.
const STEPS: usize = 200;
/// The time over which requests are counted together, and how many such times are told.
const SPAN: i64 = 300 * SECOND;
const SPANS: usize = 48;
/// Roles that run a model.
const ROLES: [&str; 4] = ["prefill", "decode", "both", UNKNOWN];

/// Workers of one model and role.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct RolloutEntry {
    /// The model as it is served; an alias.
    pub model: String,
    /// What the workers are for.
    pub role: String,
    /// Workers that run.
    pub workers: usize,
    /// Requests among the latest that these workers took part in.
    pub requests: usize,
    /// The shares of each revision, the largest first.
    pub revisions: Vec<Share>,
    /// Running workers by revision after each change, the first one first.
    pub steps: Vec<Step>,
    /// Requests by revision in spans of five minutes, the first one first.
    pub traffic: Vec<Step>,
}

/// The share of one revision.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Share {
    /// The revision; `unknown` where a factor is not fully known.
    pub revision: String,
    /// Workers that run it.
    pub workers: usize,
    /// Of all of them.
    pub workers_share: f64,
    /// Requests that it answered, or whose prompt it computed.
    pub requests: usize,
    /// Of all of them.
    pub requests_share: f64,
}

/// Counts by revision at a time.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Step {
    /// From when.
    pub at: String,
    /// The counts.
    pub revisions: BTreeMap<String, usize>,
}

/// Model and role.
type Group = (String, String);

/// How far every rollout is.
pub fn of(workers: &[WorkerEntry], lineages: &[Arc<Record>]) -> Vec<RolloutEntry> {
    let mut groups: BTreeMap<Group, Vec<&WorkerEntry>> = BTreeMap::new();
    let mut group_of: BTreeMap<&str, Group> = BTreeMap::new();
    for worker in workers.iter().filter(|worker| ROLES.contains(&worker.role.as_str())) {
        let model = worker.facts.get(fact::MODEL_NAME).map_or(UNKNOWN, String::as_str);
        let group = (model.to_owned(), worker.role.clone());
        group_of.insert(&worker.id, group.clone());
        groups.entry(group).or_default().push(worker);
    }
    let mut traffic: BTreeMap<Group, BTreeMap<i64, BTreeMap<String, usize>>> = BTreeMap::new();
    for record in lineages {
        let Some(time) = record.last_seen.as_deref().and_then(WallTime::parse_rfc3339) else { continue };
        let points = &record.lineage.points;
        let mut counted: BTreeSet<&str> = BTreeSet::new();
        for point in [&points.prefill, &points.decode] {
            let Some((worker, group)) = part(point, &group_of) else { continue };
            // Who did both took part once.
            if !counted.insert(worker) {
                continue;
            }
            let revision = point.revision.as_deref().unwrap_or(UNKNOWN).to_owned();
            let span = time.0.div_euclid(SPAN);
            *traffic
                .entry(group.clone())
                .or_default()
                .entry(span)
                .or_default()
                .entry(revision)
                .or_insert(0) += 1;
        }
    }
    groups.into_iter().map(|(group, workers)| entry(traffic.remove(&group), group, &workers)).collect()
}

/// The worker of a point, and its group.
fn part<'p>(point: &'p Point, groups: &'p BTreeMap<&str, Group>) -> Option<(&'p str, &'p Group)> {
    let worker = point.worker.as_deref()?;
    Some((worker, groups.get(worker)?))
}

fn entry(
    traffic: Option<BTreeMap<i64, BTreeMap<String, usize>>>,
    (model, role): Group,
    workers: &[&WorkerEntry],
) -> RolloutEntry {
    let traffic = traffic.unwrap_or_default();
    let mut running: BTreeMap<&str, usize> = BTreeMap::new();
    for worker in workers.iter().filter(|worker| worker.gone.is_none()) {
        *running.entry(worker.revision.as_deref().unwrap_or(UNKNOWN)).or_insert(0) += 1;
    }
    let mut answered: BTreeMap<&str, usize> = BTreeMap::new();
    for (revision, requests) in traffic.values().flatten() {
        *answered.entry(revision).or_insert(0) += requests;
    }
    let (all, requests) = (running.values().sum::<usize>(), answered.values().sum::<usize>());
    let names: BTreeSet<&str> = running.keys().chain(answered.keys()).copied().collect();
    let mut revisions: Vec<Share> = names
        .into_iter()
        .map(|revision| {
            let count = |counts: &BTreeMap<&str, usize>| counts.get(revision).copied().unwrap_or(0);
            Share {
                revision: revision.to_owned(),
                workers: count(&running),
                workers_share: share(count(&running), all),
                requests: count(&answered),
                requests_share: share(count(&answered), requests),
            }
        })
        .collect();
    revisions.sort_by(|a, b| (b.workers, b.requests, &a.revision).cmp(&(a.workers, a.requests, &b.revision)));
    let skipped = traffic.len().saturating_sub(SPANS);
    let spans = traffic
        .into_iter()
        .skip(skipped)
        .map(|(span, revisions)| Step { at: WallTime(span.saturating_mul(SPAN)).to_rfc3339(), revisions });
    RolloutEntry {
        model,
        role,
        workers: all,
        requests,
        revisions,
        steps: steps(workers),
        traffic: spans.collect(),
    }
}

fn share(part: usize, of: usize) -> f64 {
    if of == 0 { 0.0 } else { part as f64 / of as f64 }
}

/// Running workers by revision whenever that changed.
fn steps(workers: &[&WorkerEntry]) -> Vec<Step> {
    let read = |text: &Option<String>| text.as_deref().and_then(WallTime::parse_rfc3339);
    // What begins and ends when.
    let mut turns: BTreeMap<WallTime, Vec<(&str, isize)>> = BTreeMap::new();
    for worker in workers {
        for (number, epoch) in worker.epochs.iter().enumerate() {
            let revision = epoch.revision.as_deref().unwrap_or(UNKNOWN);
            let since = read(&epoch.since).or_else(|| read(&worker.first_seen).filter(|_| number == 0));
            let Some(since) = since else { continue };
            turns.entry(since).or_default().push((revision, 1));
            if let Some(until) = read(&epoch.until).or_else(|| read(&worker.gone)) {
                turns.entry(until.max(since)).or_default().push((revision, -1));
            }
        }
    }
    let mut now: BTreeMap<&str, isize> = BTreeMap::new();
    let mut steps: Vec<Step> = Vec::new();
    for (at, changes) in turns {
        for (revision, change) in changes {
            *now.entry(revision).or_insert(0) += change;
        }
        let counts = now.iter().filter_map(|(revision, count)| {
            Some(((*revision).to_owned(), usize::try_from(*count).ok().filter(|count| *count > 0)?))
        });
        let revisions: BTreeMap<String, usize> = counts.collect();
        if steps.last().is_none_or(|last| last.revisions != revisions) {
            steps.push(Step { at: at.to_rfc3339(), revisions });
        }
    }
    steps.split_off(steps.len().saturating_sub(STEPS))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::run::pages::EpochEntry;
    use kvprov_model::lineage::{Lineage, LineageStatus, Points};

    fn worker(id: &str, role: &str, revision: Option<&str>) -> WorkerEntry {
        let text = |word: &str| word.to_owned();
        let epoch = EpochEntry { since: None, until: None, revision: revision.map(text), changed: None };
        WorkerEntry {
            id: text(id),
            role: text(role),
            revision: revision.map(text),
            facts: [(text(fact::MODEL_NAME), text("m"))].into(),
            epochs: vec![epoch],
            first_seen: Some(text("2026-08-16T08:00:00Z")),
            ..WorkerEntry::default()
        }
    }

    fn request(name: &str, time: &str, worker: &str, revision: &str) -> Arc<Record> {
        let point = Point {
            worker: Some(worker.to_owned()),
            revision: Some(revision.to_owned()),
            ..Point::default()
        };
        let points = Points { decode: point.clone(), prefill: point, ..Points::default() };
        let lineage = Lineage { request: name.to_owned(), status: LineageStatus::Consistent, points };
        Arc::new(Record { last_seen: Some(time.to_owned()), ..Record::bare(lineage) })
    }

    #[test]
    fn shares_are_of_workers_and_of_requests_by_role() {
        let workers = [
            worker("d0", "decode", Some("rev:a")),
            worker("d1", "decode", Some("rev:a")),
            worker("d2", "decode", Some("rev:b")),
            worker("d3", "decode", None),
            worker("p0", "prefill", Some("rev:a")),
            worker("r0", "router", None),
        ];
        let requests = [
            request("1", "2026-08-16T08:01:00Z", "d0", "rev:a"),
            request("2", "2026-08-16T08:02:00Z", "d2", "rev:b"),
            request("3", "2026-08-16T08:09:00Z", "d2", "rev:b"),
            request("4", "2026-08-16T08:09:00Z", "d2", "rev:b"),
        ];
        let all = of(&workers, &requests);
        assert_eq!(all.iter().map(|entry| entry.role.as_str()).collect::<Vec<_>>(), ["decode", "prefill"]);
        let decode = &all[0];
        let shares: Vec<_> =
            decode.revisions.iter().map(|one| (one.revision.as_str(), one.workers, one.requests)).collect();
        assert_eq!(shares, [("rev:a", 2, 1), ("rev:b", 1, 3), (UNKNOWN, 1, 0)]);
        assert!((decode.revisions[1].requests_share - 0.75).abs() < f64::EPSILON);
        assert_eq!(decode.traffic.iter().map(|span| span.revisions.len()).collect::<Vec<_>>(), [2, 1]);
    }

    #[test]
    fn every_change_is_a_step() {
        let mut changed = worker("d0", "decode", Some("rev:b"));
        let at = Some("2026-08-16T08:10:00.000Z".to_owned());
        changed.epochs[0] =
            EpochEntry { until: at.clone(), revision: Some("rev:a".to_owned()), ..changed.epochs[0].clone() };
        changed.epochs.push(EpochEntry {
            since: at,
            until: None,
            revision: Some("rev:b".to_owned()),
            changed: Some("weights".to_owned()),
        });
        let mut ended = worker("d1", "decode", Some("rev:a"));
        ended.gone = Some("2026-08-16T08:20:00.000Z".to_owned());
        let all = of(&[changed, ended], &[]);
        let steps: Vec<_> = all[0]
            .steps
            .iter()
            .map(|step| (step.at.get(11..16).unwrap_or(""), step.revisions.clone()))
            .collect();
        let counts = |pairs: &[(&str, usize)]| -> BTreeMap<String, usize> {
            pairs.iter().map(|(revision, count)| ((*revision).to_owned(), *count)).collect()
        };
        assert_eq!(
            steps,
            [
                ("08:00", counts(&[("rev:a", 2)])),
                ("08:10", counts(&[("rev:a", 1), ("rev:b", 1)])),
                ("08:20", counts(&[("rev:b", 1)])),
            ]
        );
        assert_eq!(all[0].workers, 1, "who ended is no share of now");
    }

    #[test]
    fn nobody_is_no_rollout() {
        assert!(of(&[], &[]).is_empty());
    }
}
