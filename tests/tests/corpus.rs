//! The corpus: recorded incidents get the verdict that they deserve.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a test states what it expects")]

use kvprov_tests::binary::Binary;
use kvprov_tests::judge::Expected;
use kvprov_tests::{corpus, score};

#[test]
fn every_expectation_is_well_formed() {
    for bundle in corpus::bundles(&corpus::root()).unwrap() {
        Expected::load(&bundle.join("expected.toml")).unwrap();
    }
}

#[test]
fn quiet_bundles_stay_quiet_and_most_faults_are_found() {
    let binary = Binary::of_workspace().unwrap();
    let bundles = corpus::bundles(&corpus::root()).unwrap();
    let scored = score::all(&binary, &bundles).unwrap();
    let reasons = score::shortfall(&scored);
    assert!(reasons.is_empty(), "{}", reasons.join("\n"));
}
