//! Rules on the crates that we use: their licences, and one version of each.
//!
//! `deny.toml` states them for cargo-deny, which takes minutes to install and is not on every machine. The same file
//! is read here, so that every run of the checks holds them. Input: `cargo metadata` of the locked tree for Linux.

use crate::{step, tree};
use anyhow::{Context, Result, bail};
use serde_json::Value as Json;
use std::collections::{BTreeMap, BTreeSet};
use std::process::Stdio;
use toml::{Table, Value};

/// Checks the crates that the workspace resolves to.
pub(super) fn licences_and_duplicates() -> Result<Vec<String>> {
    let text = std::fs::read_to_string(tree::root().join("deny.toml")).context("reading deny.toml")?;
    let policy: Table = text.parse().context("parsing deny.toml")?;
    let allowed = names(&policy, "licenses", "allow", None);
    let skipped = names(&policy, "bans", "skip", Some("crate"));
    let packages = packages()?;

    let mut violations = Vec::new();
    let mut versions: BTreeMap<&str, BTreeSet<&str>> = BTreeMap::new();
    for (name, version, licence) in &packages {
        versions.entry(name).or_default().insert(version);
        if !is_allowed(licence, &allowed) {
            violations.push(format!(
                "Cargo.lock: {name} {version} is licensed {licence:?}, which deny.toml does not allow"
            ));
        }
    }
    for (name, versions) in versions.iter().filter(|(_, versions)| versions.len() > 1) {
        if !skipped.iter().any(|skip| skip.split('@').next() == Some(name)) {
            violations.push(format!(
                "Cargo.lock: {name} is there in versions {versions:?}; use one, or justify a skip in deny.toml"
            ));
        }
    }
    Ok(violations)
}

/// Foreign packages: name, version, licence expression.
fn packages() -> Result<Vec<(String, String, String)>> {
    let output = step::cargo_command()
        .args(["metadata", "--format-version", "1", "--filter-platform", "x86_64-unknown-linux-gnu"])
        .current_dir(tree::root())
        .stdin(Stdio::null())
        .stderr(Stdio::inherit())
        .output()
        .context("asking cargo for the crates that are used")?;
    if !output.status.success() {
        bail!("cargo metadata failed; its words above say why");
    }
    let metadata: Json = serde_json::from_slice(&output.stdout).context("reading cargo metadata")?;
    let list = metadata.get("packages").and_then(Json::as_array).context("cargo metadata has no packages")?;
    let text =
        |package: &Json, key: &str| package.get(key).and_then(Json::as_str).unwrap_or_default().to_owned();
    Ok(list
        .iter()
        .filter(|package| package.get("source").is_some_and(|source| !source.is_null()))
        .map(|package| (text(package, "name"), text(package, "version"), text(package, "license")))
        .collect())
}

/// Entries of a list of the policy: text, or a key of tables.
fn names(policy: &Table, section: &str, list: &str, key: Option<&str>) -> BTreeSet<String> {
    let entries = policy.get(section).and_then(|section| section.get(list)).and_then(Value::as_array);
    let entries = entries.into_iter().flatten();
    entries
        .filter_map(|entry| match key {
            Some(key) if entry.is_table() => entry.get(key).and_then(Value::as_str),
            _ => entry.as_str(),
        })
        .map(str::to_owned)
        .collect()
}

/// Whether a licence expression can be met: one side of each `OR`, all of each `AND`.
fn is_allowed(expression: &str, allowed: &BTreeSet<String>) -> bool {
    let spaced = expression.replace('(', " ( ").replace(')', " ) ").replace('/', " OR ");
    let words: Vec<&str> = spaced.split_whitespace().collect();
    let (met, rest) = any_of(&words, allowed);
    met && rest.is_empty()
}

fn any_of<'w>(words: &'w [&'w str], allowed: &BTreeSet<String>) -> (bool, &'w [&'w str]) {
    let (mut met, mut rest) = all_of(words, allowed);
    while rest.first() == Some(&"OR") {
        let (also, after) = all_of(&rest[1..], allowed);
        met |= also;
        rest = after;
    }
    (met, rest)
}

fn all_of<'w>(words: &'w [&'w str], allowed: &BTreeSet<String>) -> (bool, &'w [&'w str]) {
    let (mut met, mut rest) = one(words, allowed);
    while rest.first() == Some(&"AND") {
        let (also, after) = one(&rest[1..], allowed);
        met &= also;
        rest = after;
    }
    (met, rest)
}

fn one<'w>(words: &'w [&'w str], allowed: &BTreeSet<String>) -> (bool, &'w [&'w str]) {
    match words {
        ["(", inner @ ..] => {
            let (met, rest) = any_of(inner, allowed);
            (met, rest.strip_prefix(&[")"]).unwrap_or(rest))
        }
        [licence, "WITH", exception, rest @ ..] => {
            (allowed.contains(&format!("{licence} WITH {exception}")), rest)
        }
        [licence, rest @ ..] => (allowed.contains(*licence), rest),
        [] => (false, words),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn allowed() -> BTreeSet<String> {
        ["MIT", "Apache-2.0", "Unicode-3.0"].map(str::to_owned).into()
    }

    #[test]
    fn one_side_of_an_or_is_enough() {
        assert!(is_allowed("GPL-3.0 OR MIT", &allowed()));
        assert!(is_allowed("MIT/GPL-3.0", &allowed()));
    }

    #[test]
    fn both_sides_of_an_and_are_needed() {
        assert!(is_allowed("(MIT OR Apache-2.0) AND Unicode-3.0", &allowed()));
        assert!(!is_allowed("MIT AND GPL-3.0", &allowed()));
    }

    #[test]
    fn no_licence_is_not_allowed() {
        assert!(!is_allowed("", &allowed()));
    }
}
