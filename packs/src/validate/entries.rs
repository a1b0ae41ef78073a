//! Each entry of a pack on its own.

use super::{Build, Context, Example, ExampleOf, Form, Place};
use crate::fact::{FactRule, normal_name};
use crate::json_line::JsonSignature;
use crate::key::{KeyGrammar, WeightsGrammar, anchored};
use crate::matcher::offer_of;
use crate::metric::Meaning;
use crate::placeholder::PlaceholderType;
use crate::schema::{PackFile, RawFact, RawInfo, RawJson, RawKey, RawMetric, RawTemplate, RawWeights, Temporary};
use crate::template::{Composition, Segment, Slot, Target, Template, Wanted, parse_text};
use crate::version::VersionRange;
use std::collections::BTreeMap;
use std::sync::Arc;
use toml::Spanned;

/// Levels that a template may name.
const LEVELS: &[&str] = &["debug", "info", "warning", "error", "critical"];
/// Factors that a file may be.
const FACTORS: &[&str] = &["weights", "adapter", "tokenizer", "chat_template", "config", "any"];

impl Build {
    pub(super) fn entries(&mut self, context: &Context<'_>, file: PackFile) {
        let applies_when = plain(&file.applies_when);
        for (name, value) in &file.applies_when {
            self.fact(&context.place(value.span().start, "applies_when"), name);
        }
        for entry in file.template {
            if let Some(template) = self.template(context, &entry) {
                self.templates.push(Arc::new(template));
            }
        }
        for entry in file.json {
            if let Some(signature) = self.json(context, &entry) {
                self.json.push(Arc::new(signature));
            }
        }
        for entry in file.metric {
            self.metric(context, &entry);
        }
        for entry in file.info {
            self.info(context, &entry);
        }
        for entry in file.fact {
            self.fact_rule(context, &entry, &applies_when);
        }
        for entry in file.key {
            if let Some(grammar) = self.key(context, &entry) {
                self.keys.push(grammar);
            }
        }
        for entry in file.weights {
            if let Some(grammar) = self.weights(context, &entry) {
                self.weights.push(grammar);
            }
        }
    }

    fn template(&mut self, context: &Context<'_>, entry: &Spanned<RawTemplate>) -> Option<Template> {
        let raw = entry.get_ref();
        let subject = format!("template {}", raw.id);
        let at = |offset: usize| context.place(offset, subject.clone());
        let place = at(entry.span().start);
        self.new_id(&place, &raw.id, &context.engine)?;
        let kind = raw.kind.get_ref();
        self.kind(&at(raw.kind.span().start), kind)?;
        let versions = self.range(&place, raw.since.as_ref(), raw.until.as_ref())?;
        let implied_versions = self.range(&place, raw.implies_since.as_ref(), raw.implies_until.as_ref())?;
        if let Some(level) = &raw.level
            && !LEVELS.contains(&level.get_ref().as_str())
        {
            return self.refuse(&at(level.span().start), format!("no such level; use one of {}", LEVELS.join(", ")));
        }
        let text_place = at(raw.text.span().start);
        let segments = match parse_text(raw.text.get_ref()) {
            Ok(segments) => segments,
            Err(problem) => return self.refuse(&text_place, problem),
        };
        let mut names: Vec<String> = Vec::new();
        for segment in &segments {
            let Segment::Placeholder(placeholder) = segment else { continue };
            self.placeholder(&text_place, kind, &placeholder.slot, placeholder.kind)?;
            names.push(placeholder.slot.name.clone());
        }
        let mut keys = Vec::new();
        for (key, name) in &raw.keys {
            let slot = Slot::of(name.get_ref());
            self.target(&at(name.span().start), kind, &slot.target, Form::Scalar)?;
            names.push(slot.name.clone());
            keys.push((key.clone(), slot));
        }
        let has_dict = segments
            .iter()
            .any(|segment| matches!(segment, Segment::Placeholder(one) if one.kind == PlaceholderType::PyDict));
        if has_dict == keys.is_empty() && (has_dict || !raw.keys.is_empty()) && kind != "none" {
            return self.refuse(&place, "`keys` and a placeholder of type pydict go together; add the other one");
        }
        let mut set = Vec::new();
        for (name, value) in &raw.set {
            set.push(self.constant(&at(value.span().start), kind, name, value.get_ref())?);
        }
        let mut compose = Vec::new();
        for (name, text) in &raw.compose {
            compose.push(self.composition(&at(text.span().start), kind, name, text.get_ref(), Some(&names))?);
        }
        let mut also = Vec::new();
        for (name, source) in &raw.also {
            let place = at(source.span().start);
            let target = Target::parse(name);
            self.target(&place, kind, &target, Form::Scalar)?;
            self.named(&place, source.get_ref(), &names)?;
            also.push((target, source.get_ref().clone()));
        }
        let mut ignore_if = Vec::new();
        for (name, value) in &raw.ignore_if {
            let place = at(value.span().start);
            self.named(&place, name, &names)?;
            match Wanted::parse(value.get_ref()) {
                Ok(wanted) => ignore_if.push((name.clone(), wanted)),
                Err(error) => return self.refuse(&place, format!("{error}; correct the expression")),
            }
        }
        for (fact, value) in &raw.implies {
            self.fact(&at(value.span().start), fact)?;
        }
        let literal_len = segments
            .iter()
            .map(|segment| if let Segment::Literal(literal) = segment { literal.len() } else { 0 })
            .sum();
        let template = Template {
            id: raw.id.clone(),
            engine: context.engine.clone(),
            text: raw.text.get_ref().clone(),
            versions,
            level: raw.level.as_ref().map(|level| level.get_ref().clone()),
            kind: kind.clone(),
            explains: raw.explains,
            takes_cause: raw.takes_cause,
            alone: raw.alone,
            implies: plain(&raw.implies),
            implied_versions,
            multiline: raw.multiline,
            folds: raw.folds,
            example: raw.example.get_ref().clone(),
            source: raw.source.clone(),
            at_start: raw.at_start,
            segments,
            set,
            scale: raw.scale.clone(),
            keys,
            compose,
            also,
            ignore_if,
            literal_len,
        };
        if crate::anchor::choose(&[offer_of(&template)]).1 == [None] {
            return self.refuse(&text_place, "no literal of at least 6 bytes to find the line by; add words to the text");
        }
        self.examples.push(Example {
            place: at(raw.example.span().start),
            text: raw.example.get_ref().clone(),
            of: ExampleOf::Template(raw.id.clone()),
        });
        Some(template)
    }

