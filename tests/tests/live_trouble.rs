//! The running kvprov where things go wrong: it says so or counts it, accuses nobody, and what still works goes on.
//! Needs root and a kernel for the kernel programs; skipped elsewhere.

#![allow(
    clippy::unwrap_used,
    clippy::print_stderr,
    reason = "a test states what it expects, and why it was skipped"
)]

use kvprov_tests::binary::Binary;
use kvprov_tests::live::up::{Double, Place, Up};
use serde_json::Value;
use std::ffi::OsString;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

const TO_START: Duration = Duration::from_secs(20);
const TO_FIND: Duration = Duration::from_secs(20);
const VLLM: [&str; 8] = [
    "-m",
    "vllm.entrypoints.openai.api_server",
    "--model",
    "/nowhere/chat",
    "--port",
    "8200",
    "--kv-transfer-config",
    r#"{"kv_connector":"NixlConnector","kv_role":"kv_consumer","kv_load_failure_policy":"recompute"}"#,
];
const SGLANG: [&str; 11] = [
    "-m",
    "sglang.launch_server",
    "--model-path",
    "/nowhere/code",
    "--page-size",
    "64",
    "--enable-hierarchical-cache",
    "--hicache-storage-backend",
    "file",
    "--hicache-storage-backend-extra-config",
    r#"{"max_size": 1048576}"#,
];
/// A decode worker that prefills for itself, and says so.
const RECOMPUTES: [&str; 3] = [
    "(APIServer pid={pid}) INFO {date} [api_server.py:1977] vLLM API server version 0.32.0",
    "(EngineCore pid={pid}) ERROR {date} [worker.py:1046] Handshake failed for request chatcmpl-test-1",
    "(EngineCore pid={pid}) WARNING {date} [scheduler.py:2105] Recovered from KV load failure: 1 request(s) rescheduled (1024 tokens affected)",
];

fn place() -> Option<Place> {
    let place = Place::of(&Binary::of_workspace().unwrap()).unwrap();
    let doctor = Command::new(place.binary()).arg("doctor").output().unwrap();
    let text = String::from_utf8_lossy(&doctor.stdout).into_owned();
    match text.lines().find(|line| line.contains("MISSING") || line.contains("limited  tracefs")) {
        Some(reason) => {
            eprintln!("skipped: {reason}");
            None
        }
        None => Some(place),
    }
}

/// A script of one double.
fn script(name: &str, store: &str, lines: &[&str]) -> String {
    let lines: Vec<String> = lines.iter().map(|line| format!("{line:?}")).collect();
    format!(
        "[[double]]\nscenario = \"\"\nexpects = \"nothing\"\nname = {name:?}\narguments = []\nenvironment = {{}}\n\
         model = {{ directory = \"m\", seed = \"m\" }}\n{store}\nlines = [{}]\n",
        lines.join(", ")
    )
}

fn started(place: &Place, before: &[OsString], environment: &[(&str, &str)], data: &str) -> Up {
    let mut up = place.start(before, &["up"], environment, data).unwrap();
    assert!(up.wait(TO_START, Up::is_up), "it does not start:\n{}", up.output());
    up
}

/// The worker of a double, once its halves know it; then the double plays.
fn played(up: &mut Up, double: &Double) -> String {
    assert!(up.wait(TO_FIND, |up| double.worker(up).is_some()), "no worker was found:\n{}", up.output());
    double.begin().unwrap();
    double.worker(up).unwrap()
}

/// Findings that name a worker; other engines may run on this machine.
fn findings(up: &Up, worker: &str) -> Vec<Value> {
    up.list("findings").into_iter().filter(|finding| finding.to_string().contains(worker)).collect()
}

fn confirmed(up: &Up, worker: &str) -> bool {
    findings(up, worker).iter().any(|finding| finding["confidence"] == "confirmed")
}

/// In a mount namespace where this directory is empty.
fn without(place: &Place, directory: &str) -> Vec<OsString> {
    let empty = place.path("empty");
    std::fs::create_dir_all(&empty).unwrap();
    let mount = format!("mount --bind {} {directory}; exec \"$@\"", empty.display());
    ["unshare", "--mount", "sh", "-c", &mount, "sh"].map(OsString::from).to_vec()
}

#[test]
fn a_ring_that_is_too_small_is_counted_and_accuses_nobody() {
    let Some(place) = place() else { return };
    let mut up = started(&place, &[], &[("KVPROV_AGENT_RING_BYTES", "4096")], "small");
    let busy = "store = { suffix = \"_m_0_1.bin\", prompts = \"p\", keys = 200, page_bytes = 512, rounds = 60, pause_ms = 0 }";
    let double = Double::start(&place, "busy", &SGLANG, &script("busy", busy, &[])).unwrap();
    let worker = played(&mut up, &double);
    let is_told = |up: &Up| {
        up.list("workers")
            .iter()
            .any(|of| of["id"] == worker.as_str() && of["losses"].to_string().contains("ring was full"))
    };
    assert!(up.wait(TO_FIND, is_told), "{:?}", up.list("workers"));
    let page = up.agent_page("/metrics").unwrap();
    assert!(
        page.lines()
            .any(|line| line.starts_with("kvprov_observations_lost_total")
                && line.contains("the ring was full"))
    );
    assert!(page.lines().any(|line| line.contains("outcome=\"dropped\"")));
    assert!(findings(&up, &worker).is_empty(), "{:#?}", findings(&up, &worker));
    assert!(up.stop(TO_START).is_some_and(|status| status.success()));
}

