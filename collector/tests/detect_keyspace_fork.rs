//! `keyspace_fork`: when it fires and when it must stay quiet.

#![allow(clippy::unwrap_used, reason = "tests")]

mod scene;

use kvprov_model::fact;
use kvprov_model::finding::{Cause, Confidence, Detector};
use kvprov_model::observation::{
    AdminCall, ArtifactAction, Block, Body, CacheUse, KeyDerivation, Store, Tier, Worker,
};
use scene::tell::*;
use scene::{Scene, names_unknown, places};

const FORK: Detector = Detector::KeyspaceFork;
const STORE: &str = "file:export-1:/kv";

/// One side stores content, the other misses it under a key of its own and stores it again.
fn stored_and_missed(left: &[(&str, &str)], right: &[(&str, &str)]) -> Scene {
    let mut scene = Scene::new();
    scene.worker("a0").both().weights("aa");
    scene.worker("b0").both().weights("aa");
    for page in 1..=3 {
        let content = format!("hash{page}");
        scene.at("08:00:10").on("a0").line("a.jsonl", page).tell(split(
            STORE,
            &content,
            left,
            ArtifactAction::Written,
        ));
        scene.at("08:00:20").on("b0").line("b.jsonl", page).tell(split(
            STORE,
            &content,
            right,
            ArtifactAction::Missed,
        ));
        scene.at("08:00:22").on("b0").tell(split(STORE, &content, right, ArtifactAction::Written));
    }
    scene
}

/// Two engines with one setting each, on one store whose keys hold it.
fn configured(name: &str, left: &str, right: &str) -> Scene {
    let mut scene = Scene::new();
    for (worker, value) in [("a0", left), ("b0", right)] {
        scene.worker(worker).uses("mooncake:m0").fact(fact::KEY_FACTORS, name).fact(name, value);
    }
    scene
}

/// KV events of two engines that publish them to one index.
fn published(left: Block, right: Block) -> Scene {
    let mut scene = Scene::new();
    scene.worker("r0").router().fact(fact::ROUTER_INDEX, "r0");
    scene.worker("a0").both().fact(fact::KV_EVENTS, "tcp://a:5557").fact(fact::HASH_SEED, "0");
    scene.worker("b0").both().fact(fact::KV_EVENTS, "tcp://b:5557").fact(fact::HASH_SEED, "7");
    scene.at("08:00:10").on("a0").tell(Body::Block(left));
    scene.at("08:00:20").on("b0").tell(Body::Block(right));
    scene
}

/// A router that keeps an index in blocks of sixteen over one engine.
fn indexed(blocks: &str) -> Scene {
    let mut scene = Scene::new();
    let router = scene.worker("r0").router().fact(fact::ROUTER_INDEX, "kv-events");
    router.fact(fact::KEY_FACTORS, "block_size,hash_seed").fact(fact::BLOCK_SIZE, "16");
    scene.worker("a0").both().fact(fact::BLOCK_SIZE, blocks);
    scene
}

/// Two engines that print how they derive keys.
fn printed(left: KeyDerivation, right: KeyDerivation) -> Scene {
    let mut scene = Scene::new();
    scene.worker("a0").both();
    scene.worker("b0").both();
    scene.at("08:00:10").on("a0").line("a.log", 3).tell(Body::KeyDerivation(left));
    scene.at("08:00:20").on("b0").line("b.log", 5).tell(Body::KeyDerivation(right));
    scene
}

/// Two engines behind one index that load two adapters in an order each.
fn loaded(key: &str, left: [&str; 2], right: [&str; 2]) -> Scene {
    let mut scene = Scene::new();
    scene.worker("r0").router().fact(fact::ROUTER_INDEX, "r0");
    for (worker, order) in [("a0", left), ("b0", right)] {
        scene.worker(worker).both().fact(fact::KV_EVENTS, "on").fact(fact::ADAPTER_KEY, key);
        for (second, name) in order.iter().enumerate() {
            scene.at(&format!("08:00:1{second}")).on(worker).tell(adapter_loaded(name, "/lora"));
        }
    }
    scene
}

// === fires ===

