//! The words of kvprov as types, and the wire contract of observations.
//!
//! Everything else in the workspace speaks in these types: the agent makes [`observation::Observation`]s, the
//! collector turns them into [`lineage::Lineage`]s and [`finding::Finding`]s. This crate reads no file, opens no
//! socket and asks no clock; it depends on no other crate of the workspace. A test in `xtask` holds both.

pub mod clock;
pub mod content;
pub mod counter;
pub mod expected;
pub mod fact;
pub mod factor;
pub mod finding;
pub mod id;
pub mod lineage;
pub mod observation;
pub mod sizing;
pub mod string_enum;
pub mod value;
