//! How system calls on a store become artifacts, and on the files of a model factors.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use kvprov_agent::kernel::{ArtifactName, FileRole, KernelCounts, KernelReader, ModelFile, Names};
use kvprov_agent::source::{Place, SourceContext};
use kvprov_model::factor::FactorState;
use kvprov_model::id::NodeId;
use kvprov_model::observation::{Artifact, Body, Factor, Observation, Transfer};
use proptest::prelude::*;

/// A store in `/kv`: `*.bin` are keys, `*.tmp` temporary; models in `/models`.
struct Lab;

impl Names for Lab {
    fn role(&self, path: &str) -> FileRole {
        if let Some(key) = path.strip_prefix("/kv/") {
            return match key.rsplit_once('.') {
                Some((content, "bin")) => FileRole::Artifact(ArtifactName {
                    store_dir: "/kv".to_owned(),
                    key: key.to_owned(),
                    grammar: "lab".to_owned(),
                    content: Some(content.to_owned()),
                    ..ArtifactName::default()
                }),
                Some((_, "tmp")) => FileRole::Temporary,
                _ => FileRole::Other,
            };
        }
        let Some(file) = path.strip_prefix("/models/") else { return FileRole::Other };
        let digest = file.strip_prefix("blobs/").map(str::to_owned);
        let evidence =
            file.strip_prefix("snapshots/").and_then(|rest| rest.split('/').next()).map(str::to_owned);
        FileRole::Model(ModelFile { factor: "weights".to_owned(), digest, evidence })
    }
}

fn source() -> SourceContext {
    SourceContext {
        node: NodeId("node-a".to_owned()),
        worker: Some("w".into()),
        stream: "k.jsonl".to_owned(),
        instance: "w k.jsonl".to_owned(),
        generation: 0,
    }
}

/// Each line is the inside of a record without time, process and braces; records are a millisecond apart, and
/// `+<seconds>` lets time pass.
fn read_all(script: &str) -> (Vec<Observation>, KernelCounts) {
    let mut found = Vec::new();
    let mut reader = KernelReader::new(source(), &Lab);
    let mut now = 1_000_000.0;
    for (index, line) in script.lines().map(str::trim).filter(|line| !line.is_empty()).enumerate() {
        if let Some(seconds) = line.strip_prefix('+') {
            now += seconds.parse::<f64>().unwrap();
            continue;
        }
        now += 0.001;
        let words: Vec<&str> = line.split_whitespace().collect();
        let mut record = serde_json::json!({"ts": now, "pid": 7, "tid": 7, "op": words[0]});
        for pair in &words[1..] {
            let (key, value) = pair.split_once('=').unwrap_or(("path", pair));
            record[key] = value.parse::<i64>().map_or_else(|_| value.into(), Into::into);
        }
        let place = Place { position: index as u64 + 1, offset: index as u64 * 100 };
        reader.line(place, record.to_string().as_bytes(), &mut |observation| found.push(observation));
    }
    let counts = reader.finish(&mut |observation| found.push(observation));
    (found, counts)
}

fn artifacts(script: &str) -> Vec<Artifact> {
    let (found, _) = read_all(script);
    found
        .into_iter()
        .filter_map(|observation| match observation.body {
            Body::Artifact(artifact) => Some(artifact),
            _ => None,
        })
        .collect()
}

/// Actions with key and bytes: `written a.bin 5`.
fn told(script: &str) -> Vec<String> {
    artifacts(script)
        .into_iter()
        .map(|artifact| {
            let bytes = artifact.bytes.map(|bytes| format!(" {bytes}")).unwrap_or_default();
            let wanted = artifact.bytes_wanted.filter(|wanted| Some(*wanted) != artifact.bytes);
            let wanted = wanted.map(|wanted| format!("/{wanted}")).unwrap_or_default();
            format!("{}{bytes}{wanted} {}", artifact.action.unwrap(), artifact.key.unwrap())
        })
        .collect()
}

fn factors(script: &str) -> Vec<Factor> {
    let (found, _) = read_all(script);
    found
        .into_iter()
        .filter_map(|observation| match observation.body {
            Body::Factor(factor) => Some(factor),
            _ => None,
        })
        .collect()
}

fn transfers(script: &str) -> Vec<Transfer> {
    let (found, _) = read_all(script);
    found
        .into_iter()
        .filter_map(|observation| match observation.body {
            Body::Transfer(transfer) => Some(transfer),
            _ => None,
        })
        .collect()
}

