//! Publishers of KV events that run, vanish, begin anew and drop what they publish.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod publisher_double;

use kvprov_agent::events::EventReader;
use kvprov_agent::events::subscribe::{Endpoint, Mark};
use kvprov_agent::source::{Place, SourceContext};
use kvprov_model::content::FleetKey;
use kvprov_model::id::NodeId;
use kvprov_model::observation::{BlockAction, Body};
use publisher_double::*;
use serde_json::json;
use std::future::Future;
use std::time::Duration;
use tokio::io::AsyncWriteExt;
use tokio::net::{TcpListener, UnixListener};
use tokio::task::LocalSet;
use tokio::time::sleep;

fn run(test: impl Future<Output = ()>) {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    LocalSet::new().block_on(&runtime, test);
}

#[test]
fn what_is_published_is_observed() {
    run(async {
        let double = Double::start().await;
        let (room, _task) = follow(target(&double, false), None);
        double.subscribed().await;
        double.publish(&[stored(1, None, 0), stored(2, Some(1), 16)]);
        double.publish(&[json!({"type": "BlockRemoved", "block_hashes": [1], "medium": "GPU"})]);
        double.publish(&[json!({"type": "AllBlocksCleared"})]);
        room.numbers_are(&[0, 0, 1, 2]).await;
        let blocks = room.blocks();
        assert_eq!(blocks[2].action, Some(BlockAction::Removed));
        assert_eq!(blocks[2].content, blocks[0].content);
        assert_eq!(blocks[3].action, Some(BlockAction::Cleared));
        assert!(room.lost().is_empty());
        assert!(room.losses.borrow().is_empty());
        let observations = room.observations.borrow();
        assert_eq!(observations[0].envelope.wall.unwrap().0, 1_800_000_000_500_000_000);
        assert!(!format!("{observations:?}").contains("token_ids"));
    });
}

#[test]
fn live_and_recorded_events_say_the_same() {
    let events = [
        stored(1, None, 0),
        json!({"type": "BlockStored", "block_hashes": [u64::MAX, "0xabcd"], "parent_block_hash": 1,
            "token_ids": (16..80).collect::<Vec<u32>>(), "block_size": 32, "lora_id": 3, "medium": "CPU",
            "lora_name": "ad", "extra_keys": [["ad"], null], "group_idx": 0}),
        json!(["BlockStored", [7], 1, (0..16).collect::<Vec<u32>>(), 16, null, "GPU"]),
        json!(["BlockRemoved", [1], "GPU"]),
        json!(["AllBlocksCleared"]),
    ];
    let line = json!({"t": 1.0, "topic": "kv", "seq": 0, "payload": [1_800_000_000.5, events, 0]});
    // What prints batches as JSON shows bytes as hex.
    let line = line.to_string().replace("0xabcd", "abcd");
    let key = FleetKey::from_secret(b"test");
    let source = SourceContext {
        node: NodeId::from("n"),
        worker: Some("w".into()),
        stream: "e.jsonl".to_owned(),
        instance: "e".to_owned(),
        generation: 0,
    };
    let mut recorded = Vec::new();
    EventReader::new(source, &key).line(Place { position: 1, offset: 0 }, line.as_bytes(), &mut |one| {
        recorded.push((one.envelope.wall, one.envelope.says, one.body));
    });
    run(async {
        let double = Double::start().await;
        let (room, _task) = follow(target(&double, false), None);
        double.subscribed().await;
        double.publish(&events);
        room.numbers_are(&[0; 5]).await;
        let live: Vec<_> = room
            .observations
            .borrow()
            .iter()
            .map(|one| (one.envelope.wall, one.envelope.says.clone(), one.body.clone()))
            .collect();
        assert_eq!(live, recorded);
    });
}

