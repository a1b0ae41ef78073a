//! The parameters of a list: filters, and which part of it.
//!
//! A parameter that a list does not have is an error, so that a mistyped filter never looks like an empty result.

use super::error::ApiError;
use kvprov_model::clock::WallTime;
use serde::Serialize;
use std::collections::BTreeMap;

/// Entries of a list when nobody says how many.
const LIMIT: usize = 200;
/// Entries of a list at most.
const LIMIT_AT_MOST: usize = 1_000;
/// Parameters of one request.
const PARAMETERS: usize = 16;
const LIMIT_NAME: &str = "limit";
const OFFSET_NAME: &str = "offset";

/// The parameters of one request.
#[derive(Debug, Clone)]
pub(super) struct Query {
    path: &'static str,
    filters: BTreeMap<&'static str, String>,
    limit: usize,
    offset: usize,
}

/// A part of a list, and how to ask for the next.
#[derive(Debug, Serialize)]
pub(super) struct Part {
    /// Entries that pass the filters.
    pub(super) total: usize,
    /// Where the next part is; `None`: this is the last one.
    pub(super) next: Option<String>,
}

impl Query {
    /// Reads the parameters of a list that has these filters.
    pub(super) fn read(
        path: &'static str,
        given: Vec<(String, String)>,
        filters: &'static [&'static str],
    ) -> Result<Self, ApiError> {
        let mut query = Self { path, filters: BTreeMap::new(), limit: LIMIT, offset: 0 };
        let known = || format!("{path} has {}, {LIMIT_NAME}, {OFFSET_NAME}", filters.join(", "));
        if given.len() > PARAMETERS {
            return Err(ApiError::parameter("(all)", "there are too many parameters", known()));
        }
        for (name, value) in given {
            let number = |at_least: usize| {
                let number = value.parse::<usize>().ok().filter(|number| *number >= at_least);
                number.ok_or_else(|| {
                    ApiError::parameter(
                        &name,
                        format!("{value:?} is no whole number from {at_least} on"),
                        format!("give a number, at most {LIMIT_AT_MOST} for {LIMIT_NAME}"),
                    )
                })
            };
            if name == LIMIT_NAME {
                query.limit = number(1)?.min(LIMIT_AT_MOST);
            } else if name == OFFSET_NAME {
                query.offset = number(0)?;
            } else if let Some(filter) = filters.iter().find(|filter| **filter == name) {
                query.filters.insert(filter, value);
            } else {
                return Err(ApiError::parameter(&name, "there is no such parameter", known()));
            }
        }
        Ok(query)
    }

    /// A filter, where it was given.
    pub(super) fn filter(&self, name: &str) -> Option<&str> {
        self.filters.get(name).map(String::as_str)
    }

    /// A filter that has to be one of some words.
    pub(super) fn word(&self, name: &str, words: &[&str]) -> Result<Option<&str>, ApiError> {
        match self.filter(name) {
            Some(word) if !words.contains(&word) => Err(ApiError::parameter(
                name,
                format!("{word:?} is not a word of this list"),
                format!("give one of {}", words.join(", ")),
            )),
            word => Ok(word),
        }
    }

    /// A filter that is a time.
    pub(super) fn time(&self, name: &str) -> Result<Option<WallTime>, ApiError> {
        let Some(text) = self.filter(name) else { return Ok(None) };
        WallTime::parse_rfc3339(text).map(Some).ok_or_else(|| {
            ApiError::parameter(
                name,
                format!("{text:?} is no time"),
                "give RFC 3339, as 2026-08-16T08:00:00Z; write + as %2B",
            )
        })
    }

    /// Whether an entry's text passes a filter.
    pub(super) fn passes(&self, name: &str, text: &str) -> bool {
        self.filter(name).is_none_or(|wanted| wanted == text)
    }

    /// The part of a list that was asked for.
    pub(super) fn part<T>(&self, entries: impl Iterator<Item = T>) -> (Vec<T>, Part) {
        let (mut taken, mut total) = (Vec::new(), 0);
        for entry in entries {
            if total >= self.offset && taken.len() < self.limit {
                taken.push(entry);
            }
            total += 1;
        }
        let end = self.offset.saturating_add(taken.len());
        let next = (end < total).then(|| {
            let mut next = format!("{}?{LIMIT_NAME}={}&{OFFSET_NAME}={end}", self.path, self.limit);
            for (name, value) in &self.filters {
                next.push_str(&format!("&{name}={}", encoded(value)));
            }
            next
        });
        (taken, Part { total, next })
    }
}

/// Percent-encodes a value of a query.
pub(super) fn encoded(value: &str) -> String {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.~".contains(&byte);
    value.bytes().fold(String::new(), |mut text, byte| {
        if plain(byte) {
            text.push(char::from(byte));
        } else {
            text.push_str(&format!("%{byte:02X}"));
        }
        text
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(given: &[(&str, &str)]) -> Result<Query, ApiError> {
        let given = given.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect();
        Query::read("/list", given, &["worker"])
    }

    #[test]
    fn a_list_is_handed_out_in_parts() {
        let query = read(&[("limit", "2"), ("offset", "1"), ("worker", "a b&c")]).unwrap();
        let (taken, part) = query.part(0..5);
        assert_eq!(taken, [1, 2]);
        assert_eq!(part.total, 5);
        assert_eq!(part.next.as_deref(), Some("/list?limit=2&offset=3&worker=a%20b%26c"));
        assert!(query.part(0..3).1.next.is_none());
    }

    #[test]
    fn a_limit_is_bounded() {
        let (taken, _) = read(&[("limit", "999999999")]).unwrap().part(0..5_000);
        assert_eq!(taken.len(), LIMIT_AT_MOST);
    }

    #[test]
    fn what_a_list_does_not_have_is_refused() {
        for given in [("wroker", "a"), ("limit", "0"), ("limit", "-1"), ("offset", "x")] {
            assert!(read(&[given]).is_err(), "{given:?}");
        }
    }
}