const WRITE_A: &str = "
    open /kv/a.bin flags=O_WRONLY|O_CREAT|O_TRUNC ret=4
    write /kv/a.bin ret=100 bytes=100
    close /kv/a.bin ret=0
";

#[test]
fn a_write_in_place_is_one_artifact_with_the_bytes_of_all_writes() {
    let script = "
        open /kv/a.bin flags=O_WRONLY|O_CREAT|O_TRUNC ret=4
        write /kv/a.bin ret=28 bytes=28
        write /kv/a.bin ret=100 bytes=100
        close /kv/a.bin ret=0
    ";
    assert_eq!(told(script), ["written 128 a.bin"]);
}

#[test]
fn a_file_that_is_renamed_into_place_is_written_under_its_key() {
    // The write goes through a duplicate descriptor, so that two closes follow.
    let script = "
        stat /kv/a.bin ret=-2
        open /kv/x.tmp flags=O_WRONLY|O_CREAT|O_TRUNC|O_CLOEXEC ret=4
        stat /kv/x.tmp ret=0
        write /kv/x.tmp ret=100 bytes=100
        close /kv/x.tmp ret=0
        close /kv/x.tmp ret=0
        rename /kv/x.tmp path2=/kv/a.bin ret=0
    ";
    assert_eq!(told(script), ["missed a.bin", "written 100 a.bin"]);
}

#[test]
fn a_temporary_file_with_any_name_may_become_a_key_without_being_closed() {
    let script = "
        open /kv/.tmpQ1 flags=O_RDWR|O_CREAT|O_EXCL ret=4
        write /kv/.tmpQ1 ret=100 bytes=100
        rename /kv/.tmpQ1 path2=/kv/a.bin ret=0
    ";
    assert_eq!(told(script), ["written 100 a.bin"]);
}

#[test]
fn a_rename_whose_temporary_file_is_gone_refuses_the_artifact() {
    let script = "
        open /kv/x.tmp flags=O_WRONLY|O_CREAT ret=4
        write /kv/x.tmp ret=100 bytes=100
        close /kv/x.tmp ret=0
        rename /kv/x.tmp path2=/kv/a.bin ret=-2
    ";
    assert_eq!(told(script), ["refused 100 a.bin"]);
}

#[test]
fn a_read_that_gets_what_it_asked_for_is_a_read() {
    let script = "
        open /kv/a.bin flags=O_RDONLY ret=4
        stat /kv/a.bin ret=0
        read /kv/a.bin ret=100 bytes=100
        close /kv/a.bin ret=0
    ";
    assert_eq!(told(script), ["read 100 a.bin"]);
}

#[test]
fn a_read_that_gets_less_than_it_asked_for_is_partial() {
    let once = "
        open /kv/a.bin flags=O_RDONLY ret=4
        read /kv/a.bin ret=65536 bytes=65536 want=131072
        close /kv/a.bin ret=0
    ";
    assert_eq!(told(once), ["partial 65536/131072 a.bin"]);
    let again = "
        open /kv/a.bin flags=O_RDONLY ret=4
        read /kv/a.bin ret=65536 bytes=65536 want=131072
        read /kv/a.bin ret=0 bytes=0 want=65536
        close /kv/a.bin ret=0
    ";
    assert_eq!(told(again), ["partial 65536/131072 a.bin"]);
}

#[test]
fn looking_for_the_end_of_a_file_is_no_partial_read() {
    let whole_file = "
        open /kv/a.bin flags=O_RDONLY ret=4
        read /kv/a.bin ret=161 bytes=161 want=162
        read /kv/a.bin ret=0 bytes=0 want=1
        close /kv/a.bin ret=0
    ";
    assert_eq!(told(whole_file), ["read 161 a.bin"]);
    let last_buffer = "
        open /kv/a.bin flags=O_RDONLY ret=4
        read /kv/a.bin ret=65536 bytes=65536
        read /kv/a.bin ret=100 bytes=100 want=4096
        close /kv/a.bin ret=0
    ";
    assert_eq!(told(last_buffer), ["read 65636 a.bin"]);
    let small_probe = "
        open /kv/a.bin flags=O_RDONLY ret=4
        read /kv/a.bin ret=65536 bytes=65536
        read /kv/a.bin ret=0 bytes=0 want=32
        close /kv/a.bin ret=0
    ";
    assert_eq!(told(small_probe), ["read 65536 a.bin"]);
}

