//! What the matcher promises, over small packs of its own.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test may stop at a broken premise")]

use kvprov_model::finding::Cause;
use kvprov_model::observation::{Body, Outcome};
use kvprov_packs::{Matcher, Packs, Room, Speaker, Version};
use proptest::prelude::*;
use std::sync::OnceLock;

const PACK: &str = r#"
engine = "vllm"

[[template]]
id = "vllm-failed"
text = "Quux transfer failed for request {request_id:id}. Marking {blocks:int} blocks as invalid."
kind = "transfer"
set = { outcome = "failed", cause = "transfer_failed" }
ignore_if = { blocks = "0" }
takes_cause = true
multiline = true
example = "Quux transfer failed for request cmpl-1. Marking 3 blocks as invalid."
source = "test"

[[template]]
id = "vllm-context"
text = "Quux_failure: {failure:word} | Context: {_:pydict}"
kind = "transfer"
keys = { request_id = "request_id", remote_host = "_host", remote_port = "_port", rids = "request_ids" }
compose = { peer = "{_host}:{_port}" }
multiline = true
example = "Quux_failure: setup | Context: {'request_id': 'cmpl-1', 'remote_host': 'h', 'remote_port': 5}"
source = "test"

[[template]]
id = "vllm-asked"
text = "Quux_asked {request_id:id}: {_:text}adapter: Name('{adapter:id}'"
kind = "request_leg"
user_text = true
example = "Quux_asked r1: prompt: 'x', adapter: Name('sql')"
source = "test"

[[template]]
id = "vllm-asked-base"
text = "Quux_asked {request_id:id}: {_:text}adapter: None"
kind = "request_leg"
user_text = true
example = "Quux_asked r1: prompt: 'x', adapter: None"
source = "test"

[[template]]
id = "vllm-mismatch"
text = "Remote Quux engine mismatch. Expected {remote_engine_id:id},received {answered_engine_id:id}."
kind = "handshake"
explains = true
multiline = true
example = "Remote Quux engine mismatch. Expected a,received b."
source = "test"

[[template]]
id = "vllm-old"
text = "Quux lease of {request_id:id} ended"
until = "0.5"
kind = "lease"
set = { state = "expired" }
example = "Quux lease of r1 ended"
source = "test"

[[template]]
id = "vllm-new"
text = "Quux lease of {request_id:id} ended"
since = "0.5"
kind = "lease"
set = { state = "released" }
example = "Quux lease of r1 ended"
source = "test"

[[template]]
id = "vllm-prompt"
text = "Quux_prompt {_:text} for {request_id:id}"
kind = "cache_use"
example = "Quux_prompt secret words for r1"
source = "test"

[[template]]
id = "vllm-derived"
text = "Quux_hash tokens=({tokens_digest:token_digest}), result={result:word}"
kind = "key_derivation"
also = { first_token_digest = "tokens_digest" }
example = "Quux_hash tokens=(1, 2, 3), result=abc"
source = "test"

[[template]]
id = "vllm-took"
text = "Quux_pull of {bytes_seen:size} took {duration_ns:float} ms"
kind = "transfer"
scale = { duration_ns = 1e6 }
example = "Quux_pull of 1.5 MiB took 2.5 ms"
source = "test"

[[template]]
id = "vllm-begins-alike"
text = "Quux ended badly in {_:word}: {_:text}, returning nothing"
kind = "kv_load"
set = { tier = "storage" }
example = "Quux ended badly in get: connection reset, returning nothing"
source = "test"

[[template]]
id = "vllm-config"
text = "Quux_config: {settings:settings}"
kind = "worker"
example = "Quux_config: model='x', other=1"
source = "test"

[[fact]]
fact = "model_path"
from = ["model"]

[[fact]]
fact = "connector"
from = ["kv_transfer_config.kv_connector"]
"#;

fn packs() -> &'static Packs {
    static PACKS: OnceLock<Packs> = OnceLock::new();
    PACKS.get_or_init(|| {
        Packs::from_texts(&[("vllm/a.toml", PACK)]).unwrap_or_else(|errors| {
            panic!("{}", errors.iter().map(|e| format!("{e}\n")).collect::<String>())
        })
    })
}

fn matcher() -> &'static Matcher {
    packs().matcher()
}

fn body(message: &str) -> Option<Body> {
    matcher().match_message(message, &Speaker::default())?.body()
}

#[test]
fn constants_and_fields_make_the_body() {
    let Some(Body::Transfer(transfer)) =
        body("Quux transfer failed for request cmpl-7-0. Marking 1,024 blocks as invalid.")
    else {
        panic!("no transfer")
    };
    assert_eq!(transfer.request_id.as_deref(), Some("cmpl-7-0"));
    assert_eq!(transfer.blocks, Some(1024));
    assert_eq!(transfer.outcome, Some(Outcome::Failed));
    assert_eq!(transfer.cause, Some(Cause::TransferFailed));
}

