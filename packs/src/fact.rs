//! Facts from settings and from defaults of a version.
//!
//! Input is what a worker was started with, flat with dotted names, whether it comes from arguments, environment, a
//! configuration file or a start-up line. Rules stand in the order of their packs; a rule with `when` sees the facts
//! that rules above it gave.

use crate::load::Packs;
use crate::template::Composition;
use crate::version::{Version, VersionRange};
use regex::Regex;
use std::borrow::Cow;
use std::collections::{BTreeMap, HashSet};

/// Most settings that JSON text inside one setting may add.
const MAX_NESTED: usize = 512;

/// Facts of a worker and where they come from.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ResolvedFacts {
    /// Values by name in `model::fact`.
    pub facts: BTreeMap<String, String>,
    /// Where each comes from: `setting kv_load_failure_policy`, `default of 0.32.0`.
    pub origins: BTreeMap<String, String>,
}

/// What of a worker's settings could be seen. What was not seen is not absent, so that no default stands for it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SettingsSeen {
    /// Its arguments.
    pub arguments: bool,
    /// Its environment.
    pub environment: bool,
}

/// One `[[fact]]`, checked.
#[derive(Debug, Clone)]
pub(crate) struct FactRule {
    pub(crate) engine: String,
    pub(crate) fact: String,
    /// Names of settings, normalised, best first.
    pub(crate) from: Vec<String>,
    /// In place of `from`: settings put together.
    pub(crate) compose: Option<Composition>,
    /// What a value must look like; capture 1 is what is meant.
    pub(crate) pattern: Option<Regex>,
    pub(crate) map: BTreeMap<String, String>,
    /// What the value is put into, at `{}`.
    pub(crate) format: Option<String>,
    pub(crate) defaults: Vec<(VersionRange, String)>,
    pub(crate) when: BTreeMap<String, String>,
    /// Facts of a worker of another engine under which the rule applies to it.
    pub(crate) applies_when: BTreeMap<String, String>,
}

/// Names of settings that some rule reads.
#[derive(Debug, Clone, Default)]
pub(crate) struct KnownSettings {
    names: HashSet<String>,
}

impl KnownSettings {
    pub(crate) fn of(rules: &[FactRule]) -> Self {
        let composed = rules.iter().filter_map(|rule| rule.compose.as_ref()).flat_map(Composition::names);
        let names = rules.iter().flat_map(|rule| rule.from.iter().cloned());
        Self { names: names.chain(composed.map(normal_name)).collect() }
    }

    /// Also these, which something else than a rule reads.
    pub(crate) fn add(&mut self, names: impl Iterator<Item = String>) {
        self.names.extend(names);
    }

    /// Whether the name, or an end of its dotted path, is read by a rule.
    pub(crate) fn knows(&self, key: &str) -> bool {
        let name = normal(key);
        let mut rest = &*name;
        loop {
            if self.names.contains(rest) {
                return true;
            }
            match rest.split_once('.') {
                Some((_, after)) => rest = after,
                None => return false,
            }
        }
    }
}

/// The name without leading dashes and with `_` for `-`.
pub(crate) fn normal_name(name: &str) -> String {
    normal(name).into_owned()
}

/// The same, copied only where it differs.
fn normal(name: &str) -> Cow<'_, str> {
    let bare = name.trim().trim_start_matches('-');
    if bare.contains('-') { Cow::Owned(bare.replace('-', "_")) } else { Cow::Borrowed(bare) }
}

/// Whether a dotted path goes on to this end, and is more than it.
pub(crate) fn ends_as_path(path: &str, end: &str) -> bool {
    // The byte before the end is looked at first: it tells most paths apart.
    let before = path.len().checked_sub(end.len() + 1);
    before.is_some_and(|at| path.as_bytes()[at] == b'.') && path.ends_with(end)
}

impl Packs {
    /// Facts that follow from settings (flat, dotted names; a value may be JSON text, whose parts are settings too)
    /// and from the defaults of the version. Rules of every engine read settings when the engine is unknown; defaults
    /// need the engine, and those bounded by versions the version. Rules of a library inside the engine
    /// (`applies_when`) come last and win.
    pub fn facts(
        &self,
        engine: Option<&str>,
        version: Option<&Version>,
        settings: &BTreeMap<String, String>,
    ) -> ResolvedFacts {
        self.facts_of_seen(engine, version, settings, SettingsSeen { arguments: true, environment: true })
    }