#[test]
fn a_large_read_behind_a_head_that_gives_nothing_is_partial() {
    let only_the_head = "
        open /kv/a.bin flags=O_RDONLY ret=4
        read /kv/a.bin ret=4096 bytes=4096
        read /kv/a.bin ret=0 bytes=0 want=2093084
        close /kv/a.bin ret=0
    ";
    assert_eq!(told(only_the_head), ["partial 4096/2097180 a.bin"]);
}

#[test]
fn a_mapped_file_is_read_with_unknown_bytes() {
    let script = "
        open /kv/a.bin flags=O_RDONLY ret=4
        read /kv/a.bin ret=8 bytes=8
        mmap /kv/a.bin ret=0 bytes=262250
        close /kv/a.bin ret=0
    ";
    let found = artifacts(script);
    assert_eq!((found.len(), found[0].bytes), (1, None));
}

#[test]
fn opens_without_a_close_are_one_read_while_they_are_close_in_time() {
    let script = "
        open /kv/a.bin flags=O_RDONLY ret=4
        open /kv/a.bin flags=O_RDONLY ret=5
        +5
        open /kv/a.bin flags=O_RDONLY ret=4
    ";
    assert_eq!(told(script), ["read a.bin", "read a.bin"]);
}

#[test]
fn a_first_absence_is_a_miss() {
    assert_eq!(told("open /kv/a.bin flags=O_RDONLY ret=-2"), ["missed a.bin"]);
}

#[test]
fn a_lookup_that_repeats_at_once_is_one_lookup() {
    let script = "
        stat /kv/a.bin ret=-2
        stat /kv/a.bin ret=-2
        +60
        stat /kv/a.bin ret=-2
        stat /kv/b.bin ret=0
        stat /kv/b.bin ret=0
    ";
    assert_eq!(told(script), ["missed a.bin", "missed a.bin", "found b.bin"]);
}

#[test]
fn what_was_written_here_and_not_removed_here_is_gone() {
    let script =
        format!("{WRITE_A}\n+10\nstat /kv/a.bin ret=-2\nstat /kv/a.bin ret=-2\n+10\nstat /kv/a.bin ret=-2");
    assert_eq!(told(&script), ["written 100 a.bin", "gone a.bin", "missed a.bin"]);
}

#[test]
fn what_was_removed_here_is_missed_and_not_gone() {
    let script = format!("{WRITE_A}\n+10\nunlink /kv/a.bin ret=0\nopen /kv/a.bin flags=O_RDONLY ret=-2");
    assert_eq!(told(&script), ["written 100 a.bin", "removed a.bin", "missed a.bin"]);
}

#[test]
fn an_unlink_of_what_another_removed_is_gone() {
    let script = format!("{WRITE_A}\n+10\nunlink /kv/a.bin ret=-2");
    assert_eq!(told(&script), ["written 100 a.bin", "gone a.bin"]);
}

#[test]
fn removals_behind_a_listing_clear_the_store() {
    let script = "
        readdir /kv ret=2736
        readdir /kv ret=0
        stat /kv/a.bin ret=0
        unlink /kv/a.bin ret=0
        stat /kv/x.tmp ret=0
        unlink /kv/x.tmp ret=0
        stat /kv/b.bin ret=0
        unlink /kv/b.bin ret=0
    ";
    assert_eq!(told(script), ["cleared a.bin", "cleared b.bin"]);
}

#[test]
fn removals_behind_a_lookup_that_missed_are_an_eviction_even_after_a_listing() {
    let script = "
        readdir /kv ret=2736
        stat /kv/a.bin ret=0
        stat /kv/b.bin ret=0
        stat /kv/c.bin ret=-2
        unlink /kv/a.bin ret=0
        unlink /kv/b.bin ret=0
    ";
    assert_eq!(told(script), ["missed c.bin", "removed a.bin", "removed b.bin"]);
}

#[test]
fn a_listing_explains_nothing_long_after_it() {
    assert_eq!(told("readdir /kv ret=0\n+60\nunlink /kv/a.bin ret=0"), ["removed a.bin"]);
}

#[test]
fn a_write_without_room_is_refused() {
    let script = "
        open /kv/a.bin flags=O_WRONLY|O_CREAT|O_TRUNC ret=4
        write /kv/a.bin ret=50 bytes=50 want=100
        write /kv/a.bin ret=-28 want=50
        close /kv/a.bin ret=0
        open /kv/b.bin flags=O_WRONLY|O_CREAT ret=-28
    ";
    assert_eq!(told(script), ["refused 50/100 a.bin", "refused b.bin"]);
}

