//! How a process of an engine is recognised, and what its command line, environment and files say of it.
//!
//! Input is what the system shows of a process: arguments, thread name, environment, mapped files. All of it may hold
//! secrets, so that only settings that some fact reads leave this module, without the user part of URLs.
//! Invariant: what is not recognised is no engine; a word of an engine among the arguments of another program proves
//! nothing.

mod command;
mod pattern;
mod settings;
mod text_file;

pub use command::Invocation;
pub(crate) use command::RunSpec;
pub use pattern::Pattern;

use crate::fact::{KnownSettings, ResolvedFacts, hold_or_absent};
use crate::load::Packs;
use kvprov_model::fact;
use kvprov_model::observation::Role;
use std::collections::{BTreeMap, BTreeSet};

/// Where a process stands in the tree of its engine.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, serde::Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum ProcessPlace {
    /// It was started by somebody else and starts the others.
    #[default]
    Leader,
    /// The engine started it.
    Member,
}

/// One `[[process]]`, checked.
#[derive(Debug, Clone)]
pub struct ProcessSignature {
    /// Unique name, starts with the engine.
    pub id: String,
    /// The engine whose pack holds it.
    pub engine: String,
    /// Where such a process stands.
    pub place: ProcessPlace,
    /// A member that the leader does not start itself.
    pub detached: bool,
    /// Distributions whose metadata tell the version, best first.
    pub packages: Vec<String>,
    pub(crate) run: Vec<RunSpec>,
    pub(crate) titles: Vec<Pattern>,
    /// Options that must all be there.
    pub(crate) options: Vec<String>,
    /// Variables of which one must be set.
    pub(crate) environment: Vec<Pattern>,
    /// Mapped files of which one must be there.
    pub(crate) libraries: Vec<Pattern>,
    pub(crate) role: Option<Role>,
    pub(crate) roles: Vec<(BTreeMap<String, String>, Role)>,
    /// The setting that the first argument without option is.
    pub(crate) positional: Option<String>,
    /// Options without value.
    pub(crate) flags: BTreeSet<String>,
    /// Options with several values, of which the first counts.
    pub(crate) lists: BTreeSet<String>,
    /// Lists of `name=path`, of which every value counts.
    pub(crate) named: BTreeSet<String>,
    /// Settings that name a file of settings.
    pub(crate) files: BTreeSet<String>,
}

/// What costs more to ask of a process than its arguments. Asked only where the arguments fit an entry that needs it.
pub trait Closer {
    /// Whether a variable of the environment has a name that the pattern fits.
    fn has_variable(&mut self, name: &Pattern) -> bool;
    /// Whether a mapped file has a path that the pattern fits.
    fn has_mapped(&mut self, path: &Pattern) -> bool;
}

/// Knows nothing more.
impl Closer for () {
    fn has_variable(&mut self, _: &Pattern) -> bool {
        false
    }

    fn has_mapped(&mut self, _: &Pattern) -> bool {
        false
    }
}

/// A setting stands among the arguments.
pub const COMMAND_LINE: &str = "the command line";
/// A setting stands in the environment.
pub const ENVIRONMENT: &str = "the environment";
/// A setting stands in a file that arguments or environment name.
pub const FILE: &str = "a settings file";

/// What is known of a process's settings.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ProcessSettings {
    /// Settings that some fact reads, flat with dotted names.
    pub settings: BTreeMap<String, String>,
    /// Where each of them stands: [`COMMAND_LINE`], [`ENVIRONMENT`] or [`FILE`].
    pub places: BTreeMap<String, &'static str>,
    /// Paths of files with further settings, as given: relative to the process's directory.
    pub files: Vec<String>,
}

/// All `[[process]]` entries.
#[derive(Debug, Clone, Default)]
pub struct ProcessTable {
    entries: Vec<ProcessSignature>,
    known: std::sync::Arc<KnownSettings>,
}

// === impl ProcessTable ===

impl ProcessTable {
    pub(crate) fn new(entries: Vec<ProcessSignature>, known: std::sync::Arc<KnownSettings>) -> Self {
        Self { entries, known }
    }

