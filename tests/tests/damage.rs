//! Damaged input is refused or read as far as it goes; nothing panics, hangs or ends by a signal.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a test states what it expects")]

use kvprov_tests::binary::{Binary, Output};
use kvprov_tests::bundle::Bundle;
use kvprov_tests::mutate::{Random, damage};
use kvprov_tests::verdict::Found;
use kvprov_tests::{corpus, pool};
use std::ffi::OsStr;

#[test]
fn damaged_bundles_are_read_or_refused() {
    damaged_in_forms(1);
}

#[test]
#[ignore = "takes minutes"]
fn bundles_damaged_in_many_ways_are_read_or_refused() {
    damaged_in_forms(20);
}

/// So many damaged forms of every bundle.
fn damaged_in_forms(forms: u64) {
    let binary = Binary::of_workspace().unwrap();
    let directories = corpus::bundles(&corpus::root()).unwrap();
    let seeds: Vec<u64> = (0..directories.len() as u64 * forms).collect();
    let wrong = pool::map(&seeds, |seed| {
        let directory = &directories[*seed as usize % directories.len()];
        let bundle = damage(&Bundle::load(directory).unwrap(), &mut Random::new(*seed));
        let on_disk = bundle.write().unwrap();
        let arguments =
            ["replay".as_ref(), "--format".as_ref(), OsStr::new("json"), on_disk.path().as_os_str()];
        let reason = match binary.run(&arguments) {
            Ok(output) => complaint(&output)?,
            Err(error) => error.to_string(),
        };
        Some(format!("{} damaged with seed {seed}: {reason}", bundle.name))
    });
    let wrong: Vec<String> = wrong.into_iter().flatten().collect();
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

fn complaint(output: &Output) -> Option<String> {
    let stderr = String::from_utf8_lossy(&output.stderr);
    if stderr.contains("panicked") {
        return Some(format!("it panicked: {stderr}"));
    }
    match output.status {
        Some(0) => {
            let parsed = serde_json::from_slice(&output.stdout).map_err(|error| error.to_string());
            parsed.and_then(|value| Found::all(&value).map_err(|error| error.to_string())).err()
        }
        Some(2) if stderr.trim().is_empty() => Some("refused without saying why".to_owned()),
        Some(2) => None,
        other => Some(format!("exit status {other:?}: {stderr}")),
    }
}