#[test]
fn equal_content_under_two_keys_is_confirmed_and_names_the_factor() {
    let found = stored_and_missed(&[("tp_size", "1")], &[("tp_size", "2")]).only(&FORK);
    assert_eq!((found.confidence, found.cause.clone()), (Confidence::Confirmed, Cause::TpSize));
    assert_eq!((found.count, found.workers.clone()), (3, vec!["a0".to_owned(), "b0".to_owned()]));
    assert!(places(&found).contains("a.jsonl:1") && places(&found).contains("b.jsonl:1"));
}

#[test]
fn ranks_fold_into_one_fork() {
    let mut scene =
        stored_and_missed(&[("tp_size", "1"), ("tp_rank", "0")], &[("tp_size", "2"), ("tp_rank", "0")]);
    let fields = [("tp_size", "2"), ("tp_rank", "1")];
    scene.worker("b1").both().weights("aa");
    scene.at("08:00:20").on("b1").tell(split(STORE, "hash1", &fields, ArtifactAction::Missed));
    assert_eq!(scene.only(&FORK).cause, Cause::TpSize);
}

#[test]
fn a_name_that_differs_is_a_fork_where_the_weights_are_equal() {
    let found = stored_and_missed(&[("model_name", "prod")], &[("model_name", "/models/x")]).only(&FORK);
    assert_eq!(found.cause, Cause::ModelName);
}

#[test]
fn a_proven_fork_is_not_told_again_by_its_settings() {
    let mut scene = stored_and_missed(&[("tp_size", "1")], &[("tp_size", "2")]);
    for (worker, size) in [("a0", "1"), ("b0", "2")] {
        scene.worker(worker).uses("file:/kv").fact(fact::KEY_FACTORS, "tp_size").fact("tp_size", size);
    }
    assert_eq!(scene.only(&FORK).confidence, Confidence::Confirmed);
}

#[test]
fn settings_of_a_shared_store_that_differ_are_a_risk() {
    for (name, cause) in [
        (fact::TP_LCM_SIZE, Cause::TpSize),
        (fact::BLOCK_SIZE, Cause::BlockSize),
        (fact::HASH_ALGORITHM, Cause::HashAlgorithm),
        (fact::MODEL_NAME, Cause::ModelName),
    ] {
        let mut scene = configured(name, "2", "4");
        scene.worker("a0").fact(fact::MODEL_PATH, "/models/x");
        scene.worker("b0").fact(fact::MODEL_PATH, "/models/x");
        let found = scene.only(&FORK);
        assert_eq!((found.confidence, found.cause.clone()), (Confidence::Risk, cause));
        assert!(names_unknown(&found, "looked up"), "{:?}", found.unknown);
    }
}

#[test]
fn an_index_that_counts_in_other_blocks_than_its_engines_is_a_risk() {
    let found = indexed("64").only(&FORK);
    assert_eq!((found.confidence, found.cause.clone()), (Confidence::Risk, Cause::BlockSize));
    assert_eq!(found.workers, ["a0", "r0"]);
    assert!(names_unknown(&found, "looked up"), "{:?}", found.unknown);
}

#[test]
fn an_index_that_says_so_itself_is_not_told_again_by_its_settings() {
    let mut scene = indexed("64");
    scene.at("08:00:10").on("r0").line("r.log", 4).tell(Body::Store(Store {
        disagreement: [("block_size".to_owned(), "16 != 64".to_owned())].into(),
        ..Store::default()
    }));
    scene.only(&FORK);
}

#[test]
fn a_random_seed_per_process_differs_from_itself() {
    let found = configured(fact::HASH_SEED, "random", "random").only(&FORK);
    assert_eq!((found.confidence, found.cause), (Confidence::Risk, Cause::HashSeed));
}

/// Two processes of one engine say what their hashes begin with.
fn said_by_processes(first: (&str, &str), second: (&str, &str)) -> Scene {
    let mut scene = Scene::new();
    scene.worker("e0").both();
    for (time, seed) in [first, second] {
        let facts = [(fact::HASH_SEED.to_owned(), seed.to_owned())].into();
        scene.at(time).on("e0").tell(Body::Worker(Worker { facts, ..Worker::default() }));
    }
    scene
}

#[test]
fn processes_of_one_engine_whose_hashes_begin_differently_are_a_risk() {
    let found = said_by_processes(("08:00:01", "digest:aa"), ("08:00:03", "digest:bb")).only(&FORK);
    assert_eq!((found.confidence, found.cause.clone()), (Confidence::Risk, Cause::HashSeed));
    assert_eq!(found.workers, ["e0"]);
}

