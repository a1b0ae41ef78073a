//! Subscriptions to a publisher of libzmq.
//!
//! Run by hand, with a Python that has pyzmq and msgspec, as an engine's own has:
//! `KVPROV_PYTHON=…/bin/python cargo test -p kvprov-agent --test events_libzmq -- --ignored`.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod publisher_double;

use kvprov_agent::events::subscribe::{Endpoint, Target};
use publisher_double::{follow, wait};
use std::future::Future;
use std::io::{BufRead, BufReader, Write};
use std::process::{Child, Command, Stdio};
use std::time::Duration;
use tokio::task::LocalSet;
use tokio::time::sleep;

struct Publisher {
    child: Child,
    target: Target,
}

impl Publisher {
    fn start(arguments: &[&str]) -> Self {
        let python = std::env::var("KVPROV_PYTHON").unwrap_or_else(|_| "python3".to_owned());
        let mut child = Command::new(python)
            .arg(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/publisher_double/publisher.py"))
            .args(arguments)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut ports = String::new();
        BufReader::new(child.stdout.take().unwrap()).read_line(&mut ports).unwrap();
        let mut ports = ports.split_whitespace().map(|port| format!("tcp://*:{port}"));
        let mut endpoint = || Endpoint::parse(&ports.next().unwrap()).unwrap();
        let target = Target {
            node: "n".into(),
            worker: "w".into(),
            endpoint: endpoint(),
            replay: Some(endpoint()),
            topic: "kv@".to_owned(),
        };
        Self { child, target }
    }

    fn publish(&mut self, word: &str, times: usize) {
        self.child.stdin.as_mut().unwrap().write_all(format!("{word}\n").repeat(times).as_bytes()).unwrap();
    }
}

impl Drop for Publisher {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn run(test: impl Future<Output = ()>) {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    LocalSet::new().block_on(&runtime, test);
}

fn all(count: i64) -> Vec<i64> {
    (0..count).collect()
}

#[test]
#[ignore = "needs a Python with pyzmq and msgspec"]
fn what_libzmq_published_before_drops_and_sends_is_read() {
    for arguments in [&[][..], &["--old"]] {
        run(async {
            let mut publisher = Publisher::start(arguments);
            publisher.publish("send", 5);
            sleep(Duration::from_millis(300)).await;
            let (room, _task) = follow(publisher.target.clone(), None);
            room.numbers_are(&all(5)).await;
            publisher.publish("send", 5);
            room.numbers_are(&all(10)).await;
            publisher.publish("drop", 3);
            publisher.publish("send", 1);
            room.numbers_are(&all(14)).await;
            assert!(room.lost().is_empty());
            assert!(room.losses.borrow().is_empty(), "{:?}", room.losses.borrow());
            assert!(room.blocks().iter().all(|block| block.content.iter().all(|hash| !hash.is_empty())));
        });
    }
}

#[test]
#[ignore = "needs a Python with pyzmq and msgspec"]
fn a_long_replay_that_libzmq_cuts_off_is_read_to_its_end() {
    run(async {
        let mut publisher = Publisher::start(&[]);
        publisher.publish("drop", 9000);
        sleep(Duration::from_millis(1500)).await;
        let (room, _task) = follow(publisher.target.clone(), None);
        wait("all batches", || room.numbers().len() >= 9000).await;
        assert_eq!(room.numbers(), all(9000));
        assert!(room.lost().is_empty());
    });
}

#[test]
#[ignore = "needs a Python with pyzmq and msgspec"]
fn what_libzmq_holds_no_more_is_a_loss() {
    run(async {
        let mut publisher = Publisher::start(&["--held", "2"]);
        let (room, _task) = follow(publisher.target.clone(), None);
        sleep(Duration::from_millis(500)).await;
        publisher.publish("send", 1);
        room.numbers_are(&[0]).await;
        publisher.publish("drop", 5);
        publisher.publish("send", 1);
        room.numbers_are(&[0, 5, 6]).await;
        assert_eq!(room.lost(), [("event sequence gap".to_owned(), Some(4))]);
    });
}
