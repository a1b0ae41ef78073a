//! What operators declare that a name should mean: the statements of a TOML file, checked, and as observations.
//!
//! Each `[[expected]]` names an alias and what is right for it: revisions by id, or factors by digest. Several statements of one
//! alias, scope and time allow each other, so that a rollout names both of its revisions. Text in, values out; what is wrong
//! is a [`Flaw`] with its line.

use crate::clock::WallTime;
use crate::factor::{REPRESENTATION, SEMANTIC};
use crate::id::{NodeId, ObservationId};
use crate::observation::{Body, Envelope, Expected, Observation, Role, SCHEMA_VERSION, SourceKind};
use std::collections::BTreeMap;
use std::ops::Range;
use toml::de::{DeArray, DeTable, DeValue};

/// The node that stands for operators: no machine, so that nobody waits for it.
pub const NODE: &str = "(operator)";
/// The annotation of a pod that says which revisions it may run.
pub const ANNOTATION: &str = "kvprov.io/revision";
/// Statements of one file that are read.
const STATEMENTS: usize = 10_000;
/// Hex digits of a revision id behind `rev:`.
const REVISION_DIGITS: usize = 12;
const KEYS: &[&str] = &["alias", "revisions", "factors", "role", "pool", "namespace", "from"];

/// One statement.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Expectation {
    /// The name that requests ask for; absent: whatever the worker serves.
    pub alias: Option<String>,
    /// Revisions that it may mean, as ids.
    pub revisions: Vec<String>,
    /// Factors that it has to have, by name, as `algorithm:value`.
    pub factors: BTreeMap<String, String>,
    /// Only on workers of this role.
    pub role: Option<Role>,
    /// Only in this pool.
    pub pool: Option<String>,
    /// Only in this namespace.
    pub namespace: Option<String>,
    /// From when it holds; absent: as long as its list.
    pub from: Option<WallTime>,
    /// Its line in the file, from 1.
    pub line: u64,
}

/// What is wrong with a statement.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("line {line}: {what}; {advice}")]
pub struct Flaw {
    /// Line from 1.
    pub line: u64,
    /// What is wrong.
    pub what: String,
    /// What to do.
    pub advice: String,
}

/// Reads a file. All of it is right, or nothing of it counts.
pub fn read_file(text: &str) -> Result<Vec<Expectation>, Vec<Flaw>> {
    let line_of = |span: &Range<usize>| {
        let before = text.as_bytes().get(..span.start).unwrap_or_default();
        before.iter().filter(|byte| **byte == b'\n').count() as u64 + 1
    };
    // Of the errors the first one is told: those that follow come of it.
    let (document, errors) = DeTable::parse_recoverable(text);
    if let Some(error) = errors.iter().min_by_key(|error| error.span().map_or(0, |span| span.start)) {
        let line = error.span().map_or(1, |span| line_of(&span));
        return Err(vec![Flaw::new(line, format!("no TOML: {}", error.message()), "correct the line")]);
    }
    let (mut statements, mut flaws) = (Vec::new(), Vec::new());
    for (key, value) in document.get_ref() {
        let line = line_of(&key.span());
        let DeValue::Array(items) = value.get_ref() else {
            flaws.push(Flaw::new(line, format!("{:?} is no list of statements", key.get_ref()), EXPECTED));
            continue;
        };
        if key.get_ref() != "expected" {
            flaws.push(Flaw::new(line, format!("there is no key {:?}", key.get_ref()), EXPECTED));
        } else if items.len() > STATEMENTS {
            flaws.push(Flaw::new(line, format!("{} statements", items.len()), "give at most 10000"));
        } else {
            for item in items {
                let line = line_of(&item.span());
                let table = item.get_ref().as_table();
                match table.ok_or_else(|| Flaw::new(line, "no table", EXPECTED)) {
                    Ok(table) => match read_statement(table, line, &line_of) {
                        Ok(statement) => statements.push(statement),
                        Err(flaw) => flaws.push(flaw),
                    },
                    Err(flaw) => flaws.push(flaw),
                }
            }
        }
    }
    if flaws.is_empty() { Ok(statements) } else { Err(flaws) }
}

const EXPECTED: &str = "write [[expected]] tables and nothing else";