#[test]
fn processes_that_agree_or_did_not_start_together_are_quiet() {
    said_by_processes(("08:00:01", "digest:aa"), ("08:00:03", "digest:aa")).assert_quiet(&FORK);
    said_by_processes(("08:00:01", "digest:aa"), ("08:05:00", "digest:bb")).assert_quiet(&FORK);
}

#[test]
fn an_engine_that_finds_what_it_stored_has_one_keyspace() {
    let mut scene = said_by_processes(("08:00:01", "digest:aa"), ("08:00:03", "digest:bb"));
    let used = CacheUse { tier: Some(Tier::Storage), hit: Some(256), ..CacheUse::default() };
    scene.at("08:01:00").on("e0").tell(Body::CacheUse(used));
    scene.assert_quiet(&FORK);
}

#[test]
fn a_disagreement_that_a_source_states_is_a_risk() {
    let mut scene = Scene::new();
    scene.worker("r0").router();
    for line in [4, 9] {
        scene.at("08:00:10").on("r0").line("r.log", line).tell(Body::Store(Store {
            disagreement: [("block_size".to_owned(), "16 != 64".to_owned())].into(),
            ..Store::default()
        }));
    }
    let found = scene.only(&FORK);
    assert_eq!((found.confidence, found.cause), (Confidence::Risk, Cause::BlockSize));
}

#[test]
fn events_of_equal_content_under_other_hashes_are_confirmed_on_one_index() {
    let found =
        published(stored_blocks(&[("c1", "a1"), ("c2", "a2")]), stored_blocks(&[("c1", "b1")])).only(&FORK);
    assert_eq!((found.confidence, found.cause), (Confidence::Confirmed, Cause::HashSeed));
    assert_eq!(found.count, 1);
}

#[test]
fn engines_that_publish_to_one_address_share_an_index_and_those_that_listen_for_themselves_do_not() {
    for (address, confidence) in
        [("tcp://index:5557", Confidence::Confirmed), ("tcp://*:5557", Confidence::Suspected)]
    {
        let mut scene = Scene::new();
        for (worker, hash) in [("a0", "a1"), ("b0", "b1")] {
            scene.worker(worker).both().fact(fact::KV_EVENTS, address);
            scene.at("08:00:10").on(worker).tell(Body::Block(stored_blocks(&[("c1", hash)])));
        }
        assert_eq!(scene.only(&FORK).confidence, confidence, "{address}");
    }
}

#[test]
fn one_engine_that_differs_from_several_is_one_fork() {
    let mut scene = published(stored_blocks(&[("c1", "a1")]), stored_blocks(&[("c1", "b1"), ("c2", "b2")]));
    scene.worker("c0").both().fact(fact::KV_EVENTS, "tcp://c:5557").fact(fact::HASH_SEED, "0");
    scene.at("08:00:30").on("c0").tell(Body::Block(stored_blocks(&[("c1", "a1"), ("c2", "a2")])));
    let found = scene.only(&FORK);
    assert_eq!((found.confidence, found.cause), (Confidence::Confirmed, Cause::HashSeed));
    assert_eq!((found.workers.len(), found.count), (3, 2));
}

#[test]
fn numbers_that_are_the_end_of_no_whole_hash_are_a_fork() {
    let whole = "e550aaa0aebac3006969755852c5af11b7c2ae0782aa518e6f17277421e8a134";
    let found = published(stored_blocks(&[("c1", whole)]), stored_blocks(&[("c1", "8969657788322472470")]));
    assert_eq!(found.only(&FORK).count, 1);
}

#[test]
fn events_of_engines_that_may_share_nothing_are_suspected() {
    let mut scene = Scene::new();
    scene.worker("a0").both();
    scene.worker("b0").both();
    scene.at("08:00:10").on("a0").tell(Body::Block(stored_blocks(&[("c1", "a1")])));
    scene.at("08:00:20").on("b0").tell(Body::Block(stored_blocks(&[("c1", "b1")])));
    let found = scene.only(&FORK);
    assert_eq!(found.confidence, Confidence::Suspected);
    assert!(names_unknown(&found, "share a store or an index"), "{:?}", found.unknown);
}

