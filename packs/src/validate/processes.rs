//! `[[process]]` entries.

use super::entries::plain;
use super::{Build, Context, Example, ExampleOf, Place};
use crate::fact::normal_name;
use crate::process::{Pattern, ProcessPlace, ProcessSignature, RunSpec};
use crate::schema::RawProcess;
use kvprov_model::observation::Role;
use std::collections::BTreeSet;
use toml::Spanned;

impl Build {
    pub(super) fn process(
        &mut self,
        context: &Context<'_>,
        entry: &Spanned<RawProcess>,
    ) -> Option<ProcessSignature> {
        let raw = entry.get_ref();
        let subject = format!("process {}", raw.id);
        let at = |offset: usize| context.place(offset, subject.clone());
        let place = at(entry.span().start);
        self.new_id(&place, &raw.id, &context.engine)?;
        if raw.run.is_empty() && raw.title.is_empty() {
            return self.refuse(&place, "nothing tells such a process; add `run` or `title`");
        }
        if raw.run.is_empty() && !raw.options.is_empty() {
            return self.refuse(&place, "`options` are looked for behind a `run`; add one");
        }
        if raw.place == ProcessPlace::Leader && raw.run.is_empty() {
            return self.refuse(
                &place,
                "a title is inherited and says nothing of the start; add `run`, or place = \"member\"",
            );
        }
        let mut run = Vec::new();
        for text in &raw.run {
            match RunSpec::parse(text.get_ref()) {
                Some(spec) => run.push(spec),
                None => {
                    let problem = format!(
                        "`{}` is no start; write `-m MODULE WORD…` or `PROGRAM WORD…`",
                        text.get_ref()
                    );
                    return self.refuse(&at(text.span().start), problem);
                }
            }
        }
        let titles = self.patterns(&at, &raw.title)?;
        let environment = self.patterns(&at, &raw.environment)?;
        let libraries = self.patterns(&at, &raw.libraries)?;
        let role = match &raw.role {
            Some(role) => Some(self.role(&at(role.span().start), role.get_ref())?),
            None => None,
        };
        let mut roles = Vec::new();
        for rule in &raw.roles {
            for (fact, wanted) in &rule.when {
                self.fact(&at(wanted.span().start), fact)?;
            }
            roles.push((plain(&rule.when), self.role(&at(rule.role.span().start), rule.role.get_ref())?));
        }
        for text in raw.example.get_ref().as_slice() {
            self.examples.push(Example {
                place: at(raw.example.span().start),
                text: text.clone(),
                of: ExampleOf::Process(raw.id.clone()),
            });
        }
        let names = |names: &[String]| names.iter().map(|name| normal_name(name)).collect::<BTreeSet<_>>();
        Some(ProcessSignature {
            id: raw.id.clone(),
            engine: context.engine.clone(),
            place: raw.place,
            detached: raw.detached,
            packages: raw.package.clone(),
            run,
            titles,
            options: names(&raw.options).into_iter().collect(),
            environment,
            libraries,
            role,
            roles,
            positional: raw.positional.as_deref().map(normal_name),
            flags: names(&raw.flags),
            lists: names(&raw.lists),
            named: names(&raw.named),
            files: names(&raw.files),
        })
    }

    fn patterns(&mut self, at: &dyn Fn(usize) -> Place, texts: &[Spanned<String>]) -> Option<Vec<Pattern>> {
        let mut patterns = Vec::new();
        for text in texts {
            match Pattern::parse(text.get_ref()) {
                Some(pattern) => patterns.push(pattern),
                None => {
                    let problem =
                        format!("`{}` is no name; `*` may stand at its begin and its end", text.get_ref());
                    return self.refuse(&at(text.span().start), problem);
                }
            }
        }
        Some(patterns)
    }

    fn role(&mut self, place: &Place, word: &str) -> Option<Role> {
        match Role::from(word) {
            Role::Other(_) => {
                self.refuse(place, format!("`{word}` is no role; use prefill, decode, both, store or router"))
            }
            role => Some(role),
        }
    }
}
