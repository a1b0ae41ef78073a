//! Turns pack files into what the rest of the crate works with, and says what is wrong with them.
//!
//! Each entry is checked on its own ([`Build`]); what only shows with all packs together (does an example match its
//! template and no other) is checked by [`Packs::check_examples`].

mod endpoints;
mod entries;
mod examples;
mod guards;
mod lines;
mod processes;
mod spans;

use crate::answer::AnswerRule;
use crate::body::field_of;
use crate::endpoint::EndpointRule;
use crate::error::PackError;
use crate::fact::{FactRule, KnownSettings};
use crate::guard::Guard;
use crate::json_line::JsonSignature;
use crate::key::{KeyGrammar, KeyGrammars, WeightsGrammar};
use crate::load::{Files, Packs};
use crate::metric::MetricTable;
use crate::process::{ProcessSignature, ProcessTable};
use crate::schema::{PackFile, line_of};
use crate::span::SpanTable;
use crate::template::{Target, Template};
use crate::version::{Version, VersionRange};
use kvprov_model::observation::Body;
use kvprov_model::value::Value;
use kvprov_model::{counter, fact};
use std::collections::BTreeMap;
use std::sync::Arc;
use toml::Spanned;

/// Where an example stands, to name it in errors.
#[derive(Debug, Clone)]
pub(crate) struct Place {
    pub(crate) file: String,
    pub(crate) line: usize,
    pub(crate) subject: String,
}

impl Place {
    pub(crate) fn error(&self, problem: impl Into<String>) -> PackError {
        PackError {
            file: self.file.clone(),
            line: self.line,
            subject: self.subject.clone(),
            problem: problem.into(),
        }
    }
}

/// Packs that are being read.
#[derive(Debug, Default)]
pub(crate) struct Build {
    files: Vec<(String, String)>,
    templates: Vec<Arc<Template>>,
    json: Vec<Arc<JsonSignature>>,
    metrics: MetricTable,
    facts: Vec<FactRule>,
    keys: Vec<KeyGrammar>,
    weights: Vec<WeightsGrammar>,
    processes: Vec<ProcessSignature>,
    endpoints: Vec<EndpointRule>,
    answers: Vec<AnswerRule>,
    spans: SpanTable,
    guards: Vec<Guard>,
    errors: Vec<PackError>,
    /// Ids that were seen, and where.
    ids: BTreeMap<String, String>,
    examples: Vec<Example>,
}

/// An example and what it must be read as.
#[derive(Debug, Clone)]
pub(crate) struct Example {
    pub(crate) place: Place,
    pub(crate) text: String,
    pub(crate) of: ExampleOf,
}

/// Which entry an example belongs to.
#[derive(Debug, Clone)]
pub(crate) enum ExampleOf {
    Template(String),
    Json(String),
    Key(String),
    Weights(String),
    Process(String),
    /// Engine and path.
    Answer(String, String),
    Span(String),
}

/// One file that is being read.
pub(crate) struct Context<'f> {
    file: &'f str,
    text: &'f str,
    engine: String,
}

impl Context<'_> {
    fn place(&self, offset: usize, subject: impl Into<String>) -> Place {
        Place { file: self.file.to_owned(), line: line_of(self.text, offset), subject: subject.into() }
    }
}

impl Build {
    /// Reads all files; errors come beside what could be read.
    pub(crate) fn of(files: &Files) -> (Packs, Vec<PackError>) {
        let mut build = Self::default();
        for (path, (root, text)) in files {
            build.file(path, &format!("{root}{path}"), text);
        }
        let known_settings = Arc::new(KnownSettings::of(&build.facts).with_endpoints(&build.endpoints));
        let packs = Packs {
            files: build.files,
            templates: build.templates,
            json: build.json,
            metrics: build.metrics,
            facts: build.facts,
            processes: ProcessTable::new(build.processes, known_settings.clone()),
            known_settings,
            endpoints: build.endpoints,
            answers: build.answers,
            spans: build.spans,
            guards: build.guards,
            keys: KeyGrammars::new(build.keys, build.weights),
            examples: build.examples,
            matcher: std::sync::OnceLock::new(),
        };
        (packs, build.errors)
    }