    fn placeholder(&mut self, place: &Place, kind: &str, slot: &Slot, of_type: PlaceholderType) -> Option<()> {
        let form = match of_type {
            PlaceholderType::Text => {
                if slot.target == Target::Dropped {
                    return Some(());
                }
                return self.refuse(place, format!("free text is never kept; name `{}` `_`", slot.name));
            }
            PlaceholderType::PyDict => {
                if slot.target == Target::Dropped {
                    return Some(());
                }
                return self.refuse(place, "a pydict gives its keys by `keys`; name it `_`");
            }
            PlaceholderType::Id
            | PlaceholderType::Word
            | PlaceholderType::Path
            | PlaceholderType::TokenDigest
            | PlaceholderType::Digest => Form::Text,
            PlaceholderType::Int | PlaceholderType::Size => Form::Whole,
            PlaceholderType::Float => Form::Decimal,
            PlaceholderType::Ids => Form::List,
            PlaceholderType::Settings => Form::Map,
        };
        self.target(place, kind, &slot.target, form)
    }

    fn named(&mut self, place: &Place, name: &str, names: &[String]) -> Option<()> {
        if names.iter().any(|known| known == name) {
            return Some(());
        }
        self.refuse(place, format!("`{name}` is captured nowhere; name a placeholder of the text or of `keys`"))
    }

    fn composition(
        &mut self,
        place: &Place,
        kind: &str,
        name: &str,
        text: &str,
        names: Option<&[String]>,
    ) -> Option<(Target, Composition)> {
        let target = Target::parse(name);
        self.target(place, kind, &target, Form::Text)?;
        let composition = match Composition::parse(text) {
            Ok(composition) => composition,
            Err(problem) => return self.refuse(place, problem),
        };
        for part in names.into_iter().flat_map(|names| composition.names().map(move |part| (part, names))) {
            self.named(place, part.0, part.1)?;
        }
        Some((target, composition))
    }

