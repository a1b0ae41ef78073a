//! Logs: raw bytes of an engine's log in, observations out.
//!
//! [`LogReader`] takes bytes in any cutting, from a file in replay or as they are written. Bytes become lines
//! (`reader`, `assembly`), lines that may matter (`candidates`) lose their prefixes ([`prefix`]), are dated
//! ([`clock`], `lookback`) and matched against the signature packs (`interpret`); lines of one message are joined
//! (`run_on`), causes and failures told by different lines too (`explain`), repeated statements folded (`fold`), what
//! a line says of its worker told when it is news (`worker_news`), unknown warnings of KV modules told as troubles
//! (`trouble`).
//!
//! Invariant: this folder holds no text of an engine but the grammar of prefixes and the names by which KV modules
//! are known; messages are the packs' matter.

mod again;
mod answers;
mod assembly;
mod broken_id;
mod candidates;
mod carry;
pub mod clock;
mod columns;
mod counts;
mod emit;
mod explain;
mod fold;
pub mod follow;
mod interpret;
mod known;
mod lookback;
mod names;
pub mod prefix;
mod reader;
pub mod redact;
mod rejoin;
mod run_on;
pub mod streams;
mod trouble;
mod undated;
mod worker_news;
mod wrapping;

pub use carry::Carry;
pub use counts::LineCounts;
pub use reader::{LogOptions, LogReader, MAX_LINE};
pub use rejoin::{Copied, MAX_COPIED};