/// Reads one `[[expected]]` table that begins at a line. `line_of`: the line of a place in its file.
pub fn read_statement(
    table: &DeTable<'_>,
    line: u64,
    line_of: &dyn Fn(&Range<usize>) -> u64,
) -> Result<Expectation, Flaw> {
    let mut read = Expectation { line, ..Expectation::default() };
    for (key, value) in table {
        let (key, line) = (key.get_ref().as_ref(), line_of(&value.span()));
        let value = value.get_ref();
        let text = || {
            let text = value.as_str().filter(|text| !text.trim().is_empty());
            text.map(str::to_owned)
                .ok_or_else(|| Flaw::new(line, format!("{key} is no text"), "write it in quotes"))
        };
        match key {
            "alias" => read.alias = Some(text()?),
            "pool" => read.pool = Some(text()?),
            "namespace" => read.namespace = Some(text()?),
            "role" => read.role = Some(role(&text()?, line)?),
            "from" => read.from = Some(time(value, line)?),
            "revisions" => read.revisions = revisions(value, line)?,
            "factors" => read.factors = factors(value, line)?,
            other => {
                let advice = format!("use {}", KEYS.join(", "));
                return Err(Flaw::new(line, format!("[[expected]] has no key {other:?}"), advice));
            }
        }
    }
    match (&read.alias, read.revisions.is_empty(), read.factors.is_empty()) {
        (None, ..) => {
            Err(Flaw::new(line, "[[expected]] without an alias", "give alias = \"the served name\""))
        }
        (_, true, true) => Err(Flaw::new(
            line,
            "[[expected]] allows nothing",
            "give revisions = [\"rev:…\"] or factors = { weights = \"sha256:…\" }",
        )),
        (_, false, false) => Err(Flaw::new(
            line,
            "[[expected]] names revisions and factors",
            "give one of them; a second [[expected]] of the same alias allows the other",
        )),
        _ => Ok(read),
    }
}

fn role(word: &str, line: u64) -> Result<Role, Flaw> {
    match Role::from(word) {
        Role::Other(word) => Err(Flaw::new(
            line,
            format!("there is no role {word:?}"),
            format!("use {}", Role::ALL.join(", ")),
        )),
        role => Ok(role),
    }
}

fn time(value: &DeValue<'_>, line: u64) -> Result<WallTime, Flaw> {
    let text = match value {
        DeValue::String(text) => text.to_string(),
        DeValue::Datetime(time) => time.to_string(),
        _ => String::new(),
    };
    WallTime::parse_rfc3339(&text)
        .ok_or_else(|| Flaw::new(line, "from is no time", "write it like \"2026-08-16T08:00:00Z\""))
}

fn revisions(value: &DeValue<'_>, line: u64) -> Result<Vec<String>, Flaw> {
    let texts = |items: &DeArray<'_>| {
        let texts: Option<Vec<String>> =
            items.iter().map(|item| item.get_ref().as_str().map(str::to_owned)).collect();
        texts.filter(|texts| !texts.is_empty())
    };
    let Some(texts) = value.as_array().and_then(texts) else {
        return Err(Flaw::new(line, "revisions is no list of texts", "write it like [\"rev:0123456789ab\"]"));
    };
    texts.iter().map(|text| revision(text, line)).collect()
}

/// A revision id as it is printed.
fn revision(text: &str, line: u64) -> Result<String, Flaw> {
    let text = text.trim();
    let is_digit = |byte: u8| byte.is_ascii_digit() || (b'a'..=b'f').contains(&byte);
    let digits = text.strip_prefix("rev:").unwrap_or_default();
    if digits.len() == REVISION_DIGITS && digits.bytes().all(is_digit) {
        return Ok(text.to_owned());
    }
    let advice = "write rev: and 12 hex digits, as /api/v1/workers shows it; an alias, a tag and a commit are no revision";
    Err(Flaw::new(line, format!("{text:?} is no revision"), advice))
}

fn factors(value: &DeValue<'_>, line: u64) -> Result<BTreeMap<String, String>, Flaw> {
    let shape =
        || Flaw::new(line, "factors is no table of texts", "write it like { weights = \"sha256:…\" }");
    let mut read = BTreeMap::new();
    for (name, value) in value.as_table().ok_or_else(shape)? {
        let name = name.get_ref().as_ref();
        if !SEMANTIC.contains(&name) && !REPRESENTATION.contains(&name) {
            let known = [SEMANTIC, REPRESENTATION].concat().join(", ");
            return Err(Flaw::new(line, format!("there is no factor {name:?}"), format!("use {known}")));
        }
        let text = value.get_ref().as_str().filter(|text| !text.trim().is_empty());
        read.insert(name.to_owned(), text.ok_or_else(shape)?.trim().to_owned());
    }
    Ok(read)
}

