//! Facts from settings and from defaults of a version.

use crate::load::Packs;
use crate::version::Version;
use std::collections::BTreeMap;

/// Facts of a worker and where they come from.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ResolvedFacts {
    /// Values by name in `model::fact`.
    pub facts: BTreeMap<String, String>,
    /// Where each comes from: `setting kv_load_failure_policy`, `default of 0.32.0`.
    pub origins: BTreeMap<String, String>,
}

impl Packs {
    /// Facts that follow from settings (flat, dotted names) and from the defaults of the version. An unknown engine
    /// gives what every engine agrees on by setting name and no default.
    pub fn facts(
        &self,
        _engine: Option<&str>,
        _version: Option<&Version>,
        _settings: &BTreeMap<String, String>,
    ) -> ResolvedFacts {
        ResolvedFacts::default()
    }
    /// Whether some `[[fact]]` reads this setting; a dotted path matches by its end.
    pub fn is_known_setting(&self, _key: &str) -> bool {
        false
    }
}
