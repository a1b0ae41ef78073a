//! Logs: raw bytes of an engine's log in, observations out.
//!
//! [`LogReader`] takes bytes in any cutting, from a file in replay or as they are written. Bytes become lines
//! (`reader`, `assembly`), lines that may matter (`candidates`, `anchors`) lose their prefixes ([`prefix`]), are dated
//! ([`clock`], `lookback`) and matched against the signature packs (`interpret`); causes and failures told by
//! different lines are joined (`explain`), repeated statements folded (`fold`), unknown warnings of KV modules told
//! as troubles (`trouble`).
//!
//! Invariant: this folder holds no text of an engine but the grammar of prefixes and the names by which KV modules
//! are known; messages are the packs' matter.

mod anchors;
mod assembly;
mod candidates;
pub mod clock;
mod counts;
mod emit;
mod explain;
mod fold;
mod interpret;
mod lookback;
pub mod prefix;
mod reader;
mod trouble;
mod wrapping;

pub use counts::LineCounts;
pub use reader::{LogOptions, LogReader, MAX_LINE};