/// The value of the annotation `kvprov.io/revision`: revision ids, separated by commas or blanks.
pub fn read_annotation(value: &str) -> Result<Expectation, Flaw> {
    let ids = value.split([',', ' ']).filter(|id| !id.is_empty());
    let revisions: Vec<String> = ids.map(|id| revision(id, 1)).collect::<Result<_, _>>()?;
    if revisions.is_empty() {
        return Err(Flaw::new(1, "the annotation names no revision", "write rev: and 12 hex digits"));
    }
    Ok(Expectation { revisions, line: 1, ..Expectation::default() })
}

/// The annotation in a file of Kubernetes' downward API, whose lines are `name="value"`; `None`: it is not there.
pub fn annotation_in(text: &str) -> Option<Result<Expectation, Flaw>> {
    let mut lines = text.lines().zip(1..);
    lines.find_map(|(line, number)| {
        let value = line.trim().strip_prefix(ANNOTATION)?.strip_prefix('=')?;
        let value = value.strip_prefix('"').and_then(|value| value.strip_suffix('"')).unwrap_or(value);
        let read = read_annotation(value);
        Some(
            read.map(|read| Expectation { line: number, ..read })
                .map_err(|flaw| Flaw { line: number, ..flaw }),
        )
    })
}

/// A list as observations. `stream`: where it stands, as people know it; `since`: from when the list holds. The same list gives
/// the same observations.
pub fn observations(list: &[Expectation], stream: &str, since: Option<WallTime>) -> Vec<Observation> {
    let instance = format!("expected {stream} {}", since.map_or(0, |since| since.0));
    let observe = |offset: u64, line: u64, says: String, body: Expected| Observation {
        envelope: Envelope {
            schema_version: SCHEMA_VERSION,
            id: ObservationId::derive(&instance, 0, offset, 0),
            node: NodeId::from(NODE),
            boot_id: None,
            worker: None,
            source: SourceKind::Config,
            stream: stream.to_owned(),
            position: i64::try_from(line).unwrap_or(i64::MAX),
            monotonic: None,
            // It never grows old.
            wall: None,
            says: Some(says),
        },
        body: Body::Expected(Expected { list_wall_ns: since.map(|since| since.0), ..body }),
        extra: BTreeMap::new(),
        resource: BTreeMap::new(),
    };
    if list.is_empty() {
        return vec![observe(0, 0, "nothing is declared".to_owned(), Expected::default())];
    }
    let numbered = list.iter().zip(1..);
    numbered.map(|(one, number)| observe(number, one.line, one.says(), one.body())).collect()
}

// === impl Flaw ===

impl Flaw {
    fn new(line: u64, what: impl Into<String>, advice: impl Into<String>) -> Self {
        Self { line, what: what.into(), advice: advice.into() }
    }
}

// === impl Expectation ===

impl Expectation {
    /// As the body of an observation.
    pub fn body(&self) -> Expected {
        Expected {
            alias: self.alias.clone(),
            revisions: self.revisions.clone(),
            factors: self.factors.clone(),
            role: self.role.clone(),
            pool: self.pool.clone(),
            namespace: self.namespace.clone(),
            from_wall_ns: self.from.map(|from| from.0),
            list_wall_ns: None,
        }
    }

