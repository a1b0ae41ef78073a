//! What the doubles are and where their files lie.

use anyhow::Context;
use serde::Deserialize;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

const DOUBLES: &str = include_str!("../../demo/doubles.toml");

/// One double.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Double {
    /// What is shown.
    pub(crate) scenario: String,
    /// The detector that finds it.
    pub(crate) expects: String,
    /// Unique.
    pub(crate) name: String,
    /// Arguments of the engine.
    pub(crate) arguments: Vec<String>,
    /// Environment of the engine.
    pub(crate) environment: BTreeMap<String, String>,
    /// The model that it loads.
    pub(crate) model: Model,
    /// How it uses a store of files.
    #[serde(default)]
    pub(crate) store: Option<StoreUse>,
    /// What it prints, once.
    #[serde(default)]
    pub(crate) lines: Vec<String>,
    /// What it prints again and again while it uses its store.
    #[serde(default)]
    pub(crate) chatter: Option<Chatter>,
    /// Ends when it has done everything, before the others.
    #[serde(default)]
    pub(crate) leaves: bool,
}

/// Lines at a rate.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Chatter {
    /// Printed in turn; `{n}` is the number of the line.
    pub(crate) lines: Vec<String>,
    /// How many in all.
    pub(crate) count: u64,
    /// Milliseconds between two.
    pub(crate) pause_ms: u64,
}

/// A model of a few kilobytes, whose weights depend on the seed alone.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Model {
    /// Below the directory of models.
    pub(crate) directory: String,
    /// What makes its weights.
    pub(crate) seed: String,
}

/// How a store of files is used.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct StoreUse {
    /// What follows the hash in a file's name.
    pub(crate) suffix: String,
    /// What makes the hashes: equal prompts give equal hashes.
    pub(crate) prompts: String,
    /// Pages of all prompts.
    pub(crate) keys: u64,
    /// Bytes of a page.
    pub(crate) page_bytes: usize,
    /// How often every page is asked for.
    pub(crate) rounds: u64,
    /// Milliseconds between two pages.
    pub(crate) pause_ms: u64,
    /// Milliseconds before the first.
    #[serde(default)]
    pub(crate) delay_ms: u64,
    /// Pages that may be kept; more are evicted, the oldest known first.
    #[serde(default)]
    pub(crate) cap: Option<usize>,
    /// Distance of two pages asked for in turn; without a common factor with `keys`.
    #[serde(default = "one")]
    pub(crate) step: u64,
    /// Doubles of one scenario that ask in turn, so that what they do to each other is the same in every run.
    #[serde(default)]
    pub(crate) turn: Option<Turn>,
}

/// A place in a circle.
#[derive(Debug, Clone, Copy, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Turn {
    /// From 0.
    pub(crate) place: u64,
    /// How many there are; all have equally many pages to ask for.
    pub(crate) of: u64,
}

/// Where a double's files lie.
pub(crate) struct Places {
    directory: PathBuf,
    name: String,
    scenario: String,
    store: PathBuf,
    models: PathBuf,
}

fn one() -> u64 {
    1
}

/// Every double. A file `doubles.toml` in the demo's directory takes the place of the built-in ones: tests put other
/// loads there.
pub(crate) fn doubles(directory: &Path) -> anyhow::Result<Vec<Double>> {
    #[derive(Deserialize)]
    struct File {
        double: Vec<Double>,
    }
    let own = directory.join("doubles.toml");
    let text = match std::fs::read_to_string(&own) {
        Ok(text) => text,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => DOUBLES.to_owned(),
        Err(error) => return Err(error).with_context(|| format!("reading {}", own.display())),
    };
    let file: File = toml::from_str(&text).context("reading the script of the doubles")?;
    Ok(file.double)
}

/// The file that appears when the doubles may begin.
pub(crate) fn gate(directory: &Path) -> PathBuf {
    directory.join("begin")
}

// === impl Places ===

impl Places {
    pub(crate) fn new(directory: &Path, double: &Double) -> Self {
        Self {
            directory: directory.to_owned(),
            name: double.name.clone(),
            scenario: double.expects.clone(),
            store: directory.join("stores").join(&double.expects),
            models: directory.join("models"),
        }
    }

    /// Makes the directories.
    pub(crate) fn make(&self) -> std::io::Result<()> {
        std::fs::create_dir_all(&self.store)?;
        std::fs::create_dir_all(&self.models)?;
        std::fs::create_dir_all(self.directory.join("logs"))
    }

    pub(crate) fn store(&self) -> &Path {
        &self.store
    }

    /// The file that says whose turn it is.
    pub(crate) fn turn(&self) -> PathBuf {
        self.directory.join(format!("turn-{}", self.scenario))
    }

    /// The file that appears when the double has done everything.
    pub(crate) fn done(&self) -> PathBuf {
        self.directory.join(format!("done-{}", self.name))
    }

    pub(crate) fn model(&self, directory: &str) -> PathBuf {
        self.models.join(directory)
    }

    pub(crate) fn log(&self) -> PathBuf {
        self.directory.join("logs").join(format!("{}.log", self.name))
    }

    /// Fills the places into an argument.
    pub(crate) fn fill(&self, text: &str) -> String {
        text.replace("{dir}", &self.directory.to_string_lossy())
            .replace("{store}", &self.store.to_string_lossy())
            .replace("{models}", &self.models.to_string_lossy())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_script_is_in_order() {
        let doubles = doubles(Path::new("/nonexistent")).expect("demo/doubles.toml");
        assert!(doubles.len() >= 4);
        for double in &doubles {
            assert_eq!(
                doubles.iter().filter(|other| other.name == double.name).count(),
                1,
                "{}",
                double.name
            );
        }
    }
}
