//! Where receivers hand observations in.
//!
//! A receiver decodes what an agent sent and offers it as one [`Batch`]. The answer comes when the batch is merged, as
//! durable as the ledger makes it: only then may the sender be told that it arrived. Nothing is dropped here; when the
//! collector is behind, the offer is refused at once ([`Refusal::Busy`]) and the sender keeps what it has.
//!
//! Invariant: what waits is bounded by [`Room`], in batches and in observations.

use kvprov_model::observation::Observation;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, TryRecvError, TrySendError, sync_channel};
use std::task::{Context, Poll, ready};
use std::time::Duration;
use tokio::sync::oneshot;

/// How long a sender should wait before it offers again.
const RETRY: Duration = Duration::from_millis(500);

/// Observations that came in one request and are acknowledged together.
#[derive(Debug, Clone, Default)]
pub struct Batch {
    /// The observations, in any order.
    pub observations: Vec<Observation>,
}

/// What became of a batch. It is never to be sent again.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Accepted {
    /// Observations that the ledger holds now, or held already.
    pub kept: u64,
    /// Observations that it will never take: too old, too large, of too many nodes. They are counted as lost.
    pub refused: u64,
}

/// Why a batch was not taken. It may be offered again.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Refusal {
    /// Too much waits already.
    #[error("the collector is behind: {waiting} observations wait; send again in {} ms", retry_after.as_millis())]
    Busy {
        /// Observations that wait.
        waiting: usize,
        /// When to offer again.
        retry_after: Duration,
    },
    /// The collector ends, or its ledger thread has ended.
    #[error("the collector is stopping; send again when it runs")]
    Stopping,
    /// The ledger could not take it: a full disk, mostly.
    #[error("the ledger did not take the batch: {reason}")]
    Ledger {
        /// What the ledger said, with what to do.
        reason: String,
    },
}

/// What takes batches. Cheap to call from any thread; never blocks.
pub trait Intake: Send + Sync + 'static {
    /// Offers a batch. The answer is awaited ([`Answer`] is a future) or waited for ([`Answer::wait`]).
    fn offer(&self, batch: Batch) -> Answer;

    /// Counts records that a receiver could not read or had to refuse. `stage` and `reason` become labels of
    /// `kvprov_observations_lost_total`: words of a closed list, never text of a sender.
    fn lost(&self, stage: &'static str, reason: &'static str, records: u64);
}

/// The answer to an offer, when it comes.
#[derive(Debug)]
pub struct Answer(Inner);

#[derive(Debug)]
enum Inner {
    Known(Option<Refusal>),
    Coming(oneshot::Receiver<Result<Accepted, Refusal>>),
}

/// How much may wait between receivers and the ledger.
#[derive(Debug, Clone, Copy)]
pub struct Room {
    /// Batches.
    pub batches: usize,
    /// Observations over all batches; one batch alone may be larger.
    pub observations: usize,
}

impl Default for Room {
    fn default() -> Self {
        Self { batches: 256, observations: 100_000 }
    }
}

/// What a receiver reported as lost.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Lost {
    /// Where.
    pub stage: &'static str,
    /// Why.
    pub reason: &'static str,
    /// How many records.
    pub records: u64,
}

/// An [`Intake`] over a bounded queue.
#[derive(Clone)]
pub struct Queue {
    sender: SyncSender<Offered>,
    waiting: Arc<AtomicUsize>,
    room: Room,
    lost: Arc<dyn Fn(Lost) + Send + Sync>,
}

/// A batch that waits, and whom to answer.
#[derive(Debug)]
pub struct Offered {
    /// The batch.
    pub batch: Batch,
    answer: oneshot::Sender<Result<Accepted, Refusal>>,
}

/// The other end of a [`Queue`]: the ledger thread has it.
#[derive(Debug)]
pub struct Inbox {
    receiver: Receiver<Offered>,
    waiting: Arc<AtomicUsize>,
}

/// A queue. `lost` is called for what receivers report as lost.
pub fn queue(room: Room, lost: impl Fn(Lost) + Send + Sync + 'static) -> (Queue, Inbox) {
    let (sender, receiver) = sync_channel(room.batches.max(1));
    let waiting = Arc::new(AtomicUsize::new(0));
    let inbox = Inbox { receiver, waiting: Arc::clone(&waiting) };
    (Queue { sender, waiting, room, lost: Arc::new(lost) }, inbox)
}

// === impl Queue ===

impl Queue {
    /// Observations that wait.
    pub fn waiting(&self) -> usize {
        self.waiting.load(Ordering::Relaxed)
    }
}

impl Intake for Queue {
    fn offer(&self, batch: Batch) -> Answer {
        let observations = batch.observations.len();
        let waiting = self.waiting.fetch_add(observations, Ordering::Relaxed);
        let (answer, coming) = oneshot::channel();
        let refused = if waiting > 0 && waiting.saturating_add(observations) > self.room.observations {
            Refusal::Busy { waiting, retry_after: RETRY }
        } else {
            match self.sender.try_send(Offered { batch, answer }) {
                Ok(()) => return Answer(Inner::Coming(coming)),
                Err(TrySendError::Full(_)) => Refusal::Busy { waiting, retry_after: RETRY },
                Err(TrySendError::Disconnected(_)) => Refusal::Stopping,
            }
        };
        self.waiting.fetch_sub(observations, Ordering::Relaxed);
        Answer(Inner::Known(Some(refused)))
    }