#[test]
fn a_short_write_that_goes_on_is_written() {
    let script = "
        open /kv/a.bin flags=O_WRONLY|O_CREAT|O_TRUNC ret=4
        write /kv/a.bin ret=50 bytes=50 want=100
        write /kv/a.bin ret=-4
        write /kv/a.bin ret=50 bytes=50
        close /kv/a.bin ret=0
    ";
    assert_eq!(told(script), ["written 100 a.bin"]);
}

#[test]
fn the_file_system_names_the_store_and_without_it_the_node() {
    let found = artifacts("stat /kv/a.bin ret=0 fs=nfs4:h:/e\n stat /kv/b.bin ret=0");
    let stores: Vec<_> = found.into_iter().filter_map(|artifact| artifact.store).collect();
    assert_eq!(stores, ["file:nfs4:h:/e:/kv", "file:node-a:/kv"]);
}

#[test]
fn files_of_no_store_are_nothing() {
    let (found, counts) = read_all(
        "open /etc/passwd flags=O_RDONLY ret=3\n read /etc/passwd ret=9 bytes=9\n close /etc/passwd ret=0\n
         open /var/log/x flags=O_WRONLY|O_CREAT ret=3\n write /var/log/x ret=9 bytes=9\n close /var/log/x ret=0",
    );
    assert_eq!((found.len(), counts.records), (0, 6));
    assert!(counts.losses.is_empty());
}

#[test]
fn one_blob_with_a_digest_is_a_full_factor() {
    let digest = "a".repeat(64);
    let found =
        factors(&format!("open /models/blobs/{digest} flags=O_RDONLY ret=3\n read /models/x ret=8 bytes=8"));
    assert_eq!(found.len(), 1);
    assert_eq!(found[0].state, Some(FactorState::Full));
    assert_eq!(found[0].algorithm.as_deref(), Some("sha256"));
    assert_eq!(found[0].value.as_ref(), Some(&digest));
}

#[test]
fn several_blobs_are_a_set_and_provisional() {
    let script = format!(
        "open /models/blobs/{} flags=O_RDONLY ret=3\n open /models/blobs/{} flags=O_RDONLY ret=3",
        "a".repeat(64),
        "b".repeat(64)
    );
    let found = factors(&script);
    assert_eq!((found.len(), found[0].state.clone()), (1, Some(FactorState::Provisional)));
    assert_eq!(found[0].algorithm.as_deref(), Some("sha256-set"));
}

#[test]
fn a_commit_is_evidence_and_a_bare_path_is_unknown() {
    let found = factors("open /models/snapshots/c0ffee/model.safetensors flags=O_RDONLY ret=3");
    assert_eq!(
        (found[0].state.clone(), found[0].value.as_deref()),
        (Some(FactorState::Provisional), Some("c0ffee"))
    );
    let found = factors("open /models/cur/m flags=O_RDONLY ret=3\n open /models/cur/m flags=O_RDONLY ret=3");
    assert_eq!((found.len(), found[0].state.clone()), (1, Some(FactorState::Unknown)));
    assert_eq!((&found[0].algorithm, &found[0].value), (&None, &None));
}

#[test]
fn a_later_load_of_the_model_is_told_again() {
    let found =
        factors("open /models/cur/m flags=O_RDONLY ret=3\n+600\nopen /models/cur/m flags=O_RDONLY ret=3");
    assert_eq!(found.len(), 2);
}

#[test]
fn calls_on_a_connection_without_a_pause_are_one_transfer() {
    let script = "
        recv local=10.0.0.1:1 peer=10.0.0.2:2 ret=65541 bytes=65541
        send local=10.0.0.1:1 peer=10.0.0.2:2 ret=41 bytes=41
        recv local=10.0.0.1:1 peer=10.0.0.2:2 ret=-11
        recv local=10.0.0.1:1 peer=10.0.0.2:2 ret=35 bytes=35
        +2
        recv local=10.0.0.1:1 peer=10.0.0.2:2 ret=8197 bytes=8197
    ";
    let found = transfers(script);
    let bytes: Vec<_> = found.iter().map(|transfer| transfer.bytes_seen).collect();
    assert_eq!(bytes, [Some(65_576), Some(8197)]);
    assert!(found.iter().all(|transfer| transfer.visible == Some(true)));
    assert_eq!(found[0].direction.as_deref(), Some("receive"));
    let (all, _) = read_all(script);
    assert!(
        matches!(&all[0].body, Body::Transfer(transfer) if transfer.local.as_deref() == Some("10.0.0.1:1"))
    );
}

