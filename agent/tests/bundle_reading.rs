//! How bundles are opened and read, and what becomes of bad ones.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test fails by panicking")]

use kvprov_agent::bundle::{Bundle, BundleError, InputKind, Report};
use kvprov_model::clock::WallTime;
use kvprov_model::observation::{Body, Observation, Role, SourceKind};
use kvprov_packs::Packs;
use std::path::{Path, PathBuf};

const KERNEL: &str =
    "{\"ts\":1.0,\"pid\":1,\"op\":\"recv\",\"local\":\"a:1\",\"peer\":\"b:2\",\"ret\":9000}\n";
const EVENTS: &str = "{\"ts\":1.0,\"seq\":0,\"type\":\"AllBlocksCleared\"}\n";
const PAGE: &str =
    "# TYPE vllm:num_preemptions_total counter\nvllm:num_preemptions_total{engine=\"0\"} 1.0\n";
const MANIFEST: &str = r#"
[[worker]]
name = "d"
node = "node-a"
engine = "vllm"
engine_version = "0.32.0"
role = "decode"
settings = { kv_transfer_config = { kv_connector = "NixlConnector" }, block_size = 32 }
exited = 2026-08-16T08:01:00Z
exit_signal = 9
[[worker.epoch]]
from = "2026-08-16T08:00:10Z"
revision = { weights = "sha256:bb" }
[[worker.epoch]]
from = "2026-08-16T08:00:00Z"
revision = { weights = "sha256:aa", adapters = { one = "sha256:cc" } }
[[source]]
worker = "d"
kind = "log"
file = "d.log"
timezone = "+08:00"
[[source]]
worker = "d"
kind = "kernel"
file = "d.jsonl"
[[source]]
worker = "d"
kind = "kv-events"
file = "e.jsonl"
[[source]]
worker = "d"
kind = "metrics"
file = "m/2.prom"
at = "2026-08-16T08:00:30Z"
[[source]]
worker = "d"
kind = "metrics"
file = "m/1.prom"
at = "2026-08-16T08:00:00Z"
"#;

struct Lab(tempfile::TempDir);

impl Lab {
    fn new(manifest: &str) -> Self {
        let lab = Self(tempfile::tempdir().unwrap());
        std::fs::create_dir(lab.path("m")).unwrap();
        lab.write("d.log", "hello\nworld\n");
        lab.write("d.jsonl", KERNEL);
        lab.write("e.jsonl", EVENTS);
        lab.write("m/1.prom", PAGE);
        lab.write("m/2.prom", &PAGE.replace(" 1.0", " 4.0"));
        if !manifest.is_empty() {
            lab.write("incident.toml", manifest);
        }
        lab
    }

    fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    fn write(&self, name: &str, text: &str) {
        std::fs::write(self.path(name), text).unwrap();
    }

    fn read(&self) -> (Vec<Observation>, Report) {
        read(&[self.0.path().to_path_buf()])
    }
}

fn read(paths: &[PathBuf]) -> (Vec<Observation>, Report) {
    let packs = Packs::builtin();
    let bundle = Bundle::open(paths).unwrap();
    let mut found = Vec::new();
    let report = bundle.read(packs, packs.matcher(), &mut |o| found.push(o), &mut |_, _| {});
    (found, report)
}

fn problems(manifest: &str) -> Vec<String> {
    Lab::new(manifest).read().1.problems.iter().map(ToString::to_string).collect()
}

fn time(text: &str) -> Option<WallTime> {
    WallTime::parse_rfc3339(text)
}

#[test]
fn a_declared_worker_is_told_with_settings_sources_and_facts() {
    let (found, report) = Lab::new(MANIFEST).read();
    let Body::Worker(worker) = &found[0].body else { panic!("{:?}", found[0]) };
    assert_eq!(worker.role, Some(Role::Decode));
    assert_eq!(worker.settings["kv_transfer_config.kv_connector"], "NixlConnector");
    assert_eq!(worker.watched_by, ["log", "kernel", "kv-events", "metrics"]);
    assert_eq!((found[0].worker(), found[0].envelope.node.as_str()), ("d", "node-a"));
    assert_eq!(report.problems, []);
    assert_eq!((report.lines.total, report.records), (2, 4));
}

#[test]
fn epochs_and_the_end_are_told_in_order_of_time() {
    let (found, _) = Lab::new(MANIFEST).read();
    let factors: Vec<_> = found
        .iter()
        .filter(|o| o.envelope.source == SourceKind::Config)
        .filter_map(|o| match &o.body {
            Body::Factor(factor) => {
                Some((o.envelope.wall, factor.adapter.as_deref(), factor.value.as_deref()))
            }
            _ => None,
        })
        .collect();
    let (first, second) = (time("2026-08-16T08:00:00Z"), time("2026-08-16T08:00:10Z"));
    assert_eq!(
        factors,
        [(first, Some("one"), Some("cc")), (first, None, Some("aa")), (second, None, Some("bb"))]
    );
    let gone = found.iter().find(|o| matches!(o.body, Body::WorkerGone(_))).unwrap();
    assert_eq!(gone.envelope.wall, time("2026-08-16T08:01:00Z"));
}