    fn file(&mut self, path: &str, shown: &str, text: &str) {
        let file: PackFile = match toml::from_str(text) {
            Ok(file) => file,
            Err(error) => {
                let line = error.span().map_or(0, |span| line_of(text, span.start));
                let problem = format!("{}; see packs/SCHEMA.md", error.message().replace('\n', " "));
                self.errors.push(PackError { file: shown.to_owned(), line, subject: String::new(), problem });
                return;
            }
        };
        let context = Context { file: shown, text, engine: file.engine.get_ref().clone() };
        if context.engine.is_empty() {
            let place = context.place(file.engine.span().start, "engine");
            self.errors.push(place.error("is empty; name the engine"));
        }
        self.files.push((path.to_owned(), context.engine.clone()));
        self.entries(&context, file);
    }

    /// Notes an error; gives `None`, so that the entry is left out.
    fn refuse<T>(&mut self, place: &Place, problem: impl Into<String>) -> Option<T> {
        self.errors.push(place.error(problem));
        None
    }

    /// An id that no other entry has.
    fn new_id(&mut self, place: &Place, id: &str, engine: &str) -> Option<()> {
        let is_kebab = !id.is_empty()
            && id.bytes().all(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-');
        if !is_kebab {
            return self.refuse(place, "the id is not kebab-case; use a-z, 0-9 and `-`");
        }
        if !id.starts_with(&format!("{engine}-")) {
            return self
                .refuse(place, format!("the id does not start with its engine; call it `{engine}-{id}`"));
        }
        let here = format!("{}:{}", place.file, place.line);
        if let Some(there) = self.ids.insert(id.to_owned(), here) {
            return self.refuse(place, format!("the id stands at {there} too; choose another"));
        }
        Some(())
    }

    fn version(&mut self, place: &Place, text: Option<&Spanned<String>>) -> Result<Option<Version>, ()> {
        let Some(text) = text else { return Ok(None) };
        match Version::parse(text.get_ref()) {
            Some(version) => Ok(Some(version)),
            None => {
                self.errors
                    .push(place.error(format!("`{}` is no version; write it like `0.11.2`", text.get_ref())));
                Err(())
            }
        }
    }

    fn range(
        &mut self,
        place: &Place,
        since: Option<&Spanned<String>>,
        until: Option<&Spanned<String>>,
    ) -> Option<VersionRange> {
        let range =
            VersionRange { since: self.version(place, since).ok()?, until: self.version(place, until).ok()? };
        if let (Some(since), Some(until)) = (&range.since, &range.until)
            && since >= until
        {
            return self
                .refuse(place, format!("since {since} is not before until {until}; swap or drop one"));
        }
        Some(range)
    }

    fn kind(&mut self, place: &Place, kind: &str) -> Option<()> {
        if kind == "none" || Body::KINDS.iter().any(|doc| doc.name == kind) {
            return Some(());
        }
        let known: Vec<&str> = Body::KINDS.iter().map(|doc| doc.name).collect();
        self.refuse(place, format!("`{kind}` is no kind; use none or one of {}", known.join(", ")))
    }

    fn fact(&mut self, place: &Place, name: &str) -> Option<()> {
        if fact::ALL.iter().any(|(known, _)| *known == name) {
            return Some(());
        }
        self.refuse(place, format!("`{name}` is no fact; use a name of model::fact"))
    }

    fn counter(&mut self, place: &Place, name: &str) -> Option<()> {
        if counter::ALL.iter().any(|(known, _)| *known == name) {
            return Some(());
        }
        self.refuse(place, format!("`{name}` is no counter; use a name of model::counter"))
    }

    /// Whether values of some form may go to a target of a kind.
    fn target(&mut self, place: &Place, kind: &str, target: &Target, form: Form) -> Option<()> {
        let (name, key) = match target {
            Target::Dropped | Target::Kept => return Some(()),
            Target::Fact(name) => return self.fact(place, name),
            Target::Attribute(name) | Target::Half(name, _) => (name, None),
            Target::Entry(name, key) => (name, Some(key)),
        };
        if kind == "none" {
            return self.refuse(place, format!("a line of kind none keeps nothing; name `{name}` `_`"));
        }
        let Some(field) = field_of(kind, name) else {
            return self
                .refuse(place, format!("`{name}` is no attribute of {kind}; see docs/observations.md"));
        };
        if let Some(key) = key {
            return match field.field_type {
                "map of numbers" => self.counter(place, key),
                "map of text" => Some(()),
                other => self.refuse(place, format!("`{name}` is no map but {other}; drop `.{key}`")),
            };
        }
        if form.fits(field.field_type) {
            return Some(());
        }
        let problem =
            format!("`{name}` is {}, which {} cannot fill; use another type", field.field_type, form.name());
        self.refuse(place, problem)
    }

    /// A constant attribute, checked.
    fn constant(
        &mut self,
        place: &Place,
        kind: &str,
        name: &str,
        value: &toml::Value,
    ) -> Option<(Target, Value)> {
        let target = Target::parse(name);
        let value = attribute_value(value);
        let words = match &target {
            Target::Attribute(name) => {
                let Some(field) = field_of(kind, name) else {
                    return self.refuse(
                        place,
                        format!("`{name}` is no attribute of {kind}; see docs/observations.md"),
                    );
                };
                if Body::empty(kind).set(name, value.clone()).is_err() {
                    return self
                        .refuse(place, format!("`{name}` is {}; give such a value", field.field_type));
                }
                field.words
            }
            Target::Fact(fact) => {
                self.fact(place, fact)?;
                &[]
            }
            Target::Entry(..) => {
                self.target(place, kind, &target, Form::Scalar)?;
                &[]
            }
            Target::Dropped | Target::Kept | Target::Half(..) => {
                return self.refuse(place, format!("`{name}` cannot be constant; name an attribute"));
            }
        };
        if let Value::Str(word) = &value
            && !words.is_empty()
            && !words.contains(&word.as_str())
        {
            return self
                .refuse(place, format!("`{word}` is no value of `{name}`; use one of {}", words.join(", ")));
        }
        Some((target, value))
    }
}

/// What a source of values can give.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Form {
    /// An id, a word, a path, a composed text.
    Text,
    /// A whole number.
    Whole,
    /// A decimal number.
    Decimal,
    /// A list of ids.
    List,
    /// Settings.
    Map,
    /// A JSON or dict value, whose type only shows later.
    Scalar,
}

