//! An agent that ends and begins again: no increase is lost, and none told twice.

use super::http_double::Double;
use super::room::{Room, after_a_page, for_a_while, options, page, pages, scraper, until, vllm};
use kvprov_agent::bundle::Bundle;
use kvprov_agent::metrics::scrape::Taker as _;
use kvprov_agent::record::Recorder;
use kvprov_model::clock::WallTime;
use kvprov_model::counter;
use kvprov_model::observation::{Body, Counters, Observation};
use kvprov_packs::Packs;
use std::sync::atomic::Ordering;
use std::time::Duration;

#[test]
fn what_was_counted_while_no_agent_ran_is_told_by_the_next() {
    let (double, room, folder, mut first) = after_a_page(options());
    double.page("/metrics", &page(110, 6));
    until(&mut first, &room, "an increase is told", |room| {
        room.increase("d0", counter::PROMPT_LOCAL_COMPUTE) == 10.0
    });
    drop(first);
    double.page("/metrics", &page(125, 7));
    let mut second = scraper(folder.path(), options());
    second.worker(&vllm("d0", &double), &room);
    until(&mut second, &room, "what was counted meanwhile is told", |room| {
        room.increase("d0", counter::PROMPT_LOCAL_COMPUTE) >= 25.0
    });
    for_a_while(&mut second, &room, Duration::from_millis(300));
    assert_eq!(room.increase("d0", counter::PROMPT_LOCAL_COMPUTE), 25.0);
}

#[test]
fn a_page_that_no_queue_took_is_told_by_the_next_agent_under_the_same_id() {
    let (double, room, folder, mut first) = after_a_page(options());
    room.is_full.store(true, Ordering::Relaxed);
    double.page("/metrics", &page(140, 6));
    let read = room.pages.lock().unwrap().len();
    until(&mut first, &room, "a page was read", |room| room.pages.lock().unwrap().len() > read);
    let asked = double.times_asked("/metrics");
    for_a_while(&mut first, &room, Duration::from_millis(300));
    assert_eq!(double.times_asked("/metrics"), asked, "it is not asked on while nothing is taken");
    drop(first);
    room.is_full.store(false, Ordering::Relaxed);
    let mut second = scraper(folder.path(), options());
    second.turn(&room, Duration::from_millis(20));
    assert_eq!(room.increase("d0", counter::PROMPT_LOCAL_COMPUTE), 40.0);
    // A third one tells the same page again, which merges into one.
    drop(second);
    let mut third = scraper(folder.path(), options());
    third.turn(&room, Duration::from_millis(20));
    assert_eq!(room.increase("d0", counter::PROMPT_LOCAL_COMPUTE), 40.0);
    let ids = room.counters("d0");
    let ids: Vec<_> = ids.iter().rev().take(2).map(|(one, _)| one.envelope.id).collect();
    assert_eq!(ids[0], ids[1]);
}

#[test]
fn a_worker_that_is_gone_leaves_nothing_behind() {
    let (_double, room, folder, mut scraper) = after_a_page(options());
    scraper.gone(&"d0".into());
    for_a_while(&mut scraper, &room, Duration::from_millis(100));
    assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 0);
    assert!(room.losses().is_empty(), "its last page is fresh");
}

#[test]
fn a_recording_of_pages_gives_the_same_increases_at_the_same_times() {
    let (double, room, folder) = (Double::start(), Room::default(), tempfile::tempdir().unwrap());
    double.page("/metrics", &page(3, 1).replace("process_start_time_seconds 1.79596666644e+09\n", ""));
    let mut scraper = scraper(folder.path(), options());
    let mut worker = vllm("d0", &double);
    worker.started = Some(super::now());
    scraper.worker(&worker, &room);
    pages(&mut scraper, &room, "d0", 2);
    double.page("/metrics", &page(24, 2).replace("process_start_time_seconds 1.79596666644e+09\n", ""));
    pages(&mut scraper, &room, "d0", 3);
    let recording = folder.path().join("recording");
    let mut recorder = Recorder::create(&recording).unwrap();
    for (worker, endpoint, at, text) in room.pages.lock().unwrap().iter() {
        recorder.page(worker, endpoint, *at, text).unwrap();
    }
    recorder.flush().unwrap();
    let bundle = Bundle::open(&[recording]).unwrap();
    let packs = Packs::builtin();
    let mut all: Vec<Observation> = Vec::new();
    let report = bundle.read(packs, packs.matcher(), &mut |one| all.push(one), &mut |_, _| {});
    assert!(report.problems.is_empty(), "{:?}", report.problems);
    let replayed: Vec<(Option<WallTime>, Counters)> = all
        .into_iter()
        .filter_map(|one| match one.body {
            Body::Counters(counters) => Some((one.envelope.wall, counters)),
            _ => None,
        })
        .collect();
    let live: Vec<(Option<WallTime>, Counters)> =
        room.counters("d0").into_iter().map(|(one, counters)| (one.envelope.wall, counters)).collect();
    assert_eq!(replayed, live);
    assert_eq!(room.increase("d0", counter::PROMPT_LOCAL_COMPUTE), 24.0, "counted since its start");
    assert!(room.take(&[]));
}