#[test]
fn printed_keys_of_the_same_tokens_that_differ_are_suspected() {
    let found = printed(derived("t", "k1"), derived("t", "k2")).only(&FORK);
    assert_eq!((found.confidence, found.cause.clone()), (Confidence::Suspected, Cause::Unknown));
    assert_eq!(places(&found), ["a.log:3".to_owned(), "b.log:5".to_owned()].into());
    assert!(names_unknown(&found, "whether all tokens are equal"), "{:?}", found.unknown);
}

#[test]
fn pairs_on_one_side_and_single_tokens_on_the_other_are_suspected() {
    let form = |form: &str, digest: &str| KeyDerivation {
        token_form: Some(form.to_owned()),
        first_token_digest: Some("first".to_owned()),
        ..derived(digest, form)
    };
    let found = printed(form("single", "t1"), form("pairs", "t2")).only(&FORK);
    assert_eq!((found.confidence, found.cause), (Confidence::Suspected, Cause::TokenForm));
}

#[test]
fn adapters_loaded_in_another_order_are_a_risk_where_the_key_holds_the_load_number() {
    let found = loaded("load_number", ["x", "y"], ["y", "x"]).only(&FORK);
    assert_eq!((found.confidence, found.cause), (Confidence::Risk, Cause::LoraId));
}

/// Two engines on one store that loaded an adapter under ids of their own.
fn loaded_under(ids: [&str; 2]) -> Scene {
    let mut scene = Scene::new();
    for (worker, id) in ["a0", "b0"].into_iter().zip(ids) {
        scene.worker(worker).both().uses(STORE);
        let Body::AdminCall(call) = adapter_loaded("fin", "/adapters/fin") else { continue };
        scene.at("08:00:10").on(worker).tell(Body::AdminCall(AdminCall { ids: vec![id.to_owned()], ..call }));
    }
    scene
}

#[test]
fn an_adapter_under_two_ids_is_a_risk_where_the_key_holds_the_id() {
    let found = loaded_under(["c064", "583e"]).only(&FORK);
    assert_eq!((found.confidence, found.cause), (Confidence::Risk, Cause::LoraId));
    assert_eq!(found.workers, ["a0", "b0"]);
}

// === stays quiet ===

#[test]
fn an_adapter_under_one_id_is_no_fork() {
    loaded_under(["c064", "c064"]).assert_silent();
}

#[test]
fn keys_without_a_rank_or_size_are_shared() {
    let mut scene = Scene::new();
    scene.worker("a0").both().weights("aa").fact(fact::TP_SIZE, "4");
    scene.worker("b0").both().weights("aa").fact(fact::TP_SIZE, "8");
    scene.at("08:00:10").on("a0").tell(split(STORE, "hash1", &[], ArtifactAction::Written));
    scene.at("08:00:20").on("b0").tell(split(STORE, "hash1", &[], ArtifactAction::Read));
    scene.assert_silent();
}

#[test]
fn different_prompts_are_no_fork() {
    let mut scene = Scene::new();
    scene.worker("a0").both();
    scene.worker("b0").both();
    scene.at("08:00:10").on("a0").tell(split(STORE, "h1", &[("tp_size", "1")], ArtifactAction::Written));
    scene.at("08:00:20").on("b0").tell(split(STORE, "h2", &[("tp_size", "2")], ArtifactAction::Missed));
    scene.assert_silent();
}

#[test]
fn other_weights_belong_under_other_keys() {
    let mut scene = stored_and_missed(&[("model_name", "v1")], &[("model_name", "v2")]);
    scene.worker("b0").weights("bb");
    scene.worker("c0").weights("cc");
    scene.assert_quiet(&FORK);
}

#[test]
fn names_that_differ_prove_nothing_while_the_weights_are_unknown() {
    let mut scene = Scene::new();
    scene.worker("a0").both();
    scene.worker("b0").both();
    scene.at("08:00:10").on("a0").tell(split(STORE, "h1", &[("model_name", "x")], ArtifactAction::Written));
    scene.at("08:00:20").on("b0").tell(split(STORE, "h1", &[("model_name", "y")], ArtifactAction::Missed));
    scene.assert_silent();
}

