//! A line that repeats an earlier one is known by its bytes; what is told is what reading each line tells.

#[path = "support/log.rs"]
mod log;

use kvprov_agent::logs::LineCounts;
use kvprov_model::observation::{Body, Observation};
use kvprov_packs::Packs;
use proptest::prelude::*;
use std::fmt::Write as _;

/// Lines behind which none is looked at one by one.
const FIRST: usize = 80;

/// Messages, some behind a head at WARNING or of another process, with trailers, wrapped, or none that anybody knows.
const LINES: &[&str] = &[
    "(EngineCore pid=7) DEBUG 11-29 15:41:SS [v1/core/sched/scheduler.py:12] cmpl-a-0 is still in WAITING_FOR_REMOTE_KVS state.",
    "(EngineCore pid=7) DEBUG 11-29 15:41:SS [v1/core/sched/scheduler.py:12] cmpl-b-0 is still in WAITING_FOR_REMOTE_KVS state.",
    "(EngineCore pid=7) DEBUG 11-29 15:41:SS [v1/core/sched/scheduler.py:12] cmpl-a-0 is still in WAITING_FOR_REMOTE_KVS state.",
    "(EngineCore pid=7) DEBUG 11-29 15:41:SS [v1/core/sched/scheduler.py:12] cmpl-a-0 is still in WAITING_FOR_REMOTE_KVS state. [repeated 3x across cluster]",
    "(EngineCore pid=7) DEBUG 11-29 15:41:SS [v1/core/sched/scheduler.py:12] cmpl-a-0 is still in WAITING_FOR_REMOTE_KVS state.\r",
    "(EngineCore pid=7) WARNING 11-29 15:41:SS [v1/core/sched/scheduler.py:12] cmpl-a-0 is still in WAITING_FOR_REMOTE_KVS state.",
    "(EngineCore pid=8) DEBUG 11-29 15:41:SS [v1/core/sched/scheduler.py:12] cmpl-a-0 is still in WAITING_FOR_REMOTE_KVS state.",
    "DEBUG 11-29 15:41:SS [scheduler.py:12] cmpl-a-0 is still in WAITING_FOR_REMOTE_KVS state.",
    "cmpl-a-0 is still in WAITING_FOR_REMOTE_KVS state.",
    "pod-0 engine (EngineCore pid=7) DEBUG 11-29 15:41:SS [v1/core/sched/scheduler.py:12] cmpl-a-0 is still in WAITING_FOR_REMOTE_KVS state.",
    "2026-11-29T15:41:01.298476921Z stderr F (EngineCore pid=7) DEBUG 11-29 15:41:SS [v1/core/sched/scheduler.py:12] cmpl-a-0 is still in WAITING_FOR_REMOTE_KVS state.",
    "(EngineCore pid=7) INFO 11-29 15:41:SS [core.py:1] nothing of interest",
    "(EngineCore pid=7) ERROR 11-29 15:41:SS [base_worker.py:1] NIXL compatibility hash mismatch. Local: 46126a31",
    "INFO:     127.0.0.1:80 - \"POST /v1/completions HTTP/1.1\" 200 OK",
];

fn read(text: &str, chunk: usize, line_by_line: bool) -> (Vec<Observation>, LineCounts) {
    let reader = log::reader(Packs::builtin(), log::options_of("vllm"));
    let reader = if line_by_line { log::recording(reader) } else { reader };
    log::read(reader, text.as_bytes().chunks(chunk))
}

/// Picks of lines, each with the second in which it is said.
fn text(picks: &[(usize, u8)]) -> String {
    let mut text = "INFO 11-29 15:41:00 [core.py:1] nothing of interest\n".repeat(FIRST);
    for (line, second) in picks {
        let line = LINES[line % LINES.len()].replace("SS", &format!("{:02}", second % 3));
        _ = writeln!(text, "{line}");
    }
    text
}

proptest! {
    #[test]
    fn a_flood_tells_what_its_lines_tell_one_by_one(
        picks in proptest::collection::vec((0_usize..64, 0_u8..6), 1..120),
        chunk in 40_usize..4000,
    ) {
        let text = text(&picks);
        prop_assert_eq!(read(&text, chunk, false), read(&text, chunk, true));
    }
}

#[test]
fn of_statements_that_fold_each_counts_its_own_keys() {
    let line = |keys: usize| {
        format!(
            "(EngineCore pid=7) WARNING 11-29 15:41:01 [manager.py:1] Request 8: cannot store {keys} blocks\n"
        )
    };
    let text = line(1).repeat(999) + &line(1000);
    let refused = |text: &str| -> i64 {
        let (seen, _) = read(text, 4096, false);
        let keys = seen.iter().filter_map(|one| match &one.body {
            Body::Store(store) => Some(store.keys.unwrap_or(1) * store.times.unwrap_or(1)),
            _ => None,
        });
        keys.sum()
    };
    assert_eq!(refused(&text), 1999);
    assert_eq!(refused(&(line(1000) + &line(1).repeat(999))), 1999);
}

#[test]
fn a_thousand_equal_lines_of_one_second_are_counted_and_told_twice() {
    let text = text(&[(0, 1); 1000]);
    let (seen, counts) = read(&text, 4096, false);
    assert_eq!((counts.total, counts.matched), (1000 + FIRST as u64, 1000));
    let last = seen.last().map(|one| one.envelope.position);
    assert_eq!((seen.len(), last), (2, Some(1000 + FIRST as i64)), "{seen:?}");
    assert_eq!((seen, counts), read(&text, 4096, true));
}
