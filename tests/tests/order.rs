//! Any order and any duplicate of the observations gives the same findings with the same ids.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a test states what it expects")]

use kvprov_tests::binary::Binary;
use kvprov_tests::bundle::Bundle;
use kvprov_tests::mutate::Random;
use kvprov_tests::{corpus, pipeline, pool};

/// Orders of every bundle in each run; the long test has [`MANY_ORDERS`].
const ORDERS: u64 = 5;
const MANY_ORDERS: u64 = 100;

#[test]
fn a_few_orders_with_duplicates_give_the_same_findings() {
    assert_same_in_orders(0..ORDERS);
}

#[test]
#[ignore = "takes minutes: `cargo xtask test --long`"]
fn a_hundred_orders_with_duplicates_give_the_same_findings() {
    assert_same_in_orders(ORDERS..ORDERS + MANY_ORDERS);
}

#[test]
fn the_binary_says_what_the_library_says() {
    let binary = Binary::of_workspace().unwrap();
    let directories = corpus::bundles(&corpus::root()).unwrap();
    // Every seventh bundle: enough of every kind, and the binary starts slowly.
    let some: Vec<_> = directories.iter().step_by(7).collect();
    let wrong = pool::map(&some, |directory| {
        let bundle = Bundle::load(directory).unwrap();
        let on_disk = bundle.write().unwrap();
        let mut printed =
            binary.replay(on_disk.path()).unwrap_or_else(|error| panic!("{}: {error}", bundle.name));
        printed.findings.sort_by(|a, b| a.id.cmp(&b.id));
        (printed.findings != pipeline::replay(&bundle).unwrap()).then(|| bundle.name.clone())
    });
    let wrong: Vec<String> = wrong.into_iter().flatten().collect();
    assert!(wrong.is_empty(), "{wrong:?}");
}

fn assert_same_in_orders(seeds: std::ops::Range<u64>) {
    let directories = corpus::bundles(&corpus::root()).unwrap();
    let wrong = pool::map(&directories, |directory| {
        let bundle = Bundle::load(directory).unwrap();
        let observed = pipeline::observe(&bundle).unwrap();
        let expected = pipeline::conclude(&observed).unwrap();
        seeds.clone().find_map(|seed| {
            let mut random = Random::new(seed);
            let mut observations = observed.clone();
            for _ in 0..observed.len() / 4 {
                observations.push(observed[random.below(observed.len())].clone());
            }
            random.shuffle(&mut observations);
            let found = pipeline::conclude(&observations).unwrap();
            (found != expected)
                .then(|| format!("{}, order {seed}: {found:#?}\ninstead of {expected:#?}", bundle.name))
        })
    });
    let wrong: Vec<String> = wrong.into_iter().flatten().collect();
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}
