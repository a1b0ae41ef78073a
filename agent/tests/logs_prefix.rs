//! Every prefix of an engine behind every wrapper gives the same message, level, process, module and clock.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test fails by panicking")]

use kvprov_agent::logs::prefix::{Level, Line, peel, unwrap, without_colours};

fn read(line: &str) -> Line<'static> {
    let line = without_colours(line);
    let unwrapped = unwrap(&line);
    let peeled = peel(&unwrapped.payload, unwrapped.prefix);
    let message = peeled.message.into_owned().into();
    Line { prefix: peeled.prefix.into_owned(), message, object: peeled.object }
}

/// An engine's prefix, and what has to be read from it.
struct Grammar {
    prefix: &'static str,
    trailer: &'static str,
    level: Option<Level>,
    process: Option<(&'static str, u32)>,
    rank: Option<&'static str>,
    module: Option<&'static str>,
    /// Year, month and day, hour.
    clock: Option<(Option<i16>, (u8, u8), i64)>,
}

fn grammars() -> Vec<Grammar> {
    use Level::{Debug, Error, Info, Warning};
    let v1 = Some((None, (9, 24), 16));
    let full = |year| Some((Some(year), (9, 25), 0));
    let g = |prefix, level, process, rank, module, clock| Grammar {
        prefix,
        trailer: "",
        level,
        process,
        rank,
        module,
        clock,
    };
    let core = Some(("EngineCore_DP0", 271));
    vec![
        g(
            "(EngineCore_DP0 pid=271) INFO 09-24 16:35:21 [file.py:123] ",
            Some(Info),
            core,
            None,
            Some("file.py"),
            v1,
        ),
        g(
            "(APIServer pid=1) WARNING 09-24 16:35:21 [file.py:123] ",
            Some(Warning),
            Some(("APIServer", 1)),
            None,
            Some("file.py"),
            v1,
        ),
        g(
            "(Worker_TP1_EP1 pid=9) DEBUG 09-24 16:35:21 [a/.../b.py:1] ",
            Some(Debug),
            Some(("Worker_TP1_EP1", 9)),
            None,
            Some("a/.../b.py"),
            v1,
        ),
        g(
            "(Worker pid=57) (Worker_TP0 pid=57) ERROR 09-24 16:35:21 [x.py:4] ",
            Some(Error),
            Some(("Worker_TP0", 57)),
            None,
            Some("x.py"),
            v1,
        ),
        g(
            "(VllmWorker rank=3 pid=12) ERROR 09-24 16:35:21 [x.py:4] ",
            Some(Error),
            Some(("VllmWorker", 12)),
            Some("3"),
            Some("x.py"),
            v1,
        ),
        g(
            "(VllmWorker rank=4 engine_index=0 pid=31778)2025-09-25 00:59:57,675] LMCache ERROR:",
            Some(Error),
            Some(("VllmWorker", 31778)),
            Some("4"),
            Some("LMCache"),
            full(2025),
        ),
        g(
            "(EngineCore pid=271)ERROR 09-24 16:35:21 [x.py:4] ",
            Some(Error),
            Some(("EngineCore", 271)),
            None,
            Some("x.py"),
            v1,
        ),
        g("INFO 09-24 16:35:21 [async_llm.py:270] ", Some(Info), None, None, Some("async_llm.py"), v1),
        g("ERROR   09-24 16:35:21 [worker.py:3004] ", Some(Error), None, None, Some("worker.py"), v1),
        g(
            "ERROR 09-24 16:35:21 [distributed/.../v1/nixl_connector.py:820] ",
            Some(Error),
            None,
            None,
            Some("distributed/.../v1/nixl_connector.py"),
            v1,
        ),
        g("WARNING 09-24 16:35:21 scheduler.py:1484] ", Some(Warning), None, None, Some("scheduler.py"), v1),
        g("[2025-09-25 00:42:05,968] LMCache INFO: ", Some(Info), None, None, Some("LMCache"), full(2025)),
        g("LMCache WARNING: ", Some(Warning), None, None, Some("LMCache"), None),
        g(
            "(EngineCore_DP0 pid=271) [2025-09-25 00:42:05,968] LMCache ERROR: ",
            Some(Error),
            core,
            None,
            Some("LMCache"),
            full(2025),
        ),
        Grammar {
            trailer: " (cache_engine.py:177:lmcache.v1.cache_engine)",
            ..g(
                "[2025-09-25 00:42:05,968] LMCache INFO: ",
                Some(Info),
                None,
                None,
                Some("lmcache.v1.cache_engine"),
                full(2025),
            )
        },
        Grammar {
            trailer: " [2025-09-25 00:42:05,968] -- /opt/lmcache/cache_engine.py:409",
            ..g(
                "WARNING LMCache: ",
                Some(Warning),
                None,
                None,
                Some("/opt/lmcache/cache_engine.py"),
                full(2025),
            )
        },
        g("[2025-09-25 00:23:13 TP0] ", None, None, Some("TP0"), None, full(2025)),
        g("[2025-09-25 00:23:13] ", None, None, None, None, full(2025)),
        g("[2025-09-25 00:23:13 DP6 TP6 EP6] ", None, None, Some("DP6 TP6 EP6"), None, full(2025)),
        g("2025-09-25 00:23:13 TP0] ", None, None, Some("TP0"), None, full(2025)),
        g("[2025-09-25 00:23:13] INFO:     ", Some(Info), None, None, None, full(2025)),
        g("INFO:     ", Some(Info), None, None, None, None),
        g("(APIServer pid=1) INFO:     ", Some(Info), Some(("APIServer", 1)), None, None, None),
        g("(RayWorkerWrapper pid=999) ", None, Some(("RayWorkerWrapper", 999)), None, None, None),
        g("(RayWorkerWrapper pid=999) <4>", Some(Warning), Some(("RayWorkerWrapper", 999)), None, None, None),
        g(
            "(WorkerDict pid=25295, ip=192.0.2.41) WARNING 09-24 16:04:53 scheduler.py:1484] ",
            Some(Warning),
            Some(("WorkerDict", 25295)),
            None,
            Some("scheduler.py"),
            v1,
        ),
        g(
            "(ServeReplica:app:deployment pid=7) INFO 09-24 16:35:21 [x.py:4] ",
            Some(Info),
            Some(("ServeReplica:app:deployment", 7)),
            None,
            Some("x.py"),
            v1,
        ),
        g(
            "2025-09-25T00:49:50.256Z  WARN dynamo_llm::kv_router: ",
            Some(Warning),
            None,
            None,
            Some("dynamo_llm::kv_router"),
            full(2025),
        ),
        g(
            "0: \u{1b}[2m2025-09-25T00:47:38.880Z\u{1b}[0m \u{1b}[32m INFO\u{1b}[0m \u{1b}[2mengine.handle\u{1b}[0m\u{1b}[2m:\u{1b}[0m ",
            Some(Info),
            None,
            Some("0"),
            Some("engine.handle"),
            full(2025),
        ),
        g(
            "0: [2m2025-09-25T00:47:38.880Z[0m [32m INFO[0m [2mengine.handle[0m[2m:[0m ",
            Some(Info),
            None,
            Some("0"),
            Some("engine.handle"),
            full(2025),
        ),
        g(
            "2025-09-25T00:50:14.788089Z  INFO module.func: ",
            Some(Info),
            None,
            None,
            Some("module.func"),
            full(2025),
        ),
        g(
            "2025-09-25T00:50:14.788089Z  INFO http{id=1}:route: a::b: ",
            Some(Info),
            None,
            None,
            Some("a::b"),
            full(2025),
        ),
        g(
            "2025-09-25 00:22:52  INFO sglang_router_rs::server: src/server.rs:261: ",
            Some(Info),
            None,
            None,
            Some("sglang_router_rs::server"),
            full(2025),
        ),
        g(
            "I0925 00:44:26.698262  1822 rpc_service.cpp:41] ",
            Some(Info),
            None,
            None,
            Some("rpc_service.cpp"),
            Some((None, (9, 25), 0)),
        ),
        g(
            "I0925 00:44:26.698262 1822 rpc_service.cpp:41]",
            Some(Info),
            None,
            None,
            Some("rpc_service.cpp"),
            Some((None, (9, 25), 0)),
        ),
        g("E20250925 00:44:26.698262 1822 a_b.h:41] ", Some(Error), None, None, Some("a_b.h"), full(2025)),
        g(
            "2025-09-25 00:39:46 NIXL INFO    _api.py:361 ",
            Some(Info),
            None,
            None,
            Some("nixl/_api.py"),
            full(2025),
        ),
        g(
            "(EngineCore_DP0 pid=271) 2025-09-25 00:39:46 NIXL INFO    _api.py:361 ",
            Some(Info),
            core,
            None,
            Some("nixl/_api.py"),
            full(2025),
        ),
        g("W ucx_utils.cpp:590] ", Some(Warning), None, None, Some("ucx_utils.cpp"), None),
        g(
            "2025-09-25T00:39:46Z\tINFO\tscorer\tprefix/plugin.go:55\t",
            Some(Info),
            None,
            None,
            Some("prefix/plugin.go"),
            full(2025),
        ),
        g(
            "2025-09-25 00:39:46,123 - vllm.logger - WARNING - ",
            Some(Warning),
            None,
            None,
            Some("vllm.logger"),
            full(2025),
        ),
        g(
            "[P10] 2025-09-25 00:39:46 - deleter - WARNING - ",
            Some(Warning),
            None,
            Some("10"),
            Some("deleter"),
            full(2025),
        ),
        g("WARNING:nixl._api:", Some(Warning), None, None, Some("nixl._api"), None),
        g("[09/25/2025-00:20:17] [TRT-LLM] [RANK 2] [E] ", Some(Error), None, Some("2"), None, full(2025)),
        g("[09/25/2025-00:20:17] [TRT-LLM] [I] ", Some(Info), None, None, None, full(2025)),
        g("0: [09/25/2025-00:20:17] [TRT-LLM] [W] ", Some(Warning), None, Some("0"), None, full(2025)),
        g("[TensorRT-LLM][ERROR] ", Some(Error), None, None, None, None),
        g("[TensorRT-LLM][WARNING][3] ", Some(Warning), None, Some("3"), None, None),
        g("", None, None, None, None, None),
    ]
}

/// A text wrapper: what it puts before a line, and whether its clock is whole.
const WRAPPERS: &[(&str, bool)] = &[
    ("", false),
    ("2025-09-24T08:35:21.298476921Z stderr F ", true),
    ("[pod/x/container] ", false),
    ("[pod/x/container] 2025-09-24T08:35:21.298476921Z ", true),
    ("[pod/x/container] 2025-09-24T08:35:21.298476921Z stdout F ", true),
    ("2025-09-24T08:35:21.298476921Z ", true),
    ("2025-09-24T08:35:21+0000 node-a vllm[2281]: ", true),
    ("2025-09-24T08:35:21.123456+00:00 node-a vllm[2281]: ", true),
    ("Sep 24 08:35:21 node-a vllm[2281]: ", false),
    ("Sep  4 08:35:21.123456 node-a vllm[2281]: ", false),
    ("<14>Sep 24 08:35:21 node-a vllm[2281]: ", false),
    ("2025-09-24 08:35:21.386 | ", false),
    ("vllm-1  | ", false),
];

fn check(wrapped: &str, grammar: &Grammar, has_wrapper_clock: bool) {
    let line = read(wrapped);
    assert_eq!(line.message, MESSAGE, "message of {wrapped:?}");
    let prefix = &line.prefix;
    if let Some(level) = grammar.level {
        assert_eq!(prefix.level, Some(level), "level of {wrapped:?}");
    }
    let process = prefix.process.as_ref().map(|p| (&*p.name, p.pid.unwrap()));
    assert_eq!(process, grammar.process, "process of {wrapped:?}");
    assert_eq!(prefix.rank.as_deref(), grammar.rank, "rank of {wrapped:?}");
    assert_eq!(prefix.module.as_deref(), grammar.module, "module of {wrapped:?}");
    let clock = prefix.engine.map(|s| (s.year, s.month_day.unwrap(), s.second_of_day() / 3600));
    assert_eq!(clock, grammar.clock, "clock of {wrapped:?}");
    if has_wrapper_clock {
        assert!(prefix.wrapper.is_some_and(|stamp| stamp.is_zoned()), "wrapper clock of {wrapped:?}");
    }
}

const MESSAGE: &str = "Something (happened) to [request] cmpl-1-0: it's 3 of 4 | done.";

#[test]
fn every_engine_prefix_is_read_behind_every_text_wrapper() {
    for grammar in grammars() {
        for (wrapper, zoned) in WRAPPERS {
            check(&format!("{wrapper}{}{MESSAGE}{}", grammar.prefix, grammar.trailer), &grammar, *zoned);
        }
    }
}

#[test]
fn every_engine_prefix_is_read_behind_names_of_pods() {
    for grammar in grammars().iter().filter(|grammar| !grammar.prefix.is_empty()) {
        check(&format!("decode-0 sglang {}{MESSAGE}{}", grammar.prefix, grammar.trailer), grammar, false);
        check(&format!("decode-7c9-x2 {}{MESSAGE}{}", grammar.prefix, grammar.trailer), grammar, false);
    }
}

#[test]
fn every_engine_prefix_is_read_inside_docker_and_journald_json() {
    for grammar in grammars() {
        let line = format!("{}{MESSAGE}{}", grammar.prefix, grammar.trailer);
        let docker = serde_json::json!({"log": format!("{line}\r\n"), "stream": "stderr", "time": "2025-09-24T08:35:21.1Z"});
        check(&docker.to_string(), &grammar, true);
        check(&format!("[pod/x/container] {docker}"), &grammar, true);
        let journal =
            serde_json::json!({"MESSAGE": line, "__REALTIME_TIMESTAMP": "1758702921000000", "PRIORITY": "6"});
        check(&journal.to_string(), &grammar, true);
    }
}

#[test]
fn every_engine_prefix_is_read_behind_a_progress_bar() {
    for grammar in grammars().iter().filter(|grammar| !grammar.prefix.is_empty()) {
        let line = format!("{}{MESSAGE}{}", grammar.prefix, grammar.trailer);
        check(&format!("Loading:  50%|███ | 1/2 [00:01<00:01,  1.02s/it]\r{line}"), grammar, false);
        let bar = "Loading: 100%|██████| 2/2 [00:01<00:00,  1.02s/it]";
        check(&format!("{bar}{line}"), grammar, false);
        for (wrapper, zoned) in WRAPPERS {
            check(&format!("{wrapper}{bar}{line}"), grammar, *zoned);
        }
        for names in ["decode-7c9-x2", "decode-7c9-x2 sglang"] {
            let line = format!("{names} {bar}{line}");
            check(&line, grammar, false);
            assert_eq!(read(&line).prefix.pod.as_deref(), Some(names), "{line:?}");
        }
    }
}

#[test]
fn every_engine_prefix_is_read_out_of_a_frame_and_off_a_numbered_listing() {
    for grammar in grammars().iter().filter(|grammar| !grammar.prefix.is_empty()) {
        let line = format!("{}{MESSAGE}{}", grammar.prefix, grammar.trailer);
        check(&format!("│ {line}        │"), grammar, false);
        if grammar.rank.is_none() {
            check(&format!("   123\t{line}"), grammar, false);
        }
    }
}

#[test]
fn records_of_json_formatters_are_read_by_any_of_their_names() {
    let records = [
        r#"{"asctime": "2026-01-09 12:04:06,057", "levelname": "ERROR", "name": "a.b", "processName": "EngineCore", "process": 4711, "message": "MSG"}"#,
        r#"{"level": "error", "ts": "2026-01-09T12:04:06Z", "logger": "a.b", "msg": "MSG"}"#,
        r#"{"severity": "ERROR", "timestamp": 1767960246.5, "target": "a.b", "message": "MSG"}"#,
        r#"{"timestamp":"2026-01-09T12:04:06Z","level":"ERROR","fields":{"message":"MSG"},"target":"a.b"}"#,
        r#"2026-01-09T12:04:06.5Z stderr F {"level": "error", "time": "2026-01-09 12:04:06", "name": "a.b", "message": "MSG"}"#,
        r#"{"log":"{\"level\": \"error\", \"time\": \"2026-01-09 12:04:06\", \"name\": \"a.b\", \"message\": \"MSG\"}\n","stream":"stdout","time":"2026-01-09T12:04:06Z"}"#,
    ];
    for record in records {
        let line = read(&record.replace("MSG", MESSAGE));
        assert_eq!(line.message, MESSAGE, "{record}");
        assert_eq!(line.prefix.level, Some(Level::Error), "{record}");
        assert_eq!(line.prefix.module.as_deref(), Some("a.b"), "{record}");
        assert_eq!(line.prefix.engine.unwrap().month_day, Some((1, 9)), "{record}");
    }
}

#[test]
fn a_record_that_was_cut_is_read_as_far_as_it_goes() {
    let line = read(
        r#"{"asctime": "2026-01-09 12:04:06,057", "levelname": "ERROR", "name": "a.b", "message": "Failed to"#,
    );
    assert_eq!((line.message.as_ref(), line.prefix.level), ("Failed to", Some(Level::Error)));
}

#[test]
fn plain_fields_of_a_record_stand_behind_its_message() {
    let line = read(
        r#"{"level":"WARN","time":"2026-01-09T12:04:06Z","message":"size mismatch!","model_name":"m","n":64}"#,
    );
    assert_eq!(line.message, "size mismatch! model_name=m n=64");
}

#[test]
fn an_object_without_a_message_is_data() {
    let line = read(r#"{"t": 1795967062.45, "hop": "P", "rid": "r", "status": 200}"#);
    assert!(line.object.is_some() && line.message.is_empty());
}

#[test]
fn a_multiplier_of_ray_is_taken_off_and_counted() {
    let line = read(
        "(WorkerDict pid=5, ip=192.0.2.1) WARNING 04-14 20:06:19 scheduler.py:1484] preempted x=1 [repeated 15x across cluster]",
    );
    assert_eq!((line.message.as_ref(), line.prefix.repeated), ("preempted x=1", 15));
}

#[test]
fn what_is_no_prefix_stays_message() {
    for message in [
        "[AsyncOmni] reset_prefix_cache not yet supported with Orchestrator process",
        "[HASH_GENERATION] prefix_hash=-52, tokens_len=256",
        "LMCache hit tokens: 0, need to load: -16",
        "Eviction: Success/Attempts=0/649, AllocFail=12160, keys=0, size=0 B",
        "RuntimeError: NIXL compatibility hash mismatch.",
        "Local:  3fc700da... (GPU-T / FlashInfer / fp16)",
        "-435d-a116-e3e34a76ded3_dp0,received 96b1c4ff-9edf-4d21-b7cf-975a5f441d03_dp0.",
        "12 blocks were lost",
        "INFO about (things pid=x)",
        "(see pid=x) nothing",
        "[2, N, local_kv_heads*tp_ratio, page_size, head_dim] and same dtype.",
        "W is a letter",
        "",
    ] {
        let line = read(message);
        assert_eq!(line.message, message);
        assert!(!line.prefix.spoken, "{message}");
    }
}

#[test]
fn parts_of_a_split_line_are_told_with_their_stream() {
    let part = unwrap("2026-08-16T08:09:07.000000211Z stderr P WARNING 08-16 08:09:07 [w.py:1] Releasin");
    assert!(part.partial && part.stream == 1 && part.payload.ends_with("Releasin"));
    let docker = unwrap(r#"{"log":"first ","stream":"stdout","time":"2025-01-05T09:00:00.000731211Z"}"#);
    assert!(docker.partial && docker.stream == 0 && docker.payload == "first ");
}

#[test]
fn prefixes_without_end_are_read_in_bounded_depth() {
    for piece in [
        "0: ",
        "[rank0]: ",
        "[P1] ",
        "a-b ",
        "a-b c ",
        "<4>",
        "[pod/x/c] ",
        "(W pid=1) ",
        "[0m[",
        "{\"log\":",
        "x | ",
        "2025-05-05 10:00:00 ",
    ] {
        let _ = read(&piece.repeat(100_000));
    }
}

#[test]
fn no_text_makes_the_grammar_panic() {
    let mut seeds: Vec<String> = grammars().iter().map(|g| format!("{}é{}", g.prefix, g.trailer)).collect();
    seeds.extend(WRAPPERS.iter().map(|(w, _)| format!("{w}(ünïcode pid=1) [")));
    for seed in seeds {
        for (at, _) in seed.char_indices() {
            let _ = read(&seed[at..]);
            let _ = read(&seed[..at]);
            let _ = read(&format!("{}é{}", &seed[..at], &seed[at..]));
        }
    }
}

#[test]
fn a_line_that_a_store_of_logs_exported_is_read_with_the_time_it_was_taken() {
    let inner = format!("(EngineCore_DP0 pid=271) INFO 09-25 00:42:05 [async_llm.py:270] {MESSAGE}");
    let inner = serde_json::Value::String(inner);
    for exported in [
        format!(
            r#"{{"insertId":"a","textPayload":{inner},"timestamp":"2025-09-25T00:42:06Z","severity":"INFO"}}"#
        ),
        format!(r#"{{"jsonPayload":{{"message":{inner}}},"timestamp":"2025-09-25T00:42:06Z"}}"#),
        format!(
            r#"{{"_index":"logs","_source":{{"@timestamp":"2025-09-25T00:42:06.000Z","message":{inner}}}}}"#
        ),
        format!(
            r#"{{"labels":{{"app":"vllm"}},"line":{inner},"timestamp":"2025-09-25T00:42:06.000000001Z"}}"#
        ),
    ] {
        let line = read(&exported);
        assert_eq!(line.message, MESSAGE, "message of {exported}");
        assert_eq!(line.prefix.module.as_deref(), Some("async_llm.py"), "module of {exported}");
        assert!(line.prefix.wrapper.is_some_and(|stamp| stamp.is_zoned()), "clock of {exported}");
    }
}
