//! `[[span]]`: spans of an engine's own tracing.

use super::{Build, Context, Example, ExampleOf, Form};
use crate::schema::RawSpan;
use crate::span::SpanSignature;
use crate::template::Target;
use toml::Spanned;

/// What a span of a request becomes.
const KIND: &str = "request_leg";
/// Shortest name beside `*`; a shorter one stands in spans of anybody.
const MIN_NAME: usize = 3;

impl Build {
    pub(super) fn span(&mut self, context: &Context<'_>, entry: &Spanned<RawSpan>) -> Option<()> {
        let raw = entry.get_ref();
        let subject = format!("span {}", raw.id);
        let at = |offset: usize| context.place(offset, subject.clone());
        let place = at(entry.span().start);
        self.new_id(&place, &raw.id, &context.engine)?;
        let name = raw.name.get_ref();
        if name.trim_matches('*').len() < MIN_NAME || name.trim_matches('*').contains('*') {
            let problem =
                format!("`{name}` needs {MIN_NAME} letters beside a `*` at begin or end; write them");
            return self.refuse(&at(raw.name.span().start), problem);
        }
        if !raw.attributes.contains_key("request_id") {
            return self.refuse(&place, "no `request_id`; name the attribute that holds it");
        }
        let mut attributes = Vec::new();
        for (of_leg, of_span) in &raw.attributes {
            self.target(&at(of_span.span().start), KIND, &Target::parse(of_leg), Form::Scalar)?;
            attributes.push((of_span.get_ref().clone(), of_leg.clone()));
        }
        self.examples.push(Example {
            place: at(raw.example.span().start),
            text: raw.example.get_ref().clone(),
            of: ExampleOf::Span(raw.id.clone()),
        });
        self.spans.add(SpanSignature::new(&raw.id, &context.engine, name, attributes));
        Some(())
    }
}
