//! How KV events become blocks with comparable content.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use kvprov_agent::events::{EventCounts, EventReader};
use kvprov_agent::source::{Place, SourceContext};
use kvprov_model::content::FleetKey;
use kvprov_model::id::NodeId;
use kvprov_model::observation::{Block, BlockAction, Body, Observation};
use proptest::prelude::*;
use serde_json::{Value, json};

fn read_lines(lines: &[String]) -> (Vec<Observation>, EventCounts) {
    let key = FleetKey::from_secret(b"test");
    let source = SourceContext {
        node: NodeId("n".to_owned()),
        worker: Some("w".into()),
        stream: "e.jsonl".to_owned(),
        instance: "w e.jsonl".to_owned(),
        generation: 0,
    };
    let mut found = Vec::new();
    let mut reader = EventReader::new(source, &key);
    for (index, line) in lines.iter().enumerate() {
        let place = Place { position: index as u64 + 1, offset: index as u64 };
        reader.line(place, line.as_bytes(), &mut |observation| found.push(observation));
    }
    (found, reader.counts().clone())
}

fn blocks(events: &[Value]) -> Vec<Block> {
    let lines: Vec<String> = events.iter().map(Value::to_string).collect();
    let (found, _) = read_lines(&lines);
    found
        .into_iter()
        .filter_map(|observation| match observation.body {
            Body::Block(block) => Some(block),
            _ => None,
        })
        .collect()
}

fn stored(seq: u64, hashes: &[u64], parent: Option<u64>, tokens: std::ops::Range<u32>, size: u64) -> Value {
    let tokens: Vec<u32> = tokens.collect();
    json!({"ts": 1.5, "seq": seq, "type": "BlockStored", "block_hashes": hashes, "parent_block_hash": parent,
        "token_ids": tokens, "block_size": size, "lora_id": null, "medium": "GPU", "lora_name": null})
}

#[test]
fn equal_prefixes_have_equal_content_whatever_the_block_size_and_the_batching() {
    let by_16 = blocks(&[
        stored(0, &[1], None, 0..16, 16),
        stored(1, &[2, 3], Some(1), 16..48, 16),
        stored(2, &[4], Some(3), 48..64, 16),
    ]);
    let by_64 = blocks(&[stored(0, &[u64::MAX], None, 0..64, 64)]);
    assert_eq!(by_16[2].content, by_64[0].content);
    assert_eq!(by_16[1].content.len(), 2);
    assert_eq!(by_64[0].hashes, [u64::MAX.to_string()]);
    assert_eq!(by_64[0].tokens, Some(64));
    assert_eq!(by_64[0].content_key, Some(FleetKey::from_secret(b"test").id()));
}

#[test]
fn a_block_end_inside_a_link_has_no_content_and_the_chain_goes_on() {
    let by_24 = blocks(&[stored(0, &[1, 2], None, 0..48, 24)]);
    let by_16 = blocks(&[stored(0, &[1, 2, 3], None, 0..48, 16)]);
    assert_eq!(by_24[0].content[0], "");
    assert_eq!(by_24[0].content[1], by_16[0].content[2]);
    let later = blocks(&[stored(0, &[1], None, 0..24, 24), stored(1, &[2], Some(1), 24..48, 24)]);
    assert_eq!(later[1].content, [by_24[0].content[1].clone()]);
}

#[test]
fn a_block_with_an_unknown_parent_has_no_content() {
    let found = blocks(&[stored(0, &[2], Some(1), 16..32, 16)]);
    assert!(found[0].content.is_empty());
    assert_eq!(found[0].parent.as_deref(), Some("1"));
    assert_eq!(found[0].content_key, None);
}

#[test]
fn a_removed_block_keeps_the_content_it_was_stored_with() {
    let found = blocks(&[
        stored(0, &[1], None, 0..16, 16),
        json!({"ts": 2.0, "seq": 1, "type": "BlockRemoved", "block_hashes": [1, 9], "medium": "GPU"}),
    ]);
    assert_eq!(found[1].action, Some(BlockAction::Removed));
    assert_eq!(found[1].content, [found[0].content[0].clone(), String::new()]);
}