#[test]
fn a_line_that_is_to_be_ignored_matches_and_has_no_body() {
    let found = matcher()
        .match_message(
            "Quux transfer failed for request r. Marking 0 blocks as invalid.",
            &Speaker::default(),
        )
        .unwrap();
    assert!(found.is_meaningless());
    assert_eq!(found.body(), None);
}

#[test]
fn a_match_may_stand_anywhere_in_the_message() {
    assert!(body("RuntimeError: x: Quux lease of r9 ended, and more").is_some());
    assert!(body("nothing of that kind").is_none());
}

#[test]
fn a_wrapped_id_is_joined() {
    let message =
        "Remote Quux engine mismatch. Expected 46126a31-6b81\n-435d_dp0,received 96b1c4ff\n   -9edf_dp0.";
    let Some(Body::Handshake(handshake)) = body(message) else { panic!("no handshake") };
    assert_eq!(handshake.remote_engine_id.as_deref(), Some("46126a31-6b81-435d_dp0"));
    assert_eq!(handshake.answered_engine_id.as_deref(), Some("96b1c4ff-9edf_dp0"));
}

#[test]
fn a_message_wrapped_between_and_inside_words_matches() {
    let message =
        "Quux transfer failed for request\n        8f07dfc0-...-a2f0e657. Marking 3 blo\ncks as invalid.";
    let Some(Body::Transfer(transfer)) = body(message) else { panic!("no transfer") };
    assert_eq!(transfer.request_id.as_deref(), Some("8f07dfc0-...-a2f0e657"));
}

#[test]
fn a_cut_message_keeps_what_is_whole_and_drops_what_may_not_be() {
    let who = Speaker::default();
    let found =
        matcher().match_message("Quux transfer failed for request cmpl-7-0. Marking 12", &who).unwrap();
    assert!(found.cut);
    let Some(Body::Transfer(transfer)) = found.body() else { panic!("no transfer") };
    assert_eq!(transfer.request_id.as_deref(), Some("cmpl-7-0"));
    assert_eq!(transfer.blocks, None, "12 may have been 128");
    let found = matcher().match_message("Quux transfer failed for request cmpl-7", &who).unwrap();
    let Some(Body::Transfer(transfer)) = found.body() else { panic!("no transfer") };
    assert_eq!(transfer.request_id, None);
}

#[test]
fn a_few_whole_words_are_no_cut_message() {
    assert!(body("Quux ended badly in start_up").is_none());
    assert!(body("Quux ended badly in get:").is_none());
    assert!(body("Quux transfer failed").is_none(), "it may go on otherwise");
    assert!(body("Quux transfer failed for request").is_some());
    assert!(body("Quux ended badly in get: connection reset, returning no").is_some());
    assert!(body("Quux ended badly in get: connection reset, returning nothing").is_some());
}

#[test]
fn the_version_of_the_speaker_chooses_between_equal_texts() {
    let id_for = |version: &str| {
        let version = Version::parse(version);
        let who = Speaker { engine: Some("vllm"), version: version.as_ref() };
        matcher().match_message("Quux lease of r1 ended", &who).map(|found| found.template.id.clone())
    };
    assert_eq!(id_for("0.4.9").as_deref(), Some("vllm-old"));
    assert_eq!(id_for("0.5.0").as_deref(), Some("vllm-new"));
}

#[test]
fn a_line_of_another_engine_is_known_too() {
    let version = Version::parse("99");
    let who = Speaker { engine: Some("sglang"), version: version.as_ref() };
    let found = matcher().match_message("Quux lease of r1 ended", &who).unwrap();
    assert!(!found.other_version, "a version compares only within its engine");
}

#[test]
fn keys_of_a_dict_become_attributes() {
    let message = "Quux_failure: setup | Context: {'request_id': None, 'remote_host': '192.0.2.7', 'remote_port': 5600, \
                   'rids': ['a', 'b'], 'prompt': 'secret'}";
    let found = matcher().match_message(message, &Speaker::default()).unwrap();
    let Some(Body::Transfer(transfer)) = found.body() else { panic!("no transfer") };
    assert_eq!(transfer.request_id, None);
    assert_eq!(transfer.peer.as_deref(), Some("192.0.2.7:5600"));
    assert_eq!(transfer.request_ids, ["a", "b"]);
    assert!(!format!("{} {found:?}", found.says()).contains("secret"), "{}", found.says());
}

#[test]
fn what_a_user_wrote_is_not_taken_for_the_engines_words_behind_it() {
    let matcher = matcher();
    let adapter = |message: &str| {
        let found = matcher.match_message(message, &Speaker::default()).unwrap();
        let Some(Body::RequestLeg(leg)) = found.body() else { panic!("{message}") };
        leg.adapter
    };
    assert_eq!(adapter("Quux_asked r1: prompt: 'adapter: Name('secret'', adapter: None"), None);
    let named = "Quux_asked r1: prompt: 'adapter: Name('secret') adapter: None', adapter: Name('sql')";
    assert_eq!(adapter(named).as_deref(), Some("sql"));
    // Whose words the end of it holds is not known.
    let cut = format!("Quux_asked r1: prompt: 'adapter: Name('secret'{}", " and so on".repeat(20_000));
    let found = matcher.match_message(&cut, &Speaker::default());
    assert!(!format!("{found:?}").contains("secret"));
}

