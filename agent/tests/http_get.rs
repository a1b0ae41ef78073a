//! What the HTTP client reads of an engine, and what it does not do to one.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod http_double;

use http_double::{Double, Reply};
use kvprov_agent::http::{Connection, GetError, Limits, ReadPath, get_blocking};
use std::net::TcpListener;
use std::time::{Duration, Instant};

const QUICK: Limits =
    Limits { connect: Duration::from_millis(500), total: Duration::from_millis(500), bytes: 1 << 20 };

fn ask(double: &Double, path: ReadPath) -> Result<Vec<u8>, GetError> {
    get_blocking(double.address(), path, &QUICK)
}

#[test]
fn a_page_is_read_by_a_get_without_credentials() {
    let double = Double::start();
    double.page("/metrics", "a 1\n");
    assert_eq!(ask(&double, ReadPath::Metrics).unwrap(), b"a 1\n");
    let head = double.asked().remove(0).to_lowercase();
    assert!(head.starts_with("get /metrics http/1.1\r\n"), "{head}");
    assert!(head.contains("user-agent: kvprov/"), "{head}");
    for never in ["authorization", "cookie", "accept-encoding", "proxy"] {
        assert!(!head.contains(never), "{head}");
    }
}

#[test]
fn a_page_in_chunks_is_read_whole() {
    let double = Double::start();
    let page = "name{label=\"value\"} 1\n".repeat(5000);
    double.reply("/metrics", Reply::Chunked(page.clone(), 1000));
    assert_eq!(ask(&double, ReadPath::Metrics).unwrap(), page.as_bytes());
}

#[test]
fn the_configuration_is_asked_for_as_json() {
    let double = Double::start();
    double.page("/server_info?config_format=json", "{}");
    assert_eq!(ask(&double, ReadPath::ServerInfo).unwrap(), b"{}");
}

#[test]
fn who_never_answers_is_left_after_the_time_limit() {
    let double = Double::start();
    double.reply("/metrics", Reply::Never);
    let begun = Instant::now();
    assert_eq!(ask(&double, ReadPath::Metrics), Err(GetError::TooSlow { after: QUICK.total }));
    assert!(begun.elapsed() < Duration::from_secs(3));
}

#[test]
fn a_page_of_fifty_megabytes_is_left_at_the_limit() {
    let double = Double::start();
    double.reply("/metrics", Reply::Endless("name{label=\"value\"} 1\n", 50 << 20));
    let limits = Limits { total: Duration::from_secs(20), ..QUICK };
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let (mut taken, mut longest) = (0, 0);
    let mut take = |piece: &[u8]| {
        taken += piece.len();
        longest = longest.max(piece.len());
    };
    let result = runtime.block_on(async {
        Connection::open(double.address(), &limits)
            .await?
            .get_into(ReadPath::Metrics, &limits, &mut take)
            .await
    });
    assert_eq!(result, Err(GetError::TooLong { limit: QUICK.bytes }));
    assert!(taken <= QUICK.bytes, "{taken} bytes were handed on");
    assert!(longest <= 256 * 1024, "a piece of {longest} bytes");
}

#[test]
fn a_length_beyond_the_limit_is_believed_without_reading() {
    let double = Double::start();
    double
        .reply("/metrics", Reply::Raw(b"HTTP/1.1 200 OK\r\nContent-Length: 99999999\r\n\r\na 1\n".to_vec()));
    assert_eq!(ask(&double, ReadPath::Metrics), Err(GetError::TooLong { limit: QUICK.bytes }));
}

#[test]
fn a_redirect_is_not_followed() {
    let (double, other) = (Double::start(), Double::start());
    other.page("/metrics", "a 1\n");
    double.reply("/metrics", Reply::Redirect(format!("http://{}/metrics", other.address())));
    assert_eq!(ask(&double, ReadPath::Metrics), Err(GetError::Status(302)));
    assert!(other.asked().is_empty());
}

#[test]
fn half_a_page_is_none() {
    let double = Double::start();
    double.reply("/metrics", Reply::Half("a 1\nb 2048\n".to_owned()));
    assert!(matches!(ask(&double, ReadPath::Metrics), Err(GetError::Broken(_))));
}

#[test]
fn what_is_no_http_or_compressed_is_not_read() {
    let double = Double::start();
    double.reply("/metrics", Reply::Raw(b"SSH-2.0-OpenSSH_9.2\r\n".to_vec()));
    assert!(matches!(ask(&double, ReadPath::Metrics), Err(GetError::Broken(_))));
    let head = b"HTTP/1.1 200 OK\r\nContent-Encoding: gzip\r\nContent-Length: 3\r\n\r\nabc";
    double.reply("/metrics", Reply::Raw(head.to_vec()));
    assert_eq!(ask(&double, ReadPath::Metrics), Err(GetError::Encoded));
    double.reply("/metrics", Reply::Raw(vec![b'x'; 1 << 20]));
    assert!(matches!(ask(&double, ReadPath::Metrics), Err(GetError::Broken(_))));
}

#[test]
fn an_endless_head_is_refused() {
    let double = Double::start();
    let mut head = b"HTTP/1.1 200 OK\r\n".to_vec();
    head.extend(b"X-Long: y\r\n".repeat(100_000));
    double.reply("/metrics", Reply::Raw(head));
    assert!(matches!(ask(&double, ReadPath::Metrics), Err(GetError::Broken(_))));
}

#[test]
fn what_there_is_not_is_final_and_what_is_not_there_yet_is_not() {
    let double = Double::start();
    let missing = ask(&double, ReadPath::WeightInfo).unwrap_err();
    assert!(missing == GetError::Status(404) && missing.is_final());
    double.reply("/version", Reply::Status(503));
    assert!(!ask(&double, ReadPath::Version).unwrap_err().is_final());
    let free = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let refused = get_blocking(free, ReadPath::Metrics, &QUICK).unwrap_err();
    assert!(matches!(&refused, GetError::NoConnection { .. }) && !refused.is_final(), "{refused}");
}
