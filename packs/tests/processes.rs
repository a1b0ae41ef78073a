//! How processes are recognised and what is kept of their settings.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test may stop at a broken premise")]

use kvprov_model::observation::Role;
use kvprov_packs::process::{Closer, Pattern};
use kvprov_packs::{Packs, SettingsSeen};
use proptest::prelude::*;
use std::collections::BTreeMap;

const PACK: &str = r#"
engine = "e"
[[fact]]
fact = "tp_size"
from = ["tp_size"]
default = [{ value = "1" }]
[[fact]]
fact = "model_path"
from = ["model_tag", "model"]
[[fact]]
fact = "model_name"
from = ["served_name"]
[[fact]]
fact = "connector"
from = ["transfer.connector"]
[[fact]]
fact = "hash_seed"
from = ["PYTHONHASHSEED"]
default = [{ value = "random" }]
[[fact]]
fact = "store"
from = ["remote_url"]
[[fact]]
fact = "lora"
from = ["enable_lora"]
[[fact]]
fact = "adapter_directories"
from = ["adapters"]
[[fact]]
fact = "role"
from = ["mode"]
[[process]]
id = "e-server"
run = ["e serve", "-m e.server"]
positional = "model_tag"
flags = ["eager", "enable_lora"]
lists = ["served_name"]
named = ["adapters"]
files = ["config"]
role = "both"
roles = [{ role = "prefill", when = { connector = "Pre*" } }, { role = "decode", when = { connector = "", tp_size = "8" } }]
example = "e serve m"
[[process]]
id = "e-child"
place = "member"
title = ["e::worker*"]
example = "e::worker_1"
[[process]]
id = "e-proxy"
run = ["*proxy.py"]
options = ["prefill", "decode"]
role = "router"
example = "python a_proxy.py --prefill a --decode=b"
[[process]]
id = "e-actor"
place = "member"
detached = true
title = ["ray::Actor*"]
libraries = ["*/e/*"]
environment = ["E_*"]
example = "ray::Actor.run"
"#;

fn packs() -> Packs {
    Packs::from_texts(&[("e/a.toml", PACK)]).unwrap()
}

fn words(line: &str) -> Vec<String> {
    line.split_whitespace().map(str::to_owned).collect()
}

fn id_of(line: &str, thread_name: &str) -> Option<String> {
    packs().processes().recognise(&words(line), thread_name, &mut ()).map(|found| found.id.clone())
}

fn settings(line: &str, environment: &[(&str, &str)]) -> BTreeMap<String, String> {
    let packs = packs();
    let table = packs.processes();
    let signature = table.recognise(&words(line), "", &mut ()).unwrap();
    let environment: Vec<(String, String)> =
        environment.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect();
    signature.settings(table, &words(line), &environment).settings
}

fn pairs(settings: &BTreeMap<String, String>) -> Vec<(&str, &str)> {
    settings.iter().map(|(name, value)| (name.as_str(), value.as_str())).collect()
}

#[track_caller]
fn refused(pack: &str, line: usize, words: &str) {
    let errors = Packs::from_texts(&[("e/a.toml", pack)]).err().unwrap_or_default();
    assert!(
        errors.iter().any(|error| error.line == line && error.to_string().contains(words)),
        "{words:?} at {line} not in {errors:#?}"
    );
}

#[test]
fn the_start_counts_before_the_title_and_the_title_before_nothing() {
    assert_eq!(id_of("e serve m", "e::worker_0").as_deref(), Some("e-server"));
    assert_eq!(id_of("e::worker_0", "").as_deref(), Some("e-child"));
    assert_eq!(id_of("python", "e::worker_12345").as_deref(), Some("e-child"));
    assert_eq!(id_of("python", "e::worke"), None, "a name that was not cut is whole");
    assert_eq!(id_of("python a_proxy.py --prefill x", ""), None, "an option is missing");
    assert_eq!(id_of("vi a_proxy.py --prefill x --decode y", ""), None);
    assert_eq!(id_of("", ""), None);
}