    fn lost(&self, stage: &'static str, reason: &'static str, records: u64) {
        (self.lost)(Lost { stage, reason, records });
    }
}

// === impl Inbox ===

impl Inbox {
    /// The next batch, waiting at most this long. `Ok(None)`: none came; `Err`: every queue handle is gone.
    pub fn next(&self, patience: Duration) -> Result<Option<Offered>, Closed> {
        match self.receiver.recv_timeout(patience) {
            Ok(offered) => Ok(Some(self.took(offered))),
            Err(RecvTimeoutError::Timeout) => Ok(None),
            Err(RecvTimeoutError::Disconnected) => Err(Closed),
        }
    }

    /// The next batch if one waits already.
    pub fn ready(&self) -> Option<Offered> {
        match self.receiver.try_recv() {
            Ok(offered) => Some(self.took(offered)),
            Err(TryRecvError::Empty | TryRecvError::Disconnected) => None,
        }
    }

    fn took(&self, offered: Offered) -> Offered {
        self.waiting.fetch_sub(offered.batch.observations.len(), Ordering::Relaxed);
        offered
    }
}

/// Nobody can offer anything any more.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("no receiver is left")]
pub struct Closed;

// === impl Offered ===

impl Offered {
    /// Takes the batch out; what is left only answers.
    pub fn take(&mut self) -> Vec<Observation> {
        std::mem::take(&mut self.batch.observations)
    }

    /// Answers. A receiver that went away in the meantime is no error: its sender will deliver again.
    pub fn answer(self, result: Result<Accepted, Refusal>) {
        let _ = self.answer.send(result);
    }
}

// === impl Answer ===

impl Answer {
    /// An answer that is known at once; for other [`Intake`]s.
    pub fn refused(refusal: Refusal) -> Self {
        Self(Inner::Known(Some(refusal)))
    }

    /// An answer that comes, and how to give it; for other [`Intake`]s.
    pub fn coming() -> (oneshot::Sender<Result<Accepted, Refusal>>, Self) {
        let (sender, receiver) = oneshot::channel();
        (sender, Self(Inner::Coming(receiver)))
    }

    /// Waits for it on a thread that may block; not within an asynchronous task.
    pub fn wait(self) -> Result<Accepted, Refusal> {
        match self.0 {
            Inner::Known(refusal) => Err(refusal.unwrap_or(Refusal::Stopping)),
            Inner::Coming(coming) => coming.blocking_recv().unwrap_or(Err(Refusal::Stopping)),
        }
    }
}

impl Future for Answer {
    type Output = Result<Accepted, Refusal>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        Poll::Ready(match &mut self.0 {
            Inner::Known(refusal) => Err(refusal.take().unwrap_or(Refusal::Stopping)),
            Inner::Coming(coming) => ready!(Pin::new(coming).poll(context)).unwrap_or(Err(Refusal::Stopping)),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use kvprov_model::id::{NodeId, ObservationId};
    use kvprov_model::observation::{Alive, Body, Envelope, SourceKind};

    fn batch(observations: usize) -> Batch {
        let one = Observation {
            envelope: Envelope {
                schema_version: 1,
                id: ObservationId::derive("n", 0, 1, 0),
                node: NodeId::from("n"),
                boot_id: None,
                worker: None,
                source: SourceKind::Log,
                stream: "s".to_owned(),
                position: 1,
                monotonic: None,
                wall: None,
                says: None,
            },
            body: Body::Alive(Alive::default()),
            extra: Default::default(),
            resource: Default::default(),
        };
        Batch { observations: vec![one; observations] }
    }

    fn small() -> (Queue, Inbox) {
        queue(Room { batches: 2, observations: 10 }, |_| {})
    }

    #[test]
    fn an_offer_is_answered_after_it_was_taken() {
        let (queue, inbox) = small();
        let answer = queue.offer(batch(3));
        assert_eq!(queue.waiting(), 3);
        let offered = inbox.ready().unwrap();
        assert_eq!(queue.waiting(), 0);
        offered.answer(Ok(Accepted { kept: 3, refused: 0 }));
        assert_eq!(answer.wait(), Ok(Accepted { kept: 3, refused: 0 }));
    }

    #[test]
    fn too_many_observations_are_refused_and_not_counted_as_waiting() {
        let (queue, _inbox) = small();
        let _first = queue.offer(batch(8));
        assert!(matches!(queue.offer(batch(3)).wait(), Err(Refusal::Busy { waiting: 8, .. })));
        assert_eq!(queue.waiting(), 8);
    }

    #[test]
    fn one_batch_alone_may_be_larger_than_the_room() {
        let (queue, inbox) = small();
        let _answer = queue.offer(batch(50));
        assert_eq!(inbox.ready().unwrap().batch.observations.len(), 50);
    }

    #[test]
    fn too_many_batches_are_refused() {
        let (queue, _inbox) = small();
        let _answers = [queue.offer(batch(1)), queue.offer(batch(1))];
        assert!(matches!(queue.offer(batch(1)).wait(), Err(Refusal::Busy { .. })));
    }

    #[test]
    fn a_collector_that_ended_refuses_what_is_offered_and_what_waits() {
        let (queue, inbox) = small();
        let waiting = queue.offer(batch(1));
        drop(inbox);
        assert_eq!(waiting.wait(), Err(Refusal::Stopping));
        assert_eq!(queue.offer(batch(1)).wait(), Err(Refusal::Stopping));
    }
}