#[test]
fn a_ring_that_is_large_enough_loses_nothing() {
    let Some(place) = place() else { return };
    let mut up = started(&place, &[], &[], "large");
    let calm = "store = { suffix = \"_m_0_1.bin\", prompts = \"p\", keys = 20, page_bytes = 512, rounds = 3, pause_ms = 5 }";
    let double = Double::start(&place, "calm", &SGLANG, &script("calm", calm, &[])).unwrap();
    let worker = played(&mut up, &double);
    let wrote = |up: &Up| up.agent_page("/metrics").is_some_and(|page| page.contains("kind=\"artifact\""));
    assert!(up.wait(TO_FIND, wrote), "{}", up.output());
    assert!(!up.agent_page("/metrics").unwrap().contains("outcome=\"dropped\""));
    assert!(findings(&up, &worker).is_empty(), "{:#?}", findings(&up, &worker));
}

#[test]
fn without_types_of_the_kernel_logs_are_read_and_nothing_claims_to_see_calls() {
    let Some(place) = place() else { return };
    let before = without(&place, "/sys/kernel/btf");
    let mut up = started(&place, &before, &[], "no-types");
    let double = Double::start(&place, "decode", &VLLM, &script("decode", "", &RECOMPUTES)).unwrap();
    let worker = played(&mut up, &double);
    assert!(up.wait(TO_FIND, |up| confirmed(up, &worker)), "{}\n{:#?}", up.output(), findings(&up, &worker));
    assert!(up.output().contains("blind   system calls: "), "{}", up.output());
    let workers = up.list("workers");
    let watched_by = workers.iter().find(|of| of["id"] == worker.as_str()).unwrap()["watched_by"].clone();
    assert_eq!(watched_by, serde_json::json!(["log"]));
    assert!(up.stop(TO_START).is_some_and(|status| status.success()));
}

#[test]
fn a_second_one_on_the_same_data_says_so_and_the_first_goes_on() {
    let Some(place) = place() else { return };
    let mut first = started(&place, &[], &[], "shared");
    let mut second = place.start(&[], &["up"], &[], "shared").unwrap();
    let status = second.ended(TO_START);
    assert!(status.is_some_and(|status| !status.success()), "{status:?}");
    assert!(second.output().contains("in use by another process"), "{}", second.output());
    assert!(first.is_up() && first.stop(TO_START).is_some_and(|status| status.success()));
}

#[test]
fn children_end_with_a_parent_that_was_killed_and_a_new_one_takes_over() {
    let Some(place) = place() else { return };
    let mut up = started(&place, &[], &[], "killed");
    let children = up.children();
    assert_eq!(children.len(), 2);
    up.kill();
    let lives = |pid: &u32| {
        let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
        stat.rsplit_once(") ").is_some_and(|(_, state)| !state.starts_with('Z'))
    };
    // Nobody here is told of the end of what is no child of this process.
    for _ in 0..100 {
        if !children.iter().any(lives) {
            break;
        }
        let _ = Command::new("sleep").arg("0.1").status();
    }
    assert!(!children.iter().any(lives), "a child outlives its parent by 10 s");
    let again = started(&place, &[], &[], "killed");
    assert!(again.is_up());
}

#[test]
fn what_prompts_say_goes_nowhere() {
    const CANARY: &str = "zebra quilt 4711";
    let Some(place) = place() else { return };
    let mut up = started(&place, &[], &[], "canary");
    let said: Vec<String> = [
        format!("(APIServer pid={{pid}}) INFO {{date}} [logger.py:39] Received request cmpl-1: prompt: '{CANARY}', params: x"),
        format!("(EngineCore pid={{pid}}) WARNING {{date}} [scheduler.py:1] kv cache trouble with {CANARY}"),
        CANARY.to_owned(),
    ]
    .into_iter()
    .chain(RECOMPUTES.map(str::to_owned))
    .collect();
    let lines: Vec<&str> = said.iter().map(String::as_str).collect();
    let arguments: Vec<&str> = VLLM.into_iter().chain(["--chat-template", CANARY]).collect();
    let double = Double::start(&place, "tells", &arguments, &script("tells", "", &lines)).unwrap();
    let worker = played(&mut up, &double);
    assert!(up.wait(TO_FIND, |up| confirmed(up, &worker)), "{}", up.output());
    for page in ["/", "/metrics", "/api/v1/findings", "/api/v1/workers"] {
        assert!(!up.page(page).unwrap().contains(CANARY), "{page}");
    }
    assert!(!up.agent_page("/metrics").unwrap().contains(CANARY));
    assert!(up.stop(TO_START).is_some_and(|status| status.success()));
    assert!(!up.output().contains(CANARY), "{}", up.output());
    assert_eq!(files_with(&place.path("canary"), CANARY.as_bytes()), Vec::<String>::new());
}

fn files_with(directory: &Path, words: &[u8]) -> Vec<String> {
    let mut found = Vec::new();
    for entry in std::fs::read_dir(directory).unwrap().map(Result::unwrap) {
        let path = entry.path();
        if path.is_dir() {
            found.extend(files_with(&path, words));
        } else if std::fs::read(&path).unwrap().windows(words.len()).any(|window| window == words) {
            found.push(path.display().to_string());
        }
    }
    found
}
