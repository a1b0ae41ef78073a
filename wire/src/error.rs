//! Errors in words.

use std::error::Error;

/// An error with its causes, which say what happened.
pub fn chain(error: &dyn Error) -> String {
    with_causes(error.to_string(), error)
}

/// A text with the causes of an error.
pub fn with_causes(mut text: String, error: &dyn Error) -> String {
    let mut cause = error.source();
    while let Some(inner) = cause {
        text = format!("{text}: {inner}");
        cause = inner.source();
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fmt::{Display, Formatter, Result};

    #[derive(Debug)]
    struct Told(&'static str, Option<Box<Told>>);

    impl Display for Told {
        fn fmt(&self, f: &mut Formatter<'_>) -> Result {
            f.write_str(self.0)
        }
    }

    impl Error for Told {
        fn source(&self) -> Option<&(dyn Error + 'static)> {
            self.1.as_deref().map(|cause| cause as &dyn Error)
        }
    }

    #[test]
    fn causes_follow_what_they_caused() {
        let error =
            Told("sending", Some(Box::new(Told("connecting", Some(Box::new(Told("refused", None)))))));
        assert_eq!(chain(&error), "sending: connecting: refused");
        assert_eq!(with_causes("failed".to_owned(), &error), "failed: connecting: refused");
    }
}