#[test]
fn one_process_alone_is_no_fork() {
    let mut scene = Scene::new();
    scene.worker("a0").both().uses("mooncake:m0").fact(fact::KEY_FACTORS, "hash_seed");
    scene.worker("a0").fact(fact::HASH_SEED, "random");
    scene.at("08:00:10").on("a0").tell(split(STORE, "h1", &[("tp_size", "1")], ArtifactAction::Written));
    scene.at("08:00:20").on("a0").tell(split(STORE, "h1", &[("tp_size", "2")], ArtifactAction::Missed));
    scene.assert_silent();
}

#[test]
fn the_ranks_of_one_deployment_are_no_fork() {
    stored_and_missed(&[("tp_size", "2"), ("tp_rank", "0")], &[("tp_size", "2"), ("tp_rank", "1")])
        .assert_silent();
}

#[test]
fn a_size_that_the_key_rounds_up_is_no_fork() {
    let mut scene = configured(fact::TP_LCM_SIZE, "4", "4");
    scene.worker("a0").fact(fact::TP_SIZE, "2");
    scene.worker("b0").fact(fact::TP_SIZE, "4");
    scene.assert_silent();
}

#[test]
fn settings_of_two_stores_are_free_to_differ() {
    let mut scene = configured(fact::BLOCK_SIZE, "16", "64");
    scene.worker("b0").uses("mooncake:other");
    scene.assert_silent();
}

#[test]
fn engines_that_read_what_the_other_wrote_have_one_keyspace_whatever_is_set() {
    let risky = || {
        let mut scene = Scene::new();
        for (worker, size) in [("a0", "1"), ("b0", "2")] {
            let engine = scene.worker(worker).both().weights("aa").uses("file:/kv");
            engine.fact(fact::KEY_FACTORS, "tp_size").fact("tp_size", size);
        }
        scene.at("08:00:10").on("a0").tell(wrote(STORE, "page-1", 4096));
        scene
    };
    assert_eq!(risky().only(&FORK).confidence, Confidence::Risk);
    let mut scene = risky();
    scene.at("08:00:20").on("b0").tell(read(STORE, "page-1", 4096));
    scene.assert_silent();
}

#[test]
fn engines_on_two_nodes_that_are_seen_in_one_directory_share_it() {
    let scene = |seen: [&str; 2]| {
        let mut scene = Scene::new();
        for ((worker, size), (node, store)) in
            [("a0", "64"), ("b0", "128")].into_iter().zip([("n1", seen[0]), ("n2", seen[1])])
        {
            let engine = scene.worker(worker).both().node(node).uses("file:/kv");
            engine.fact(fact::KEY_FACTORS, "block_size").fact(fact::BLOCK_SIZE, size);
            scene.at("08:00:10").on(worker).tell(wrote(store, worker, 4096));
        }
        scene
    };
    assert_eq!(scene([STORE, STORE]).only(&FORK).cause, Cause::BlockSize);
    scene([STORE, "file:export-2:/kv"]).assert_quiet(&FORK);
}

#[test]
fn ranks_of_one_engine_that_are_watched_by_themselves_are_no_fork() {
    let mut scene = configured(fact::HASH_SEED, "random", "random");
    for (worker, rank) in [("a0", "0"), ("b0", "1")] {
        scene.worker(worker).fact(fact::TP_SIZE, "2").fact(fact::TP_RANK, rank);
    }
    scene.assert_silent();
}

/// Blocks of equal tokens under the number of an adapter, with a hash of their own on either engine.
fn adapter_blocks(key: &str, numbers: [&str; 2]) -> Scene {
    let mut scene = loaded(key, ["legal", "code"], ["code", "legal"]);
    for ((worker, hash), number) in [("a0", "h1"), ("b0", "h2")].into_iter().zip(numbers) {
        let block = Block { adapter: Some(number.to_owned()), ..stored_blocks(&[("c1", hash)]) };
        scene.at("08:00:40").on(worker).tell(Body::Block(block));
    }
    scene
}

#[test]
fn blocks_of_one_adapter_under_two_load_numbers_are_a_fork() {
    let found = adapter_blocks("load_number", ["1", "2"]).only(&FORK);
    assert_eq!((found.confidence, found.cause), (Confidence::Confirmed, Cause::LoraId));
}

