//! `[[template]]` entries.

use super::entries::plain;
use super::{Build, Context, Example, ExampleOf, Form, Place};
use crate::matcher::offer_of;
use crate::placeholder::PlaceholderType;
use crate::schema::RawTemplate;
use crate::template::{Composition, Segment, Slot, Target, Template, Wanted, parse_text};
use toml::Spanned;

/// Levels that a template may name.
const LEVELS: &[&str] = &["debug", "info", "warning", "error", "critical"];

impl Build {
    pub(super) fn template(
        &mut self,
        context: &Context<'_>,
        entry: &Spanned<RawTemplate>,
    ) -> Option<Template> {
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
            return self
                .refuse(&at(level.span().start), format!("no such level; use one of {}", LEVELS.join(", ")));
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
        let has_dict = segments.iter().any(
            |segment| matches!(segment, Segment::Placeholder(one) if one.kind == PlaceholderType::PyDict),
        );
        if has_dict == keys.is_empty() && (has_dict || !raw.keys.is_empty()) && kind != "none" {
            return self
                .refuse(&place, "`keys` and a placeholder of type pydict go together; add the other one");
        }
        let mut set = Vec::new();
        for (name, value) in &raw.set {
            set.push(self.constant(&at(value.span().start), kind, name, value.get_ref())?);
        }
        let mut compose = Vec::new();
        for (name, text) in &raw.compose {
            compose.push(self.composition(
                &at(text.span().start),
                kind,
                name,
                text.get_ref(),
                Some(&names),
            )?);
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
        let is_fact = |target: &Target| matches!(target, Target::Fact(_));
        let slots = segments.iter().filter_map(|segment| match segment {
            Segment::Placeholder(placeholder) => Some(&placeholder.slot.target),
            Segment::Literal(_) => None,
        });
        let kept = keys.iter().map(|(_, slot)| &slot.target).chain(set.iter().map(|(target, _)| target));
        let holds_facts = slots.chain(kept).chain(compose.iter().map(|(target, _)| target)).any(is_fact);
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
            answers: raw.answers,
            common: raw.common,
            example: raw.example.get_ref().clone(),
            source: raw.source.clone(),
            at_start: raw.at_start || raw.user_text,
            user_text: raw.user_text,
            segments,
            set,
            scale: raw.scale.clone(),
            keys,
            compose,
            also,
            ignore_if,
            holds_facts,
            literal_len,
        };
        if !crate::anchor::has_anchor(&offer_of(&template)) {
            return self.refuse(
                &text_place,
                "no literal of at least 6 bytes to find the line by; add words to the text",
            );
        }
        self.examples.push(Example {
            place: at(raw.example.span().start),
            text: raw.example.get_ref().clone(),
            of: ExampleOf::Template(raw.id.clone()),
        });
        Some(template)
    }

    fn placeholder(
        &mut self,
        place: &Place,
        kind: &str,
        slot: &Slot,
        of_type: PlaceholderType,
    ) -> Option<()> {
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
        self.refuse(
            place,
            format!("`{name}` is captured nowhere; name a placeholder of the text or of `keys`"),
        )
    }

    pub(super) fn composition(
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
}
