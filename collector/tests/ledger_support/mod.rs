//! Generated observations and histories for the tests of the ledger.
#![allow(clippy::unwrap_used, dead_code, reason = "shared by several tests; a failed one says enough")]

use kvprov_model::clock::WallTime;
use kvprov_model::id::{NodeId, ObservationId, WorkerId};
use kvprov_model::observation::{Body, Envelope, Observation, SourceKind};
use kvprov_model::value::Value;
use proptest::prelude::*;
use std::collections::BTreeMap;

/// Observation `index` of a small fleet: every kind, every index key, ids that meet.
pub(crate) fn observation(index: u64, node: &str, wall: Option<i64>) -> Observation {
    let kinds = Body::KINDS;
    let kind = &kinds[index as usize % kinds.len()];
    let mut body = Body::empty(kind.name);
    for field in kind.fields {
        let value = match (field.name, field.field_type) {
            ("request_id" | "remote_request_id" | "reply_id", _) => {
                Value::Str(format!("cmpl-r{}-0", index / 8 % 9))
            }
            ("request_ids", _) => Value::List(vec![
                Value::Str(format!("cmpl-r{}-0-0a1b2c3d", index / 8 % 9)),
                Value::Str(format!("r{}", index % 5)),
            ]),
            ("transfer_id", _) => Value::Str(format!("room-{}", index % 3)),
            ("store", _) => Value::Str(format!("file:fs0:/store-{}", index % 2)),
            ("remote_engine_id" | "local_engine_id", _) => Value::Str(format!("engine-{}", index % 3)),
            (_, "integer") => Value::Int(index as i64 * 7 - 3),
            (_, "text") => Value::Str(format!("{}-{index}", field.name)),
            _ => continue,
        };
        body.set(field.name, value).unwrap();
    }
    Observation {
        envelope: Envelope {
            schema_version: 1,
            id: ObservationId::derive(node, 0, index, 0),
            node: NodeId::from(node),
            boot_id: Some("b00t".to_owned()),
            worker: (!index.is_multiple_of(6)).then(|| WorkerId(format!("{node}/w{}", index % 3))),
            source: SourceKind::Log,
            stream: format!("{node}-{}.log", index % 2),
            position: index as i64,
            monotonic: None,
            wall: wall.map(WallTime),
            says: Some(format!("event {index}")),
        },
        body,
        extra: BTreeMap::from([("kvprov.zz_new".to_owned(), Value::Int(index as i64))]),
        resource: BTreeMap::from([("k8s.pod.name".to_owned(), Value::Str("pod".to_owned()))]),
    }
}

/// Up to `most` distinct observations of three nodes within a hundred time units; some are undated.
pub(crate) fn history(most: usize) -> impl Strategy<Value = Vec<Observation>> {
    proptest::collection::vec((0..3usize, proptest::option::weighted(0.8, -50i64..50)), 1..most).prop_map(
        |places| {
            places
                .into_iter()
                .enumerate()
                .map(|(index, (node, wall))| observation(index as u64, ["n0", "n1", "n2"][node], wall))
                .collect()
        },
    )
}

/// A delivery of a history: shuffled, with duplicates, cut into batches.
pub(crate) fn delivery(history: Vec<Observation>) -> impl Strategy<Value = Vec<Vec<Observation>>> {
    let length = history.len();
    let again = proptest::collection::vec(0..length, 0..length + 1);
    (Just(history), again, 1..9usize)
        .prop_flat_map(|(history, again, batch)| {
            let mut all = history.clone();
            all.extend(again.into_iter().map(|index| history[index].clone()));
            (Just(all).prop_shuffle(), Just(batch))
        })
        .prop_map(|(all, batch)| all.chunks(batch).map(<[Observation]>::to_vec).collect())
}

/// A history and two deliveries of it.
pub(crate) fn two_deliveries(
    most: usize,
) -> impl Strategy<Value = (Vec<Observation>, Vec<Vec<Observation>>, Vec<Vec<Observation>>)> {
    history(most)
        .prop_flat_map(|history| (Just(history.clone()), delivery(history.clone()), delivery(history)))
}