    fn json(&mut self, context: &Context<'_>, entry: &Spanned<RawJson>) -> Option<JsonSignature> {
        let raw = entry.get_ref();
        let subject = format!("json {}", raw.id);
        let at = |offset: usize| context.place(offset, subject.clone());
        let place = at(entry.span().start);
        self.new_id(&place, &raw.id, &context.engine)?;
        let kind = raw.kind.get_ref();
        self.kind(&at(raw.kind.span().start), kind)?;
        if raw.when.is_empty() && raw.present.is_empty() {
            return self.refuse(&place, "no condition; add `when` or `present`");
        }
        let mut set = Vec::new();
        for (name, value) in &raw.set {
            set.push(self.constant(&at(value.span().start), kind, name, value.get_ref())?);
        }
        let paths = |build: &mut Self, pairs: &BTreeMap<String, Spanned<String>>| {
            let mut targets = Vec::new();
            for (name, path) in pairs {
                let target = Target::parse(name);
                build.target(&at(path.span().start), kind, &target, Form::Scalar)?;
                targets.push((target, path.get_ref().clone()));
            }
            Some(targets)
        };
        let attributes = paths(self, &raw.attributes)?;
        let exists = paths(self, &raw.exists)?;
        let first = paths(self, &raw.first)?;
        let mut compose = Vec::new();
        for (name, text) in &raw.compose {
            compose.push(self.composition(&at(text.span().start), kind, name, text.get_ref(), None)?);
        }
        let mut when = BTreeMap::new();
        for (path, value) in &raw.when {
            let text = match value {
                toml::Value::String(text) => text.clone(),
                toml::Value::Integer(_) | toml::Value::Boolean(_) | toml::Value::Float(_) => value.to_string(),
                _ => return self.refuse(&place, format!("`{path}` is compared with no text, number or flag; use one")),
            };
            when.insert(path.clone(), text);
        }
        self.examples.push(Example {
            place: at(raw.example.span().start),
            text: raw.example.get_ref().clone(),
            of: ExampleOf::Json(raw.id.clone()),
        });
        Some(JsonSignature {
            id: raw.id.clone(),
            engine: context.engine.clone(),
            kind: kind.clone(),
            set,
            when,
            present: raw.present.clone(),
            attributes,
            exists,
            compose,
            first,
            time: raw.time.clone(),
            scale: raw.scale.clone(),
        })
    }

    fn metric(&mut self, context: &Context<'_>, entry: &Spanned<RawMetric>) -> Option<()> {
        let raw = entry.get_ref();
        let place = context.place(entry.span().start, format!("metric {}", raw.name));
        let versions = self.range(&place, raw.since.as_ref(), raw.until.as_ref())?;
        self.counter(&context.place(raw.counter.span().start, place.subject.clone()), raw.counter.get_ref())?;
        self.metrics.add(Meaning {
            engine: context.engine.clone(),
            name: raw.name.clone(),
            labels: raw.labels.clone(),
            metric_type: raw.metric_type,
            counter: raw.counter.get_ref().clone(),
            versions,
            note: raw.note.clone(),
        });
        Some(())
    }

    fn info(&mut self, context: &Context<'_>, entry: &Spanned<RawInfo>) -> Option<()> {
        let raw = entry.get_ref();
        let subject = format!("info {}", raw.name);
        let mut labels = Vec::new();
        for (label, fact) in &raw.labels {
            self.fact(&context.place(fact.span().start, subject.clone()), fact.get_ref())?;
            labels.push((label.clone(), fact.get_ref().clone()));
        }
        self.metrics.add_info(&raw.name, labels);
        Some(())
    }

    fn fact_rule(
        &mut self,
        context: &Context<'_>,
        entry: &Spanned<RawFact>,
        applies_when: &BTreeMap<String, String>,
    ) -> Option<()> {
        let raw = entry.get_ref();
        let subject = format!("fact {}", raw.fact.get_ref());
        let at = |offset: usize| context.place(offset, subject.clone());
        let place = at(entry.span().start);
        self.fact(&at(raw.fact.span().start), raw.fact.get_ref())?;
        for (name, value) in &raw.when {
            self.fact(&at(value.span().start), name)?;
        }
        if raw.compose.is_some() && !raw.from.is_empty() {
            return self.refuse(&place, "`from` and `compose` exclude each other; drop one");
        }
        if raw.compose.is_none() && raw.from.is_empty() && raw.default.is_empty() {
            return self.refuse(&place, "neither `from` nor `compose` nor `default`; add one");
        }
        let compose = match raw.compose.as_ref().map(|text| (text.span().start, Composition::parse(text.get_ref()))) {
            Some((_, Ok(composition))) => Some(composition),
            Some((offset, Err(problem))) => return self.refuse(&at(offset), problem),
            None => None,
        };
        let pattern = match raw.pattern.as_ref().map(|text| (text.span().start, regex::Regex::new(text.get_ref()))) {
            Some((_, Ok(pattern))) => Some(pattern),
            Some((offset, Err(error))) => return self.refuse(&at(offset), format!("{error}; correct the expression")),
            None => None,
        };
        let mut defaults = Vec::new();
        for default in &raw.default {
            let range: VersionRange = self.range(&place, default.since.as_ref(), default.until.as_ref())?;
            defaults.push((range, default.value.clone()));
        }
        self.facts.push(FactRule {
            engine: context.engine.clone(),
            fact: raw.fact.get_ref().clone(),
            from: raw.from.iter().map(|name| normal_name(name)).collect(),
            compose,
            pattern,
            map: raw.map.clone(),
            format: raw.format.clone(),
            defaults,
            when: plain(&raw.when),
            applies_when: applies_when.clone(),
        });
        Some(())
    }

