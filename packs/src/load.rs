//! Reads packs: compiled in, or from a directory.

use crate::error::PackError;
use crate::key::KeyGrammars;
use crate::matcher::Matcher;
use crate::metric::MetricTable;
use std::path::Path;
use std::sync::OnceLock;

/// All packs, read and checked.
#[derive(Debug, Default)]
pub struct Packs {
    metrics: MetricTable,
    keys: KeyGrammars,
    matcher: OnceLock<Matcher>,
}

impl Packs {
    /// The packs that are compiled in. Entries with errors are left out; [`Packs::check_builtin`] is empty in a
    /// release.
    pub fn builtin() -> &'static Self {
        static BUILTIN: OnceLock<Packs> = OnceLock::new();
        BUILTIN.get_or_init(Self::default)
    }
    /// The compiled-in packs, with whole files replaced or added by relative path (`vllm/nixl.toml`) from `dir`.
    pub fn with_overrides(_dir: &Path) -> Result<Self, Vec<PackError>> {
        Ok(Self::default())
    }
    /// Every error of the packs in a directory, as overrides of the compiled-in ones.
    pub fn check(_dir: &Path) -> Vec<PackError> {
        Vec::new()
    }
    /// Every error of the compiled-in packs.
    pub fn check_builtin() -> Vec<PackError> {
        Vec::new()
    }
    /// The matcher over these packs, made on first use.
    pub fn matcher(&self) -> &Matcher {
        self.matcher.get_or_init(|| Matcher::new(self))
    }
    /// Meanings of metrics.
    pub fn metrics(&self) -> &MetricTable {
        &self.metrics
    }
    /// Grammars of keys and names.
    pub fn keys(&self) -> &KeyGrammars {
        &self.keys
    }
}