#[test]
fn control_traffic_is_no_transfer() {
    let (found, counts) =
        read_all("send local=a:1 peer=b:2 ret=42 bytes=42\n recv local=a:1 peer=b:2 ret=9 bytes=9");
    assert_eq!((found.len(), counts.control_bursts), (0, 1));
}

#[test]
fn a_permission_probe_of_ones_own_memory_is_no_transfer() {
    assert!(transfers("process_vm_writev peer_pid=7 ret=8 bytes=8").is_empty());
    let found = transfers("process_vm_readv peer_pid=9 ret=65536 bytes=65536");
    assert_eq!((found[0].peer.as_deref(), found[0].bytes_seen), (Some("pid:9"), Some(65_536)));
}

#[test]
fn a_bad_line_is_counted_and_the_next_one_read() {
    let mut found = Vec::new();
    let mut reader = KernelReader::new(source(), &Lab);
    let lines: [&[u8]; 5] = [
        b"{\"ts\":1,\"pid\":1,\"op\":\"open\",\"pa",
        b"{\"ts\":1,\"pid\":1,\"op\":\"futex\"}",
        b"[1]",
        b"  ",
        b"{\"ts\":1,\"pid\":1,\"op\":\"stat\",\"path\":\"/kv/a.bin\",\"ret\":0,\"new\":[1]}",
    ];
    for (index, line) in lines.iter().enumerate() {
        let place = Place { position: index as u64 + 1, offset: index as u64 };
        reader.line(place, line, &mut |observation| found.push(observation));
    }
    let counts = reader.finish(&mut |observation| found.push(observation));
    assert_eq!(found.len(), 1);
    assert_eq!(counts.losses.of("no JSON"), 1);
    assert_eq!(counts.losses.of("no kernel record"), 1);
    assert_eq!(counts.losses.of("unknown operation"), 1);
}

fn any_record() -> impl Strategy<Value = String> {
    let op = prop_oneof![
        Just("open"),
        Just("read"),
        Just("write"),
        Just("rename"),
        Just("unlink"),
        Just("stat"),
        Just("close"),
        Just("readdir"),
        Just("mmap"),
        Just("send"),
        Just("recv")
    ];
    let path =
        prop_oneof![Just("/kv"), Just("/kv/a.bin"), Just("/kv/b.bin"), Just("/kv/x.tmp"), Just("/models/m")];
    let flags = prop_oneof![Just("O_RDONLY"), Just("O_WRONLY|O_CREAT|O_TRUNC"), Just("O_RDWR")];
    let number = prop_oneof![Just(-28i64), Just(-2), Just(0), Just(7), any::<i64>()];
    (op, path.clone(), path, flags, number.clone(), number, any::<f64>()).prop_map(
        |(op, path, path2, flags, ret, want, ts)| {
            serde_json::json!({"ts": ts, "pid": ret % 3, "op": op, "path": path, "path2": path2, "flags": flags,
                "ret": ret, "bytes": ret, "want": want, "peer": path, "local": path2})
            .to_string()
        },
    )
}

proptest! {
    #[test]
    fn no_records_make_it_panic_and_every_observation_has_an_id_of_its_own(
        records in proptest::collection::vec(any_record(), 0..60)
    ) {
        let mut found = Vec::new();
        let mut reader = KernelReader::new(source(), &Lab);
        for (index, record) in records.iter().enumerate() {
            let place = Place { position: index as u64 + 1, offset: index as u64 };
            reader.line(place, record.as_bytes(), &mut |observation| found.push(observation));
        }
        reader.finish(&mut |observation| found.push(observation));
        let mut ids: Vec<_> = found.iter().map(|observation| observation.envelope.id).collect();
        ids.sort();
        ids.dedup();
        prop_assert_eq!(ids.len(), found.len());
    }

    #[test]
    fn no_bytes_make_it_panic(line in proptest::collection::vec(any::<u8>(), 0..80)) {
        let mut reader = KernelReader::new(source(), &Lab);
        reader.line(Place { position: 1, offset: 0 }, &line, &mut |_| {});
        reader.finish(&mut |_| {});
    }
}
