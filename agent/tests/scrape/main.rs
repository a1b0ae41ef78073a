//! Counters of engines, read live over real sockets.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

#[path = "../http_double/mod.rs"]
mod http_double;

mod models;
mod restarts;
mod room;
mod trouble;

use http_double::Double;
use kvprov_agent::metrics::scrape::{ScrapeOptions, Scraper};
use kvprov_model::clock::WallTime;
use kvprov_model::counter;
use room::{Room, after_a_page, options, page, pages, scraper, until, vllm};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

fn now() -> WallTime {
    WallTime(SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_nanos() as i64)
}

#[test]
fn what_counters_gain_between_two_pages_is_told() {
    let (double, room, _folder, mut scraper) = after_a_page(options());
    double.page("/metrics", &page(130, 6));
    until(&mut scraper, &room, "the increase is told", |room| {
        room.increase("d0", counter::PROMPT_LOCAL_COMPUTE) == 30.0
    });
    let told = room.counters("d0");
    assert!(told[0].1.values.is_empty(), "what was counted before anybody looked is no increase");
    assert_eq!(told[0].1.totals[counter::PROMPT_LOCAL_COMPUTE], 100.0);
    let first_read = told[0].0.envelope.wall;
    assert_eq!(told[1].1.since_wall_ns.map(WallTime), first_read);
    assert_eq!(room.reads.lock().unwrap().len(), 1);
    assert!(room.told("d0").iter().any(|told| told.watched_by == ["metrics"]));
}

#[test]
fn a_page_that_is_wanted_now_is_read_long_before_its_time() {
    let seldom = ScrapeOptions { interval: Duration::from_secs(3600), ..options() };
    let (double, room, _folder, mut scraper) = after_a_page(seldom);
    double.page("/metrics", &page(130, 6));
    scraper.hurry(&"d0".into());
    pages(&mut scraper, &room, "d0", 1);
    assert_eq!(room.increase("d0", counter::PROMPT_LOCAL_COMPUTE), 30.0);
}

#[test]
fn behind_an_answer_the_page_of_a_worker_with_adapters_is_read() {
    let seldom = ScrapeOptions { interval: Duration::from_secs(3600), ..options() };
    let (double, room, _folder, mut scraper) = after_a_page(seldom);
    double.page("/metrics", &page(130, 6));
    scraper.has_adapters(&"d0".into());
    scraper.answered(double.address().port());
    pages(&mut scraper, &room, "d0", 1);
    assert_eq!(room.increase("d0", counter::PROMPT_LOCAL_COMPUTE), 30.0);
}

#[test]
fn answers_elsewhere_or_without_adapters_or_at_every_moment_make_no_page_due() {
    let seldom = ScrapeOptions { interval: Duration::from_secs(3600), ..options() };
    let (double, room, _folder, mut scraper) = after_a_page(seldom);
    let before = room.counters("d0").len();
    let answers = |scraper: &mut Scraper, port: u16| {
        let begun = std::time::Instant::now();
        while begun.elapsed() < Duration::from_millis(600) {
            scraper.answered(port);
            scraper.turn(&room, Duration::from_millis(5));
        }
    };
    answers(&mut scraper, double.address().port());
    assert_eq!(room.counters("d0").len(), before, "it has no adapters");
    scraper.has_adapters(&"d0".into());
    answers(&mut scraper, 1);
    assert_eq!(room.counters("d0").len(), before, "that is another port");
    answers(&mut scraper, double.address().port());
    assert!(room.counters("d0").len() <= before + 1, "one page stands for all of them");
}

#[test]
fn pages_that_are_wanted_all_the_time_are_read_seldom_enough() {
    let seldom = ScrapeOptions { interval: Duration::from_secs(3600), ..options() };
    let (_double, room, _folder, mut scraper) = after_a_page(seldom);
    let begun = std::time::Instant::now();
    while begun.elapsed() < Duration::from_millis(900) {
        scraper.hurry(&"d0".into());
        scraper.turn(&room, Duration::from_millis(5));
    }
    assert!(room.counters("d0").len() <= 8, "{}", room.counters("d0").len());
}

