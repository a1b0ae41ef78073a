//! Subscriptions to the publishers of running workers.
//!
//! One task a publisher: it connects, subscribes, asks for what was published before and for what is missing, and turns
//! batches into observations. Whoever runs it says where a publisher is ([`Locate`]) and takes what it gives
//! ([`Outlet`]). Invariants: an event has one id, live or replayed, before and after a restart of the agent, since ids are made of what the batch says; what is
//! missing is told as a loss with a count; memory is bounded by [`super::zmtp::Limits`], by [`super::zmtp::Budget`]
//! and by the batches that wait for the queue, while which nothing more is read.

mod endpoint;
mod place;
mod replay;
mod sequence;
mod state;
mod subscription;
pub mod targets;

pub use endpoint::{Endpoint, NoEndpoint};
pub use place::{Ends, Place, Unreachable};
pub use sequence::{Mark, Sequence, Step};
pub use state::Marks;
pub use subscription::{Patience, Subscription, Target};

use crate::source::Losses;
use kvprov_model::clock::WallTime;
use kvprov_model::observation::Observation;

/// Finds where a publisher listens, so that another engine on the same port is never taken for this one.
pub trait Locate {
    /// Where an endpoint is reached, if a process of the worker listens there now. Asked before every connection.
    ///
    /// # Errors
    /// With the reason, for people.
    fn locate(&self, endpoint: &Endpoint) -> Result<Place, Unreachable>;

    /// Whether a connection leads to the worker. Asked once it is there.
    fn is_peer(&self, endpoint: &Endpoint, ends: Ends) -> bool;
}

/// Takes what subscriptions give.
pub trait Outlet {
    /// Takes observations. True once they survive the end of this process; false when they have to be offered again.
    fn take(&self, observations: &[Observation]) -> bool;

    /// Everything up to a batch of a publisher was taken.
    fn reached(&self, publisher: &str, mark: Mark);

    /// What was lost or skipped, by reason.
    fn lose(&self, losses: &Losses);

    /// A batch without an event that says anything: a recording has to know of it, or it would seem to be missing.
    fn empty_batch(&self, target: &Target, seq: u64, wall: Option<WallTime>);

    /// How a subscription is; `Err`: why it is not, for people.
    fn state(&self, target: &Target, state: Result<(), String>);

    /// Since when something that came waits to be taken; `None`: nothing does.
    fn waits(&self, target: &Target, since: Option<WallTime>);
}