    fn key(&mut self, context: &Context<'_>, entry: &Spanned<RawKey>) -> Option<KeyGrammar> {
        let raw = entry.get_ref();
        let subject = format!("key {}", raw.id);
        let at = |offset: usize| context.place(offset, subject.clone());
        let place = at(entry.span().start);
        self.new_id(&place, &raw.id, &context.engine)?;
        let pattern_place = at(raw.pattern.span().start);
        let regex = match regex::Regex::new(&anchored(raw.pattern.get_ref(), raw.on)) {
            Ok(regex) => regex,
            Err(error) => return self.refuse(&pattern_place, format!("{error}; correct the expression")),
        };
        let captures: Vec<&str> = regex.capture_names().flatten().collect();
        let (temporary, temporary_if) = match &raw.temporary {
            Some(Temporary::Flag(flag)) => (*flag, None),
            Some(Temporary::Capture(name)) => (false, Some(name.clone())),
            None => (false, None),
        };
        let content: Vec<String> = raw.content.as_ref().map_or_else(Vec::new, |names| names.as_slice().to_vec());
        let used = content.iter().chain(&temporary_if).chain(&raw.hex_fields).chain(raw.fields.keys());
        for name in used {
            if !captures.contains(&name.as_str()) {
                return self.refuse(&pattern_place, format!("no capture `{name}`; add `(?P<{name}>…)`"));
            }
        }
        for fact in raw.fields.values() {
            self.fact(&at(fact.span().start), fact.get_ref())?;
        }
        for field in &raw.rank_fields {
            if !raw.fields.values().any(|fact| fact.get_ref() == field.get_ref()) {
                let problem = format!("`{}` is no field of this key; name a fact of `fields`", field.get_ref());
                return self.refuse(&at(field.span().start), problem);
            }
        }
        for text in raw.example.get_ref().as_slice() {
            self.examples.push(Example {
                place: at(raw.example.span().start),
                text: text.clone(),
                of: ExampleOf::Key(raw.id.clone()),
            });
        }
        Some(KeyGrammar {
            id: raw.id.clone(),
            engine: context.engine.clone(),
            pattern: raw.pattern.get_ref().clone(),
            place: raw.on,
            content,
            temporary,
            temporary_if,
            fields: raw.fields.iter().map(|(capture, fact)| (capture.clone(), fact.get_ref().clone())).collect(),
            hex_fields: raw.hex_fields.clone(),
            rank_fields: raw.rank_fields.iter().map(|field| field.get_ref().clone()).collect(),
            normalise: raw.normalise,
            not_artifact: raw.not_artifact,
        })
    }

    fn weights(&mut self, context: &Context<'_>, entry: &Spanned<RawWeights>) -> Option<WeightsGrammar> {
        let raw = entry.get_ref();
        let subject = format!("weights {}", raw.pattern.get_ref());
        let place = context.place(entry.span().start, subject.clone());
        if !FACTORS.contains(&raw.factor.get_ref().as_str()) {
            return self.refuse(&place, format!("no such factor; use one of {}", FACTORS.join(", ")));
        }
        let pattern = match regex::Regex::new(raw.pattern.get_ref()) {
            Ok(pattern) => pattern,
            Err(error) => return self.refuse(&place, format!("{error}; correct the expression")),
        };
        for name in raw.digest.iter().chain(&raw.evidence) {
            if !pattern.capture_names().flatten().any(|capture| capture == name) {
                return self.refuse(&place, format!("no capture `{name}`; add `(?P<{name}>…)`"));
            }
        }
        for text in raw.example.get_ref().as_slice() {
            self.examples.push(Example {
                place: context.place(raw.example.span().start, subject.clone()),
                text: text.clone(),
                of: ExampleOf::Weights(raw.factor.get_ref().clone()),
            });
        }
        Some(WeightsGrammar {
            pattern,
            factor: raw.factor.get_ref().clone(),
            digest: raw.digest.clone(),
            evidence: raw.evidence.clone(),
        })
    }
}

fn plain(pairs: &BTreeMap<String, Spanned<String>>) -> BTreeMap<String, String> {
    pairs.iter().map(|(key, value)| (key.clone(), value.get_ref().clone())).collect()
}
