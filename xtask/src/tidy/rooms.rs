//! Rules on what a room may know: the invariants of the architecture that are about what is absent.

use super::at;
use super::manifests::Manifest;
use crate::tree::SourceFile;

/// Code below `path` must not contain any of `words`.
struct Blind {
    path: &'static str,
    words: &'static [&'static str],
    reason: &'static str,
}

const BLIND: [Blind; 4] = [
    Blind {
        path: "model/src/",
        words: &["std::fs", "std::net", "std::process", "std::env", "SystemTime", "std::time::Instant"],
        reason: "the model knows no input, output or clock; take values and return values",
    },
    Blind {
        path: "collector/src/detect/",
        words: &[
            "kvprov_agent",
            "kvprov_packs",
            "std::fs",
            "std::io",
            "std::net",
            "std::env",
            "SystemTime",
            "std::time::Instant",
        ],
        reason: "a detector is a pure function of a ledger view; it knows neither where an observation came from nor \
                 where a finding goes",
    },
    Blind {
        path: "collector/src/",
        words: &["kvprov_agent"],
        reason: "agent and collector know each other only through the model",
    },
    Blind {
        path: "agent/src/",
        words: &["kvprov_collector"],
        reason: "agent and collector know each other only through the model",
    },
];

/// Crates of ours on which a crate may depend outside its tests.
const MAY_DEPEND: [(&str, &[&str]); 9] = [
    ("kvprov-model", &[]),
    ("kvprov-wire", &[]),
    ("kvprov-packs", &["kvprov-model"]),
    ("kvprov-agent-common", &[]),
    ("kvprov-loader", &["kvprov-agent-common", "kvprov-wire"]),
    (
        "kvprov-agent",
        &["kvprov-model", "kvprov-packs", "kvprov-agent-common", "kvprov-loader", "kvprov-wire"],
    ),
    ("kvprov-collector", &["kvprov-model", "kvprov-packs", "kvprov-wire"]),
    ("kvprov", &["kvprov-model", "kvprov-packs", "kvprov-loader", "kvprov-agent", "kvprov-collector"]),
    ("xtask", &["kvprov-model", "kvprov-tests"]),
];

/// Rooms name nothing that they must not know.
pub(super) fn imports(sources: &[SourceFile]) -> Vec<String> {
    let mut violations = Vec::new();
    for rule in &BLIND {
        for file in sources.iter().filter(|file| file.path.starts_with(rule.path) && !file.is_test()) {
            for (line, code) in file.code_lines() {
                for word in rule.words.iter().filter(|word| code.contains(**word)) {
                    violations.push(format!("{}: uses {word}: {}", at(file, line), rule.reason));
                }
            }
        }
    }
    violations
}

/// Crates depend only downwards.
pub(super) fn dependencies(manifests: &[Manifest]) -> Vec<String> {
    let mut violations = Vec::new();
    for manifest in manifests {
        let Some((_, allowed)) = MAY_DEPEND.iter().find(|(name, _)| *name == manifest.name) else { continue };
        for dependency in manifest.dependencies.iter().filter(|name| name.starts_with("kvprov")) {
            if !allowed.contains(&dependency.as_str()) {
                violations.push(format!(
                    "{}: {} must not depend on {dependency}; allowed are {allowed:?}",
                    manifest.path, manifest.name
                ));
            }
        }
    }
    violations
}