    /// As [`Packs::facts`], where not all settings could be seen: a default counts only where nothing unseen may say
    /// otherwise.
    pub fn facts_of_seen(
        &self,
        engine: Option<&str>,
        version: Option<&Version>,
        settings: &BTreeMap<String, String>,
        seen: SettingsSeen,
    ) -> ResolvedFacts {
        let settings = normalised(settings);
        let mut resolved = ResolvedFacts::default();
        // Facts that an unseen setting may decide.
        let mut hidden: HashSet<&str> = HashSet::new();
        for rule in &self.facts {
            let own = engine == Some(rule.engine.as_str());
            let open = engine.is_none() && rule.applies_when.is_empty();
            if (own || open) && !resolved.facts.contains_key(&rule.fact) && hold(&rule.when, &resolved.facts)
            {
                if rule.may_hide(seen) {
                    hidden.insert(&rule.fact);
                }
                let with_default = own && !hidden.contains(rule.fact.as_str());
                if let Some((value, origin)) = rule.value(&settings, version, with_default) {
                    resolved.set(&rule.fact, value, origin);
                }
            }
        }
        let mut of_libraries = ResolvedFacts::default();
        for rule in &self.facts {
            let applies = engine != Some(rule.engine.as_str())
                && !rule.applies_when.is_empty()
                && hold(&rule.applies_when, &resolved.facts);
            if !applies || of_libraries.facts.contains_key(&rule.fact) {
                continue;
            }
            // The version is the worker's, not the library's: only defaults of every version count.
            let known = |fact: &String| of_libraries.facts.get(fact).or_else(|| resolved.facts.get(fact));
            if all_hold(&rule.when, known) {
                if rule.may_hide(seen) {
                    hidden.insert(&rule.fact);
                }
                if let Some((value, origin)) =
                    rule.value(&settings, None, !hidden.contains(rule.fact.as_str()))
                {
                    of_libraries.set(&rule.fact, value, origin);
                }
            }
        }
        resolved.facts.extend(of_libraries.facts);
        resolved.origins.extend(of_libraries.origins);
        resolved
    }

    /// Whether some `[[fact]]` reads this setting; a dotted path matches by its end.
    pub fn is_known_setting(&self, key: &str) -> bool {
        self.known_settings.knows(key)
    }
}

impl ResolvedFacts {
    fn set(&mut self, fact: &str, value: String, origin: String) {
        self.facts.insert(fact.to_owned(), value);
        self.origins.insert(fact.to_owned(), origin);
    }
}

impl FactRule {
    /// Whether it reads a setting of a kind that was not seen.
    fn may_hide(&self, seen: SettingsSeen) -> bool {
        let composed = self.compose.iter().flat_map(Composition::names);
        let mut names = self.from.iter().map(String::as_str).chain(composed);
        // Variables are told by their names: options have lower-case letters.
        names.any(|name| {
            let is_variable = !name.bytes().any(|byte| byte.is_ascii_lowercase());
            if is_variable { !seen.environment } else { !seen.arguments }
        })
    }

    /// The value and where it comes from.
    fn value(
        &self,
        settings: &Settings<'_>,
        version: Option<&Version>,
        with_default: bool,
    ) -> Option<(String, String)> {
        let given = match &self.compose {
            Some(composition) => {
                let value_of =
                    |name: &str| setting(settings, &normal_name(name)).map(|(_, value)| value.to_owned());
                composition
                    .fill(value_of)
                    .map(|value| (composition.names().collect::<Vec<_>>().join(", "), value))
            }
            None => self
                .from
                .iter()
                .find_map(|name| setting(settings, name))
                .map(|(name, value)| (name.to_owned(), value.to_owned())),
        };
        if let Some((name, given)) = given {
            let value = self.shaped(&given)?;
            return Some((value, format!("setting {name}")));
        }
        let value = self.default_of(version).filter(|_| with_default)?.to_owned();
        let origin = version.map_or_else(|| "default".to_owned(), |version| format!("default of {version}"));
        Some((value, origin))
    }

