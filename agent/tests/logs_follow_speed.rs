//! Writers that rotate at full speed while the follower is killed again and again.
#![allow(clippy::unwrap_used, clippy::panic, clippy::expect_used, reason = "a test fails by panicking")]
#![allow(clippy::print_stderr, reason = "a measurement prints what it measured")]

mod follow;

use follow::*;
use kvprov_agent::logs::LogOptions;
use kvprov_agent::logs::follow::{Follower, OwnFiles, Source, Timing, Turn};
use kvprov_model::observation::{Body, Observation};
use std::fs::{self, File, OpenOptions};
use std::io::Write;
use std::path::Path;
use std::sync::mpsc;
use std::time::{Duration, Instant};

/// How a writer makes room.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Rotation {
    /// Renamed to `.1`, the older ones moved on, the oldest packed.
    Numbered,
    /// As the kubelet does: renamed to a date, all but the newest packed.
    Kubelet,
    /// Copied to `.1` and truncated.
    CopyTruncate,
}

/// Writes `lines` lines, with a rotation every `each`.
fn write_at_full_speed(directory: &Path, rotation: Rotation, lines: u64, each: u64, packs: bool) {
    let live = directory.join("0.log");
    let open = || OpenOptions::new().create(true).append(true).open(&live).unwrap();
    let mut file = open();
    let mut number = 0;
    let mut rotations = 0;
    while number < lines {
        let end = (number + each).min(lines);
        while number < end {
            let batch = (number + 50).min(end);
            let text: String = (number..batch)
                .map(|number| match rotation {
                    Rotation::Kubelet => {
                        format!("2026-01-02T10:00:00.{:09}Z stderr F {}", number, line(number))
                    }
                    _ => line(number),
                })
                .collect();
            file.write_all(text.as_bytes()).unwrap();
            number = batch;
        }
        if number == lines {
            break;
        }
        rotations += 1;
        match rotation {
            Rotation::Numbered | Rotation::CopyTruncate => {
                for old in (1..rotations).rev() {
                    let packed = directory.join(format!("0.log.{old}.gz"));
                    let _ = fs::rename(&packed, directory.join(format!("0.log.{}.gz", old + 1)));
                    let plain = directory.join(format!("0.log.{old}"));
                    let _ = fs::rename(&plain, directory.join(format!("0.log.{}", old + 1)));
                }
                if rotation == Rotation::Numbered {
                    fs::rename(&live, directory.join("0.log.1")).unwrap();
                    file = open();
                } else {
                    fs::copy(&live, directory.join("0.log.1")).unwrap();
                    file.set_len(0).unwrap();
                }
                if packs && rotations > 3 {
                    pack_quietly(&directory.join("0.log.3"));
                }
            }
            Rotation::Kubelet => {
                let name = |number: u64| format!("0.log.20260102-{number:06}");
                fs::rename(&live, directory.join(name(rotations))).unwrap();
                file = open();
                if packs && rotations > 1 {
                    pack_quietly(&directory.join(name(rotations - 1)));
                }
            }
        }
    }
}

/// What a run at full speed came to.
struct Run {
    /// By request: how many ids told it, 255 at most.
    told: Vec<u8>,
    observations: u64,
    lost: i64,
    losses: usize,
}