#[test]
fn what_was_published_before_is_replayed() {
    for with_topic in [false, true] {
        run(async {
            let double = Double::start().await;
            if with_topic {
                double.with_topic();
            }
            double.publish(&[stored(1, None, 0)]);
            double.publish(&[stored(2, Some(1), 16)]);
            let (room, _task) = follow(target(&double, true), None);
            room.numbers_are(&[0, 1]).await;
            double.publish(&[stored(3, Some(2), 32)]);
            room.numbers_are(&[0, 1, 2]).await;
            assert!(room.blocks().iter().all(|block| block.content.len() == 1));
            assert!(room.losses.borrow().is_empty());
            assert_eq!(double.requests(), [0]);
        });
    }
}

#[test]
fn what_was_published_before_and_is_not_replayed_is_counted_and_no_loss_of_what_was_watched() {
    run(async {
        let double = Double::start().await;
        for _ in 0..5 {
            double.publish_unheard(&[stored(1, None, 0)]);
        }
        let (room, _task) = follow(target(&double, false), None);
        double.subscribed().await;
        double.publish(&[stored(2, Some(1), 16)]);
        room.numbers_are(&[5]).await;
        assert!(room.lost().is_empty());
        assert_eq!(room.losses.borrow().of("before the subscription"), 5);
        assert!(room.blocks()[0].content.is_empty(), "its parent was never seen");
    });
}

#[test]
fn a_gap_is_filled_by_a_replay() {
    run(async {
        let double = Double::start().await;
        let (room, _task) = follow(target(&double, true), None);
        double.subscribed().await;
        double.publish(&[stored(1, None, 0)]);
        room.numbers_are(&[0]).await;
        double.publish_unheard(&[stored(2, Some(1), 16)]);
        double.publish_unheard(&[stored(3, Some(2), 32)]);
        double.publish(&[stored(4, Some(3), 48)]);
        room.numbers_are(&[0, 1, 2, 3]).await;
        double.publish(&[stored(5, Some(4), 64)]);
        room.numbers_are(&[0, 1, 2, 3, 4]).await;
        assert!(room.lost().is_empty());
        assert!(room.losses.borrow().is_empty(), "{:?}", room.losses.borrow());
        assert_eq!(double.requests(), [0, 1]);
    });
}

#[test]
fn a_gap_that_nothing_fills_is_a_loss_with_a_count() {
    run(async {
        for replays in [false, true] {
            let double = Double::start().await;
            let (room, _task) = follow(target(&double, replays), None);
            double.subscribed().await;
            double.publish(&[stored(1, None, 0)]);
            room.numbers_are(&[0]).await;
            for _ in 0..3 {
                double.publish_unheard(&[stored(2, Some(1), 16)]);
            }
            double.forget_before(3);
            double.publish(&[stored(3, Some(2), 32)]);
            double.publish(&[stored(4, Some(3), 48)]);
            let wanted: &[i64] = if replays { &[0, 3, 4, 5] } else { &[0, 4, 5] };
            room.numbers_are(wanted).await;
            let missing = if replays { 2 } else { 3 };
            assert_eq!(room.lost(), [("event sequence gap".to_owned(), Some(missing))]);
            assert_eq!(room.losses.borrow().of("event sequence gap"), missing as u64);
        }
    });
}

#[test]
fn a_replay_that_drops_most_of_its_answer_is_asked_again_from_there() {
    run(async {
        let double = Double::start().await;
        for number in 0..10 {
            double.publish_unheard(&[stored(number, None, 0)]);
        }
        double.drop_replies_after(4);
        let (room, _task) = follow(target(&double, true), None);
        room.numbers_are(&[0, 1, 2, 3, 4, 5, 6, 7, 8, 9]).await;
        assert_eq!(double.requests(), [0, 4, 8]);
        assert!(room.lost().is_empty());
    });
}

#[test]
fn a_replay_that_never_answers_keeps_nobody_waiting() {
    run(async {
        let double = Double::start().await;
        double.drop_replies_after(0);
        double.publish_unheard(&[stored(1, None, 0)]);
        let (room, _task) = follow(target(&double, true), None);
        double.subscribed().await;
        double.publish(&[stored(2, None, 0)]);
        room.numbers_are(&[1]).await;
        assert_eq!(room.losses.borrow().of("before the subscription"), 1);
    });
}

