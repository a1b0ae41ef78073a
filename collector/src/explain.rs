//! A request and its workers in words, for somebody who was woken up: what happened, where the points part, what is not
//! known and why, what it cost, what to do.
//!
//! Pure functions of what the API and a replay give alike.

use crate::lineage::record::Record;
use crate::run::pages::WorkerEntry;
use kvprov_model::finding::{Confidence, Finding};
use kvprov_model::lineage::{LineageStatus, Point};

/// Digits of a digest that tell it apart.
const DIGITS: usize = 19;

/// A request in words.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Words {
    /// In one line.
    pub headline: String,
    /// What happened, in a sentence or two.
    pub what: String,
    /// The points, in their order: name and words.
    pub points: Vec<(&'static str, String)>,
    /// Where they part; `None` where they do not, or nobody knows.
    pub parts: Option<String>,
    /// What is not known, and why.
    pub unknown: Vec<String>,
    /// What it cost.
    pub cost: Option<String>,
    /// What to do.
    pub advice: Vec<String>,
}

/// A request in words. `findings`: those that name it.
pub fn request(record: &Record, findings: &[&Finding]) -> Words {
    let points = &record.lineage.points;
    let status = record.lineage.status;
    let headline = match (status, points.artifact.outcome.as_deref()) {
        (LineageStatus::Divergent, _) => "DIVERGENT: its KV was computed by another model than decoded it",
        (_, Some("failed")) => "FAILED: its KV did not arrive",
        (_, Some("recomputed")) => "RECOMPUTED: its KV did not arrive, and nobody was told",
        (LineageStatus::Consistent, _) => "consistent: one model computed and decoded it",
        (LineageStatus::Unverified, _) => {
            "unverified: whether one model computed and decoded it is not known"
        }
    };
    let mut unknown = Vec::new();
    for (name, point) in named(record) {
        unknown.extend(point.unknown.as_ref().map(|what| format!("{name}: {what}")));
    }
    for finding in findings {
        unknown.extend(
            finding.unknown.iter().filter(|what| !unknown.contains(what)).cloned().collect::<Vec<_>>(),
        );
    }
    Words {
        headline: headline.to_owned(),
        what: what(record),
        points: named(record)
            .into_iter()
            .map(|(name, point)| (name, describe(name, point, record)))
            .collect(),
        parts: parts(record),
        unknown,
        cost: cost(record, findings),
        advice: advice(record, findings),
    }
}

/// A worker in words.
pub fn worker(entry: &WorkerEntry) -> String {
    let mut text = format!(
        "{}: {} of {} {} on {}, {}",
        entry.id,
        if entry.role == "unknown" { "unknown role".to_owned() } else { format!("{} worker", entry.role) },
        entry.engine,
        entry.engine_version,
        entry.node,
        entry.revision.as_deref().unwrap_or("revision unknown"),
    );
    if let Some(last) = entry.epochs.last().filter(|epoch| epoch.changed.is_some()) {
        let (changed, since) = (last.changed.as_deref(), last.since.as_deref());
        text.push_str(&format!(
            "; its {} changed at {}",
            changed.unwrap_or("revision"),
            since.unwrap_or("?")
        ));
    }
    match (&entry.gone, entry.exit_signal, entry.exit_status) {
        (Some(gone), Some(signal), _) => text.push_str(&format!("; ended by signal {signal} at {gone}")),
        (Some(gone), None, Some(status)) => text.push_str(&format!("; ended with status {status} at {gone}")),
        (Some(gone), None, None) => text.push_str(&format!("; ended at {gone}")),
        (None, ..) if entry.silent => text.push_str("; its node fell silent, so what it does now is unknown"),
        (None, ..) => {}
    }
    let lost: u64 = entry.losses.iter().map(|loss| loss.records).sum();
    if lost > 0 {
        let reasons: Vec<&str> = entry.losses.iter().map(|loss| loss.reason.as_str()).collect();
        text.push_str(&format!(
            "; {lost} records of it were lost ({}), which may hold what is missing here",
            reasons.join(", ")
        ));
    }
    text
}