#[test]
fn environment_and_libraries_are_asked_for_only_where_the_name_fits() {
    struct Count(usize, bool);
    impl Closer for Count {
        fn has_variable(&mut self, name: &Pattern) -> bool {
            self.0 += 1;
            self.1 && name.matches("E_HOME")
        }
        fn has_mapped(&mut self, path: &Pattern) -> bool {
            self.0 += 1;
            self.1 && path.matches("/lib/e/x.so")
        }
    }
    let packs = packs();
    let recognise = |line: &str, answer: bool| {
        let mut closer = Count(0, answer);
        let found = packs.processes().recognise(&words(line), "", &mut closer).map(|found| found.id.clone());
        (found, closer.0)
    };
    assert_eq!(recognise("ray::Actor.run", true), (Some("e-actor".to_owned()), 2));
    assert_eq!(recognise("ray::Actor.run", false), (None, 1));
    assert_eq!(recognise("sleep 1", true), (None, 0));
}

#[test]
fn options_flags_lists_and_the_free_argument_are_told_apart() {
    let found = settings("e serve m --tp-size 2 --enable-lora --served-name a b --eager --unknown x", &[]);
    assert_eq!(
        pairs(&found),
        [("enable_lora", "true"), ("model_tag", "m"), ("served_name", "a"), ("tp_size", "2")]
    );
    let found = settings("e serve --eager m --tp_size=4", &[]);
    assert_eq!(pairs(&found), [("model_tag", "m"), ("tp_size", "4")]);
    let found = settings("e serve --model p --served-name a b", &[]);
    assert_eq!(pairs(&found), [("model", "p"), ("served_name", "a")], "a second name is no model");
    let found = settings("python -m e.server --tp-size", &[]);
    assert_eq!(pairs(&found), [("tp_size", "true")]);
}

#[test]
fn every_value_of_a_list_of_names_counts() {
    let found = settings("e serve m --adapters a=/x b=/y --tp-size 2", &[]);
    assert_eq!(pairs(&found), [("adapters", "a=/x,b=/y"), ("model_tag", "m"), ("tp_size", "2")]);
    let found =
        settings("e serve m --adapters={\"name\":\"a\",\"path\":\"/x\",\"base\":\"m\"} b=/y plain", &[]);
    assert_eq!(pairs(&found), [("adapters", "a=/x,b=/y"), ("model_tag", "m")]);
}

#[test]
fn json_in_an_argument_and_dotted_options_are_opened() {
    let wanted = [("transfer.connector", "X")];
    assert_eq!(
        pairs(&settings("e serve --transfer {\"connector\":\"X\",\"token\":\"secret\"}", &[])),
        wanted
    );
    assert_eq!(pairs(&settings("e serve --transfer.connector X", &[])), wanted);
    assert_eq!(pairs(&settings("e serve --transfer {broken", &[])), []);
}

#[test]
fn only_what_a_fact_reads_is_kept_and_no_user_of_a_url() {
    let environment = [("PYTHONHASHSEED", "0"), ("API_KEY", "secret"), ("tp_size", "9"), ("remote_url", "x")];
    let found = settings(
        "e serve --api-key secret --remote-url redis://me:secret@h:1/0 --prompt secret",
        &environment,
    );
    assert_eq!(pairs(&found), [("PYTHONHASHSEED", "0"), ("remote_url", "redis://h:1/0")]);
}

#[test]
fn a_file_adds_what_is_not_given() {
    let packs = packs();
    let table = packs.processes();
    let line = words("e serve --config c.yaml --tp-size 2");
    let signature = table.recognise(&line, "", &mut ()).unwrap();
    let mut found = signature.settings(table, &line, &[]);
    assert_eq!(found.files, ["c.yaml"]);
    signature.add_file(
        table,
        "tp-size: 4\nmodel: m\npassword: secret\ntransfer:\n  connector: X\n",
        &mut found,
    );
    assert_eq!(pairs(&found.settings), [("model", "m"), ("tp_size", "2"), ("transfer.connector", "X")]);
}