impl Form {
    fn name(self) -> &'static str {
        match self {
            Self::Text => "text",
            Self::Whole => "a whole number",
            Self::Decimal => "a decimal number",
            Self::List => "a list",
            Self::Map => "settings",
            Self::Scalar => "a value",
        }
    }

    fn fits(self, field_type: &str) -> bool {
        match self {
            Self::Text => matches!(field_type, "text" | "word" | "flag" | "list of text"),
            Self::Whole => matches!(field_type, "integer" | "number" | "text" | "list of text" | "flag"),
            Self::Decimal => matches!(field_type, "integer" | "number" | "text"),
            Self::List => field_type == "list of text",
            Self::Map => field_type == "map of text",
            Self::Scalar => !field_type.starts_with("map"),
        }
    }
}

/// A TOML value as an attribute.
fn attribute_value(value: &toml::Value) -> Value {
    match value {
        toml::Value::String(text) => Value::Str(text.clone()),
        toml::Value::Integer(number) => Value::Int(*number),
        toml::Value::Float(number) => Value::Float(*number),
        toml::Value::Boolean(flag) => Value::Bool(*flag),
        toml::Value::Datetime(time) => Value::Str(time.to_string()),
        toml::Value::Array(items) => Value::List(items.iter().map(attribute_value).collect()),
        toml::Value::Table(table) => {
            Value::Map(table.iter().map(|(key, value)| (key.clone(), attribute_value(value))).collect())
        }
    }
}
