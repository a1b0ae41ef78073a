//! Engines that answer badly, or not at all.

use super::http_double::{Double, Reply};
use super::room::{
    Room, after_a_page, counted, for_a_while, of_process, options, page, pages, scraper, until, vllm,
};
use kvprov_model::counter;
use std::process::{Command, Stdio};
use std::time::Duration;

/// A reply, and the word under which it is counted.
#[track_caller]
fn is_counted(reply: Reply, word: &str) {
    let (double, room, _folder, mut scraper) = after_a_page(options());
    double.reply("/metrics", reply);
    counted(&mut scraper, &room, |counts| counts.failures.contains_key(word));
    assert!(scraper.losses().of(word) > 0);
    // What it counted meanwhile is not lost, and nothing looks like a new begin.
    double.page("/metrics", &page(107, 6));
    until(&mut scraper, &room, "the increase is told", |room| {
        room.increase("d0", counter::PROMPT_LOCAL_COMPUTE) == 7.0
    });
    assert!(room.counters("d0").iter().all(|(_, counters)| counters.resets.is_none()));
}

#[test]
fn half_a_page_gives_nothing_and_loses_nothing() {
    is_counted(Reply::Half(page(103, 5)), "broken");
}

#[test]
fn a_page_cut_in_a_known_line_gives_nothing_and_loses_nothing() {
    let cut = page(103, 5).split_inclusive("local_compute\"} 10").next().unwrap().to_owned();
    is_counted(Reply::Page(cut), "damaged");
}

#[test]
fn a_page_of_fifty_megabytes_gives_nothing_and_loses_nothing() {
    is_counted(Reply::Endless("vllm:something_else_total{engine=\"0\"} 7.0\n", 50 << 20), "too_long");
}

#[test]
fn a_redirect_gives_nothing_and_loses_nothing() {
    is_counted(Reply::Redirect("http://127.0.0.1:9/metrics".to_owned()), "status");
}

#[test]
fn a_page_without_what_was_there_before_is_no_new_begin() {
    let (double, room, _folder, mut scraper) = after_a_page(options());
    double.page("/metrics", "<html>come back later</html>\n");
    let read = scraper.counts().pages;
    counted(&mut scraper, &room, |counts| counts.pages > read);
    double.page("/metrics", &page(104, 6));
    until(&mut scraper, &room, "the increase is told", |room| {
        room.increase("d0", counter::PROMPT_LOCAL_COMPUTE) > 0.0
    });
    assert_eq!(room.increase("d0", counter::PROMPT_LOCAL_COMPUTE), 4.0);
}

#[test]
fn who_never_answers_holds_nobody_up_and_is_told() {
    let (silent, double) = (Double::start(), Double::start());
    let (room, folder) = (Room::default(), tempfile::tempdir().unwrap());
    silent.reply("/metrics", Reply::Never);
    double.page("/metrics", &page(1, 1));
    let mut scraper = scraper(folder.path(), options());
    scraper.worker(&vllm("mute", &silent), &room);
    scraper.worker(&vllm("d0", &double), &room);
    pages(&mut scraper, &room, "d0", 3);
    until(&mut scraper, &room, "it is said", |room| !room.blind().is_empty());
    assert!(scraper.counts().failures["too_slow"] >= 3);
    assert_eq!(scraper.counts().endpoints["failing"], 1);
    assert_eq!(room.losses().len(), 1, "{:?}", room.losses());
    assert_eq!(room.losses()[0].reason.as_deref(), Some("counters not read"));
    assert!(room.counters("mute").is_empty());
}

#[test]
fn a_page_of_another_process_behind_the_port_is_not_taken_for_the_workers() {
    let (double, room, folder) = (Double::start(), Room::default(), tempfile::tempdir().unwrap());
    double.page("/metrics", &page(1, 1));
    let mut other = Command::new("sleep").arg("600").stdout(Stdio::null()).spawn().unwrap();
    let mut scraper = scraper(folder.path(), options());
    scraper.worker(&of_process("d0", other.id(), &double), &room);
    until(&mut scraper, &room, "it is said", |room| !room.blind().is_empty());
    assert!(scraper.counts().failures["port_taken"] >= 3);
    assert!(double.asked().is_empty(), "nobody else's engine is asked");
    assert!(room.counters("d0").is_empty());
    other.kill().unwrap();
    other.wait().unwrap();
}

#[test]
fn a_worker_that_speaks_tls_is_told_once_and_never_asked() {
    let (double, room, folder) = (Double::start(), Room::default(), tempfile::tempdir().unwrap());
    let mut worker = vllm("d0", &double);
    worker.settings.insert("ssl_certfile".to_owned(), "/etc/tls/cert.pem".to_owned());
    let mut scraper = scraper(folder.path(), options());
    scraper.worker(&worker, &room);
    scraper.worker(&worker, &room);
    for_a_while(&mut scraper, &room, Duration::from_millis(200));
    assert_eq!(room.blind(), ["the metrics of d0: it speaks TLS"]);
    assert_eq!(room.losses().len(), 1);
    assert_eq!(scraper.counts().endpoints["refused"], 1);
    assert!(double.asked().is_empty());
}

#[test]
fn counters_that_began_anew_count_from_zero() {
    let (double, room, _folder, mut scraper) = after_a_page(options());
    double.page("/metrics", &page(8, 1));
    until(&mut scraper, &room, "the increase is told", |room| {
        room.increase("d0", counter::PROMPT_LOCAL_COMPUTE) == 8.0
    });
    assert!(room.counters("d0").iter().any(|(_, counters)| counters.resets == Some(2)));
}

#[test]
fn a_page_that_costs_much_is_read_more_seldom() {
    let (double, room, folder) = (Double::start(), Room::default(), tempfile::tempdir().unwrap());
    // Forty thousand lines in small chunks take longer than a small page.
    let long = format!("{}{}", "other_total 1\n".repeat(40_000), page(1, 1));
    double.reply("/metrics", Reply::Chunked(long, 100));
    let mut scraper = scraper(folder.path(), options());
    scraper.worker(&vllm("d0", &double), &room);
    for_a_while(&mut scraper, &room, Duration::from_secs(2));
    let counts = scraper.counts();
    assert!(counts.pages >= 1, "{counts:?}");
    let cost = counts.worked.as_secs_f64() / counts.pages as f64;
    // A tenth of jitter, and the first page.
    assert!(counts.pages as f64 <= 1.0 + 2.0 / (90.0 * cost), "{counts:?}");
}
