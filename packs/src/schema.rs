//! The shape of a pack file, as `SCHEMA.md` describes it.
//!
//! Invariant: an unknown key is an error, never ignored. Positions are kept so that every later error can name its
//! line; what the values mean is checked in [`crate::validate`]. `source` and some `note`s speak to readers of the pack
//! alone.

use crate::metric::MetricType;
use crate::process::ProcessPlace;
use serde::Deserialize;
use std::collections::BTreeMap;
use toml::Spanned;

/// Tables of a pack: keys that each needs, keys that it may have, and keys that nothing reads.
macro_rules! tables {
    ($($(#[$doc:meta])* $name:ident {
        $(needs { $($(#[$needs_meta:meta])* $needs:ident: $needs_type:ty,)* })?
        $(may_have { $($(#[$may_meta:meta])* $may:ident: $may_type:ty,)* })?
        $(unread { $($unread:ident = $key:literal: $unread_type:ty,)* })?
    })*) => {$(
        $(#[$doc])*
        #[derive(Debug, Clone, Deserialize)]
        #[serde(deny_unknown_fields)]
        pub(crate) struct $name {
            $($($(#[$needs_meta])* pub(crate) $needs: $needs_type,)*)?
            $($(#[serde(default)] $(#[$may_meta])* pub(crate) $may: $may_type,)*)?
            $($(#[serde(default, rename = $key)] $unread: $unread_type,)*)?
        }
    )*};
}

tables! {
    /// One file.
    PackFile {
        needs {
            engine: Spanned<String>,
        }
        may_have {
            /// Facts of a worker of any engine under which the `[[fact]]`s of this file apply to it.
            applies_when: BTreeMap<String, Spanned<String>>,
            template: Vec<Spanned<RawTemplate>>,
            json: Vec<Spanned<RawJson>>,
            metric: Vec<Spanned<RawMetric>>,
            info: Vec<Spanned<RawInfo>>,
            fact: Vec<Spanned<RawFact>>,
            key: Vec<Spanned<RawKey>>,
            weights: Vec<Spanned<RawWeights>>,
            process: Vec<Spanned<RawProcess>>,
            endpoint: Vec<Spanned<RawEndpoint>>,
            answer: Vec<Spanned<RawAnswer>>,
            span: Vec<Spanned<RawSpan>>,
        }
    }

    /// `[[template]]`.
    RawTemplate {
        needs {
            id: String,
            text: Spanned<String>,
            kind: Spanned<String>,
            example: Spanned<String>,
            source: String,
        }
        may_have {
            at_start: bool,
            user_text: bool,
            since: Option<Spanned<String>>,
            until: Option<Spanned<String>>,
            level: Option<Spanned<String>>,
            set: BTreeMap<String, Spanned<toml::Value>>,
            scale: BTreeMap<String, f64>,
            keys: BTreeMap<String, Spanned<String>>,
            compose: BTreeMap<String, Spanned<String>>,
            also: BTreeMap<String, Spanned<String>>,
            ignore_if: BTreeMap<String, Spanned<String>>,
            explains: bool,
            takes_cause: bool,
            alone: bool,
            implies: BTreeMap<String, Spanned<String>>,
            implies_since: Option<Spanned<String>>,
            implies_until: Option<Spanned<String>>,
            multiline: bool,
            folds: bool,
            answers: bool,
        }
    }

    /// `[[json]]`.
    RawJson {
        needs {
            id: String,
            kind: Spanned<String>,
            example: Spanned<String>,
        }
        may_have {
            set: BTreeMap<String, Spanned<toml::Value>>,
            when: BTreeMap<String, toml::Value>,
            present: Vec<String>,
            attributes: BTreeMap<String, Spanned<String>>,
            exists: BTreeMap<String, Spanned<String>>,
            compose: BTreeMap<String, Spanned<String>>,
            first: BTreeMap<String, Spanned<String>>,
            time: Option<String>,
            scale: BTreeMap<String, f64>,
        }
        unread {
            _source = "source": String,
        }
    }

    /// `[[metric]]`.
    RawMetric {
        needs {
            name: String,
            #[serde(rename = "type")]
            metric_type: MetricType,
            counter: Spanned<String>,
        }
        may_have {
            labels: BTreeMap<String, String>,
            since: Option<Spanned<String>>,
            until: Option<Spanned<String>>,
            note: Option<String>,
        }
        unread {
            _source = "source": String,
        }
    }

    /// `[[info]]`.
    RawInfo {
        needs {
            name: String,
            labels: BTreeMap<String, Spanned<String>>,
        }
        may_have {
            value_is_time: bool,
        }
    }

    /// `[[fact]]`.
    RawFact {
        needs {
            fact: Spanned<String>,
        }
        may_have {
            from: Vec<String>,
            compose: Option<Spanned<String>>,
            #[serde(rename = "match")]
            pattern: Option<Spanned<String>>,
            format: Option<String>,
            map: BTreeMap<String, String>,
            default: Vec<RawDefault>,
            when: BTreeMap<String, Spanned<String>>,
        }
        unread {
            _note = "note": Option<String>,
            _source = "source": String,
        }
    }

    /// One default of a `[[fact]]`.
    RawDefault {
        needs {
            value: String,
        }
        may_have {
            since: Option<Spanned<String>>,
            until: Option<Spanned<String>>,
        }
    }
}

/// Where a `[[key]]` expression is matched.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum KeyPlace {
    /// The last parts of a path.
    #[default]
    Path,
    /// The last part of a path.
    FileName,
    /// A key that is no path, as a whole.
    Key,
}

/// One capture or several that are put together.
#[derive(Debug, Clone, Deserialize)]
#[serde(untagged)]
pub(crate) enum OneOrMore {
    /// One.
    One(String),
    /// Several, in order.
    More(Vec<String>),
}

impl OneOrMore {
    pub(crate) fn as_slice(&self) -> &[String] {
        match self {
            Self::One(name) => std::slice::from_ref(name),
            Self::More(names) => names,
        }
    }
}

/// How the content part of a key is brought to one form.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Normalise {
    /// Signed or unpadded 64-bit hex becomes unsigned with 16 digits.
    LmcacheHash,
}

tables! {
    /// `[[key]]`.
    RawKey {
        needs {
            id: String,
            #[serde(rename = "match")]
            pattern: Spanned<String>,
            example: Spanned<OneOrMore>,
        }
        may_have {
            on: KeyPlace,
            content: Option<OneOrMore>,
            temporary: Option<Temporary>,
            fields: BTreeMap<String, Spanned<String>>,
            hex_fields: Vec<String>,
            rank_fields: Vec<Spanned<String>>,
            normalise: Option<Normalise>,
            not_artifact: bool,
        }
        unread {
            _source = "source": String,
        }
    }
}

/// Whether a name is one used while writing.
#[derive(Debug, Clone, Deserialize)]
#[serde(untagged)]
pub(crate) enum Temporary {
    /// Always or never.
    Flag(bool),
    /// When this capture took part in the match.
    Capture(String),
}

tables! {
    /// `[[weights]]`.
    RawWeights {
        needs {
            #[serde(rename = "match")]
            pattern: Spanned<String>,
            factor: Spanned<String>,
            example: Spanned<OneOrMore>,
        }
        may_have {
            digest: Option<String>,
            evidence: Option<String>,
        }
        unread {
            _source = "source": String,
        }
    }

    /// `[[process]]`.
    RawProcess {
        needs {
            id: String,
            example: Spanned<OneOrMore>,
        }
        may_have {
            place: ProcessPlace,
            detached: bool,
            run: Vec<Spanned<String>>,
            title: Vec<Spanned<String>>,
            options: Vec<String>,
            environment: Vec<Spanned<String>>,
            libraries: Vec<Spanned<String>>,
            role: Option<Spanned<String>>,
            roles: Vec<RawRole>,
            package: Vec<String>,
            positional: Option<String>,
            flags: Vec<String>,
            lists: Vec<String>,
            named: Vec<String>,
            files: Vec<String>,
        }
        unread {
            _note = "note": Option<String>,
            _source = "source": String,
        }
    }

    /// `[[endpoint]]`.
    RawEndpoint {
        needs {
            id: String,
            serves: Vec<Spanned<String>>,
        }
        may_have {
            port: Vec<String>,
            default_port: Option<u16>,
            needs: BTreeMap<String, Spanned<String>>,
            unless: BTreeMap<String, Spanned<String>>,
            keeps_counters_when: Vec<String>,
        }
        unread {
            _note = "note": Option<String>,
            _source = "source": String,
        }
    }

    /// `[[answer]]`.
    RawAnswer {
        needs {
            id: String,
            path: Spanned<String>,
            example: Spanned<String>,
        }
        may_have {
            each: Option<String>,
            facts: BTreeMap<String, Spanned<String>>,
            engine_version: Option<String>,
            engine_id: Option<String>,
            adapter: Option<RawAdapter>,
        }
        unread {
            _source = "source": String,
        }
    }

    /// `[[span]]`.
    RawSpan {
        needs {
            id: String,
            name: Spanned<String>,
            attributes: BTreeMap<String, Spanned<String>>,
            example: Spanned<String>,
        }
        unread {
            _source = "source": String,
        }
    }

    /// How an entry of a list in an `[[answer]]` is an adapter.
    RawAdapter {
        needs {
            when: String,
            name: String,
            path: String,
        }
    }

    /// One rule for the role of a `[[process]]`.
    RawRole {
        needs {
            role: Spanned<String>,
            when: BTreeMap<String, Spanned<String>>,
        }
    }
}

/// The line of a byte offset, counted from 1.
pub(crate) fn line_of(text: &str, offset: usize) -> usize {
    let end = offset.min(text.len());
    memchr::memchr_iter(b'\n', &text.as_bytes()[..end]).count() + 1
}
