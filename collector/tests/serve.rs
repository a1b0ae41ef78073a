//! The collector as a whole: batches in, findings, metrics and the page out; restarts; what it refuses.

#![allow(clippy::unwrap_used, clippy::panic, reason = "tests")]

mod scene;

use kvprov_collector::intake::{Accepted, Batch, Intake, Room};
use kvprov_collector::receive::ReceiveConfig;
use kvprov_collector::serve::{Collector, Config, StartError};
use kvprov_collector::web;
use kvprov_model::clock::WallTime;
use kvprov_model::fact;
use kvprov_model::finding::Cause;
use kvprov_model::observation::{Body, Observation, otlp};
use scene::tell::*;
use scene::{Scene, clock};
use serde_json::Value;
use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::path::Path;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

/// A refused handshake and the router's answered leg, as of now. `request` tells incidents apart.
fn incident(request: &str, line: i64) -> Vec<Observation> {
    let mut scene = Scene::new();
    scene.worker("p0").prefill().engine_id("e-p");
    scene.worker("d0").decode().engine_id("e-d").fact(fact::BLOCK_SIZE, "16").weights("aa");
    scene.worker("d0").fact(fact::MODEL_NAME, "llama");
    scene.worker("r0").router();
    let failed = handshake_failed(request, Cause::CompatHashMismatch);
    scene.at("08:00:00").on("d0").line("<d>.log", line).tell(failed);
    let leg = Body::RequestLeg(decode_leg(request, true, 102));
    scene.at("08:00:00.100").on("r0").line("r.log", line).tell(leg);
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_nanos() as i64;
    let offset = WallTime(now).since(clock("08:00:00"));
    let mut told = scene.observations().to_vec();
    for observation in &mut told {
        observation.envelope.wall = observation.envelope.wall.map(|wall| wall.plus(offset));
    }
    told
}

fn start(data: Option<&Path>) -> Collector {
    Collector::start(config(data)).unwrap()
}

fn config(data: Option<&Path>) -> Config {
    Config { data: data.map(Path::to_owned), http: free(), receive: None, ..Config::default() }
}

/// Any free port.
fn free() -> SocketAddr {
    SocketAddr::from(([127, 0, 0, 1], 0))
}

fn offer(collector: &Collector, observations: Vec<Observation>) -> Accepted {
    collector.intake().offer(Batch { observations }).wait().unwrap()
}

/// Status and body of an answer.
fn get(collector: &Collector, path: &str) -> (u16, String) {
    ask(collector.http(), &format!("GET {path} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n"))
}

fn ask(address: SocketAddr, request: &str) -> (u16, String) {
    let mut stream = TcpStream::connect(address).unwrap();
    stream.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
    stream.write_all(request.as_bytes()).unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    let (head, body) = answer.split_once("\r\n\r\n").unwrap_or((&answer, ""));
    let status = head.split(' ').nth(1).and_then(|status| status.parse().ok()).unwrap_or(0);
    let body = if head.contains("transfer-encoding: chunked") { unchunk(body) } else { body.to_owned() };
    (status, body)
}

fn unchunk(mut body: &str) -> String {
    let mut whole = String::new();
    while let Some((length, rest)) = body.split_once("\r\n") {
        let length = usize::from_str_radix(length, 16).unwrap_or(0);
        if length == 0 {
            break;
        }
        whole.push_str(&rest[..length]);
        body = rest[length..].trim_start_matches("\r\n");
    }
    whole
}

fn json(collector: &Collector, path: &str) -> Value {
    let (status, body) = get(collector, path);
    assert_eq!(status, 200, "{path}: {body}");
    serde_json::from_str(&body).unwrap_or_else(|error| panic!("{path}: {error}: {body}"))
}

/// Asks until the answer is as wanted; how long it took.
fn until(collector: &Collector, path: &str, wanted: impl Fn(&Value) -> bool) -> Duration {
    let began = Instant::now();
    loop {
        let value = json(collector, path);
        if wanted(&value) {
            return began.elapsed();
        }
        assert!(began.elapsed() < Duration::from_secs(20), "{path} is {value:#}");
        std::thread::park_timeout(Duration::from_millis(50));
    }
}

fn metric(collector: &Collector, line: &str) -> Option<f64> {
    let (status, text) = get(collector, "/metrics");
    assert_eq!(status, 200);
    text.lines().find_map(|found| found.strip_prefix(line)?.trim().parse().ok())
}

const RECOMPUTES: &str =
    "kvprov_findings_total{cause=\"compat_hash_mismatch\",detector=\"silent_recompute\"}";

