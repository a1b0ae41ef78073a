//! Examples against all packs together: each must be read as its own entry.

use super::{Example, ExampleOf};
use crate::error::PackError;
use crate::load::Packs;
use crate::matcher::Speaker;
use crate::process::{Closer, Pattern};

/// Says yes to what an example cannot show.
struct Grants;

impl Closer for Grants {
    fn has_variable(&mut self, _: &Pattern) -> bool {
        true
    }

    fn has_mapped(&mut self, _: &Pattern) -> bool {
        true
    }
}

/// Words of a command line; single quotes keep blanks.
fn words(line: &str) -> Vec<String> {
    let mut words = Vec::new();
    for (index, piece) in line.split('\'').enumerate() {
        if index % 2 == 0 {
            words.extend(piece.split_whitespace().map(str::to_owned));
        } else {
            words.push(piece.to_owned());
        }
    }
    words
}

impl Packs {
    /// Every example that is not read as its entry.
    pub(crate) fn check_examples(&self) -> Vec<PackError> {
        self.examples.iter().filter_map(|example| self.check_example(example)).collect()
    }

    fn check_example(&self, example: &Example) -> Option<PackError> {
        let problem = match &example.of {
            ExampleOf::Template(id) => self.problem_of_template(id, &example.text)?,
            ExampleOf::Json(id) => self.problem_of_json(id, &example.text)?,
            ExampleOf::Key(id) => match self.keys.split(&example.text) {
                Some(split) if split.grammar == id => return None,
                Some(split) => {
                    format!("the example is read as {}; narrow that expression or order them", split.grammar)
                }
                None => "the example does not match; correct the expression or the example".to_owned(),
            },
            ExampleOf::Weights(factor) => match self.keys.weights_of(&example.text) {
                Some(file) if file.factor == factor => return None,
                Some(file) => format!("the example is read as {}; order the expressions", file.factor),
                None => "the example does not match; correct the expression or the example".to_owned(),
            },
            ExampleOf::Answer(engine, path) => match serde_json::from_str(&example.text) {
                Ok(answer) if self.read_answer(engine, path, &answer).is_some() => return None,
                Ok(_) => "nothing of the example is read; correct the paths or the example".to_owned(),
                Err(error) => format!("the example is no JSON ({error}); give a whole answer"),
            },
            ExampleOf::Span(id) => match self.spans.lookup(&example.text) {
                Some(found) if found.id == *id => return None,
                Some(found) => {
                    format!("the example is read as {}; narrow that name or order them", found.id)
                }
                None => "the example is no such name; correct the name or the example".to_owned(),
            },
            ExampleOf::Process(id) => {
                let arguments = words(&example.text);
                match self.processes.recognise(&arguments, "", &mut Grants) {
                    Some(found) if found.id == *id => return None,
                    Some(found) => {
                        format!("the example is read as {}; narrow that entry or order them", found.id)
                    }
                    None => "the example is not recognised; correct the entry or the example".to_owned(),
                }
            }
        };
        Some(example.place.error(problem))
    }

    fn problem_of_template(&self, id: &str, text: &str) -> Option<String> {
        let template = self.templates.iter().find(|template| template.id == id)?;
        let version = template.versions.sample();
        let who = Speaker { engine: Some(&template.engine), version: version.as_ref() };
        if !self.matcher().may_matter(text.as_bytes()) {
            return Some(
                "the example holds no anchor of its template; correct the text or the example".to_owned(),
            );
        }
        match self.matcher().match_message(text, &who) {
            Some(found) if found.template.id == id => {
                found.cut.then(|| "the example ends before the text does; give a full message".to_owned())
            }
            // The same words in another engine's pack do no harm: the speaker decides.
            Some(found) if found.template.engine != template.engine && self.matches_alone(id, text) => None,
            Some(found) if self.matches_alone(id, text) => Some(format!(
                "the example is read as {}, whose text is longer or stands first; make one of them narrower",
                found.template.id
            )),
            _ => Some("the example does not match its text; correct one of them".to_owned()),
        }
    }

    fn matches_alone(&self, id: &str, text: &str) -> bool {
        self.templates
            .iter()
            .find(|template| template.id == id)
            .is_some_and(|template| self.matcher().matches_one(template, text))
    }

    fn problem_of_json(&self, id: &str, text: &str) -> Option<String> {
        let object = match serde_json::from_str(text) {
            Ok(serde_json::Value::Object(object)) => object,
            Ok(_) => return Some("the example is no JSON object; give a whole line".to_owned()),
            Err(error) => return Some(format!("the example is no JSON ({error}); give a whole line")),
        };
        if !self.matcher().may_matter(text.as_bytes()) {
            return Some(
                "the example holds none of its keys as an anchor; name them in `when` or `present`"
                    .to_owned(),
            );
        }
        match self.matcher().match_json(&object) {
            Some(found) if found.id == id => None,
            Some(found) => Some(format!("the example is read as {}; add a condition", found.id)),
            None => Some("the example does not fulfil the conditions; correct one of them".to_owned()),
        }
    }
}