    /// In words.
    pub fn says(&self) -> String {
        let factors = self.factors.iter().map(|(name, value)| format!("{name} {value}"));
        let allowed = if self.factors.is_empty() {
            self.revisions.join(" or ")
        } else {
            factors.collect::<Vec<_>>().join(" and ")
        };
        let scope = [
            self.role.as_ref().map(|role| format!(" on {role} workers")),
            self.pool.as_ref().map(|pool| format!(" in pool {pool}")),
            self.namespace.as_ref().map(|namespace| format!(" in namespace {namespace}")),
            self.from.map(|from| format!(" from {}", from.to_rfc3339())),
        ];
        let scope: String = scope.into_iter().flatten().collect();
        format!("{} is declared to be {allowed}{scope}", self.alias.as_deref().unwrap_or("what it serves"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const REVISION: &str = "rev:0123456789ab";

    fn flaw(text: &str) -> Flaw {
        read_file(text).expect_err("flawed").remove(0)
    }

    #[test]
    fn a_statement_names_an_alias_and_what_is_right_for_it() {
        let text = format!(
            "[[expected]]\nalias = \"m\"\nrevisions = [\"{REVISION}\"]\nrole = \"decode\"\nfrom = 2026-08-16T08:00:00Z\n\
             [[expected]]\nalias = \"m\"\nfactors = {{ weights = \"sha256:aa\", dtype = \"bfloat16\" }}\n"
        );
        let read = read_file(&text).expect("right");
        assert_eq!((read[0].line, read[1].line), (1, 6));
        assert_eq!(read[0].revisions, [REVISION]);
        assert_eq!(
            (read[0].role.clone(), read[0].from),
            (Some(Role::Decode), WallTime::parse_rfc3339("2026-08-16T08:00:00Z"))
        );
        assert_eq!(read[1].says(), "m is declared to be dtype bfloat16 and weights sha256:aa");
    }

    #[test]
    fn what_is_wrong_is_told_with_its_line_and_what_to_do() {
        for (text, line, what) in [
            ("[[expected]]\nalias = \"m\"\nrevisions = [\"v2\"]\n", 3, "\"v2\" is no revision"),
            (
                "[[expected]]\nalias = \"m\"\nfactors = { weigths = \"a\" }\n",
                3,
                "there is no factor \"weigths\"",
            ),
            ("[[expected]]\nalias = \"m\"\nrevision = \"x\"\n", 3, "no key \"revision\""),
            ("\n[[expected]]\nrevisions = [\"rev:0123456789ab\"]\n", 2, "without an alias"),
            ("[[expected]]\nalias = \"m\"\n", 1, "allows nothing"),
            ("[[expected]]\nalias = \"m\"\nrole = \"decoder\"\n", 3, "there is no role"),
            ("[[expected]]\nalias = \"m\"\nfrom = \"soon\"\n", 3, "from is no time"),
            ("[[expected]]\nalias = \"m\nx\"\n", 2, "no TOML"),
            ("expected = 1\n", 1, "no list"),
            ("[[worker]]\nname = \"m\"\n", 1, "there is no key"),
        ] {
            let flaw = flaw(text);
            assert_eq!(flaw.line, line, "{text}: {flaw}");
            assert!(flaw.what.contains(what) && !flaw.advice.is_empty(), "{text}: {flaw}");
        }
    }

    #[test]
    fn every_flaw_of_a_file_is_told_and_one_is_enough_to_refuse_it() {
        let text = format!(
            "[[expected]]\n[[expected]]\nalias = \"m\"\nrevisions = [\"{REVISION}\"]\n[[expected]]\n"
        );
        assert_eq!(
            read_file(&text).expect_err("flawed").iter().map(|flaw| flaw.line).collect::<Vec<_>>(),
            [1, 5]
        );
    }

    #[test]
    fn an_annotation_is_a_list_of_revisions() {
        let read = read_annotation("rev:0123456789ab, rev:ba9876543210").expect("right");
        assert_eq!(read.revisions, ["rev:0123456789ab", "rev:ba9876543210"]);
        for wrong in ["", "v2", "rev:0123456789AB", "rev:é"] {
            assert!(read_annotation(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn an_annotation_is_found_among_those_of_its_pod() {
        let text = "build=\"7\"\nkvprov.io/revision=\"rev:0123456789ab\"\nkvprov.io/revisions=\"x\"\n";
        let read = annotation_in(text).expect("there").expect("right");
        assert_eq!((read.line, read.revisions), (2, vec![REVISION.to_owned()]));
        assert!(annotation_in("kvprov.io/revisions=\"rev:0123456789ab\"\n").is_none());
        assert_eq!(
            annotation_in("a=\"b\"\n\nkvprov.io/revision=\"v2\"").expect("there").expect_err("flawed").line,
            3
        );
    }

    #[test]
    fn the_same_list_is_told_the_same_and_an_empty_one_is_told_too() {
        let list = [read_annotation(REVISION).expect("right")];
        assert_eq!(observations(&list, "f", None), observations(&list, "f", None));
        assert_ne!(
            observations(&list, "f", None)[0].envelope.id,
            observations(&list, "f", Some(WallTime(5)))[0].envelope.id
        );
        assert_eq!(observations(&[], "f", Some(WallTime(5))).len(), 1);
    }
}
