//! Reads live what workers show over HTTP: their counters again and again, and what they say of their models.
//!
//! Input: workers from discovery; where they serve what, from the packs. Output: observations, trimmed pages for a
//! recording, and what cannot be read and why. Invariants: a page counts only where the worker held the socket before and
//! after it was read; what a page says is on disk before anybody hears of it, so that a kill neither loses an increase nor
//! tells it twice; at most [`AT_ONCE`] questions are open at a time, over all workers.

mod answers;
mod counts;
mod kept;
mod pace;
mod page;
mod pages;
mod scraper;
mod watched;

pub use counts::Counts;
pub use kept::{Kept, Saved, SavedPage};
pub use pace::{Pace, Spent, Wait};
pub use page::{Ask, Got, Trouble, read_page};
pub use scraper::{AT_ONCE, ScrapeOptions, Scraper};

use kvprov_model::clock::WallTime;
use kvprov_model::id::WorkerId;
use kvprov_model::observation::Observation;

/// Who takes what a scraper finds.
pub trait Taker {
    /// Takes observations. True once they survive the end of this process; false when they have to be offered again.
    fn take(&self, observations: &[Observation]) -> bool;

    /// A trimmed page, for a recording; an empty one says that everything was zero then.
    fn page(&self, worker: &WorkerId, endpoint: &str, at: WallTime, text: &str);

    /// Something of a worker is read from now on, in words.
    fn reads(&self, worker: &WorkerId, what: String);

    /// Something cannot be read, and why, in words.
    fn blind(&self, what: String);
}
