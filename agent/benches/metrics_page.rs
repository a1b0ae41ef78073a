//! What a page of counters costs beside waiting for it: finding who serves it, trimming, and turning it into increases.
//!
//! `cargo bench -p kvprov-agent --bench metrics_page` makes a page in the shape of an engine's (counters and gauges that
//! packs know among histograms that they do not) and prints one line for each step, with its ratio to counting the lines
//! of the same bytes. Times are those of the processor, the best of a few runs.
#![allow(clippy::print_stdout, reason = "a bench prints what it measured")]

use kvprov_agent::access::{Access, ProcFile, ProcessAccess as _};
use kvprov_agent::endpoint;
use kvprov_agent::metrics::{MetricsReader, Trim};
use kvprov_agent::source::{Place, SourceContext};
use kvprov_model::clock::WallTime;
use kvprov_packs::Packs;
use std::fmt::Write as _;
use std::hint::black_box;
use std::net::TcpListener;
use std::time::{Duration, Instant};

/// Histograms of the page; an engine has about thirty.
const HISTOGRAMS: usize = 30;
/// Buckets of each.
const BUCKETS: usize = 40;
/// Bytes that come at once, as from a socket.
const CHUNK: usize = 8 << 10;
/// Runs of each measurement; the best counts.
const RUNS: usize = 7;
/// Pages of a run.
const PAGES: u32 = 200;

fn main() {
    let packs = Packs::builtin();
    let page = page(packs);
    let lines = memchr::memchr_iter(b'\n', page.as_bytes()).count();
    let trimmed = trim(packs, &page);
    println!("a page of {} bytes, {lines} lines; {} bytes are kept", page.len(), trimmed.len());
    let counting = best(|| {
        black_box(memchr::memchr_iter(b'\n', page.as_bytes()).count());
    });
    println!("counting its lines: {:.1} us", micros(counting));
    let show = |name: &str, spent: Duration| {
        let ratio = spent.as_secs_f64() / counting.as_secs_f64();
        println!("{name}: {:.1} us, {ratio:.1} times counting", micros(spent));
    };
    finding(&show);
    show("trimming", best(|| drop(black_box(trim(packs, &page)))));
    let mut reader = MetricsReader::new(packs, None);
    let source = SourceContext {
        node: "bench".into(),
        worker: None,
        stream: "bench".to_owned(),
        instance: "bench".to_owned(),
        generation: 0,
    };
    let mut at = 0;
    show(
        "increases of the trimmed page",
        best(|| {
            at += 1;
            let place = Place { position: 1, offset: at };
            let time = Some(WallTime(at as i64 * 1000));
            reader.snapshot_of("bench", time, &source, place, trimmed.as_bytes(), &mut |one| {
                black_box(&one);
            });
        }),
    );
}

/// Who serves a port of this process, and what reading the tables of sockets would cost.
fn finding(show: &impl Fn(&str, Duration)) {
    let Ok(listener) = TcpListener::bind("127.0.0.1:0") else { return };
    let Ok(port) = listener.local_addr().map(|address| address.port()) else { return };
    let node = Access::new(None);
    let Ok(own) = node.identify(std::process::id()) else { return };
    let Ok(before) = endpoint::find(&node, &[own], port, None) else { return };
    show(
        "finding who serves it",
        best(|| drop(black_box(endpoint::find(&node, &[own], port, Some(&before))))),
    );
    let table = |file| {
        best(|| {
            let _ = black_box(node.read(own, file));
        })
    };
    show("a table of all connections", table(ProcFile::Tcp));
    show("and that of IPv6", table(ProcFile::Tcp6));
}

fn trim(packs: &Packs, page: &str) -> String {
    let mut trim = Trim::new(packs);
    page.as_bytes().chunks(CHUNK).for_each(|piece| trim.feed(piece));
    trim.finish().unwrap_or_default()
}

/// Time of one call, at the best.
fn best(mut work: impl FnMut()) -> Duration {
    let mut best = Duration::MAX;
    for _ in 0..RUNS {
        let begun = Instant::now();
        (0..PAGES).for_each(|_| work());
        best = best.min(begun.elapsed() / PAGES);
    }
    best
}

fn micros(time: Duration) -> f64 {
    time.as_secs_f64() * 1e6
}

fn page(packs: &Packs) -> String {
    let mut page = String::new();
    // Writing to a text does not fail.
    for meaning in packs.metrics().meanings().filter(|meaning| meaning.engine == "vllm") {
        let _ =
            write!(page, "# TYPE {} counter\n{}{{engine=\"0\",model_name=\"m\"", meaning.name, meaning.name);
        for (label, value) in &meaning.labels {
            let _ = write!(page, ",{label}=\"{value}\"");
        }
        page.push_str("} 12345.0\n");
    }
    for histogram in 0..HISTOGRAMS {
        let _ = writeln!(page, "# TYPE engine:histogram_{histogram}_seconds histogram");
        for bucket in 0..BUCKETS {
            let _ = writeln!(
                page,
                "engine:histogram_{histogram}_seconds_bucket{{engine=\"0\",le=\"{bucket}.5\",model_name=\"m\"}} 1234.0"
            );
        }
    }
    page
}
