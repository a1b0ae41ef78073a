//! Rule: what an engine prints stands in the packs and nowhere in code.
//!
//! A heuristic: the longer literals of every template of the packs are searched in all code that runs in production.
//! Tests quote engines freely.

use super::at;
use crate::tree::SourceFile;
use std::collections::BTreeSet;
use toml::{Table, Value};

/// Shorter literals are ordinary words.
const MIN_LITERAL: usize = 20;

/// No production code outside `packs/` holds a literal of a template.
pub(super) fn outside_packs(sources: &[SourceFile], files: &[SourceFile]) -> Vec<String> {
    let literals: BTreeSet<String> = files
        .iter()
        .filter(|file| file.path.starts_with("packs/signatures/") && file.path.ends_with(".toml"))
        // A pack that cannot be parsed fails the tests of the packs, with a better message than this rule could give.
        .filter_map(|file| file.text.parse::<Table>().ok())
        .flat_map(|pack| literals(&pack))
        .collect();
    let mut violations = Vec::new();
    for file in sources.iter().filter(|file| !file.path.starts_with("packs/") && !file.is_test()) {
        for (line, code) in file.code_lines() {
            for literal in literals.iter().filter(|literal| code.contains(literal.as_str())) {
                violations.push(format!(
                    "{}: holds {literal:?}, which an engine prints; words of engines belong into packs/signatures",
                    at(file, line)
                ));
            }
        }
    }
    violations
}

/// The texts between the placeholders of all templates of a pack.
fn literals(pack: &Table) -> Vec<String> {
    let templates = pack.get("template").and_then(Value::as_array).into_iter().flatten();
    templates
        .filter_map(|template| template.get("text").and_then(Value::as_str))
        .flat_map(|text| text.split(['{', '}']).step_by(2))
        .map(str::trim)
        .filter(|literal| literal.len() >= MIN_LITERAL)
        .map(str::to_owned)
        .collect()
}