fn named(record: &Record) -> [(&'static str, &Point); 4] {
    let points = &record.lineage.points;
    [
        ("asked", &points.request),
        ("prefill", &points.prefill),
        ("kv", &points.artifact),
        ("decode", &points.decode),
    ]
}

fn who(point: &Point, otherwise: &str) -> String {
    match (&point.worker, &point.revision) {
        (Some(worker), Some(revision)) => format!("{worker} ({revision})"),
        (Some(worker), None) => worker.clone(),
        (None, _) => otherwise.to_owned(),
    }
}

fn what(record: &Record) -> String {
    let points = &record.lineage.points;
    let decoder = who(&points.decode, "a worker that no source names");
    let prefiller = who(&points.prefill, "a worker that no source names");
    let tokens = record.prompt_tokens.map_or(String::new(), |tokens| format!(" of {tokens} tokens"));
    match (record.lineage.status, points.artifact.outcome.as_deref()) {
        (LineageStatus::Divergent, Some("transfer")) => format!(
            "{decoder} decoded it from KV that {prefiller} had computed. They ran different revisions, so the answer is of \
             no model that anybody deployed."
        ),
        (LineageStatus::Divergent, _) => {
            format!("{decoder} decoded it from KV of another revision than its own.")
        }
        (_, Some("failed")) => {
            format!("The KV that {decoder} needed did not arrive, and the request failed.")
        }
        (_, Some("recomputed")) => format!(
            "The KV that {decoder} needed did not arrive. It computed the prompt{tokens} itself and answered: the text is \
             right, the time and the work are lost."
        ),
        (status, Some("transfer")) => {
            let verdict = match status {
                LineageStatus::Consistent => "Both ran one revision: nothing is amiss.",
                _ => "Whether both ran one revision is not known.",
            };
            format!("{decoder} decoded it from KV that {prefiller} had computed. {verdict}")
        }
        (LineageStatus::Consistent, _) => {
            format!("{decoder} computed the prompt{tokens} and decoded it: nothing is amiss.")
        }
        (LineageStatus::Unverified, Some(_)) => {
            format!("{decoder} computed the prompt{tokens} and decoded it; with which model is not known.")
        }
        (LineageStatus::Unverified, None) => format!("{decoder} decoded it; from which KV is not known."),
    }
}

fn describe(name: &str, point: &Point, record: &Record) -> String {
    let mut parts: Vec<String> = Vec::new();
    parts.extend(point.worker.clone());
    parts.extend(point.model.as_ref().map(|model| format!("model {model}")));
    if name == "asked" {
        let numbers = [
            ("prompt tokens", record.prompt_tokens),
            ("of them cached", record.cached_tokens),
            ("tokens answered", record.completion_tokens),
        ];
        parts.extend(numbers.iter().filter_map(|(what, count)| Some(format!("{} {what}", (*count)?))));
        parts.extend(record.http_status.map(|status| format!("HTTP {status}")));
        parts.extend(record.first_seen.as_ref().map(|first| format!("first seen {first}")));
    }
    parts.extend(point.outcome.as_deref().map(|outcome| match outcome {
        "transfer" => "came from the prefill worker".to_owned(),
        "recomputed" => "did not arrive; computed again by the decode worker".to_owned(),
        "failed" => "did not arrive".to_owned(),
        "local" => "computed by the decode worker itself".to_owned(),
        "store" => "came from a store".to_owned(),
        other => other.to_owned(),
    }));
    parts.extend(point.revision.clone());
    parts.extend(point.weights.as_deref().map(|weights| format!("weights {}", short(weights))));
    parts.extend(point.unknown.as_ref().map(|unknown| format!("unknown: {unknown}")));
    parts.join(", ")
}

fn short(digest: &str) -> String {
    digest.chars().take(DIGITS).collect()
}

fn parts(record: &Record) -> Option<String> {
    let points = &record.lineage.points;
    if record.lineage.status != LineageStatus::Divergent {
        return None;
    }
    let differ = |a: &Option<String>, b: &Option<String>| matches!((a, b), (Some(a), Some(b)) if a != b);
    let (kv, decode) = (&points.artifact, &points.decode);
    let word = |text: &Option<String>| short(text.as_deref().unwrap_or("unknown"));
    Some(if differ(&kv.weights, &decode.weights) {
        format!(
            "between kv and decode, in the weights: the KV is of {}, the decode worker ran {}",
            word(&kv.weights),
            word(&decode.weights)
        )
    } else if differ(&kv.revision, &decode.revision) {
        format!(
            "between kv and decode, not in the weights: {} against {}; the factor that differs stands in /api/v1/workers \
             of both",
            word(&kv.revision),
            word(&decode.revision)
        )
    } else {
        "between kv and decode, in a factor that is not part of a full revision; the workers of both list theirs".to_owned()
    })
}

fn cost(record: &Record, findings: &[&Finding]) -> Option<String> {
    let outcome = record.lineage.points.artifact.outcome.as_deref();
    match (outcome, record.prompt_tokens) {
        (Some("recomputed"), Some(tokens)) => {
            let cached = record.cached_tokens.unwrap_or(0).clamp(0, tokens);
            Some(format!("{} prompt tokens computed twice", tokens - cached))
        }
        (Some("failed"), _) => Some("the request, and the prefill that was done for it".to_owned()),
        (_, Some(tokens)) if record.lineage.status == LineageStatus::Divergent => {
            let answered =
                record.completion_tokens.map(|n| format!(", {n} tokens of answer that cannot be trusted"));
            Some(format!("{tokens} prompt tokens of another model{}", answered.unwrap_or_default()))
        }
        _ => {
            let tokens: u64 = findings.iter().map(|finding| finding.tokens).max().unwrap_or(0);
            (tokens > 0).then(|| format!("{tokens} tokens over all requests of the finding"))
        }
    }
}

fn advice(record: &Record, findings: &[&Finding]) -> Vec<String> {
    let mut advice: Vec<String> = Vec::new();
    let mut surest: Vec<&&Finding> = findings.iter().collect();
    surest.sort_by_key(|finding| std::cmp::Reverse(finding.confidence));
    for finding in surest.iter().filter(|finding| finding.confidence >= Confidence::Suspected) {
        if !finding.advice.is_empty() && !advice.contains(&finding.advice) {
            advice.push(finding.advice.clone());
        }
    }
    if !advice.is_empty() {
        return advice;
    }
    let arrived_not =
        matches!(record.lineage.points.artifact.outcome.as_deref(), Some("recomputed" | "failed"));
    advice.push(
        match record.lineage.status {
            LineageStatus::Divergent => {
                "take the decode worker out of rotation until both sides run one revision, then ask again; answers given \
                 meanwhile cannot be trusted"
            }
            _ if arrived_not => "read the log of the decode worker at that time: it says why the KV did not arrive",
            LineageStatus::Unverified => {
                "nothing is known to be wrong; what is unknown above says which source is missing (kvprov doctor on the \
                 node tells how to get it)"
            }
            LineageStatus::Consistent => "nothing",
        }
        .to_owned(),
    );
    advice
}

#[cfg(test)]
mod tests {
    use super::*;
    use kvprov_model::lineage::{Lineage, Points};
    use std::collections::BTreeSet;

    fn point(worker: &str, weights: &str) -> Point {
        Point {
            worker: Some(worker.to_owned()),
            weights: Some(format!("sha256:{weights}")),
            revision: Some(format!("rev:{weights}")),
            ..Point::default()
        }
    }

    fn record(status: LineageStatus, outcome: &str, decode: Point) -> Record {
        let artifact = Point { outcome: Some(outcome.to_owned()), worker: None, ..point("", "aa") };
        let points = Points { request: Point::default(), prefill: point("p0", "aa"), artifact, decode };
        Record {
            lineage: Lineage { request: "lab-1".to_owned(), status, points },
            ids: BTreeSet::new(),
            first_seen: None,
            last_seen: None,
            http_status: Some(200),
            prompt_tokens: Some(102),
            cached_tokens: Some(6),
            completion_tokens: Some(8),
            traceparent: None,
            findings: Vec::new(),
        }
    }

    #[test]
    fn a_divergent_request_says_where_its_points_part_and_what_to_do() {
        let words = request(&record(LineageStatus::Divergent, "transfer", point("d0", "bb")), &[]);
        assert!(words.headline.starts_with("DIVERGENT"));
        assert!(words.what.contains("d0 (rev:bb)") && words.what.contains("p0 (rev:aa)"), "{}", words.what);
        let parts = words.parts.unwrap();
        assert!(parts.contains("weights") && parts.contains("sha256:aa") && parts.contains("sha256:bb"));
        assert!(words.cost.unwrap().contains("8 tokens of answer"));
        assert!(words.advice[0].contains("out of rotation"));
    }

    #[test]
    fn a_recomputed_request_costs_what_was_not_cached() {
        let words = request(&record(LineageStatus::Consistent, "recomputed", point("d0", "aa")), &[]);
        assert!(words.headline.starts_with("RECOMPUTED") && words.parts.is_none());
        assert_eq!(words.cost.as_deref(), Some("96 prompt tokens computed twice"));
    }

    #[test]
    fn what_is_not_known_is_said_and_why() {
        let decode = Point { unknown: Some("the digest of its weights".to_owned()), ..Point::default() };
        let words = request(&record(LineageStatus::Unverified, "transfer", decode), &[]);
        assert!(words.headline.starts_with("unverified"));
        assert_eq!(words.unknown, ["decode: the digest of its weights"]);
        assert!(words.what.contains("no source names") && words.advice[0].contains("kvprov doctor"));
    }

    #[test]
    fn a_usual_request_is_calm() {
        let words = request(&record(LineageStatus::Consistent, "transfer", point("d0", "aa")), &[]);
        assert!(
            words.what.ends_with("nothing is amiss.") && words.cost.is_none() && words.unknown.is_empty()
        );
        assert_eq!(words.advice, ["nothing"]);
    }
}
