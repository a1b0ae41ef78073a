//! Requests whose KV did not arrive: what failed, why, and what became of the request.
//!
//! [`trouble`] gathers the failures of one worker, one entry a request, however many ranks, retries and traceback
//! lines told it. [`outcome`] decides what became of each: the outcome decides, not the policy. Two detectors state
//! the result: `silent_recompute` and `kv_transfer_failed`.

mod counted;
mod meanwhile;
pub mod outcome;
pub mod short_load;
pub mod trouble;
mod unanswered;

use crate::view::View;
use kvprov_model::id::WorkerId;

pub use outcome::{Decided, Fate};
pub use trouble::Trouble;

/// Every request of a worker whose KV did not arrive, with its fate.
pub fn of_worker(view: &View<'_>, worker: &WorkerId) -> Vec<Decided> {
    outcome::decide(view, worker, trouble::collect(view, worker))
}