#[test]
fn content_made_by_a_recorder_passes_through() {
    let found = blocks(&[json!({"ts": 1.0, "seq": 0, "type": "BlockStored", "block_hashes": ["ab"],
        "content": ["00ff"], "content_key": "k", "num_tokens": 16, "block_size": 16})]);
    assert_eq!(found[0].content, ["00ff"]);
    assert_eq!((found[0].content_key.as_deref(), found[0].tokens), (Some("k"), Some(16)));
}

#[test]
fn batches_of_the_wire_are_read_as_maps_and_as_arrays() {
    let tokens: Vec<u32> = (0..16).collect();
    let map = json!({"t": 9.0, "topic": "kv@p@m", "seq": 0, "payload": [1.5, [{"type": "BlockStored",
        "block_hashes": [7], "parent_block_hash": null, "token_ids": tokens, "block_size": 16, "lora_id": 1,
        "medium": "GPU", "lora_name": "ad", "extra_keys": [null]}], 0]});
    let array = json!({"t": 9.0, "topic": "kv@p@m", "seq": 1, "payload": [1.5, [
        ["BlockStored", [8], 7, tokens, 16, 1, "GPU", "ad"], ["BlockRemoved", [7], "GPU"], ["AllBlocksCleared"]]]});
    let found = blocks(&[map, array]);
    assert_eq!(found.len(), 4);
    assert_eq!(found[0].adapter.as_deref(), Some("ad"));
    assert_eq!(found[0].extra_keys, Some(true));
    assert_eq!(found[1].content.len(), 1);
    assert_eq!(found[3].action, Some(BlockAction::Cleared));
}

#[test]
fn a_gap_in_the_sequence_is_a_loss() {
    let lines: Vec<String> =
        [0, 1, 4].iter().map(|seq| stored(*seq, &[*seq], None, 0..16, 16).to_string()).collect();
    let (found, counts) = read_lines(&lines);
    let lost: Vec<_> = found
        .iter()
        .filter_map(|observation| match &observation.body {
            Body::Loss(loss) => loss.records,
            _ => None,
        })
        .collect();
    assert_eq!(lost, [2]);
    assert_eq!(counts.losses.of("event sequence gap"), 2);
}

#[test]
fn a_publisher_that_began_anew_lost_nothing_and_its_hashes_are_new() {
    let lines =
        [stored(5, &[1], None, 0..16, 16).to_string(), stored(0, &[2], Some(1), 16..32, 16).to_string()];
    let (found, counts) = read_lines(&lines);
    assert_eq!(found.len(), 2);
    assert_eq!(counts.losses.of("event sequence gap"), 0);
    assert_eq!(counts.losses.of("block whose parent is not known"), 1);
}

#[test]
fn no_token_id_is_in_an_observation() {
    let mut event = stored(0, &[1], None, 0..16, 16);
    event["token_ids"] = json!((0..16).map(|i| 777_000 + i).collect::<Vec<u32>>());
    let (found, _) = read_lines(&[event.to_string()]);
    assert!(!format!("{found:?}").contains("7770"));
}

#[test]
fn tokens_that_are_pairs_are_not_compared() {
    let mut event = stored(0, &[1], None, 0..16, 16);
    event["token_ids"] = json!([[1, 2], [2, 3]]);
    let found = blocks(&[event]);
    assert!(found[0].content.is_empty());
}

proptest! {
    #[test]
    fn no_bytes_make_it_panic(line in proptest::collection::vec(any::<u8>(), 0..120)) {
        let _ = read_lines(&[String::from_utf8_lossy(&line).into_owned()]);
    }

    #[test]
    fn no_event_makes_it_panic(
        hashes in proptest::collection::vec(any::<u64>(), 0..5),
        tokens in proptest::collection::vec(any::<i64>(), 0..50),
        size in any::<i64>(),
        small in 0i64..20,
        parent in proptest::option::of(any::<u64>()),
    ) {
        for size in [size, small] {
            let event = json!({"ts": 1.0, "seq": 0, "type": "BlockStored", "block_hashes": hashes,
                "parent_block_hash": parent, "token_ids": tokens, "block_size": size});
            let _ = read_lines(&[event.to_string()]);
        }
    }
}
