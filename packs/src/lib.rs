//! Signature packs: what engines print, expose and are started with, as data.
//!
//! A pack is TOML under `packs/signatures/<engine>/` (`SCHEMA.md`); this crate reads it ([`Packs`]) and answers nine
//! questions: which template is this log line ([`Matcher`]), what does this metric mean ([`MetricTable`]), which facts
//! follow from these settings ([`Packs::facts`]), what does this file name or key say ([`KeyGrammars`]), is this process
//! one of an engine and how was it started ([`ProcessTable`]), where does it serve what may be read of it and what does an
//! answer say ([`Packs::endpoints`], [`Packs::read_answer`]), which request does this span tell of ([`SpanTable`]), what do two
//! workers compare by themselves before they share KV ([`Packs::guards`]).
//!
//! Invariant: no text of an engine stands in code, and nothing free-form of a message leaves this crate; what is kept
//! went through a placeholder with an allow-listed type.

mod anchor;
pub mod answer;
mod body;
pub mod coverage;
pub mod endpoint;
pub mod error;
pub mod fact;
pub mod guard;
pub mod json_line;
pub mod key;
pub mod listing;
pub mod load;
pub mod matched;
pub mod matcher;
pub mod metric;
mod placeholder;
pub mod process;
mod pyrepr;
mod rebuild;
mod scan;
mod schema;
mod segment;
pub mod span;
pub mod template;
mod validate;
pub mod version;

pub use answer::Said;
pub use coverage::Coverage;
pub use endpoint::Endpoint;
pub use error::PackError;
pub use fact::{ResolvedFacts, SettingsSeen};
pub use guard::{Guard, GuardState};
pub use json_line::JsonMatch;
pub use key::{KeyGrammars, SplitKey, WeightsFile};
pub use listing::PackSummary;
pub use load::Packs;
pub use matched::Match;
pub use matcher::{Matcher, Reach, Room, Sight, Speaker};
pub use metric::{Meaning, MetricTable, MetricType};
pub use process::{ProcessPlace, ProcessSettings, ProcessSignature, ProcessTable};
pub use span::{SpanSignature, SpanTable};
pub use template::Template;
pub use version::{Version, VersionRange};