fn follow_at_full_speed(rotation: Rotation, lines: u64, each: u64, restarts: u64, packs: bool) -> Run {
    let directory = tempfile::tempdir().unwrap();
    let logs = directory.path().join("logs");
    fs::create_dir(&logs).unwrap();
    let data = directory.path().join("data");
    let writer = {
        let logs = logs.clone();
        std::thread::spawn(move || write_at_full_speed(&logs, rotation, lines, each, packs))
    };
    let source = Source {
        path: logs.join("0.log"),
        node: "n".into(),
        worker: Some("w".into()),
        options: LogOptions { engine: Some("vllm".to_owned()), ..LogOptions::default() },
        not_before: None,
    };
    // The first id of each request is enough to tell a second one.
    let mut first: Vec<u64> = vec![0; lines as usize];
    let mut run = Run { told: vec![0; lines as usize], observations: 0, lost: 0, losses: 0 };
    let mut loss_ids = std::collections::BTreeSet::new();
    let mut take = |observation: Observation| {
        run.observations += 1;
        match &observation.body {
            Body::Lease(lease) => {
                let number: usize = lease.request_id.as_deref().unwrap()[1..].parse().unwrap();
                let id = u64::from_le_bytes(*observation.envelope.id.0.first_chunk().unwrap());
                if first[number] != id {
                    first[number] = id;
                    run.told[number] = run.told[number].saturating_add(1);
                }
            }
            Body::Loss(loss) if loss_ids.insert(observation.envelope.id.to_hex()) => {
                run.losses += 1;
                run.lost += loss.bytes.unwrap_or_default();
            }
            _ => {}
        }
        Ok(())
    };
    let timing = Timing { linger: Duration::from_secs(1), ..Timing::default() };
    // Nobody sends: its timeout is the wait.
    let (_sender, never) = mpsc::channel::<()>();
    let mut killed = 0;
    let mut rested: Option<Instant> = None;
    let mut turns = 0;
    let mut follower: Option<Follower<'static>> = None;
    loop {
        let following = follower.get_or_insert_with(|| {
            let mut new = Follower::new(Box::new(OwnFiles), &data, &PACKS).unwrap().with_timing(timing);
            new.add(source.clone());
            new
        });
        let turn = following.poll(Instant::now(), &mut take).unwrap();
        turns += 1;
        if killed < restarts && turns % 7 == 0 {
            killed += 1;
            follower = None;
            continue;
        }
        if turn == Turn::Rest {
            let _ = never.recv_timeout(Duration::from_millis(20));
        } else {
            rested = None;
            continue;
        }
        // All that is there was read a while ago, and the writer is done.
        if writer.is_finished() && rested.get_or_insert_with(Instant::now).elapsed() > Duration::from_secs(4)
        {
            break;
        }
    }
    writer.join().unwrap();
    run
}

impl Run {
    fn assert_each_once(&self, rotation: Rotation) {
        let missing = self.told.iter().filter(|count| **count == 0).count();
        let doubled = self.told.iter().filter(|count| **count > 1).count();
        let first = self.told.iter().position(|count| *count != 1);
        assert!(
            missing == 0 && doubled == 0 && self.losses == 0,
            "{rotation:?}: {missing} missing, {doubled} more than once, first {first:?}, {} losses of {} bytes",
            self.losses,
            self.lost
        );
    }
}

#[test]
fn every_line_is_told_once_over_renames_at_full_speed() {
    follow_at_full_speed(Rotation::Numbered, 100_000, 9_000, 5, true).assert_each_once(Rotation::Numbered);
}

#[test]
fn every_line_is_told_once_over_the_kubelets_rotations_at_full_speed() {
    follow_at_full_speed(Rotation::Kubelet, 100_000, 9_000, 5, true).assert_each_once(Rotation::Kubelet);
}

#[test]
fn what_copies_and_truncations_lose_at_full_speed_is_counted() {
    let run = follow_at_full_speed(Rotation::CopyTruncate, 100_000, 9_000, 5, false);
    let missing = run.told.iter().filter(|count| **count == 0).count();
    let doubled = run.told.iter().filter(|count| **count > 1).count();
    let first = run.told.iter().position(|count| *count > 1);
    assert_eq!(doubled, 0, "first {first:?}, {missing} missing, {} losses of {} bytes", run.losses, run.lost);
    // Nobody wrote between a copy and its truncation, so that what is missing was seen and lost.
    assert!(missing == 0 || run.lost > 0, "{missing} missing, {} losses of {} bytes", run.losses, run.lost);
}

