//! What is missing may cost findings, but makes no wrong ones.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a test states what it expects")]
#![allow(clippy::print_stderr, reason = "a measurement prints what it measured")]

use kvprov_tests::bundle::Bundle;
use kvprov_tests::dropping::without_lines;
use kvprov_tests::judge::{Expected, Judgement, judge};
use kvprov_tests::mutate::Random;
use kvprov_tests::{corpus, pipeline, pool};

/// Lines of a hundred that are missing.
const PERCENT: usize = 10;

/// Least share of the claims that have to be right, in percent.
const PRECISION: usize = 95;
/// Who claims nothing is right as well: the least share that has to be found all the same.
const RECALL: usize = 80;

#[test]
fn a_tenth_of_the_lines_missing_makes_no_wrong_findings() {
    precise_over(&[1]);
}

#[test]
#[ignore = "takes minutes"]
fn a_tenth_of_the_lines_missing_in_ten_ways_makes_no_wrong_findings() {
    precise_over(&[1, 2, 3, 4, 5, 6, 7, 8, 9, 10]);
}

fn precise_over(seeds: &[u64]) {
    let bundles: Vec<(Expected, Bundle)> = corpus::bundles(&corpus::root())
        .unwrap()
        .iter()
        .map(|directory| {
            (Expected::load(&directory.join("expected.toml")).unwrap(), Bundle::load(directory).unwrap())
        })
        .collect();
    for seed in seeds {
        let judged: Vec<Judgement> = pool::map(&bundles, |(expected, bundle)| {
            // Each bundle loses other lines, the same in every run.
            let salt = bundle
                .name
                .bytes()
                .fold(*seed, |salt, byte| salt.wrapping_mul(31).wrapping_add(u64::from(byte)));
            let thinned = without_lines(bundle, PERCENT, &mut Random::new(salt));
            judge(
                expected,
                &pipeline::replay(&thinned).unwrap_or_else(|error| panic!("{}: {error}", bundle.name)),
            )
        });
        let count = |of: fn(&Judgement) -> usize| judged.iter().map(of).sum::<usize>();
        let (met, missed) = (count(|one| one.met.len()), count(|one| one.missed.len()));
        let wrong = count(|one| one.false_positives.len());
        let wrongly: Vec<String> = bundles
            .iter()
            .zip(&judged)
            .filter(|(_, one)| !one.false_positives.is_empty())
            .map(|((_, bundle), one)| format!("{}: {}", bundle.name, one.reasons.join("; ")))
            .collect();
        eprintln!(
            "seed {seed}: precision {:.3}, recall {:.3} ({met} found, {missed} missed, {wrong} wrong)",
            met as f64 / (met + wrong) as f64,
            met as f64 / (met + missed) as f64,
        );
        assert!(met * 100 >= (met + wrong) * PRECISION, "seed {seed}:\n{}", wrongly.join("\n"));
        assert!(met * 100 >= (met + missed) * RECALL, "seed {seed}: {met} found, {missed} missed");
    }
}
