//! `[[guard]]` entries.

use super::entries::plain;
use super::{Build, Context};
use crate::guard::Guard;
use crate::schema::RawGuard;
use kvprov_model::factor::{REPRESENTATION, SEMANTIC};
use toml::Spanned;

impl Build {
    pub(super) fn guard(&mut self, context: &Context<'_>, entry: &Spanned<RawGuard>) -> Option<Guard> {
        let raw = entry.get_ref();
        let subject = format!("guard {}", raw.id);
        let at = |offset: usize| context.place(offset, subject.clone());
        let place = at(entry.span().start);
        self.new_id(&place, &raw.id, &context.engine)?;
        let versions = self.range(&place, raw.since.as_ref(), raw.until.as_ref())?;
        if raw.covers.is_empty() {
            return self.refuse(&place, "covers nothing; name what it compares in `covers`");
        }
        if raw.name.trim().is_empty() || raw.outcome.trim().is_empty() {
            return self
                .refuse(&place, "has no words; say what it is in `name` and what follows in `outcome`");
        }
        for named in raw.covers.iter().chain(&raw.converts) {
            let name = named.get_ref();
            let is_factor = [SEMANTIC, REPRESENTATION].concat().contains(&name.as_str());
            if !is_factor {
                self.fact(&at(named.span().start), name)?;
            }
        }
        for (fact, value) in raw.when.iter().chain(&raw.off_when) {
            self.fact(&at(value.span().start), fact)?;
        }
        let names = |named: &[Spanned<String>]| named.iter().map(|name| name.get_ref().clone()).collect();
        Some(Guard {
            id: raw.id.clone(),
            engine: context.engine.clone(),
            name: raw.name.clone(),
            covers: names(&raw.covers),
            converts: names(&raw.converts),
            outcome: raw.outcome.clone(),
            versions,
            when: plain(&raw.when),
            off_when: plain(&raw.off_when),
        })
    }
}