#[test]
fn what_a_worker_that_began_under_our_eyes_counted_before_the_first_page_is_an_increase() {
    let (double, room, folder) = (Double::start(), Room::default(), tempfile::tempdir().unwrap());
    double.page("/metrics", &page(100, 5).replace("process_start_time_seconds 1.79596666644e+09\n", ""));
    let mut scraper = scraper(folder.path(), options());
    let mut worker = vllm("d0", &double);
    let started = now();
    worker.started = Some(started);
    scraper.worker(&worker, &room);
    pages(&mut scraper, &room, "d0", 1);
    let told = room.counters("d0").remove(0).1;
    assert_eq!(told.since_wall_ns, Some(started.0));
    assert_eq!((told.values[counter::PROMPT_LOCAL_COMPUTE], told.resets), (100.0, None));
}

#[test]
fn counters_that_outlive_their_process_do_not_begin_at_zero() {
    let (double, room, folder) = (Double::start(), Room::default(), tempfile::tempdir().unwrap());
    double.page("/metrics", &page(100, 5).replace("process_start_time_seconds 1.79596666644e+09\n", ""));
    let mut scraper = scraper(folder.path(), options());
    let mut kept = vllm("kept", &double);
    kept.settings.insert("PROMETHEUS_MULTIPROC_DIR".to_owned(), "/var/lib/counters".to_owned());
    kept.started = Some(now());
    scraper.worker(&kept, &room);
    // The process of this page is older than the worker.
    let other = Double::start();
    other.page("/metrics", &page(100, 5).replace("1.79596666644e+09", "1e+09"));
    let mut older = vllm("older", &other);
    older.started = Some(now());
    scraper.worker(&older, &room);
    pages(&mut scraper, &room, "kept", 1);
    until(&mut scraper, &room, "the other is read", |room| !room.counters("older").is_empty());
    assert!(room.counters("kept")[0].1.values.is_empty());
    assert!(room.counters("older")[0].1.values.is_empty());
}

#[test]
fn two_workers_on_one_machine_are_told_apart() {
    let (first, second) = (Double::start(), Double::start());
    let (room, folder) = (Room::default(), tempfile::tempdir().unwrap());
    first.page("/metrics", &page(1, 1));
    second.page("/metrics", &page(500, 9));
    let mut scraper = scraper(folder.path(), options());
    scraper.worker(&vllm("p0", &first), &room);
    scraper.worker(&vllm("d0", &second), &room);
    pages(&mut scraper, &room, "p0", 1);
    until(&mut scraper, &room, "both are read", |room| !room.counters("d0").is_empty());
    first.page("/metrics", &page(8, 2));
    until(&mut scraper, &room, "the increase is told", |room| {
        room.increase("p0", counter::PROMPT_LOCAL_COMPUTE) == 7.0
    });
    assert_eq!(room.increase("d0", counter::PROMPT_LOCAL_COMPUTE), 0.0);
}

#[test]
fn a_port_is_read_as_soon_as_it_listens() {
    let free = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = free.local_addr().unwrap();
    drop(free);
    let (late, room, folder) = (Double::start(), Room::default(), tempfile::tempdir().unwrap());
    let mut worker = vllm("d0", &late);
    worker.settings.insert("port".to_owned(), address.port().to_string());
    let mut scraper = scraper(folder.path(), options());
    scraper.worker(&worker, &room);
    room::for_a_while(&mut scraper, &room, Duration::from_millis(300));
    assert!(room.blind().is_empty() && scraper.counts().failures.is_empty(), "it is still loading");
    let double = Double::on(std::net::TcpListener::bind(address).unwrap());
    double.page("/metrics", &page(1, 1));
    pages(&mut scraper, &room, "d0", 1);
}
