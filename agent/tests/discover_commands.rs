//! The command lines of recorded engines against what the records declare of them.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test may stop at a broken premise")]

use kvprov_agent::bundle::Bundle;
use kvprov_packs::{Packs, Version};
use std::path::PathBuf;

/// Words of a shell command: blanks separate, quotes keep, a backslash keeps between double quotes.
fn words(line: &str) -> Vec<String> {
    let (mut words, mut word, mut quote, mut letters) = (Vec::new(), String::new(), None, line.chars());
    while let Some(letter) = letters.next() {
        match (letter, quote) {
            ('\\', Some('"')) => word.extend(letters.next()),
            ('\'' | '"', None) => quote = Some(letter),
            (letter, Some(open)) if letter == open => quote = None,
            (' ', None) => words.push(std::mem::take(&mut word)),
            (letter, _) => word.push(letter),
        }
    }
    words.push(word);
    words.retain(|word| !word.is_empty());
    words
}

#[test]
fn recorded_command_lines_give_the_declared_facts() {
    let root = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../tests/incidents/evidence/vllm");
    let packs = Packs::builtin();
    let mut compared = 0;
    for entry in std::fs::read_dir(root).unwrap() {
        let directory = entry.unwrap().path();
        let Ok(commands) = std::fs::read_to_string(directory.join("commands.txt")) else { continue };
        let bundle = Bundle::open(std::slice::from_ref(&directory)).unwrap();
        let mut name = String::new();
        for line in commands.lines() {
            if let Some(comment) = line.strip_prefix("# ") {
                comment.split(' ').next().unwrap_or_default().clone_into(&mut name);
                continue;
            }
            let all = words(line);
            let is_variable = |word: &&String| {
                word.split_once('=').is_some_and(|(name, _)| !name.starts_with('-') && !name.contains('/'))
            };
            let count = all.iter().take_while(is_variable).count();
            let environment: Vec<(String, String)> = all[..count]
                .iter()
                .filter_map(|word| word.split_once('='))
                .map(|(name, value)| (name.to_owned(), value.to_owned()))
                .collect();
            let arguments = &all[count..];
            let Some(declared) = bundle.workers().iter().find(|worker| worker.name == name) else { continue };
            if arguments.is_empty() || declared.engine.is_none() {
                continue;
            }
            let found = packs.processes().recognise(arguments, "", &mut ());
            let found = found.unwrap_or_else(|| panic!("{}: not recognised: {line}", directory.display()));
            assert_eq!(Some(found.engine.as_str()), declared.engine.as_deref());
            let settings = found.settings(packs.processes(), arguments, &environment).settings;
            let version = declared.engine_version.as_deref().and_then(Version::parse);
            let got = packs.facts(declared.engine.as_deref(), version.as_ref(), &settings);
            let wanted = packs.facts(declared.engine.as_deref(), version.as_ref(), &declared.settings);
            for (fact, value) in &wanted.facts {
                // A declaration leaves out the host, which the command line tells.
                if !matches!(fact.as_str(), "http_address" | "side_channel") {
                    assert_eq!(
                        got.facts.get(fact),
                        Some(value),
                        "{fact} of {name} in {}",
                        directory.display()
                    );
                }
            }
            compared += 1;
        }
    }
    assert!(compared >= 20, "{compared} command lines");
}