#[test]
fn a_batch_becomes_a_finding_within_a_moment() {
    let collector = start(None);
    assert_eq!(offer(&collector, incident("lab-1", 17)).refused, 0);
    let took = until(&collector, "/api/v1/findings?confidence=confirmed", |found| found["total"] == 1);
    assert!(took < Duration::from_millis(2_500), "{took:?}");
    let found = &json(&collector, "/api/v1/findings")["findings"][0];
    assert_eq!(
        (&found["detector"], &found["cause"]),
        (&"silent_recompute".into(), &"compat_hash_mismatch".into())
    );
    assert_eq!(found["evidence"][0]["line"], 17);
    let by_id = json(&collector, &format!("/api/v1/findings/{}", found["id"].as_str().unwrap()));
    assert_eq!(&by_id, found);
}

#[test]
fn lists_are_filtered_and_handed_out_in_parts() {
    let collector = start(None);
    offer(&collector, incident("lab-1", 17));
    until(&collector, "/api/v1/findings", |found| found["total"] == 1);
    for (path, total) in [
        ("/api/v1/findings?detector=stale_kv_read", 0),
        ("/api/v1/findings?worker=d0&since=2020-01-01T00:00:00Z", 1),
        ("/api/v1/findings?worker=d7", 0),
        ("/api/v1/findings?since=2120-01-01T00:00:00Z", 0),
        ("/api/v1/findings?state=resolved", 0),
        ("/api/v1/findings?state=any", 1),
    ] {
        assert_eq!(json(&collector, path)["total"], total, "{path}");
    }
    until(&collector, "/api/v1/workers", |workers| workers["total"] == 3);
    let part = json(&collector, "/api/v1/workers?limit=2");
    assert_eq!(part["workers"].as_array().unwrap().len(), 2);
    let next = json(&collector, part["next"].as_str().unwrap());
    assert_eq!(next["workers"].as_array().unwrap().len(), 1);
    let decoder = &json(&collector, "/api/v1/workers?worker=d0")["workers"][0];
    assert_eq!((&decoder["role"], &decoder["pool"]), (&"decode".into(), &"unknown".into()));
    assert_eq!(decoder["factors"][0]["state"], "full");
    assert!(decoder["last_seen"].is_string() && decoder["revision"].as_str().unwrap().starts_with("rev:"));
    let requests = until(&collector, "/api/v1/lineages", |list| list["total"] == 1);
    assert!(requests < Duration::from_secs(10));
    assert!(json(&collector, "/api/v1/stores")["stores"].is_array());
    assert!(json(&collector, "/api/v1/keyspaces")["keyspaces"].is_array());
}

#[test]
fn lineages_are_found_by_any_id_by_finding_and_by_time() {
    let collector = start(None);
    offer(&collector, incident("lab-1", 17));
    offer(&collector, incident("lab-2", 18));
    until(&collector, "/api/v1/findings", |found| found["findings"][0]["count"] == 2);
    until(&collector, "/api/v1/lineages", |list| list["total"] == 2);
    let finding = json(&collector, "/api/v1/findings")["findings"][0]["id"].as_str().unwrap().to_owned();
    for (filter, total) in [
        ("request=lab-1", 1),
        ("request=cmpl-lab-1-0-0a1b2c3d", 1),
        ("request=lab-7", 0),
        (&format!("finding={finding}"), 2),
        ("finding=0123456789abcdef", 0),
        ("status=divergent", 0),
        ("since=2020-01-01T00:00:00Z&until=2120-01-01T00:00:00Z", 2),
        ("since=2120-01-01T00:00:00Z", 0),
        ("until=2020-01-01T00:00:00Z", 0),
        ("worker=d0&limit=1", 2),
    ] {
        assert_eq!(json(&collector, &format!("/api/v1/lineages?{filter}"))["total"], total, "{filter}");
    }
    let one = &json(&collector, "/api/v1/lineages?request=lab-1")["lineages"][0];
    assert_eq!((&one["request"], &one["prompt_tokens"]), (&"lab-1".into(), &102.into()));
    assert_eq!((&one["http_status"], &one["findings"][0]), (&200.into(), &finding.as_str().into()));
    assert_eq!(one["points"]["artifact"]["outcome"], "recomputed");
    assert!(one["first_seen"].is_string() && one["ids"].as_array().is_some_and(|ids| !ids.is_empty()));
    assert_eq!(json(&collector, "/api/v1/findings?request=cmpl-lab-2-0")["total"], 1);
    assert_eq!(json(&collector, "/api/v1/findings?request=lab-7")["total"], 0);
    let by_digits = json(&collector, &format!("/api/v1/findings/{}", &finding[..6]));
    assert_eq!(by_digits["id"], finding.as_str());
}

