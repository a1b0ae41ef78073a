//! The judge says what the scoring script says.

#![allow(clippy::unwrap_used, reason = "a test states what it expects")]

use kvprov_tests::judge::{Expected, Judgement, judge};
use kvprov_tests::verdict::Found;
use serde_json::{Value, json};

fn judged(expected: &str, findings: &Value) -> Judgement {
    let findings = Found::all(&json!({ "findings": findings })).unwrap();
    judge(&Expected::parse(expected).unwrap(), &findings)
}

fn finding(detector: &str, confidence: &str, requests: &[&str]) -> Value {
    json!({ "detector": detector, "confidence": confidence, "cause": "unknown", "requests": requests,
            "tokens": 64, "count": requests.len() })
}

const ONE_RECOMPUTE: &str = r#"must = [{ detector = "silent_recompute", min_confidence = "suspected",
    max_confidence = "suspected", requests = ["a", "b"], max_findings = 2 }]"#;

#[test]
fn nothing_demanded_and_nothing_found_passes() {
    assert!(judged("must = []\nmay = []", &json!([])).passes());
}

#[test]
fn requests_may_be_spread_over_findings() {
    let found = json!([
        finding("silent_recompute", "suspected", &["a"]),
        finding("silent_recompute", "suspected", &["b"]),
    ]);
    let judgement = judged(ONE_RECOMPUTE, &found);
    assert!(judgement.passes(), "{judgement:?}");
    assert_eq!(judgement.met, ["silent_recompute"]);
}

#[test]
fn a_missing_request_is_a_miss() {
    let judgement = judged(ONE_RECOMPUTE, &json!([finding("silent_recompute", "suspected", &["a"])]));
    assert_eq!(judgement.missed, ["silent_recompute"]);
}

#[test]
fn a_stronger_claim_than_allowed_is_a_false_positive() {
    let judgement = judged(ONE_RECOMPUTE, &json!([finding("silent_recompute", "confirmed", &["a", "b"])]));
    assert_eq!(judgement.met, ["silent_recompute"]);
    assert_eq!(judgement.reasons, ["overclaimed silent_recompute confirmed (cause unknown)"]);
}

#[test]
fn more_findings_than_allowed_are_a_false_positive() {
    let one = finding("silent_recompute", "suspected", &["a", "b"]);
    let judgement = judged(ONE_RECOMPUTE, &json!([one, one, one]));
    assert_eq!(judgement.false_positives, ["silent_recompute"]);
}

#[test]
fn a_risk_is_no_false_positive_unless_forbidden() {
    let risk = json!([finding("keyspace_fork", "risk", &[])]);
    assert!(judged("must = []", &risk).passes());
    assert!(!judged("forbid = [\"keyspace_fork\"]", &risk).passes());
}

#[test]
fn an_alternative_meets_the_demand_at_any_confidence() {
    let expected = r#"must = [{ detector = "silent_recompute", alt = ["kv_transfer_failed"], min_confidence = "suspected",
        max_confidence = "suspected" }]"#;
    assert!(judged(expected, &json!([finding("kv_transfer_failed", "confirmed", &[])])).passes());
}

#[test]
fn what_may_be_is_allowed_up_to_its_confidence_and_for_its_cause() {
    let found = json!([finding("store_conflict", "suspected", &[])]);
    assert!(judged("may = [\"store_conflict:suspected\"]", &found).passes());
    assert!(!judged("may = [\"store_conflict:risk\"]", &found).passes());
    let other_cause = r#"may = [{ detector = "store_conflict", cause = "cleared" }]"#;
    assert!(!judged(other_cause, &found).passes());
}

#[test]
fn a_fixed_number_has_to_be_met() {
    let expected = r#"must = [{ detector = "silent_recompute", tokens = 64, count = 1 }]"#;
    assert!(judged(expected, &json!([finding("silent_recompute", "confirmed", &["a"])])).passes());
    assert!(!judged(expected, &json!([finding("silent_recompute", "confirmed", &["a", "b"])])).passes());
}

#[test]
fn a_slip_in_an_expectation_is_an_error() {
    for slip in ["musts = []", "may = [\"recompute\"]", "must = [{ min_confidence = \"suspected\" }]"] {
        assert!(Expected::parse(slip).is_err(), "{slip}");
    }
}
