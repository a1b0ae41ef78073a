//! An agent that is killed goes on from its journal and the ring.

use crate::rig::Rig;
use crate::ring::{Bytes, O_RDONLY, O_WRITE, Process, file};
use kvprov_agent::kernel::live::journal::{DEFAULT_LIMIT, Journal};
use kvprov_agent_common::{Class, Kind};
use kvprov_model::observation::Observation;

/// Reads a script of records with an agent that is killed at places, and gives the observations by id.
pub(crate) fn with_kills(
    records: &[(u64, Bytes)],
    batch: usize,
    kills: &[usize],
    limit: u64,
) -> std::collections::BTreeMap<String, String> {
    let folder = tempfile::tempdir().unwrap();
    let mut told = std::collections::BTreeMap::new();
    let mut sink = |observation: Observation| {
        let Observation { envelope, body, .. } = observation;
        let says = format!("{:?} {:?} {body:?}", envelope.wall, envelope.says);
        let before = told.insert(format!("{:?}", envelope.id), says.clone());
        assert!(
            before.as_ref().is_none_or(|before| *before == says),
            "one id, two contents: {says}, {before:?}"
        );
    };
    let begin = |sink: &mut dyn FnMut(Observation)| {
        let mut live = Rig::new().live;
        let journal = Journal::open(folder.path(), "boot ring", limit).unwrap();
        live.with_journal(journal, &mut |_| {}, sink).unwrap();
        live
    };
    let mut live = begin(&mut sink);
    let mut released = 0;
    let mut run = 0;
    loop {
        let batch_end = (released + batch).min(records.len());
        for (position, record) in &records[released..batch_end] {
            live.event(*position, record.as_slice(), &mut |_| {});
        }
        let upto = records.get(batch_end).map_or(u64::MAX >> 1, |(position, _)| *position);
        let is_killed = kills.contains(&run);

        run += 1;
        if is_killed && run % 2 == 0 {
            live = begin(&mut sink); // before the commit
            continue;
        }
        live.commit(upto, &mut sink);
        if is_killed {
            live = begin(&mut sink); // before the ring was released
            continue;
        }
        released = batch_end;
        if released == records.len() {
            break;
        }
    }
    live.finish(&mut sink);
    told
}

fn a_busy_script() -> Vec<(u64, Bytes)> {
    let mut p = Process::new(7);
    let mut records = Vec::new();
    let ends = ("10.0.0.1:1000", "10.0.0.2:2000");
    for index in 0..40u32 {
        let identity = file(p.device, index % 5 + 1, u64::from(index % 7) + 10);
        let (temporary, key) = (format!("/kv/{}.tmp", index % 5), format!("/kv/{}.bin", index % 9));
        let directory = file(p.device, 99, 2);
        records.extend([
            p.named(Kind::Stat, &key, if index < 9 { -2 } else { 0 }),
            p.open(&temporary, O_WRITE, 4, identity.open_file, identity.inode),
            p.write(identity, 100, 100),
            p.socket(Kind::Send, 3, ends, 5000),
            p.close(identity, 2),
            p.write(identity, 100, 100),
            p.close(identity, 1),
            p.rename(&temporary, &key, 0),
            p.socket(Kind::Recv, 3, ends, 4096),
            p.open(&key, O_RDONLY, 4, identity.open_file, identity.inode),
            p.read(identity, 200, 200),
            p.close(identity, 2),
            p.open_directory("/kv", 4, 99, 2),
            p.call(Kind::Readdir, Class::Directory, directory, 96, 32768, 0),
            p.named(Kind::Unlink, &key, if index % 3 == 0 { 0 } else { -2 }),
        ]);
        if index % 10 == 0 {
            p.wait(4000);
        }
    }
    let all = records.into_iter().enumerate();
    all.map(|(index, record)| (index as u64 * 64, record)).collect()
}

#[test]
fn an_agent_that_is_killed_again_and_again_tells_what_an_undisturbed_one_tells() {
    let records = a_busy_script();
    let undisturbed = with_kills(&records, 16, &[], DEFAULT_LIMIT);
    assert!(undisturbed.len() > 80, "{}", undisturbed.len());
    for kills in [&[1][..], &[2], &[5, 6, 7], &[0, 3, 4, 8, 9, 12, 15, 18, 21, 22, 23, 30]] {
        let disturbed = with_kills(&records, 16, kills, DEFAULT_LIMIT);
        let missing: Vec<_> = undisturbed.iter().filter(|(id, _)| !disturbed.contains_key(*id)).collect();
        let more: Vec<_> = disturbed.iter().filter(|(id, _)| !undisturbed.contains_key(*id)).collect();
        assert!(missing.is_empty() && more.is_empty(), "{kills:?}: missing {missing:#?}, more {more:#?}");
        assert_eq!(disturbed, undisturbed);
    }
}

#[test]
fn what_the_journal_dropped_is_not_forgotten() {
    let records = a_busy_script();
    let undisturbed = with_kills(&records, 16, &[], DEFAULT_LIMIT);
    for kills in [&[30][..], &[7, 14, 21, 28, 35], &[20, 21, 33, 36]] {
        assert_eq!(with_kills(&records, 16, kills, 60_000), undisturbed, "{kills:?}");
    }
}