    /// Every entry, in the order of the packs.
    pub fn entries(&self) -> impl Iterator<Item = &ProcessSignature> {
        self.entries.iter()
    }

    /// What a process is. The way it was started counts before a title or thread name, which children inherit; of
    /// several entries the first in the packs.
    pub fn recognise(
        &self,
        arguments: &[String],
        thread_name: &str,
        closer: &mut dyn Closer,
    ) -> Option<&ProcessSignature> {
        let invocation = Invocation::of(arguments);
        let by_start = self.entries.iter().find(|entry| {
            invocation.as_ref().is_some_and(|invocation| entry.is_started_by(invocation))
                && entry.fits(closer)
        });
        by_start.or_else(|| {
            let title = arguments.first().map_or("", |first| first.trim());
            self.entries.iter().find(|entry| entry.is_called(title, thread_name) && entry.fits(closer))
        })
    }
}

// === impl ProcessSettings ===

impl ProcessSettings {
    /// Adds to the origins of facts where their settings stand: `setting tp_size of the command line`.
    pub fn place(&self, facts: &mut ResolvedFacts) {
        for origin in facts.origins.values_mut() {
            let place = origin.strip_prefix("setting ").and_then(|name| self.places.get(name));
            if let Some(place) = place {
                origin.push_str(&format!(" of {place}"));
            }
        }
    }
}

// === impl ProcessSignature ===

impl ProcessSignature {
    fn is_started_by(&self, invocation: &Invocation<'_>) -> bool {
        self.run.iter().any(|spec| spec.matches(invocation))
            && self.options.iter().all(|option| {
                invocation.rest.iter().any(|argument| settings::option_name(argument) == Some(option.clone()))
            })
    }

    fn is_called(&self, title: &str, thread_name: &str) -> bool {
        self.titles.iter().any(|pattern| pattern.matches(title) || pattern.matches_cut(thread_name))
    }

    /// Whether environment and mapped files fit, where the entry asks for them.
    fn fits(&self, closer: &mut dyn Closer) -> bool {
        (self.environment.is_empty() || self.environment.iter().any(|name| closer.has_variable(name)))
            && (self.libraries.is_empty() || self.libraries.iter().any(|path| closer.has_mapped(path)))
    }

    /// Settings from the arguments and the environment of a leader. Arguments count before the environment.
    pub fn settings(
        &self,
        table: &ProcessTable,
        arguments: &[String],
        environment: &[(String, String)],
    ) -> ProcessSettings {
        let mut found = ProcessSettings::default();
        let mut read = settings::Reader::new(&table.known, &self.files, &mut found, ENVIRONMENT);
        for (name, value) in environment {
            read.variable(name, value);
        }
        read.place(COMMAND_LINE);
        if let Some(invocation) = Invocation::of(arguments) {
            let rest = self.run.iter().find_map(|spec| spec.rest(&invocation)).unwrap_or(invocation.rest);
            read.arguments(rest, self.positional.as_deref(), self);
        }
        found
    }

    /// Settings from the text of a file that [`ProcessSettings::files`] named: JSON or simple YAML. What is set already
    /// stands.
    pub fn add_file(&self, table: &ProcessTable, text: &str, settings: &mut ProcessSettings) {
        let mut from_file = ProcessSettings::default();
        let mut read = settings::Reader::new(&table.known, &self.files, &mut from_file, FILE);
        for (name, value) in text_file::flat(text) {
            read.setting(&name, &value);
        }
        for (name, value) in from_file.settings {
            settings.places.entry(name.clone()).or_insert(FILE);
            settings.settings.entry(name).or_insert(value);
        }
    }

    /// What the process is for, as far as its facts tell.
    pub fn role(&self, facts: &ResolvedFacts) -> Option<Role> {
        let stated = facts.facts.get(fact::ROLE).map(|word| Role::from(word.as_str()));
        let by_rule = || {
            let rule = self.roles.iter().find(|(when, _)| hold_or_absent(when, &facts.facts));
            rule.map(|(_, role)| role.clone())
        };
        stated.or_else(by_rule).or_else(|| self.role.clone())
    }
}

impl Packs {
    /// How processes are recognised.
    pub fn processes(&self) -> &ProcessTable {
        &self.processes
    }
}
