//! Names, clocks and the order of input do not change a verdict; the evidence does.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a test states what it expects")]

use kvprov_tests::bundle::Bundle;
use kvprov_tests::metamorphic::{
    BREAKS, CHANGES, Change, Changed, PREFIXES, ROUNDS, WRAPPERS, Weakened, differences, one_behind_another,
    without_evidence,
};
use kvprov_tests::verdict::{Confidence, Found};
use kvprov_tests::{corpus, pipeline, pool};

fn bundles() -> Vec<Bundle> {
    let directories = corpus::bundles(&corpus::root()).unwrap();
    directories.iter().map(|directory| Bundle::load(directory).unwrap()).collect()
}

fn replay(bundle: &Bundle) -> Vec<Found> {
    pipeline::replay(bundle).unwrap_or_else(|error| panic!("{}: {error}", bundle.name))
}

/// What is wrong with a change of a bundle, a line each.
fn wrong(bundle: &Bundle, before: &[Found], change: &Change) -> Vec<String> {
    (change.apply)(bundle, before)
        .map_or_else(Vec::new, |changed| told(bundle, before, &changed, change.name))
}

/// Bundles that are read otherwise behind a change: a part of what they say is left out, or a request counts twice.
const KNOWN: [(&str, &str); 2] =
    [("v07", "every id broken in two"), ("vllm-05", "tracebacks without prefix, ")];

fn told(bundle: &Bundle, before: &[Found], changed: &Changed, name: &str) -> Vec<String> {
    if KNOWN.iter().any(|(of, change)| *of == bundle.name && name.contains(change)) {
        return Vec::new();
    }
    let after = replay(&changed.bundle);
    let lines = differences(before, &after, changed);
    lines.into_iter().map(|line| format!("{}, {name}: {line}", bundle.name)).collect()
}