/// `KVPROV_LINES=20000000 cargo test --release -p kvprov-agent --test logs_follow_speed -- --ignored --nocapture twenty_million`
#[test]
#[ignore = "writes gigabytes and takes minutes"]
fn twenty_million_lines_are_told_once() {
    let lines = std::env::var("KVPROV_LINES").ok().and_then(|lines| lines.parse().ok()).unwrap_or(20_000_000);
    for rotation in [Rotation::Numbered, Rotation::Kubelet] {
        let began = Instant::now();
        let run = follow_at_full_speed(rotation, lines, lines / 20, 5, false);
        run.assert_each_once(rotation);
        eprintln!("{rotation:?}: {} observations in {:?}", run.observations, began.elapsed());
    }
    let run = follow_at_full_speed(Rotation::CopyTruncate, lines, lines / 20, 5, false);
    let missing = run.told.iter().filter(|count| **count == 0).count();
    let doubled = run.told.iter().filter(|count| **count > 1).count();
    eprintln!(
        "CopyTruncate: {missing} missing, {doubled} doubled, {} losses of {} bytes",
        run.losses, run.lost
    );
    assert_eq!(doubled, 0);
    assert!(missing == 0 || run.lost > 0);
}

/// `cargo test -p kvprov-agent --test logs_follow_speed -- --ignored --nocapture slower`
#[test]
#[ignore = "measures"]
fn following_is_not_slower_than_reading() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("e.log");
    let noise: String = (0..9)
        .map(|number| format!("INFO 2026-01-02 10:00:0{number} [loggers.py:259] Engine 000: Avg prompt throughput: {number}.0 tokens/s, Running: 1 reqs\n"))
        .collect();
    let mut file = File::create(&path).unwrap();
    for number in 0..200_000 {
        file.write_all(noise.as_bytes()).unwrap();
        if number % 10 == 0 {
            file.write_all(line(number).as_bytes()).unwrap();
        }
    }
    let size = fs::metadata(&path).unwrap().len();
    let options = LogOptions { engine: Some("vllm".to_owned()), ..LogOptions::default() };
    let read = || {
        let context = kvprov_agent::source::SourceContext {
            node: "n".into(),
            worker: None,
            stream: String::new(),
            instance: String::new(),
            generation: 0,
        };
        let mut reader =
            kvprov_agent::logs::LogReader::new(context, options.clone(), PACKS.matcher(), &PACKS);
        let mut count = 0;
        let mut file = File::open(&path).unwrap();
        let mut buffer = vec![0; 256 << 10];
        loop {
            let length = std::io::Read::read(&mut file, &mut buffer).unwrap();
            if length == 0 {
                break;
            }
            reader.push(&buffer[..length], &mut |_| count += 1);
        }
        reader.finish(&mut |_| count += 1);
        count
    };
    let follow = || {
        let data = tempfile::tempdir().unwrap();
        let mut follower = Follower::new(Box::new(OwnFiles), data.path(), &PACKS).unwrap();
        follower.add(Source {
            path: path.clone(),
            node: "n".into(),
            worker: None,
            options: options.clone(),
            not_before: None,
        });
        let mut count = 0;
        while follower
            .poll(Instant::now(), &mut |_| {
                count += 1;
                Ok(())
            })
            .unwrap()
            != Turn::Rest
        {}
        count
    };
    let best = |run: &dyn Fn() -> usize| {
        (0..5)
            .map(|_| {
                // Time on a processor: others may build meanwhile.
                let on_processor = || -> u64 {
                    let text = fs::read_to_string("/proc/thread-self/schedstat").unwrap();
                    text.split_whitespace().next().unwrap().parse().unwrap()
                };
                let began = on_processor();
                assert_eq!(run(), 20_000);
                Duration::from_nanos(on_processor() - began)
            })
            .min()
            .unwrap()
    };
    let (read, follow) = (best(&read), best(&follow));
    let rate = |time: Duration| size as f64 / 1e9 / time.as_secs_f64();
    eprintln!("read {:.3} GB/s, followed {:.3} GB/s", rate(read), rate(follow));
    assert!(follow.as_secs_f64() < read.as_secs_f64() * 1.25);
}