#[test]
fn snapshots_are_read_in_order_of_time_whatever_the_order_of_the_entries() {
    let (found, _) = Lab::new(MANIFEST).read();
    let increases: Vec<_> = found
        .iter()
        .filter_map(|o| match &o.body {
            Body::Counters(counters) => Some(counters.values.get("preemptions").copied()),
            _ => None,
        })
        .collect();
    assert_eq!(increases, [None, Some(3.0)]);
}

#[test]
fn the_same_bundle_gives_the_same_observations_in_any_order_of_entries() {
    let (found, _) = Lab::new(MANIFEST).read();
    let entries: Vec<&str> = MANIFEST.split_inclusive("\n[[source]]").collect();
    let (head, sources) = entries.split_first().unwrap();
    let head = head.trim_end_matches("[[source]]");
    let mut shuffled = head.to_owned();
    for source in sources.iter().rev() {
        shuffled.push_str("\n[[source]]");
        shuffled.push_str(source.trim_end_matches("[[source]]"));
    }
    let (again, report) = Lab::new(&shuffled).read();
    assert_eq!(report.problems, []);
    assert_eq!(found, again);
}

#[test]
fn an_unknown_key_is_named_with_its_line_and_does_no_harm() {
    let found = problems(&MANIFEST.replace("role = \"decode\"", "colour = \"red\""));
    assert_eq!(found.len(), 1, "{found:?}");
    assert!(found[0].starts_with("incident.toml:7: [[worker]] has no key \"colour\""), "{found:?}");
}

#[test]
fn a_missing_file_is_a_problem_and_the_others_are_read() {
    let lab = Lab::new(&MANIFEST.replace("e.jsonl", "f.jsonl"));
    let (found, report) = lab.read();
    assert_eq!(report.problems.len(), 1);
    assert!(report.problems[0].what.contains("no such file"));
    assert!(found.iter().any(|o| matches!(o.body, Body::Transfer(_))));
}

#[test]
fn a_source_of_an_undeclared_worker_is_a_problem_and_read() {
    let lab = Lab::new(&MANIFEST.replacen(
        "worker = \"d\"\nkind = \"kernel\"",
        "worker = \"q\"\nkind = \"kernel\"",
        1,
    ));
    let (found, report) = lab.read();
    assert_eq!(report.problems.len(), 1);
    assert!(report.problems[0].what.contains("\"q\" that is not declared"));
    assert!(found.iter().any(|o| o.worker() == "q" && matches!(o.body, Body::Transfer(_))));
}

#[test]
fn bad_times_zones_and_kinds_are_problems() {
    let bad = MANIFEST
        .replace("at = \"2026-08-16T08:00:30Z\"", "at = \"soon\"")
        .replace("+08:00", "east")
        .replace("kv-events", "smoke signals");
    let found = problems(&bad);
    assert_eq!(found.len(), 3, "{found:?}");
}

#[test]
fn a_manifest_that_is_broken_in_one_place_gives_the_rest() {
    let lab = Lab::new(&MANIFEST.replace("role = \"decode\"", "role = = decode"));
    let (found, report) = lab.read();
    assert!(report.problems[0].what.starts_with("no TOML"), "{:?}", report.problems);
    assert!(found.iter().any(|o| matches!(o.body, Body::Transfer(_))));
}

#[test]
fn paths_do_not_leave_the_bundle() {
    let outside = tempfile::NamedTempFile::new().unwrap();
    let absolute = outside.path().display().to_string();
    for file in ["../d.jsonl", "/etc/hostname", absolute.as_str(), "m/../../x", "m"] {
        let found = problems(&MANIFEST.replace("d.jsonl", file));
        assert_eq!(found.len(), 1, "{file}: {found:?}");
    }
    #[cfg(unix)]
    {
        let lab = Lab::new(&MANIFEST.replace("d.jsonl", "link.jsonl"));
        std::os::unix::fs::symlink(outside.path(), lab.path("link.jsonl")).unwrap();
        let (_, report) = lab.read();
        assert!(report.problems[0].what.contains("leads out of the bundle"), "{:?}", report.problems);
    }
}

#[test]
fn what_the_manifest_does_not_list_is_no_input() {
    let lab = Lab::new(MANIFEST);
    lab.write("other.log", "x\n");
    let bundle = Bundle::open(&[lab.0.path().to_path_buf()]).unwrap();
    assert_eq!((bundle.workers().len(), bundle.sources().len()), (1, 5));
}

#[test]
fn loose_files_are_recognised_by_content() {
    let lab = Lab::new("");
    let bundle = Bundle::open(&[lab.0.path().to_path_buf()]).unwrap();
    let mut kinds: Vec<_> = bundle
        .sources()
        .iter()
        .map(|source| (source.stream.as_str(), source.kind, source.worker.as_str()))
        .collect();
    kinds.sort();
    assert_eq!(
        kinds,
        [
            ("d.jsonl", InputKind::Kernel, "d"),
            ("d.log", InputKind::Log, "d"),
            ("e.jsonl", InputKind::Events, "e"),
            ("m/1.prom", InputKind::Metrics, "d"),
            ("m/2.prom", InputKind::Metrics, "d"),
        ]
    );
}