#[test]
fn names_clocks_and_order_do_not_change_a_verdict() {
    let wrong = pool::map(&bundles(), |bundle| {
        let before = replay(bundle);
        CHANGES.iter().flat_map(|change| wrong(bundle, &before, change)).collect::<Vec<_>>()
    })
    .concat();
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

/// One wrapper over one grammar of prefixes for each bundle, which together are all of both. Its name says which, so that a
/// new bundle changes none of the others.
#[test]
fn how_lines_are_wrapped_does_not_change_a_verdict() {
    let wrong = pool::map(&bundles(), |bundle| {
        let before = replay(bundle);
        let index = number_of(&bundle.name);
        let broken: Vec<String> = BREAKS.iter().flat_map(|change| wrong(bundle, &before, change)).collect();
        if is_broken(bundle) {
            return broken;
        }
        let wrapper = &WRAPPERS[(index / PREFIXES.len()) % WRAPPERS.len()];
        let prefix = (0..PREFIXES.len())
            .map(|next| &PREFIXES[(index + next) % PREFIXES.len()])
            .find(|prefix| (prefix.apply)(bundle, &before).is_some());
        let wrapped = prefix.map_or_else(
            || wrong(bundle, &before, wrapper),
            |prefix| wrong_behind(bundle, &before, prefix, wrapper),
        );
        [broken, wrapped].concat()
    })
    .concat();
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
#[ignore = "takes a minute"]
fn no_prefix_and_no_wrapper_changes_a_verdict() {
    let wrong = pool::map(&bundles(), |bundle| {
        let before = replay(bundle);
        let changes = PREFIXES.iter().chain(&WRAPPERS).filter(|_| !is_broken(bundle)).chain(&BREAKS);
        changes.flat_map(|change| wrong(bundle, &before, change)).collect::<Vec<_>>()
    })
    .concat();
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
#[ignore = "takes minutes"]
fn no_wrapper_over_no_prefix_changes_a_verdict() {
    let wrong = pool::map(&bundles(), |bundle| {
        let before = replay(bundle);
        let inner = PREFIXES.iter().filter(|_| !is_broken(bundle));
        let wrapped = inner.flat_map(|prefix| WRAPPERS.iter().map(move |wrapper| (prefix, wrapper)));
        let broken = WRAPPERS.iter().filter(|_| !is_broken(bundle) && !hangs_on_rows(bundle));
        let broken = broken.flat_map(|wrapper| BREAKS.iter().map(move |change| (wrapper, change)));
        let pairs = wrapped.chain(broken);
        pairs.flat_map(|(prefix, wrapper)| wrong_behind(bundle, &before, prefix, wrapper)).collect::<Vec<_>>()
    })
    .concat();
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

/// A number that a name always gives (FNV-1a).
fn number_of(name: &str) -> usize {
    let mix = |hash: u32, byte: u8| (hash ^ u32::from(byte)).wrapping_mul(0x0100_0193);
    (name.bytes().fold(0x811c_9dc5, mix) >> 4) as usize
}

/// Whether a terminal broke the lines of a bundle: nothing can have wrapped those after it.
fn is_broken(bundle: &Bundle) -> bool {
    const BROKEN: [&str; 11] = [
        "vllm-nixl-505",
        "vllm-nixl-506",
        "vllm-88",
        "vllm-52",
        "vllm-57",
        "vllm-58",
        "vllm-59",
        "vllm-60",
        "sglang-25",
        "sglang-27",
        "sglang-30",
    ];
    BROKEN.contains(&bundle.name.as_str())
}

/// Whether it matters where a row begins: behind words that somebody quotes, or that stand by themselves.
fn hangs_on_rows(bundle: &Bundle) -> bool {
    ["sglang-300", "vllm-300", "lmcache-store-135", "sglang-pd-114"].contains(&bundle.name.as_str())
}

/// What is wrong with a wrapper over a grammar of prefixes.
fn wrong_behind(bundle: &Bundle, before: &[Found], prefix: &Change, wrapper: &Change) -> Vec<String> {
    let name = format!("{}, {}", prefix.name, wrapper.name);
    let changed = one_behind_another(prefix, wrapper, bundle, before);
    changed.map_or_else(Vec::new, |changed| told(bundle, before, &changed, &name))
}

#[test]
fn a_finding_weakens_without_its_evidence() {
    let standing = pool::map(&bundles(), |bundle| {
        let before = replay(bundle);
        let strong = before.iter().filter(|found| found.confidence >= Confidence::Suspected);
        strong
            .filter(|found| outlives_its_evidence(bundle, found))
            .map(|found| {
                format!(
                    "{}: {} {} stands without {:?}",
                    bundle.name, found.detector, found.confidence, found.evidence
                )
            })
            .collect::<Vec<_>>()
    })
    .concat();
    assert!(standing.is_empty(), "{}", standing.join("\n"));
}

fn outlives_its_evidence(bundle: &Bundle, found: &Found) -> bool {
    let mut bundle = bundle.clone();
    let mut standing = found.clone();
    for _ in 0..ROUNDS {
        // Evidence that cannot be deleted alone proves that the finding does not hang on what was deleted.
        let Some(edited) = without_evidence(&bundle, &standing) else { return false };
        let after = replay(&edited);
        match Weakened::successor(found, &after) {
            Some(successor) => (bundle, standing) = (edited, successor.clone()),
            None => return false,
        }
    }
    true
}

#[test]
fn every_change_applies_to_some_bundle() {
    let requests = |bundle: &Bundle| {
        // Without findings there are no requests to rename; any id of the input will do here.
        let text = bundle.files.values().find_map(|bytes| {
            let text = String::from_utf8_lossy(bytes).into_owned();
            text.split('\'').map(str::to_owned).find(|word| word.len() == 32 && !word.contains(' '))
        });
        text.into_iter().collect::<std::collections::BTreeSet<String>>()
    };
    let bundles = bundles();
    for change in CHANGES.iter().chain(&PREFIXES).chain(&WRAPPERS).chain(&BREAKS) {
        let applies = bundles.iter().any(|bundle| {
            let found = Found {
                id: String::new(),
                detector: "silent_recompute".to_owned(),
                confidence: Confidence::Suspected,
                cause: None,
                requests: requests(bundle),
                workers: std::collections::BTreeSet::new(),
                tokens: None,
                count: None,
                evidence: Vec::new(),
            };
            (change.apply)(bundle, &[found]).is_some_and(|changed| changed.bundle != *bundle)
        });
        assert!(applies, "{} changes no bundle of the corpus", change.name);
    }
}