#[test]
fn the_role_is_what_facts_say_then_rules_then_the_entry() {
    let packs = packs();
    let role = |line: &str| {
        let table = packs.processes();
        let line = words(line);
        let signature = table.recognise(&line, "", &mut ()).unwrap();
        let settings = signature.settings(table, &line, &[]).settings;
        signature.role(&packs.facts(Some("e"), None, &settings))
    };
    assert_eq!(role("e serve --mode decode"), Some(Role::Decode));
    assert_eq!(role("e serve --transfer.connector PreX"), Some(Role::Prefill));
    assert_eq!(role("e serve --tp-size 8"), Some(Role::Decode));
    assert_eq!(role("e serve --tp-size 8 --transfer.connector Y"), Some(Role::Both));
    assert_eq!(role("e serve"), Some(Role::Both));
}

#[test]
fn a_default_does_not_stand_for_what_was_not_seen() {
    let packs = packs();
    let of = |arguments, environment| {
        let seen = SettingsSeen { arguments, environment };
        let facts = packs.facts_of_seen(Some("e"), None, &BTreeMap::new(), seen).facts;
        (facts.contains_key("tp_size"), facts.contains_key("hash_seed"))
    };
    assert_eq!(of(true, true), (true, true));
    assert_eq!(of(true, false), (true, false));
    assert_eq!(of(false, true), (false, true));
    assert_eq!(of(false, false), (false, false));
}

#[test]
fn every_mistake_is_named_with_its_line() {
    let entry =
        |changes: &str| format!("engine = \"e\"\n[[process]]\nid = \"e-x\"\n{changes}\nexample = \"e\"\n");
    assert!(Packs::from_texts(&[("e/a.toml", &entry("run = [\"e\"]"))]).is_ok());
    refused(&entry("place = \"member\""), 2, "add `run` or `title`");
    refused(&entry("title = [\"e\"]"), 2, "a title is inherited");
    refused(&entry("place = \"child\"\nrun = [\"e\"]"), 4, "see packs/SCHEMA.md");
    refused(&entry("run = [\"-m\"]"), 4, "no start");
    refused(&entry("run = [\"a*b\"]"), 4, "no start");
    refused(&entry("run = [\"e\"]\nlibraries = [\"*\"]"), 5, "no name");
    refused(&entry("run = [\"e\"]\nrole = \"boss\""), 5, "no role");
    refused(&entry("run = [\"e\"]\nroles = [{ role = \"both\", when = { luck = \"1\" } }]"), 5, "no fact");
    refused(&entry("run = [\"f\"]"), 5, "not recognised");
    refused(&entry("run = [\"e\"]\nwhatever = 1"), 5, "whatever");
    refused(&entry("place = \"member\"\ntitle = [\"e\"]\noptions = [\"x\"]"), 2, "behind a `run`");
    let two =
        format!("{}[[process]]\nid = \"e-y\"\nrun = [\"e\"]\nexample = \"e\"\n", entry("run = [\"e*\"]"));
    refused(&two, 9, "read as e-x");
    refused(&entry("run = [\"e\"]").replace("e-x", "f-x"), 2, "start with its engine");
}

proptest! {
    #[test]
    fn no_arguments_panic(
        arguments in proptest::collection::vec(".{0,40}|--?[a-z.=-]{0,12}|\\{\"a\":\\{.{0,9}", 0..12),
        name in ".{0,15}",
        text in "[a-z:{}\" \n#-]{0,200}",
    ) {
        let packs = Packs::builtin();
        let table = packs.processes();
        let _ = table.recognise(&arguments, &name, &mut ());
        for signature in table.entries() {
            let mut found = signature.settings(table, &arguments, &[(name.clone(), text.clone())]);
            signature.add_file(table, &text, &mut found);
        }
    }
}