#[test]
fn a_worker_is_told_with_its_factors_epochs_and_end() {
    let collector = start(None);
    let mut scene = Scene::new();
    scene.worker("d0").decode().weights_from("08:00:00", "aa").weights_from("08:30:00", "bb");
    scene.worker("d0").gone("09:00:00");
    scene.at("08:00:05").on("d0").tell(in_namespace("serving"));
    let mut told = scene.observations().to_vec();
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_nanos() as i64;
    let offset = WallTime(now).since(clock("09:10:00"));
    for observation in &mut told {
        observation.envelope.wall = observation.envelope.wall.map(|wall| wall.plus(offset));
        if let Body::Factor(factor) = &mut observation.body {
            factor.origin = Some("/models/model.safetensors".to_owned());
        }
    }
    offer(&collector, told);
    until(&collector, "/api/v1/workers", |workers| workers["total"] == 1);
    let worker = json(&collector, "/api/v1/workers?worker=d0")["workers"][0].clone();
    assert_eq!(worker["factors"][0]["origin"], "/models/model.safetensors");
    assert_eq!(
        (&worker["factors"][0]["algorithm"], &worker["factors"][0]["value"]),
        (&"sha256".into(), &"bb".into())
    );
    let epochs = worker["epochs"].as_array().unwrap();
    assert_eq!(epochs.len(), 2);
    assert_eq!((&epochs[0]["until"], &epochs[1]["until"]), (&epochs[1]["since"], &worker["gone"]));
    assert!(epochs[0]["revision"] != epochs[1]["revision"] && epochs[1]["changed"] == "weights");
    assert_eq!((&worker["exit_signal"], &worker["silent"]), (&9.into(), &false.into()));
    assert_eq!((&worker["namespace"], &worker["image_digest"]), (&"serving".into(), &Value::Null));
    for (filter, total) in [("namespace=serving", 1), ("namespace=staging", 0), ("image_digest=sha256:5c", 0)]
    {
        assert_eq!(json(&collector, &format!("/api/v1/workers?{filter}"))["total"], total, "{filter}");
    }
}

#[test]
fn a_mistake_is_told_with_what_where_and_what_to_do() {
    let collector = start(None);
    for (path, status) in [
        ("/api/v1/findings?detector=nonsense", 400),
        ("/api/v1/findings?since=yesterday", 400),
        ("/api/v1/findings?wroker=d0", 400),
        ("/api/v1/workers?limit=none", 400),
        ("/api/v1/findings/0123456789abcdef", 404),
        ("/api/v2/findings", 404),
    ] {
        let (got, body) = get(&collector, path);
        assert_eq!(got, status, "{path}: {body}");
        let error = &serde_json::from_str::<Value>(&body).unwrap()["error"];
        for part in ["what", "where", "do"] {
            assert!(error[part].as_str().is_some_and(|text| !text.is_empty()), "{path}: {body}");
        }
    }
    let request =
        "POST /api/v1/findings HTTP/1.1\r\nHost: x\r\nContent-Length: 0\r\nConnection: close\r\n\r\n";
    assert_eq!(ask(collector.http(), request).0, 405);
}

#[test]
fn a_restart_keeps_findings_and_counts_nothing_twice() {
    let directory = tempfile::tempdir().unwrap();
    let first = start(Some(directory.path()));
    let told = incident("lab-1", 17);
    offer(&first, told.clone());
    until(&first, "/api/v1/findings", |found| found["total"] == 1);
    until(&first, "/api/v1/lineages", |list| list["total"] == 1);
    assert_eq!(metric(&first, RECOMPUTES), Some(1.0));
    let id = json(&first, "/api/v1/findings")["findings"][0]["id"].clone();
    first.stop();
    let again = start(Some(directory.path()));
    assert_eq!(json(&again, "/api/v1/findings")["findings"][0]["id"], id);
    // The sender delivers again what it did not see acknowledged.
    offer(&again, told);
    offer(&again, incident("lab-2", 18));
    until(&again, "/api/v1/findings", |found| found["findings"][0]["count"] == 2);
    assert_eq!(metric(&again, RECOMPUTES), Some(1.0));
    let tokens = "kvprov_recomputed_prompt_tokens_total{cause=\"compat_hash_mismatch\",pool=\"unknown\"}";
    assert_eq!(metric(&again, tokens), Some(204.0));
}

