//! The agent's page over real connections.
#![allow(clippy::unwrap_used, reason = "a failed test says enough")]

mod ship_support;

use kvprov_agent::status::{Part, Readiness, Stats, StatusPage, own};
use ship_support::{observations, outbox, pause};
use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::sync::Arc;
use std::time::{Duration, Instant};

const LOOPBACK: &str = "127.0.0.1:0";

fn page(stats: Arc<Stats>, readiness: Arc<Readiness>, head_timeout: u64) -> StatusPage {
    let timeout = Duration::from_millis(head_timeout);
    StatusPage::with_head_timeout(LOOPBACK.parse().unwrap(), stats, readiness, timeout).unwrap()
}

fn get(address: SocketAddr, path: &str) -> String {
    let mut stream = TcpStream::connect(address).unwrap();
    stream.set_read_timeout(Some(Duration::from_secs(5))).unwrap();
    write!(stream, "GET {path} HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n").unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    answer
}

#[test]
fn the_page_tells_what_the_agent_costs_and_what_waits() {
    let directory = tempfile::tempdir().unwrap();
    let outbox = outbox(directory.path());
    outbox.append(&observations(0..7)).unwrap();
    let stats = Arc::new(Stats::default());
    own::process(&stats);
    own::queue(&stats, &outbox);
    let page = page(stats, Arc::default(), 1000);
    let answer = get(page.address(), "/metrics");
    assert!(answer.starts_with("HTTP/1.1 200") && answer.contains("text/plain; version=0.0.4"), "{answer}");
    for line in [
        "kvprov_observations_total{kind=\"artifact\"} 7\n",
        "kvprov_queue_records 7\n",
        "kvprov_queue_bytes{place=\"memory\"} 0\n",
        "# TYPE process_cpu_seconds_total counter\n",
    ] {
        assert!(answer.contains(line), "{line} in {answer}");
    }
    let value = |name: &str| -> f64 {
        let line = answer.lines().find(|line| line.starts_with(&format!("{name} "))).unwrap();
        line.rsplit(' ').next().unwrap().parse().unwrap()
    };
    assert!(value("process_resident_memory_bytes") > 1e6 && value("process_open_fds") > 3.0);
    assert!(value("process_start_time_seconds") > 1.6e9);
}

#[test]
fn readiness_says_which_part_is_missing() {
    let readiness = Arc::new(Readiness::default());
    let page = page(Arc::default(), Arc::clone(&readiness), 1000);
    readiness.set("logs", Part::NotReady("opening \"a\"".to_owned()));
    let answer = get(page.address(), "/readyz");
    assert!(answer.starts_with("HTTP/1.1 503") && answer.contains(r#""says":"opening \"a\"""#), "{answer}");
    readiness.set("logs", Part::Ready);
    assert!(get(page.address(), "/readyz").starts_with("HTTP/1.1 200"));
    assert!(get(page.address(), "/healthz").starts_with("HTTP/1.1 200"));
    assert!(get(page.address(), "/").starts_with("HTTP/1.1 404"));
}

#[test]
fn connections_that_do_not_speak_do_not_keep_others_out() {
    let page = page(Arc::default(), Arc::default(), 300);
    let silent: Vec<TcpStream> = (0..40).map(|_| TcpStream::connect(page.address()).unwrap()).collect();
    for mut stream in &silent {
        let _ = stream.write_all(b"GET /metr");
    }
    pause(50);
    let begin = Instant::now();
    assert!(get(page.address(), "/healthz").starts_with("HTTP/1.1 200"));
    assert!(begin.elapsed() < Duration::from_secs(3), "{:?}", begin.elapsed());
}

#[test]
fn an_address_in_use_is_told_with_what_to_do() {
    let first = page(Arc::default(), Arc::default(), 1000);
    let error = StatusPage::start(first.address(), Arc::default(), Arc::default()).unwrap_err().to_string();
    assert!(error.contains(&first.address().to_string()) && error.contains("another address"), "{error}");
}