#[test]
fn a_publisher_that_begins_anew_lost_nothing_and_its_events_are_others() {
    run(async {
        let double = Double::start().await;
        let (room, _task) = follow(target(&double, true), None);
        double.subscribed().await;
        for number in 0..3 {
            double.publish(&[stored(number, None, 0)]);
        }
        room.numbers_are(&[0, 1, 2]).await;
        let (address, replay) = double.vanish().await;
        let double = Double::at(address, replay).await.later();
        double.publish_unheard(&[stored(7, None, 0)]);
        double.publish_unheard(&[stored(8, Some(7), 16)]);
        room.numbers_are(&[0, 1, 2, 0, 1]).await;
        double.subscribed().await;
        double.publish(&[stored(9, Some(8), 32)]);
        room.numbers_are(&[0, 1, 2, 0, 1, 2]).await;
        assert!(room.lost().iter().all(|(reason, _)| reason != "event sequence gap"), "{:?}", room.lost());
        let mut ids = room.ids();
        ids.sort();
        ids.dedup();
        assert_eq!(ids.len(), room.observations.borrow().len());
    });
}

#[test]
fn a_publisher_that_begins_anew_behind_the_same_connection_is_seen_too() {
    run(async {
        let double = Double::start().await;
        let (room, _task) = follow(target(&double, false), None);
        double.subscribed().await;
        double.publish(&[stored(1, None, 0)]);
        double.publish(&[stored(2, None, 0)]);
        room.numbers_are(&[0, 1]).await;
        // As through a proxy: the number falls back, the connection stays.
        let payload = batch(1_900_000_000.0, &[stored(1, None, 0)]);
        double.send(&[Vec::new(), 0u64.to_be_bytes().to_vec(), payload.clone()]);
        double.send(&[Vec::new(), 0u64.to_be_bytes().to_vec(), payload]);
        room.numbers_are(&[0, 1, 0]).await;
        assert!(room.lost().is_empty());
    });
}

#[test]
fn a_publisher_that_vanishes_is_a_loss_and_is_followed_again() {
    run(async {
        let double = Double::start().await;
        let (room, _task) = follow(target(&double, false), None);
        double.subscribed().await;
        double.publish(&[stored(1, None, 0)]);
        room.numbers_are(&[0]).await;
        let (address, replay) = double.vanish().await;
        wait("the loss", || !room.lost().is_empty()).await;
        assert_eq!(room.lost(), [("publisher of KV events vanished".to_owned(), None)]);
        sleep(Duration::from_millis(200)).await;
        assert_eq!(room.lost().len(), 1, "told once");
        assert!(room.states.borrow().last().unwrap().is_err());
        let double = Double::at(address, replay).await;
        double.publish_unheard(&[]);
        double.publish_unheard(&[]);
        double.subscribed().await;
        double.publish(&[stored(2, None, 0)]);
        room.numbers_are(&[0, 2]).await;
        assert_eq!(room.lost()[1], ("event sequence gap".to_owned(), Some(1)));
        assert_eq!(*room.states.borrow().last().unwrap(), Ok(()));
    });
}

#[test]
fn an_agent_that_starts_again_goes_on_behind_the_last_batch_and_knows_its_blocks() {
    run(async {
        let double = Double::start().await;
        let (first, task) = follow(target(&double, true), None);
        double.subscribed().await;
        double.publish(&[stored(1, None, 0)]);
        double.publish(&[stored(2, Some(1), 16)]);
        first.numbers_are(&[0, 1]).await;
        let mark = first.mark.get();
        task.abort();
        double.publish_unheard(&[stored(3, Some(2), 32)]);
        let (second, _task) = follow(target(&double, true), mark);
        second.numbers_are(&[2]).await;
        double.publish(&[stored(4, Some(3), 48)]);
        second.numbers_are(&[2, 3]).await;
        assert!(second.blocks().iter().all(|block| block.content.len() == 1 && !block.content[0].is_empty()));
        assert!(second.lost().is_empty());
        // One that was killed before its mark was saved reads the same under the same ids.
        let (third, _task) = follow(target(&double, true), None);
        third.numbers_are(&[0, 1, 2, 3]).await;
        assert_eq!(third.ids(), [first.ids(), second.ids()].concat());
        let bodies = |room: &Room| -> Vec<Body> {
            room.observations.borrow().iter().map(|one| one.body.clone()).collect()
        };
        assert_eq!(bodies(&third), [bodies(&first), bodies(&second)].concat());
    });
}

