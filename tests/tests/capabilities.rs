//! kvprov runs with exactly the documented capabilities; with less it starts, says what it lost, and what it still sees
//! works. Needs root, `setpriv`, and a kernel for all kernel programs; skipped with the reason elsewhere.

#![allow(
    clippy::unwrap_used,
    clippy::print_stderr,
    reason = "a test states what it expects, and why it was skipped"
)]

use kvprov_tests::binary::Binary;
use kvprov_tests::live::up::{Place, Up};
use std::ffi::OsString;
use std::process::Command;
use std::time::Duration;

/// A user that owns nothing.
const NOBODY: &str = "65534";
const TO_FIND: Duration = Duration::from_secs(60);
const TO_STOP: Duration = Duration::from_secs(15);

/// The place, and the names of the documented set on this kernel; `None` where this machine cannot tell.
fn documented() -> Option<(Place, Vec<String>)> {
    let place = Place::of(&Binary::of_workspace().unwrap()).unwrap();
    let doctor = Command::new(place.binary()).arg("doctor").output().unwrap();
    let text = String::from_utf8_lossy(&doctor.stdout).into_owned();
    let (abilities, capabilities) = text.split_once("\nCapabilities").unwrap();
    let root = Command::new("setpriv").args(["--reuid", NOBODY, "true"]).output();
    let lacking =
        abilities.lines().find(|line| line.contains("MISSING") || line.contains("limited  tracefs"));
    if let Some(reason) = lacking {
        eprintln!("skipped: {reason}");
        return None;
    }
    if !root.is_ok_and(|output| output.status.success()) {
        eprintln!("skipped: this needs root and setpriv");
        return None;
    }
    let names = capabilities.lines().filter(|line| line.starts_with("ok"));
    let names = names.filter_map(|line| line.split_whitespace().nth(1)?.strip_prefix("CAP_"));
    Some((place, names.map(str::to_ascii_lowercase).collect()))
}

/// `setpriv` to another user with exactly these.
fn with(capabilities: &[&String]) -> Vec<OsString> {
    let set = capabilities.iter().fold("-all".to_owned(), |set, name| format!("{set},+{name}"));
    let mut words: Vec<OsString> =
        ["setpriv", "--reuid", NOBODY, "--regid", NOBODY, "--clear-groups"].map(OsString::from).to_vec();
    let sets = ["inh-caps", "ambient-caps", "bounding-set"];
    words.extend(sets.map(|name| format!("--{name}={set}").into()));
    words
}

fn says(up: &Up, words: &str) -> bool {
    up.output().contains(words)
}

fn doctor(place: &Place, before: &[OsString]) -> (String, Option<i32>) {
    let output =
        Command::new(&before[0]).args(&before[1..]).arg(place.binary()).arg("doctor").output().unwrap();
    (String::from_utf8_lossy(&output.stdout).into_owned(), output.status.code())
}

#[test]
fn with_exactly_the_documented_set_every_fault_of_the_demo_is_found() {
    let Some((place, names)) = documented() else { return };
    let before = with(&names.iter().collect::<Vec<_>>());
    let mut up = place.start(&before, &["up", "--demo"], &[], "all").unwrap();
    let status = up.ended(TO_FIND);
    let output = up.output();
    assert!(output.contains("4 of 4 faults found and confirmed"), "{output}");
    assert!(status.is_some_and(|status| status.success()), "{status:?}\n{output}");
    // The doubles serve no counters, which no right would change; nor what a container is called around this machine.
    let is_of_rights = |line: &&str| {
        line.starts_with("blind ")
            && !line.contains("the metrics of")
            && !line.contains("of workers in containers")
    };
    let blind = output.lines().filter(is_of_rights);
    assert_eq!(blind.collect::<Vec<_>>(), Vec::<&str>::new(), "{output}");
    assert_eq!(doctor(&place, &before).1, Some(0));
}

#[test]
fn with_less_it_starts_and_says_what_it_lost_and_logs_are_read() {
    let Some((place, names)) = documented() else { return };
    let mut sets: Vec<(Vec<&String>, Option<&String>)> =
        names.iter().map(|lost| (names.iter().filter(|name| *name != lost).collect(), Some(lost))).collect();
    sets.push((Vec::new(), None));
    for (kept, lost) in sets {
        let without = lost.map_or("ALL".to_owned(), |lost| lost.to_ascii_uppercase());
        let before = with(&kept);
        let mut up = place.start(&before, &["up", "--demo"], &[], &without).unwrap();
        let found = up.wait(TO_FIND, |up| says(up, "FINDING confirmed silent_recompute"));
        let output = up.output();
        assert!(found, "without {without}: what only the log tells was not found\n{output}");
        let name = format!("CAP_{without}");
        let says_so = output.lines().any(|line| {
            line.starts_with("blind ") && (line.contains(&name) || lost.is_none() && line.contains("CAP_"))
        });
        assert!(says_so, "without {without}: nothing says so\n{output}");
        assert!(
            output.lines().filter(|line| line.starts_with("blind ") && line.contains("CAP_")).count() < 8,
            "too many words\n{output}"
        );
        // What the kernel sees is lost with any of the first three, and nothing is made up in its place.
        let demo_is_over = says(&up, "faults found and confirmed");
        let status = up.stop(TO_STOP);
        assert!(
            demo_is_over || status.is_some_and(|status| status.code().is_some()),
            "without {without}: no end in order: {status:?}\n{}",
            up.output()
        );
        assert!(!up.output().contains("it does not end"), "{}", up.output());
        let (words, status) = doctor(&place, &before);
        let tells = words.lines().any(|line| line.starts_with("MISSING") && line.contains("CAP_"));
        assert!(tells && status == Some(1), "without {without}: {status:?}\n{words}");
    }
}