#[test]
fn files_named_by_themselves_are_read() {
    let lab = Lab::new(MANIFEST);
    let (found, report) = read(&[lab.path("d.jsonl"), lab.path("missing.log")]);
    assert!(found.iter().any(|o| matches!(o.body, Body::Transfer(_))));
    assert_eq!(report.problems.len(), 1);
}

#[test]
fn nothing_usable_is_an_error_that_says_why() {
    let empty = tempfile::tempdir().unwrap();
    for path in [empty.path().to_path_buf(), Path::new("/nonexistent/x").to_path_buf()] {
        let error = Bundle::open(&[path]).unwrap_err();
        assert!(matches!(error, BundleError::NothingUsable { .. }));
        assert!(error.to_string().lines().count() > 1, "{error}");
    }
    assert!(matches!(Bundle::open(&[]), Err(BundleError::NoPaths)));
}

#[test]
fn workers_of_two_bundles_keep_apart() {
    let (a, b) = (Lab::new(MANIFEST), Lab::new(MANIFEST));
    let bundle = Bundle::open(&[a.0.path().to_path_buf(), b.0.path().to_path_buf()]).unwrap();
    let names: Vec<&str> = bundle.workers().iter().map(|worker| worker.name.as_str()).collect();
    assert_eq!(names.len(), 2);
    assert_ne!(names[0], names[1]);
    assert!(names[1].ends_with("/d"), "{names:?}");
}

#[test]
fn a_log_without_a_year_is_of_the_year_of_what_is_dated() {
    let bundle = Bundle::open(&[Lab::new(MANIFEST).0.path().to_path_buf()]);
    drop(bundle);
    let lab = Lab::new(MANIFEST);
    let bundle = Bundle::open(&[lab.0.path().to_path_buf()]).unwrap();
    let log = bundle.sources().iter().find(|source| source.kind == InputKind::Log).unwrap();
    assert_eq!((log.year, log.zone_seconds), (Some(2026), 28_800));
}

#[test]
fn two_mount_points_of_one_file_system_are_one_store() {
    let stat = |dir: &str| {
        let hash = "a".repeat(64);
        format!(
            "{{\"ts\":1.0,\"pid\":1,\"op\":\"stat\",\"path\":\"{dir}/{hash}_m_0_1.bin\",\"ret\":0,\"fs\":\"nfs4:h:/e\"}}\n"
        )
    };
    let stores = |a: &str, b: &str| {
        let lab = Lab::new(
            "[[worker]]\nname = \"a\"\nnode = \"x\"\n[[worker]]\nname = \"b\"\nnode = \"y\"\n\
             [[source]]\nworker = \"a\"\nkind = \"kernel\"\nfile = \"a.jsonl\"\n\
             [[source]]\nworker = \"b\"\nkind = \"kernel\"\nfile = \"b.jsonl\"\n",
        );
        lab.write("a.jsonl", &stat(a));
        lab.write("b.jsonl", &stat(b));
        let (found, _) = lab.read();
        let stores: Vec<String> = found
            .into_iter()
            .filter_map(|o| match o.body {
                Body::Artifact(artifact) => artifact.store,
                _ => None,
            })
            .collect();
        assert_eq!(stores.len(), 2);
        stores
    };
    let one = stores("/mnt/kv", "/data/cache");
    assert_eq!(one[0], one[1]);
    let same = stores("/mnt/kv", "/mnt/kv");
    assert_eq!(same, ["file:nfs4:h:/e:/mnt/kv", "file:nfs4:h:/e:/mnt/kv"]);
}

#[test]
fn what_an_operator_declares_is_told_and_a_flaw_is_named_with_its_line() {
    let declared = "[[expected]]\nalias = \"m\"\nfactors = { weights = \"sha256:aa\" }\n";
    let (found, report) = Lab::new(&format!("{MANIFEST}{declared}")).read();
    assert_eq!(report.problems, []);
    let expected: Vec<&Observation> =
        found.iter().filter(|told| matches!(told.body, Body::Expected(_))).collect();
    let [told] = expected.as_slice() else { panic!("{expected:?}") };
    assert_eq!(
        (told.envelope.stream.as_str(), told.worker(), told.envelope.wall),
        ("incident.toml", "", None)
    );
    let Body::Expected(body) = &told.body else { panic!("{told:?}") };
    assert_eq!((body.alias.as_deref(), body.factors["weights"].as_str()), (Some("m"), "sha256:aa"));

    let wrong = declared.replace("factors = { weights = \"sha256:aa\" }", "revisions = [\"v2\"]");
    let line = MANIFEST.lines().count() + 3;
    let problems = problems(&format!("{MANIFEST}{wrong}"));
    assert_eq!(problems.len(), 1, "{problems:?}");
    assert!(problems[0].starts_with(&format!("incident.toml:{line}: \"v2\" is no revision")), "{problems:?}");
}