#[test]
fn an_agent_that_starts_again_without_a_replay_counts_what_it_missed() {
    run(async {
        let double = Double::start().await;
        let (room, task) = follow(target(&double, false), None);
        double.subscribed().await;
        double.publish(&[stored(1, None, 0)]);
        room.numbers_are(&[0]).await;
        task.abort();
        let _ = task.await;
        double.publish(&[stored(2, None, 0)]);
        double.publish(&[stored(3, None, 0)]);
        let (room, _task) = follow(target(&double, false), room.mark.get());
        wait("the subscription", || room.states.borrow().contains(&Ok(()))).await;
        sleep(Duration::from_millis(50)).await;
        double.publish(&[stored(4, None, 0)]);
        room.numbers_are(&[3]).await;
        assert_eq!(room.lost(), [("event sequence gap".to_owned(), Some(2))]);
    });
}

#[test]
fn a_publisher_that_began_anew_while_no_agent_ran_is_read_from_its_begin() {
    run(async {
        for held in [2, 9] {
            let double = Double::start().await;
            for number in 0..held {
                double.publish_unheard(&[stored(number, None, 0)]);
            }
            // The one before came up to its fifth batch, at another time.
            let mark = Mark { seq: 5, time: 7.0f64.to_bits() };
            let (room, _task) = follow(target(&double, true), Some(mark));
            let all: Vec<i64> = (0..held as i64).collect();
            room.numbers_are(&all).await;
            assert!(room.lost().is_empty());
        }
    });
}

#[test]
fn while_the_queue_is_full_nothing_is_lost() {
    run(async {
        let double = Double::start().await;
        let (room, _task) = follow(target(&double, false), None);
        double.subscribed().await;
        room.is_full.set(true);
        for number in 0..50 {
            double.publish(&[stored(number, None, 0)]);
        }
        wait("a refusal", || room.refused.get() > 3).await;
        assert!(room.mark.get().is_none(), "no mark before what it stands for is taken");
        room.is_full.set(false);
        room.numbers_are(&(0..50).collect::<Vec<i64>>()).await;
        assert!(room.lost().is_empty());
    });
}

#[test]
fn a_batch_without_events_is_told_to_a_recording_and_is_no_gap() {
    run(async {
        let double = Double::start().await;
        let (room, _task) = follow(target(&double, false), None);
        double.subscribed().await;
        double.publish(&[stored(1, None, 0)]);
        double.publish(&[]);
        double.publish(&[json!({"type": "SomethingNew"})]);
        double.publish(&[stored(2, None, 0)]);
        room.numbers_are(&[0, 3]).await;
        assert_eq!(*room.empty.borrow(), [1, 2]);
        assert_eq!(room.losses.borrow().of("KV event of an unknown type"), 1);
        assert!(room.lost().is_empty());
    });
}

#[test]
fn what_is_no_batch_is_counted_and_the_next_one_read() {
    run(async {
        let double = Double::start().await;
        let (room, _task) = follow(target(&double, false), None);
        double.subscribed().await;
        double.send(&[b"kv".to_vec()]);
        double.send(&[b"kv".to_vec(), b"short".to_vec(), Vec::new()]);
        double.send(&[b"kv".to_vec(), 0u64.to_be_bytes().to_vec(), b"\xc1".to_vec()]);
        double.publish_unheard(&[]);
        double.publish(&[stored(1, None, 0)]);
        room.numbers_are(&[1]).await;
        assert_eq!(room.losses.borrow().of("message that is no KV event"), 2);
        assert_eq!(room.losses.borrow().of("no KV event"), 1);
        assert!(room.lost().is_empty());
    });
}