#[test]
fn what_is_sent_by_otlp_becomes_a_finding() {
    let receive = ReceiveConfig { grpc: Some(free()), http: Some(free()), ..ReceiveConfig::default() };
    let collector = Collector::start(Config { receive: Some(receive), ..config(None) }).unwrap();
    let body = otlp::encode(&incident("lab-1", 17));
    let address = collector.otlp().1.unwrap();
    let mut stream = TcpStream::connect(address).unwrap();
    let head = format!(
        "POST /v1/logs HTTP/1.1\r\nHost: x\r\nContent-Type: application/x-protobuf\r\nContent-Length: {}\r\n\
         Connection: close\r\n\r\n",
        body.len()
    );
    stream.write_all(head.as_bytes()).unwrap();
    stream.write_all(&body).unwrap();
    let mut answer = Vec::new();
    stream.read_to_end(&mut answer).unwrap();
    assert!(answer.starts_with(b"HTTP/1.1 200"), "{}", String::from_utf8_lossy(&answer));
    until(&collector, "/api/v1/findings?confidence=confirmed", |found| found["total"] == 1);
    assert_eq!(metric(&collector, "kvprov_receive_requests_total{outcome=\"ok\"}"), Some(1.0));
    collector.stop();
}

#[test]
fn a_second_collector_on_one_directory_is_refused() {
    let directory = tempfile::tempdir().unwrap();
    let _first = start(Some(directory.path()));
    let error = Collector::start(config(Some(directory.path()))).err().unwrap().to_string();
    assert!(error.contains("in use by another process") && error.contains("--data"), "{error}");
}

#[test]
fn an_address_in_use_is_named_with_what_to_do() {
    let first = start(None);
    let error = Collector::start(Config { http: first.http(), ..config(None) }).err().unwrap();
    assert!(matches!(error, StartError::InUse { address, .. } if address == first.http()));
    assert!(error.to_string().contains("--listen"), "{error}");
}

#[test]
fn it_says_that_it_lives_and_is_ready() {
    let collector = start(None);
    assert_eq!(get(&collector, "/healthz"), (200, "ok\n".to_owned()));
    let began = Instant::now();
    while get(&collector, "/readyz").0 != 200 {
        assert!(began.elapsed() < Duration::from_secs(10));
        std::thread::park_timeout(Duration::from_millis(20));
    }
}

#[test]
fn the_page_shows_findings_and_escapes_names() {
    let collector = start(None);
    offer(&collector, incident("lab-1", 17));
    until(&collector, "/api/v1/findings", |found| found["total"] == 1);
    let (status, page) = get(&collector, "/");
    assert_eq!(status, 200);
    assert!(page.contains("silent_recompute") && page.contains("&lt;d&gt;.log:17"), "{page}");
    assert!(!page.contains("<d>") && !page.contains("<script"));
}

#[test]
fn connections_that_say_nothing_do_not_keep_others_out() {
    let readers = web::Limits { connections: 2, idle: Duration::from_millis(300), ..web::Limits::default() };
    let collector = Collector::start(Config { readers, ..config(None) }).unwrap();
    let _idle: Vec<TcpStream> = (0..6).map(|_| TcpStream::connect(collector.http()).unwrap()).collect();
    assert_eq!(get(&collector, "/healthz").0, 200);
}

#[test]
fn a_collector_that_is_behind_refuses_and_loses_nothing() {
    let room = Room { batches: 1, observations: 4 };
    let collector = Collector::start(Config { room, ..config(None) }).unwrap();
    let (mut refused, mut kept) = (0, 0);
    for line in 0..200 {
        let batch = Batch { observations: incident(&format!("lab-{line}"), line) };
        loop {
            match collector.intake().offer(batch.clone()).wait() {
                Ok(accepted) => break kept += accepted.kept,
                Err(_) => refused += 1,
            }
        }
    }
    assert!(kept >= 400, "{kept} kept, {refused} refused");
}

#[test]
fn stopping_merges_what_waits() {
    let directory = tempfile::tempdir().unwrap();
    let first = start(Some(directory.path()));
    let answers: Vec<_> = (0..50)
        .map(|line| {
            let observations = incident(&format!("lab-{line}"), line);
            first.intake().offer(Batch { observations })
        })
        .collect();
    first.stop();
    for answer in answers {
        answer.wait().unwrap();
    }
    let again = start(Some(directory.path()));
    until(&again, "/api/v1/findings", |found| found["findings"][0]["count"] == 50);
}

