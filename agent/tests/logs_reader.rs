//! From bytes to observations, with a small pack of this test's own.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test fails by panicking")]

#[path = "support/log.rs"]
mod log;

use kvprov_agent::logs::{LineCounts, LogReader, MAX_LINE};
use kvprov_model::observation::{Body, Observation};
use kvprov_packs::Packs;
use std::sync::LazyLock;

const PACK: &str = r#"
engine = "vllm"

[[template]]
id = "vllm-t-failure"
text = "Quux pull failed for request {request_id:id} from {remote_engine_id:id}"
kind = "transfer"
set = { outcome = "failed", cause = "handshake_failed" }
takes_cause = true
example = "Quux pull failed for request r1 from e1"
source = "test"

[[template]]
id = "vllm-t-cause"
text = "Frobnitz mismatch. Expected {remote_engine_id:id},received {answered_engine_id:id}."
kind = "handshake"
set = { outcome = "failed", cause = "engine_id_mismatch" }
explains = true
multiline = true
example = "Frobnitz mismatch. Expected a,received b."
source = "test"

[[template]]
id = "vllm-t-lone"
text = "Frobnitz collapsed alone with {remote_engine_id:id}"
kind = "handshake"
set = { outcome = "failed", cause = "layout_mismatch" }
explains = true
alone = true
example = "Frobnitz collapsed alone with e1"
source = "test"

[[template]]
id = "vllm-t-lease"
text = "Releasing grault for request {request_id:id} which were retrieved by {readers:int} workers."
kind = "lease"
set = { state = "expired" }
multiline = true
example = "Releasing grault for request r1 which were retrieved by 0 workers."
source = "test"

[[template]]
id = "vllm-t-waiting"
text = "{request_id:id} is still in WAITING_FOR_GARPLY state."
kind = "transfer"
set = { outcome = "waiting" }
folds = true
example = "r1 is still in WAITING_FOR_GARPLY state."
source = "test"

[[template]]
id = "vllm-t-recompute"
text = "Recovered waldo: {tokens:int} tokens"
kind = "kv_load"
set = { consequence = "recomputed" }
implies = { load_failure_policy = "recompute" }
example = "Recovered waldo: 5 tokens"
source = "test"

[[template]]
id = "vllm-t-prompt"
text = "Received plugh {request_id:id}: prompt: {_:text}, params: {_:text}"
kind = "request_leg"
example = "Received plugh r1: prompt: 'x', params: y"
source = "test"

[[template]]
id = "vllm-t-update"
text = "Reloading corge took {_:int} seconds"
kind = "admin_call"
set = { class = "weights_update" }
example = "Reloading corge took 1 seconds"
source = "test"

[[template]]
id = "vllm-t-reset"
text = "Successfully emptied corge"
kind = "admin_call"
set = { class = "cache_reset", outcome = "succeeded" }
example = "Successfully emptied corge"
source = "test"

[[template]]
id = "vllm-t-answered"
text = "\"POST /v1/grault HTTP/1.1\" 200"
kind = "none"
answers = true
example = "\"POST /v1/grault HTTP/1.1\" 200 OK"
source = "test"

[[json]]
id = "vllm-t-hop"
kind = "request_leg"
present = ["hop"]
attributes = { request_id = "rid" }
time = "t"
example = '{"t": 1795967062.5, "hop": "P", "rid": "r1"}'
"#;

static PACKS: LazyLock<Packs> = LazyLock::new(|| Packs::from_texts(&[("vllm/test.toml", PACK)]).unwrap());

fn reader() -> LogReader<'static> {
    log::reader(&PACKS, log::options_of("vllm"))
}

fn read_in(chunks: &[&[u8]]) -> (Vec<Observation>, LineCounts) {
    let (seen, counts) = log::read(reader(), chunks.iter().copied());
    assert_eq!(counts.matched + counts.ignored + counts.unparsed, counts.total, "{counts:?}");
    (seen, counts)
}