    /// The value after `match`, `map` and `format`; `None` where it says nothing.
    fn shaped(&self, given: &str) -> Option<String> {
        let given = match &self.pattern {
            Some(pattern) => {
                let found = pattern.captures(given)?;
                found.get(1).or_else(|| found.get(0))?.as_str()
            }
            None => given,
        };
        let value = self.map.get(given).map_or(given, String::as_str);
        if value.is_empty() {
            return None;
        }
        Some(match &self.format {
            Some(format) => format.replace("{}", value),
            None => value.to_owned(),
        })
    }

    /// The default of the version. An unknown version has only a default that all versions share.
    fn default_of(&self, version: Option<&Version>) -> Option<&str> {
        match version {
            Some(version) => self
                .defaults
                .iter()
                .find(|(range, _)| range.contains(Some(version)))
                .map(|(_, value)| value.as_str()),
            None => match self.defaults.as_slice() {
                [(range, value)] if *range == VersionRange::default() => Some(value),
                _ => None,
            },
        }
    }
}

pub(crate) fn hold(conditions: &BTreeMap<String, String>, facts: &BTreeMap<String, String>) -> bool {
    all_hold(conditions, |fact| facts.get(fact))
}

fn all_hold<'f>(
    conditions: &BTreeMap<String, String>,
    known: impl Fn(&String) -> Option<&'f String>,
) -> bool {
    conditions.iter().all(|(fact, wanted)| {
        known(fact).is_some_and(|value| match wanted.strip_suffix('*') {
            Some(head) => value.starts_with(head),
            None => value == wanted,
        })
    })
}

/// Like [`hold`], where an empty text demands that the fact is absent.
pub(crate) fn hold_or_absent(
    conditions: &BTreeMap<String, String>,
    facts: &BTreeMap<String, String>,
) -> bool {
    let (absent, given): (BTreeMap<_, _>, BTreeMap<_, _>) =
        conditions.clone().into_iter().partition(|(_, wanted)| wanted.is_empty());
    absent.keys().all(|fact| !facts.contains_key(fact)) && hold(&given, facts)
}

/// Settings under normal names.
type Settings<'s> = BTreeMap<Cow<'s, str>, Cow<'s, str>>;

/// Settings under normal names; JSON objects in values are opened.
fn normalised(settings: &BTreeMap<String, String>) -> Settings<'_> {
    let mut all = BTreeMap::new();
    for (name, value) in settings {
        let name = normal(name);
        if value.trim_start().starts_with('{')
            && let Ok(json) = serde_json::from_str::<serde_json::Value>(value)
        {
            flatten(&name, &json, &mut all);
        }
        all.insert(name, Cow::Borrowed(value));
    }
    all
}

fn flatten(path: &str, value: &serde_json::Value, all: &mut Settings<'_>) {
    if all.len() > MAX_NESTED {
        return;
    }
    match value {
        serde_json::Value::Object(object) => {
            for (key, value) in object {
                flatten(&format!("{path}.{}", normal_name(key)), value, all);
            }
        }
        serde_json::Value::String(text) => {
            all.insert(Cow::Owned(path.to_owned()), Cow::Owned(text.clone()));
        }
        serde_json::Value::Null | serde_json::Value::Array(_) => {}
        scalar => {
            all.insert(Cow::Owned(path.to_owned()), Cow::Owned(scalar.to_string()));
        }
    }
}

/// The setting of a name: as it is, else the least deep path that ends with it.
fn setting<'s>(settings: &'s Settings<'_>, name: &str) -> Option<(&'s str, &'s str)> {
    let usable = |value: &str| !matches!(value, "" | "None" | "null");
    if let Some((key, value)) = settings.get_key_value(name).filter(|(_, value)| usable(value)) {
        return Some((key, value));
    }
    settings
        .iter()
        .filter(|(key, value)| ends_as_path(key, name) && usable(value))
        .min_by_key(|(key, _)| key.matches('.').count())
        .map(|(key, value)| (&**key, &**value))
}
