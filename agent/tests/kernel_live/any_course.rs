//! Whatever happens: live and replay, ticks and kills tell the same.

use crate::kills::with_kills;
use crate::rig::{Lab, Rig};
use crate::ring::{Bytes, FIRST_TIME, O_RDONLY, O_WRITE, Process, file};
use kvprov_agent::kernel::live::journal::DEFAULT_LIMIT;
use kvprov_agent_common::{Class, Kind};
use kvprov_model::id::{NodeId, WorkerId};
use kvprov_model::observation::Observation;
use proptest::prelude::*;
use std::sync::{Arc, Mutex};

/// What happens to one of a few files, in a few ways.
fn happenings() -> impl Strategy<Value = Vec<(u8, u32, u64, u64)>> {
    proptest::collection::vec((0u8..18, 0u32..4, 0u64..5, 0u64..40), 1..120)
}

fn script(steps: &[(u8, u32, u64, u64)]) -> Vec<Bytes> {
    let mut p = Process::new(7);
    let ends = ("10.0.0.1:1000", "10.0.0.2:2000");
    let mut records = Vec::new();
    for (what, open_file, inode, more) in steps.iter().copied() {
        let identity = file(p.device, open_file + 1, inode + 10);
        let key = format!("/kv/{}.bin", more % 5);
        let temporary = format!("/kv/{}.tmp", more % 3);
        let (open_file, inode) = (identity.open_file, identity.inode);
        records.push(match what {
            0 => p.open(&key, O_RDONLY, 4, open_file, inode),
            1 => p.open(&key, O_WRITE, 4, open_file, inode),
            2 => p.open(&temporary, O_WRITE, 4, open_file, inode),
            3 | 4 => p.read(identity, 100, 100 + more),
            5 | 6 => p.write(identity, 100, 100),
            7 | 8 => p.close(identity, 1),
            9 => p.close(identity, 2),
            10 => p.rename(&temporary, &key, if more % 4 == 0 { -2 } else { 0 }),
            11 => p.named(Kind::Unlink, &key, if more % 2 == 0 { -2 } else { 0 }),
            12 => p.named(Kind::Stat, &key, if more % 2 == 0 { -2 } else { 0 }),
            13 => p.socket(Kind::Send, 3, ends, 1000 * more as i64),
            14 => p.socket(Kind::Recv, 3, ends, if more == 0 { -104 } else { 70_000 }),
            15 => p.open("/models/m", O_RDONLY, 4, open_file, inode),
            16 => p.call(Kind::Mmap, Class::Regular, identity, 4096, 4096, 0),
            _ => {
                p.wait(more * 100);
                p.open_failed(&key, O_RDONLY, -2)
            }
        });
    }
    records
}

fn in_words(observations: &[Observation]) -> Vec<String> {
    let words = |observation: &Observation| {
        format!("{:?} {:?} {:?}", observation.envelope.wall, observation.envelope.says, observation.body)
    };
    let mut words: Vec<String> = observations.iter().map(words).collect();
    words.sort();
    words
}

proptest! {
    #[test]
    fn a_recording_gives_in_replay_what_was_told_live(steps in happenings(), batch in 1usize..30) {
        use kvprov_agent::kernel::KernelReader;
        use kvprov_agent::source::{Place, SourceContext};
        let mut rig = Rig::new();
        let lines = Arc::new(Mutex::new(Vec::new()));
        let taken = Arc::clone(&lines);
        rig.live.record_to(Some(Box::new(move |_, record| {
            let mut line = Vec::new();
            record.write_json(&mut line);
            taken.lock().unwrap().push(line);
        })));
        for records in script(&steps).chunks(batch) {
            rig.all(records);
            rig.commit();
        }
        let Rig { live, mut observations, .. } = rig;
        live.finish(&mut |observation| observations.push(observation));
        let source = SourceContext {
            node: NodeId("n1".to_owned()),
            worker: Some(WorkerId("w".to_owned())),
            stream: "k.jsonl".to_owned(),
            instance: "w k.jsonl".to_owned(),
            generation: 0,
        };
        let mut reader = KernelReader::new(source, &Lab);
        let mut replayed = Vec::new();
        for (index, line) in lines.lock().unwrap().iter().enumerate() {
            let place = Place { position: index as u64 + 1, offset: index as u64 };
            reader.line(place, line, &mut |observation| replayed.push(observation));
        }
        reader.finish(&mut |observation| replayed.push(observation));
        prop_assert_eq!(in_words(&observations), in_words(&replayed));
    }

    #[test]
    fn ticks_change_when_something_is_told_not_what(
        steps in happenings(), ticks in proptest::collection::vec(any::<bool>(), 120)
    ) {
        let records = script(&steps);
        let run = |ticks: &[bool]| {
            let mut rig = Rig::new();
            let mut time = FIRST_TIME;
            for (record, tick) in records.iter().zip(ticks) {
                // A tick is of now, which is before the next record.
                let next = u64::from_ne_bytes(record.as_slice()[8..16].try_into().unwrap());
                rig.commit();
                while *tick && time + 400_000_000 < next {
                    time += 400_000_000;
                    rig.tick(time);
                }
                time = next;
                rig.take(record);
            }
            rig.commit();
            let Rig { live, mut observations, .. } = rig;
            live.finish(&mut |observation| observations.push(observation));
            let mut ids: Vec<_> = observations.iter().map(|one| one.envelope.id).collect();
            ids.sort();
            let count = ids.len();
            ids.dedup();
            assert_eq!(ids.len(), count, "one id, two observations");
            in_words(&observations)
        };
        prop_assert_eq!(run(&ticks), run(&[false; 120]));
    }

    #[test]
    fn kills_change_nothing(steps in happenings(), batch in 1usize..20, kills in proptest::collection::vec(0usize..40, 0..6), limit in prop_oneof![Just(16_384u64), Just(40_000), Just(DEFAULT_LIMIT)]) {
        let records: Vec<(u64, Bytes)> =
            script(&steps).into_iter().enumerate().map(|(index, record)| (index as u64 * 64, record)).collect();
        prop_assert_eq!(with_kills(&records, batch, &kills, limit), with_kills(&records, batch, &[], DEFAULT_LIMIT));
    }

    #[test]
    fn no_bytes_make_it_panic(bytes in proptest::collection::vec(any::<u8>(), 0..300), kind in 0u16..100) {
        let mut rig = Rig::new();
        let mut bytes = bytes;
        if bytes.len() > 20 {
            bytes[..2].copy_from_slice(&kind.to_ne_bytes());
            bytes[16..20].copy_from_slice(&7u32.to_ne_bytes());
        }
        rig.take(&Bytes::new(&[&bytes]));
        rig.told();
    }
}
