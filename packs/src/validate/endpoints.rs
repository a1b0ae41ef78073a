//! `[[endpoint]]` and `[[answer]]` entries.

use super::entries::plain;
use super::{Build, Context, Example, ExampleOf, Place};
use crate::answer::{AdapterRule, AnswerRule};
use crate::endpoint::{EndpointRule, PATHS};
use crate::fact::normal_name;
use crate::schema::{RawAnswer, RawEndpoint};
use std::collections::BTreeMap;
use toml::Spanned;

impl Build {
    pub(super) fn endpoint(
        &mut self,
        context: &Context<'_>,
        entry: &Spanned<RawEndpoint>,
    ) -> Option<EndpointRule> {
        let raw = entry.get_ref();
        let subject = format!("endpoint {}", raw.id);
        let at = |offset: usize| context.place(offset, subject.clone());
        let place = at(entry.span().start);
        self.new_id(&place, &raw.id, &context.engine)?;
        if raw.port.is_empty() && raw.default_port.is_none() {
            return self.refuse(&place, "nothing tells the port; add `port` or `default_port`");
        }
        if raw.default_port == Some(0) {
            return self.refuse(&place, "0 is no port; name the one that the engine takes by itself");
        }
        if raw.serves.is_empty() {
            return self.refuse(&place, "serves nothing; name at least one path in `serves`");
        }
        for path in &raw.serves {
            self.path(&at(path.span().start), path.get_ref())?;
        }
        for (name, reason) in raw.needs.iter().chain(&raw.unless) {
            if reason.get_ref().trim().is_empty() {
                let problem = format!("`{name}` gives no reason; say why nothing is read then");
                return self.refuse(&at(reason.span().start), problem);
            }
        }
        let named = |pairs: &BTreeMap<String, Spanned<String>>| {
            plain(pairs).into_iter().map(|(name, reason)| (normal_name(&name), reason)).collect()
        };
        Some(EndpointRule {
            id: raw.id.clone(),
            engine: context.engine.clone(),
            port: raw.port.iter().map(|name| normal_name(name)).collect(),
            default_port: raw.default_port,
            serves: raw.serves.iter().map(|path| path.get_ref().clone()).collect(),
            needs: named(&raw.needs),
            unless: named(&raw.unless),
            keeps_counters_when: raw.keeps_counters_when.iter().map(|name| normal_name(name)).collect(),
        })
    }

    pub(super) fn answer(&mut self, context: &Context<'_>, entry: &Spanned<RawAnswer>) -> Option<AnswerRule> {
        let raw = entry.get_ref();
        let subject = format!("answer {}", raw.id);
        let at = |offset: usize| context.place(offset, subject.clone());
        let place = at(entry.span().start);
        self.new_id(&place, &raw.id, &context.engine)?;
        self.path(&at(raw.path.span().start), raw.path.get_ref())?;
        for (fact, path) in &raw.facts {
            self.fact(&at(path.span().start), fact)?;
        }
        if raw.facts.is_empty()
            && raw.engine_version.is_none()
            && raw.engine_id.is_none()
            && raw.adapter.is_none()
        {
            return self
                .refuse(&place, "reads nothing; add `facts`, `engine_version`, `engine_id` or `adapter`");
        }
        self.examples.push(Example {
            place: at(raw.example.span().start),
            text: raw.example.get_ref().clone(),
            of: ExampleOf::Answer(context.engine.clone(), raw.path.get_ref().clone()),
        });
        Some(AnswerRule {
            id: raw.id.clone(),
            engine: context.engine.clone(),
            path: raw.path.get_ref().clone(),
            each: raw.each.clone(),
            facts: plain(&raw.facts),
            engine_version: raw.engine_version.clone(),
            engine_id: raw.engine_id.clone(),
            adapter: raw.adapter.as_ref().map(|adapter| AdapterRule {
                when: adapter.when.clone(),
                name: adapter.name.clone(),
                path: adapter.path.clone(),
            }),
        })
    }

    fn path(&mut self, place: &Place, path: &str) -> Option<()> {
        if PATHS.contains(&path) {
            return Some(());
        }
        self.refuse(place, format!("`{path}` is not read; use one of {}", PATHS.join(", ")))
    }
}
