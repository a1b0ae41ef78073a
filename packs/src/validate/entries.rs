//! Each entry of a pack on its own, but for templates ([`super::lines`]).

use super::{Build, Context, Example, ExampleOf, Form};
use crate::fact::{FactRule, normal_name};
use crate::json_line::JsonSignature;
use crate::key::{KeyGrammar, WeightsGrammar, anchored};
use crate::metric::Meaning;
use crate::schema::{PackFile, RawFact, RawInfo, RawJson, RawKey, RawMetric, RawWeights, Temporary};
use crate::template::{Composition, Target};
use crate::version::VersionRange;
use std::collections::BTreeMap;
use std::sync::Arc;
use toml::Spanned;

/// Factors that a file may be.
const FACTORS: &[&str] =
    &["weights", "adapter", "tokenizer", "chat_template", "config", "quantisation", "any"];

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
        for entry in file.process {
            if let Some(signature) = self.process(context, &entry) {
                self.processes.push(signature);
            }
        }
        for entry in file.endpoint {
            if let Some(rule) = self.endpoint(context, &entry) {
                self.endpoints.push(rule);
            }
        }
        for entry in file.answer {
            if let Some(rule) = self.answer(context, &entry) {
                self.answers.push(rule);
            }
        }
        for entry in file.span {
            self.span(context, &entry);
        }
        for entry in file.guard {
            if let Some(guard) = self.guard(context, &entry) {
                self.guards.push(guard);
            }
        }
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
                toml::Value::Integer(_) | toml::Value::Boolean(_) | toml::Value::Float(_) => {
                    value.to_string()
                }
                _ => {
                    return self.refuse(
                        &place,
                        format!("`{path}` is compared with no text, number or flag; use one"),
                    );
                }
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
        self.metrics.add_info(&raw.name, labels, raw.value_is_time);
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
        let compose =
            match raw.compose.as_ref().map(|text| (text.span().start, Composition::parse(text.get_ref()))) {
                Some((_, Ok(composition))) => Some(composition),
                Some((offset, Err(problem))) => return self.refuse(&at(offset), problem),
                None => None,
            };
        let pattern =
            match raw.pattern.as_ref().map(|text| (text.span().start, regex::Regex::new(text.get_ref()))) {
                Some((_, Ok(pattern))) => Some(pattern),
                Some((offset, Err(error))) => {
                    return self.refuse(&at(offset), format!("{error}; correct the expression"));
                }
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
        let content: Vec<String> =
            raw.content.as_ref().map_or_else(Vec::new, |names| names.as_slice().to_vec());
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
                let problem =
                    format!("`{}` is no field of this key; name a fact of `fields`", field.get_ref());
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
            fields: raw
                .fields
                .iter()
                .map(|(capture, fact)| (capture.clone(), fact.get_ref().clone()))
                .collect(),
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

pub(super) fn plain(pairs: &BTreeMap<String, Spanned<String>>) -> BTreeMap<String, String> {
    pairs.iter().map(|(key, value)| (key.clone(), value.get_ref().clone())).collect()
}