#[test]
fn metrics_have_the_fixed_names_and_no_unbounded_labels() {
    let collector = start(None);
    offer(&collector, incident("lab-1", 17));
    until(&collector, "/api/v1/findings", |found| found["total"] == 1);
    until(&collector, "/api/v1/workers", |workers| workers["total"] == 3);
    let (_, text) = get(&collector, "/metrics");
    for name in [
        "kvprov_findings_total{",
        "kvprov_findings_open{",
        "kvprov_worker_info{",
        "kvprov_observations_total{",
        "process_cpu_seconds_total ",
        "process_resident_memory_bytes ",
    ] {
        assert!(text.contains(name), "{name} is missing in {text}");
    }
    assert!(!text.contains("lab-1") && !text.contains("<d>.log"), "{text}");
    if let Some(path) = std::env::var_os("KVPROV_WRITE_METRICS") {
        std::fs::write(path, text).unwrap();
    }
}

/// The digest of the weights of `d0` in [`incident`], as a declaration.
const MEANT: &str = "[[expected]]\nalias = \"llama\"\nfactors = { weights = \"sha256:aa\" }\n";

#[test]
fn a_file_of_expected_revisions_is_followed_and_a_wrong_one_takes_nothing_back() {
    let place = tempfile::tempdir().unwrap();
    let file = place.path().join("revisions.toml");
    std::fs::write(&file, MEANT.replace("aa", "bb")).unwrap();
    let collector =
        Collector::start(Config { expected: Some(file.clone()), ..config(Some(place.path())) }).unwrap();
    offer(&collector, incident("lab-1", 17));
    let path = "/api/v1/findings?detector=unexpected_revision";
    until(&collector, path, |found| found["total"] == 1);
    let found = &json(&collector, path)["findings"][0];
    assert_eq!((&found["cause"], &found["confidence"]), (&"weights".into(), &"confirmed".into()));

    std::fs::write(&file, "[[expected]]\nalias = \"llama\"\nrevisions = [\"v2\"]\n").unwrap();
    until_metric(&collector, "kvprov_expected_file_failing", 1.0);
    let page = get(&collector, "/").1;
    assert!(page.contains("revisions.toml:3: ") && page.contains("is no revision"), "{page}");
    assert_eq!(json(&collector, path)["total"], 1);

    let both = format!("{MEANT}{}", MEANT.replace("aa", "bb"));
    std::fs::write(&file, both).unwrap();
    until_metric(&collector, "kvprov_expected_file_failing", 0.0);
    until(&collector, path, |found| found["total"] == 0);
}

fn until_metric(collector: &Collector, name: &str, wanted: f64) {
    let began = Instant::now();
    while metric(collector, name).is_none_or(|value| (value - wanted).abs() > f64::EPSILON) {
        assert!(began.elapsed() < Duration::from_secs(20), "{name} is {:?}", metric(collector, name));
        std::thread::park_timeout(Duration::from_millis(50));
    }
}

#[test]
fn a_rollout_is_shown_by_role_and_on_the_page() {
    let collector = start(None);
    offer(&collector, incident("lab-1", 17));
    until(&collector, "/api/v1/rollout?role=decode", |all| all["rollout"][0]["requests"] == 1);
    let all = json(&collector, "/api/v1/rollout");
    assert_eq!(all["total"], 2, "a router runs no model: {all:#}");
    let decode = &json(&collector, "/api/v1/rollout?role=decode")["rollout"][0];
    assert_eq!((&decode["workers"], &decode["revisions"][0]["workers_share"]), (&1.into(), &1.0.into()));
    assert!(decode["revisions"][0]["revision"].as_str().unwrap().starts_with("rev:"), "{decode:#}");
    assert!(get(&collector, "/").1.contains("1 of 1 workers, 100 % of requests"));
    let text = get(&collector, "/metrics").1;
    assert!(text.contains("kvprov_revision_workers{pool=\"unknown\",revision=\"rev:"), "{text}");
}

#[test]
fn a_contract_is_told_and_fails_closed() {
    let collector = start(None);
    offer(&collector, incident("lab-1", 17));
    until(&collector, "/api/v1/workers", |workers| workers["total"] == 3);
    // A worker is also known by its engine id.
    let contract = json(&collector, "/api/v1/contract?a=p0&b=e-d");
    assert_eq!((&contract["b"], &contract["may_share"]), (&"d0".into(), &false.into()));
    let reasons = contract["reasons"].to_string();
    assert!(reasons.contains("no source shows that of p0"), "{reasons}");
    assert_eq!(get(&collector, "/api/v1/contract?a=p0").0, 400);
    assert_eq!(get(&collector, "/api/v1/contract?a=p0&b=nobody").0, 404);
}