#[test]
fn blocks_of_two_adapters_are_no_fork() {
    let found = adapter_blocks("load_number", ["1", "1"]).only(&FORK);
    assert_eq!(found.confidence, Confidence::Risk, "only the order of loads");
    adapter_blocks("name", ["1", "2"]).assert_silent();
}

#[test]
fn one_adapter_under_three_ids_is_one_fork() {
    let mut scene = Scene::new();
    for (worker, id) in [("a0", "1a"), ("b0", "2b"), ("c0", "3c")] {
        scene.worker(worker).both().uses(STORE);
        let mut load = adapter_loaded("legal", "/lora");
        if let Body::AdminCall(call) = &mut load {
            call.ids = vec![id.to_owned()];
        }
        scene.at("08:00:10").on(worker).tell(load);
    }
    assert_eq!(scene.only(&FORK).workers, ["a0", "b0", "c0"]);
}

#[test]
fn an_index_that_counts_as_its_engines_do_is_no_fork() {
    indexed("16").assert_silent();
    let mut other = indexed("64");
    other.worker("r0").fact(fact::MODEL_NAME, "x");
    other.worker("a0").fact(fact::MODEL_NAME, "y");
    other.assert_silent();
}

#[test]
fn two_models_on_one_store_are_no_fork() {
    let mut scene = configured(fact::BLOCK_SIZE, "16", "64");
    scene.worker("a0").fact(fact::MODEL_PATH, "/models/x");
    scene.worker("b0").fact(fact::MODEL_PATH, "/models/y");
    scene.assert_silent();
}

#[test]
fn a_setting_that_is_not_part_of_the_key_may_differ() {
    let mut scene = configured(fact::BLOCK_SIZE, "16", "16");
    scene.worker("a0").fact(fact::KV_LAYOUT, "NHD");
    scene.worker("b0").fact(fact::KV_LAYOUT, "HND");
    scene.assert_silent();
}

#[test]
fn events_that_share_a_hash_are_one_keyspace() {
    published(stored_blocks(&[("c1", "h1")]), stored_blocks(&[("c1", "h1")])).assert_silent();
}

#[test]
fn a_hash_published_whole_and_as_the_number_at_its_end_is_one_keyspace() {
    let whole = "e550aaa0aebac3006969755852c5af11b7c2ae0782aa518e6f17277421e8a134";
    let number = 0x6f17_2774_21e8_a134_u64.to_string();
    published(stored_blocks(&[("c1", whole)]), stored_blocks(&[("c1", &number)])).assert_silent();
}

#[test]
fn events_that_cannot_be_compared_are_quiet() {
    let plain = || stored_blocks(&[("c1", "a1")]);
    let salted = Block { extra_keys: Some(true), ..stored_blocks(&[("c1", "b1")]) };
    let adapter = Block { adapter: Some("ad".to_owned()), ..stored_blocks(&[("c1", "b1")]) };
    let other_key = Block { content_key: Some("fleet-2".to_owned()), ..stored_blocks(&[("c1", "b1")]) };
    let bare = stored_blocks(&[("", "b1")]);
    let other_prompt = stored_blocks(&[("c9", "b1")]);
    for block in [salted, adapter, other_key, bare, other_prompt] {
        published(plain(), block).assert_silent();
    }
}

#[test]
fn printed_keys_of_other_tokens_or_of_one_keyspace_are_quiet() {
    printed(derived("t1", "k1"), derived("t2", "k2")).assert_silent();
    printed(derived("t", "k"), derived("t", "k")).assert_silent();
    printed(derived("t", "k1"), KeyDerivation { parent: None, ..derived("t", "k2") }).assert_silent();
}

#[test]
fn adapters_in_one_order_or_under_their_names_are_quiet() {
    loaded("load_number", ["x", "y"], ["x", "y"]).assert_silent();
    loaded("name", ["x", "y"], ["y", "x"]).assert_silent();
}

#[test]
fn thousands_of_printed_derivations_take_no_quadratic_time() {
    let mut scene = Scene::new();
    scene.worker("a0").both();
    scene.worker("b0").both();
    for line in 0..4000 {
        let worker = if line % 2 == 0 { "a0" } else { "b0" };
        let derivation = derived(&format!("t{line}"), &format!("k{line}"));
        scene.at("08:00:10").on(worker).line("x.log", line + 1).tell(Body::KeyDerivation(derivation));
    }
    scene.assert_silent();
}