fn read(text: &str) -> Vec<Observation> {
    read_in(&[text.as_bytes()]).0
}

fn wall(observation: &Observation) -> String {
    observation.envelope.wall.map_or_else(|| "-".to_owned(), |wall| wall.to_rfc3339())
}

fn kinds(seen: &[Observation]) -> Vec<(&str, i64)> {
    seen.iter().map(|one| (one.body.kind(), one.envelope.position)).collect()
}

/// A log with something of everything.
const EVERYTHING: &str = "\
access line without clock
Recovered waldo: 7 tokens
(EngineCore pid=7) INFO 12-31 23:59:58 [core.py:1] nothing of interest
(EngineCore pid=7) ERROR 12-31 23:59:59 [nixl_connector.py:815] RuntimeError: Frobnitz mismatch. Expected 46126a31
-435d,received 96b1.
(EngineCore pid=7) ERROR 12-31 23:59:59 [nixl_connector.py:827] Quux pull failed for request r1 from e1
WARNING 01-01 00:00:01 [worker.py:29] Releasing grault for request
        8f07-657 which were retrieved by 0 workers.
DEBUG 01-01 00:00:02 [s.py:1] r2 is still in WAITING_FOR_GARPLY state.
DEBUG 01-01 00:00:02 [s.py:1] r2 is still in WAITING_FOR_GARPLY state.
\u{fffd}invalid Recovered waldo: 1 tokens
ERROR 01-01 00:00:03 [kv_transfer/x.py:3] something 12 nobody knows
ERROR 01-01 00:00:03 [kv_transfer/x.py:3]   a traceback
Loading: 50%|#| 1/2 [00:01<00:01,  1.02s/it]\rINFO 01-01 00:00:04 [x.py:1] Recovered waldo: 2 tokens
{\"t\": 1795967062.5, \"hop\": \"P\", \"rid\": \"r9\"}
{\"levelname\": \"INFO\", \"asctime\": \"2026-01-09 12:04:06,057\", \"name\": \"x\", \"message\": \"Recovered waldo: 3 tokens\"}
2026-01-10T00:00:00.5Z stderr P INFO 01-10 00:00:00 [x.py:1] Recovered wal
2026-01-10T00:00:00.6Z stderr F do: 4 tokens
last Recovered waldo: 5 tokens";

#[test]
fn any_cutting_into_chunks_gives_the_same() {
    let bytes = EVERYTHING.as_bytes();
    let whole = read_in(&[bytes]);
    assert!(whole.0.len() >= 12, "{:?}", kinds(&whole.0));
    for at in 0..bytes.len() {
        let (head, tail) = bytes.split_at(at);
        assert_eq!(read_in(&[head, tail]), whole, "cut at {at}");
    }
    let single: Vec<&[u8]> = bytes.chunks(1).collect();
    assert_eq!(read_in(&single), whole);
    let lines: Vec<&[u8]> = bytes.split_inclusive(|byte| *byte == b'\n').collect();
    assert_eq!(read_in(&lines), whole);
}

#[test]
fn chunks_give_the_same_behind_many_lines_that_do_not_matter() {
    // Far behind the lines that are looked at one by one.
    let mut text = "INFO 05-05 10:00:00 [x.py:1] nothing at all\n".repeat(100);
    text.push_str("no clock here\nstill none\n");
    text.push_str(EVERYTHING);
    let bytes = text.as_bytes();
    let whole = read_in(&[bytes]);
    for size in [1, 7, 44, 1000, 4500] {
        let chunks: Vec<&[u8]> = bytes.chunks(size).collect();
        assert_eq!(read_in(&chunks), whole, "chunks of {size}");
    }
}

#[test]
fn ids_differ_by_place_and_repeat_for_the_same_place() {
    let seen = read(EVERYTHING);
    let mut ids: Vec<_> = seen.iter().map(|one| one.envelope.id).collect();
    ids.sort_unstable();
    ids.dedup();
    assert_eq!(ids.len(), seen.len());
}

#[test]
fn a_wrapped_id_is_joined() {
    let seen = read(
        "ERROR 10-16 17:22:56 [n.py:8] Releasing grault for request 46126a31-6b81\n-435d which were retrieved by 0 workers.\n",
    );
    let Body::Lease(lease) = &seen[0].body else { panic!("{seen:?}") };
    assert_eq!(lease.request_id.as_deref(), Some("46126a31-6b81-435d"));
    assert_eq!((seen.len(), seen[0].envelope.position), (1, 1));
}

#[test]
fn an_id_that_a_terminal_broke_is_joined_whatever_the_template() {
    let broken = "ERROR 10-16 17:22:56 [n.py:8] Quux pull failed for request cmpl-46126a31\n-6b81 from e1\n";
    let at_its_end = "ERROR 10-16 17:22:56 [n.py:8] Quux pull failed for request r1 from 46126a31\n-6b81\n";
    let expected = [("cmpl-46126a31-6b81", "e1"), ("r1", "46126a31-6b81")];
    for (text, (request, engine)) in [broken, at_its_end].into_iter().zip(expected) {
        let seen = read(text);
        let Body::Transfer(transfer) = &seen[0].body else { panic!("{seen:?}") };
        assert_eq!(transfer.request_id.as_deref(), Some(request), "{text}");
        assert_eq!(transfer.remote_engine_id.as_deref(), Some(engine), "{text}");
        assert_eq!(seen.len(), 1, "{seen:?}");
    }
}

#[test]
fn a_bare_line_behind_a_message_that_ends_in_an_id_is_no_part_of_it() {
    for next in ["Recovered waldo: 7 tokens", "some words 12", "~~~~^^^^", "nothing", ""] {
        let seen =
            read(&format!("ERROR 10-16 17:22:56 [n.py:8] Quux pull failed for request r1 from e1\n{next}\n"));
        let Body::Transfer(transfer) = &seen[0].body else { panic!("{seen:?}") };
        assert_eq!(transfer.remote_engine_id.as_deref(), Some("e1"), "{next}");
    }
}

#[test]
fn a_message_that_was_wrapped_before_what_told_it_is_joined() {
    let text = format!(
        "{}ERROR 10-16 17:22:56 [n.py:8] Releasing\n   grault for request r1\n   which were retrieved by 0 workers.\n",
        "x\n".repeat(80)
    );
    let (seen, counts) = read_in(&[text.as_bytes()]);
    let Body::Lease(lease) = &seen[0].body else { panic!("{seen:?}") };
    assert_eq!((lease.request_id.as_deref(), lease.readers), (Some("r1"), Some(0)));
    assert_eq!((counts.matched, seen[0].envelope.position), (3, 81));
}

#[test]
fn parts_of_a_split_line_are_joined_by_stream() {
    let seen = read(
        "2026-08-16T08:09:07.1Z stderr P INFO 08-16 08:09:07 [w.py:2] Recovered wal\n\
         2026-08-16T08:09:07.2Z stdout F unrelated\n\
         2026-08-16T08:09:07.3Z stderr F do: 12 tokens\n",
    );
    assert_eq!(kinds(&seen), [("kv_load", 1), ("worker", 1)]);
    assert_eq!(wall(&seen[0]), "2026-08-16T08:09:07.100Z");
    let docker = read(
        "{\"log\":\"INFO 04-14 20:04:53 [w.py:2] Recovered wal\",\"stream\":\"stderr\",\"time\":\"2026-04-14T20:04:53.1Z\"}\n\
         {\"log\":\"do: 12 tokens\\r\\n\",\"stream\":\"stderr\",\"time\":\"2026-04-14T20:04:53.2Z\"}\n",
    );
    assert_eq!(kinds(&docker), [("kv_load", 1), ("worker", 1)]);
}

#[test]
fn a_cause_further_down_the_traceback_becomes_a_handshake_of_the_failed_request() {
    let prefix = "(Worker pid=2) ERROR 11-29 15:55:20 [base_worker.py:1354]";
    let seen = read(&format!(
        "{prefix} Quux pull failed for request r1 from e1\n{prefix} Traceback (most recent call last):\n\
         {prefix}   File \"x\"\n{prefix} RuntimeError: Frobnitz mismatch. Expected e1,received e2.\n"
    ));
    assert_eq!(kinds(&seen), [("transfer", 1), ("handshake", 4)]);
    let Body::Handshake(handshake) = &seen[1].body else { panic!("{seen:?}") };
    assert_eq!(handshake.request_ids, ["r1"]);
    assert_eq!(handshake.cause.as_ref().map(|c| c.as_str()), Some("engine_id_mismatch"));
    assert_eq!(handshake.answered_engine_id.as_deref(), Some("e2"));
}

#[test]
fn a_cause_before_the_failure_is_set_on_it_and_on_no_other() {
    let seen = read(
        "(W pid=2) ERROR 11-29 15:55:20 [n.py:815] RuntimeError: Frobnitz mismatch. Expected e1,received e2.\n\
         (W pid=2) ERROR 11-29 15:55:20 [n.py:827] Quux pull failed for request r1 from e1\n\
         (W pid=2) ERROR 11-29 15:55:20 [n.py:827] Quux pull failed for request r2 from e9\n",
    );
    let causes: Vec<_> = seen
        .iter()
        .map(|one| match &one.body {
            Body::Transfer(transfer) => transfer.cause.as_ref().map(|c| c.as_str().to_owned()).unwrap(),
            other => panic!("{other:?}"),
        })
        .collect();
    assert_eq!(causes, ["engine_id_mismatch", "handshake_failed"]);
}

#[test]
fn a_cause_of_another_process_or_of_long_ago_explains_nothing() {
    let cause = "RuntimeError: Frobnitz mismatch. Expected e1,received e2.";
    let failure = "Quux pull failed for request r1 from e1";
    for text in [
        format!(
            "(A pid=1) ERROR 11-29 15:55:20 [n.py:8] {cause}\n(B pid=2) ERROR 11-29 15:55:20 [n.py:9] {failure}\n"
        ),
        format!(
            "(A pid=1) ERROR 11-29 15:55:20 [n.py:8] {cause}\n(A pid=1) ERROR 11-29 15:55:40 [n.py:9] {failure}\n"
        ),
        format!(
            "(A pid=1) ERROR 11-29 15:55:20 [n.py:8] {cause}\n{}(A pid=1) ERROR 11-29 15:55:20 [n.py:9] {failure}\n",
            "noise\n".repeat(61)
        ),
    ] {
        let seen = read(&text);
        assert_eq!(seen.len(), 1, "{seen:?}");
        let Body::Transfer(transfer) = &seen[0].body else { panic!("{seen:?}") };
        assert_eq!(transfer.cause.as_ref().map(|c| c.as_str()), Some("handshake_failed"));
    }
}

#[test]
fn a_cause_without_a_failure_is_told_only_where_it_states_one_alone() {
    assert!(read("ERROR 11-29 15:55:20 [n.py:8] Frobnitz mismatch. Expected e1,received e2.\n").is_empty());
    assert_eq!(
        kinds(&read("ERROR 11-29 15:55:20 [n.py:8] Frobnitz collapsed alone with e1\n")),
        [("handshake", 1)]
    );
}

#[test]
fn statements_by_the_thousand_fold_and_keep_their_span() {
    let line = |minute: u32, second: u32| {
        format!("DEBUG 10-09 19:{minute:02}:{second:02} [s.py:3] r1 is still in WAITING_FOR_GARPLY state.\n")
    };
    let text: String = (0..3).flat_map(|minute| (0..60).map(move |second| line(minute, second))).collect();
    let seen = read(&text);
    let times: Vec<_> = seen
        .iter()
        .map(|one| match &one.body {
            Body::Transfer(transfer) => transfer.times.unwrap_or(1),
            other => panic!("{other:?}"),
        })
        .collect();
    assert_eq!(times.iter().sum::<i64>(), 180);
    assert_eq!(seen.len(), 4);
    assert_eq!(
        (wall(&seen[0]).as_str(), wall(&seen[3]).as_str()),
        ("2026-10-09T19:00:00.000Z", "2026-10-09T19:02:59.000Z")
    );
}

#[test]
fn a_multiplier_of_ray_counts() {
    let seen = read(
        "(W pid=1) DEBUG 10-09 19:47:51 [s.py:3] r1 is still in WAITING_FOR_GARPLY state. [repeated 15x across cluster]\n",
    );
    let Body::Transfer(transfer) = &seen[0].body else { panic!("{seen:?}") };
    assert_eq!(transfer.times, Some(15));
}

#[test]
fn a_line_without_a_clock_has_that_of_the_nearest_line_above() {
    let seen = read(&format!(
        "{}INFO 05-05 10:00:07 [x.py:1] nothing\nno clock\nRecovered waldo: 7 tokens\n",
        "INFO 05-05 10:00:00 [x.py:1] nothing\n".repeat(100)
    ));
    assert_eq!(wall(&seen[0]), "2026-05-05T10:00:07.000Z");
}

#[test]
fn a_first_line_without_a_clock_was_said_just_before_the_first_that_has_one() {
    let seen = read("Recovered waldo: 7 tokens\nnoise\nINFO 05-05 10:00:07 [x.py:1] nothing\n");
    assert_eq!(wall(&seen[0]), "2026-05-05T10:00:07.000Z");
}

#[test]
fn a_log_without_any_clock_is_undated() {
    let seen =
        read(&format!("Recovered waldo: 7 tokens\n{}Recovered waldo: 8 tokens\n", "noise\n".repeat(300)));
    assert_eq!(seen.iter().map(wall).collect::<Vec<_>>(), ["-", "-", "-"]);
}

#[test]
fn what_a_wording_proves_is_told_once() {
    let seen = read(&"INFO 05-05 10:00:07 [x.py:1] Recovered waldo: 7 tokens\n".repeat(5));
    let workers: Vec<_> = seen.iter().filter(|one| one.body.kind() == "worker").collect();
    assert_eq!((workers.len(), seen.len()), (1, 6));
    let Body::Worker(worker) = &workers[0].body else { panic!() };
    assert_eq!(worker.facts.get("load_failure_policy").map(String::as_str), Some("recompute"));
}

#[test]
fn an_unknown_warning_of_a_kv_module_is_a_trouble_without_its_words() {
    let (seen, counts) = read_in(&["\
        WARNING 05-05 10:00:07 [kv_connector/base.py:1] canary 17 is lost\n\
        WARNING 05-05 10:00:08 [kv_connector/base.py:1] canary 18 is lost\n\
        WARNING 05-05 10:00:08 [frontend.py:1] canary of another module\n\
        [2025-09-25 00:42:05,968] LMCache WARNING: canary (a.py:1:lmcache.v1.b)\n\
        W0925 00:44:26.698262  1822 mooncake_x.cpp:41] canary\n\
        I0925 00:44:26.698262  1822 mooncake_x.cpp:41] fine\n"
        .as_bytes()]);
    assert_eq!((counts.unparsed, counts.ignored), (4, 2));
    let times: Vec<_> = seen
        .iter()
        .map(|one| match &one.body {
            Body::Trouble(trouble) => (trouble.module.clone().unwrap(), trouble.times),
            other => panic!("{other:?}"),
        })
        .collect();
    let module = |name: &str| name.to_owned();
    assert_eq!(
        times,
        [
            (module("kv_connector/base.py"), Some(1)),
            (module("lmcache.v1.b"), Some(1)),
            (module("mooncake_x.cpp"), Some(1)),
            (module("kv_connector/base.py"), Some(1)),
        ]
    );
    assert!(!format!("{seen:?}").contains("canary"));
}

#[test]
fn lines_of_a_traceback_are_no_troubles_of_their_own() {
    let prefix = "(W pid=1) ERROR 05-05 10:00:07 [nixl/worker.py:5]";
    let (seen, counts) = read_in(&[format!(
        "{prefix} unheard of\n{prefix} Traceback (most recent call last):\n{prefix}   File \"x\"\n{prefix}     ^^^^\n{prefix} zmq.Again: gone\n"
    )
    .as_bytes()]);
    assert_eq!((seen.len(), counts.unparsed), (1, 1));
}

#[test]
fn troubles_are_bounded() {
    let text: String = (0..1000u32)
        .map(|n| {
            let word: String = n.to_string().bytes().map(|digit| char::from(digit + 49)).collect();
            format!("ERROR 05-05 10:00:07 [nixl/worker.py:5{n}] {word} is lost\n")
        })
        .collect();
    let (seen, counts) = read_in(&[text.as_bytes()]);
    assert_eq!((seen.len(), counts.troubles_dropped, counts.unparsed), (200, 800, 1000));
}

#[test]
fn nothing_that_a_client_wrote_is_kept() {
    for wrapper in ["", "2026-01-10T00:00:00.5Z stderr F ", "[pod/x/c] "] {
        let seen = read(&format!(
            "{wrapper}INFO 05-05 10:00:07 [x.py:1] Received plugh r1: prompt: 'my canary secret', params: canary\n"
        ));
        assert_eq!(seen.len(), 1);
        assert!(!format!("{seen:?}").contains("canary"), "{seen:?}");
    }
    let json = serde_json::json!({"levelname": "ERROR", "name": "nixl", "asctime": "2026-01-09 12:04:06,057",
        "prompt": "canary", "message": "canary said the client"});
    assert!(!format!("{:?}", read(&json.to_string())).contains("canary"));
}

#[test]
fn of_an_endless_line_only_the_head_is_kept() {
    let mut reader = reader();
    let mut seen = Vec::new();
    let mut sink = |observation: Observation| seen.push(observation);
    reader.push(b"Recovered waldo: 7 tokens ", &mut sink);
    for _ in 0..50 {
        reader.push(&vec![b'x'; MAX_LINE], &mut sink);
    }
    reader.push(b" Recovered waldo: 8 tokens\nRecovered waldo: 9 tokens\n", &mut sink);
    reader.finish(&mut sink);
    let tokens: Vec<_> = seen
        .iter()
        .filter_map(|one| match &one.body {
            Body::KvLoad(load) => load.tokens,
            _ => None,
        })
        .collect();
    assert_eq!(tokens, [7, 9]);
    assert_eq!((reader.counts().too_long, reader.counts().total), (1, 2));
}

#[test]
fn what_is_no_text_is_counted() {
    let (seen, counts) = read_in(&[b"a\0b Recovered waldo: 7 tokens\nRecovered waldo: 8 tokens \xff\n"]);
    assert_eq!((counts.unparsed, counts.not_utf8, counts.matched), (1, 1, 1));
    assert_eq!(seen[0].envelope.position, 2);
}

#[test]
fn a_journal_entry_of_several_lines_is_read_line_by_line() {
    let entry = serde_json::json!({"__REALTIME_TIMESTAMP": "1758702921000000",
        "MESSAGE": "(W pid=2) ERROR 11-29 15:55:20 [n.py:8] Quux pull failed for request r1 from e1\nRecovered waldo: 9 tokens"});
    let seen = read(&entry.to_string());
    assert_eq!(kinds(&seen), [("transfer", 1), ("kv_load", 1), ("worker", 1)]);
}

#[test]
fn objects_among_plain_lines_are_read_wherever_they_stand() {
    let hop = "{\"t\": 1795967062.5, \"hop\": \"P\", \"rid\": \"r9\"}\n";
    let noise = "INFO 05-05 10:00:00 [x.py:1] nothing\n".repeat(700);
    let seen = read(&format!("{noise}{hop}{noise}{hop}{hop}"));
    assert_eq!(kinds(&seen), [("request_leg", 701), ("request_leg", 1402), ("request_leg", 1403)]);
}

#[test]
fn the_error_in_an_engines_answer_is_read_as_its_message() {
    let answer = serde_json::json!({"text": "", "meta_info": {"id": "r1", "finish_reason":
        {"type": "abort", "message": "Quux pull failed for request r1 from e1", "status_code": 500}}});
    assert_eq!(kinds(&read(&format!("{answer}\n"))), [("transfer", 1)]);
    let fine =
        serde_json::json!({"text": "Quux pull failed for request r1 from e1", "meta_info": {"id": "r1"}});
    assert_eq!(kinds(&read(&format!("{fine}\n"))), []);
}

#[test]
fn a_router_hop_is_read_from_its_object() {
    let seen = read("{\"t\": 1795967062.5, \"hop\": \"P\", \"rid\": \"r9\"}\n");
    assert_eq!(
        (kinds(&seen), wall(&seen[0]).as_str()),
        (vec![("request_leg", 1)], "2026-11-29T15:44:22.500Z")
    );
}

proptest::proptest! {
    #[test]
    fn no_bytes_make_the_reader_panic_or_lose_a_line(bytes in proptest::collection::vec(proptest::prelude::any::<u8>(), 0..600), size in 1usize..64) {
        let chunks: Vec<&[u8]> = bytes.chunks(size).collect();
        let (seen, counts) = read_in(&chunks);
        proptest::prop_assert_eq!((seen, counts), read_in(&[&bytes]));
        let lines = bytes.iter().filter(|byte| **byte == b'\n').count() + usize::from(bytes.last().is_some_and(|last| *last != b'\n'));
        proptest::prop_assert_eq!(counts.total, lines as u64);
    }

    #[test]
    fn pieces_of_logs_in_any_order_are_cut_anywhere(picks in proptest::collection::vec(0usize..19, 1..30), size in 1usize..300) {
        let lines: Vec<&str> = EVERYTHING.lines().collect();
        let text: String = picks.iter().map(|pick| format!("{}\n", lines[*pick % lines.len()])).collect();
        let chunks: Vec<&[u8]> = text.as_bytes().chunks(size).collect();
        proptest::prop_assert_eq!(read_in(&chunks), read_in(&[text.as_bytes()]));
    }
}

/// Lines of an access log.
fn answers(count: usize) -> String {
    "INFO:     192.0.2.9:1 - \"POST /v1/grault HTTP/1.1\" 200 OK\n".repeat(count)
}

#[test]
fn answers_are_told_behind_a_change_of_the_model_only_and_few_of_them() {
    let change = "INFO 05-05 10:00:00 [x.py:1] Reloading corge took 1 seconds\n";
    let told = |text: &str| {
        read(text)
            .iter()
            .filter(|one| matches!(&one.body, Body::RequestLeg(leg) if leg.status == Some(200)))
            .count()
    };
    assert_eq!(told(&answers(50)), 0);
    assert_eq!(told(&format!("{}{change}{}", answers(50), answers(2))), 2);
    assert_eq!(told(&format!("{change}{}", answers(5_000))), 16);
}

#[test]
fn answers_behind_a_reset_of_the_cache_are_not_told() {
    let text = format!(
        "INFO 05-05 10:00:00 [x.py:1] Reloading corge took 1 seconds\n\
         INFO 05-05 10:00:01 [x.py:1] Successfully emptied corge\n{}",
        answers(3)
    );
    assert!(read(&text).iter().all(|one| !matches!(one.body, Body::RequestLeg(_))));
}