#[test]
fn what_is_said_holds_no_free_text() {
    let found = matcher().match_message("Quux_prompt my secret words for r1", &Speaker::default()).unwrap();
    assert_eq!(found.says(), "Quux_prompt … for r1");
    let long = format!("Quux_config: model='{}'", "m".repeat(2000));
    let says = matcher().match_message(&long, &Speaker::default()).unwrap().says();
    assert!(says.len() <= 300);
}

#[test]
fn token_ids_leave_only_digests() {
    let digests = |message: &str| match body(message) {
        Some(Body::KeyDerivation(derivation)) => {
            (derivation.tokens_digest.unwrap(), derivation.first_token_digest.unwrap())
        }
        other => panic!("{other:?}"),
    };
    let (all, first) = digests("Quux_hash tokens=(101, 202, 303), result=abc");
    let (other, same_first) = digests("Quux_hash tokens=(101, 202), result=abc");
    assert_ne!(all, other);
    assert_eq!(first, same_first);
    let found =
        matcher().match_message("Quux_hash tokens=(101, 202), result=abc", &Speaker::default()).unwrap();
    assert!(!format!("{} {:?}", found.says(), found).contains("101"));
}

#[test]
fn units_and_scales_are_applied() {
    let Some(Body::Transfer(transfer)) = body("Quux_pull of 1.5 MiB took 2.5 ms") else {
        panic!("no transfer")
    };
    assert_eq!((transfer.bytes_seen, transfer.duration_ns), (Some(1_572_864), Some(2_500_000)));
}

#[test]
fn only_settings_that_a_fact_reads_are_kept() {
    let message = "Quux_config: model='/m', api_key='secret', kv_transfer_config=KVTransferConfig(kv_connector='Nixl', x=1)";
    let settings = matcher().match_message(message, &Speaker::default()).unwrap().settings();
    let keys: Vec<&str> = settings.keys().map(String::as_str).collect();
    assert_eq!(keys, ["kv_transfer_config.kv_connector", "model"]);
}

#[test]
fn only_the_begin_of_a_multiline_message_may_continue() {
    let may_continue = |message: &str| {
        let mut room = Room::default();
        matcher().sight(message, &Speaker::default(), &mut room);
        matcher().may_continue(&room)
    };
    assert!(may_continue("Remote Quux engine mismatch. Expec"));
    assert!(!may_continue("Quux_pull of"));
}

#[test]
fn raw_bytes_are_searched_for_anchors_from_any_place() {
    let bytes = b"\xff\xfe junk\nline with Quux_pull of\n";
    assert!(matcher().may_matter(bytes));
    let at = matcher().next_candidate(bytes, 0).unwrap();
    assert!(bytes[at..].starts_with(b"Quux_pull"));
    assert_eq!(matcher().next_candidate(bytes, at + 1), None);
    assert_eq!(matcher().next_candidate(bytes, 1000), None);
}

#[test]
fn a_very_long_message_is_cut_and_counted() {
    let before = matcher().shortened();
    let message = format!("Quux lease of r1 ended {}", "é".repeat(Matcher::MAX_MESSAGE));
    assert!(body(&message).is_some());
    assert!(matcher().shortened() > before);
}

#[test]
fn a_hostile_message_is_given_up_in_bounded_time() {
    let message = "Quux_prompt for ".repeat(4000);
    let begin = std::time::Instant::now();
    let _ = body(&message);
    assert!(begin.elapsed().as_secs() < 5);
}

proptest! {
    #[test]
    fn no_text_panics(text in "\\PC{0,80}") {
        let _ = body(&text);
    }

    #[test]
    fn no_fields_panic(
        a in "[\\PC\n'\"{}(),]{0,40}",
        b in "[\\PC\n'\"{}(),0-9]{0,40}",
        which in 0_usize..7,
    ) {
        let message = match which {
            0 => format!("Quux transfer failed for request {a}. Marking {b} blocks as invalid."),
            1 => format!("Quux_failure: {a} | Context: {{{b}"),
            2 => format!("Remote Quux engine mismatch. Expected {a},received {b}."),
            3 => format!("Quux_prompt {a} for {b}"),
            4 => format!("Quux_hash tokens=({a}), result={b}"),
            5 => format!("Quux_pull of {a} took {b} ms"),
            _ => format!("Quux_config: {a}={b}"),
        };
        if let Some(found) = matcher().match_message(&message, &Speaker::default()) {
            let _ = (found.body(), found.facts(), found.settings());
            prop_assert!(found.says().len() <= 300);
        }
    }

    #[test]
    fn no_bytes_panic(bytes in proptest::collection::vec(any::<u8>(), 0..200), from in 0_usize..300) {
        let _ = (matcher().may_matter(&bytes), matcher().next_candidate(&bytes, from));
    }
}