#[test]
fn a_message_that_is_too_large_ends_the_connection_and_is_a_gap() {
    run(async {
        let double = Double::start().await;
        let (room, _task) = follow(target(&double, false), None);
        double.subscribed().await;
        double.publish(&[stored(1, None, 0)]);
        double.send(&[Vec::new(), Vec::new(), vec![0; 17 << 20]]);
        wait("the end", || room.losses.borrow().of("message too large") == 1).await;
        wait("another subscription", || room.states.borrow().len() >= 3).await;
        double.publish_unheard(&[]);
        sleep(Duration::from_millis(50)).await;
        double.publish(&[stored(2, None, 0)]);
        room.numbers_are(&[0, 2]).await;
        assert_eq!(room.lost(), [("event sequence gap".to_owned(), Some(1))]);
    });
}

#[test]
fn who_is_not_the_worker_is_not_read() {
    run(async {
        let double = Double::start().await;
        let (room, _task) = follow_with(target(&double, true), None, false);
        double.publish(&[stored(1, None, 0)]);
        wait("a refusal", || !room.states.borrow().is_empty()).await;
        sleep(Duration::from_millis(50)).await;
        assert!(room.observations.borrow().is_empty());
        assert!(room.states.borrow()[0].as_ref().unwrap_err().contains("no process of the worker"));
        assert!(double.requests().is_empty(), "nobody else is asked for anything");
    });
}

#[test]
fn who_is_no_publisher_is_not_subscribed_and_says_why() {
    run(async {
        let silent = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let http = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let (silent_port, http_port) =
            (silent.local_addr().unwrap().port(), http.local_addr().unwrap().port());
        tokio::task::spawn_local(async move {
            let mut kept = Vec::new();
            loop {
                kept.push(silent.accept().await.unwrap());
            }
        });
        tokio::task::spawn_local(async move {
            loop {
                let (mut stream, _) = http.accept().await.unwrap();
                let _ = stream.write_all(&[b"HTTP/1.1 400 Bad Request\r\n", &[b' '; 100][..]].concat()).await;
            }
        });
        for (port, why) in [(silent_port, "does not answer"), (http_port, "does not speak ZMTP")] {
            let double = Double::start().await;
            let mut target = target(&double, false);
            target.endpoint = Endpoint::parse(&format!("tcp://*:{port}")).unwrap();
            let (room, task) = follow(target, None);
            wait("a reason", || !room.states.borrow().is_empty()).await;
            assert!(
                room.states.borrow()[0].as_ref().unwrap_err().contains(why),
                "{:?}",
                room.states.borrow()
            );
            assert!(room.observations.borrow().is_empty());
            task.abort();
        }
    });
}

#[test]
fn a_socket_of_the_file_system_is_subscribed_to() {
    use kvprov_agent::events::zmtp::{Budget, Connection, Limits, SocketType};
    run(async {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("kv.sock");
        let listener = UnixListener::bind(&path).unwrap();
        let double = Double::start().await;
        let mut target = target(&double, false);
        target.endpoint = Endpoint::parse(&format!("ipc://{}", path.display())).unwrap();
        let (room, _task) = follow(target, None);
        let (stream, _) = listener.accept().await.unwrap();
        let budget = Budget::new(1 << 20);
        let mut connection =
            Connection::open(stream, SocketType::Pub, Limits::default(), budget).await.unwrap();
        let payload = batch(1.0, &[stored(1, None, 0)]);
        connection.send(&[b"", &0u64.to_be_bytes(), &payload]).await.unwrap();
        room.numbers_are(&[0]).await;
    });
}
