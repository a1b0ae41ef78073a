//! Asking a publisher for batches that were published before, or are missing.

use super::{Subscription, TOGETHER, mark};
use crate::events::subscribe::replay::{self, Reply};
use crate::events::subscribe::{Endpoint, Step};
use crate::events::zmtp::SocketType;
use crate::kernel::live::Now;
use kvprov_model::clock::WallTime;
use tokio::time::{Instant, timeout};

/// Answers that are asked for one after another while each brings something new.
const ROUNDS: usize = 64;

/// How an answer ended.
enum Answered {
    /// With its end.
    Whole,
    /// It has a hole; what follows has to be asked for again.
    Again,
    /// Its publisher began anew.
    Anew,
    /// Not even the last batch that was taken is held.
    Nothing,
}

// === impl Subscription ===

impl Subscription<'_> {
    /// What was published before the subscription, or while there was none.
    pub(super) async fn catch_up(&mut self) {
        // In this process for the first time everything is asked for: what was taken by an agent before this one tells
        // what the blocks hold that later ones continue.
        let from = self.sequence.last().filter(|_| !self.is_first).map_or(0, |last| last.seq);
        self.fill(from).await;
        self.is_first = false;
    }

    /// Asks for everything from a number on, as often as that brings something new.
    pub(super) async fn fill(&mut self, mut from: u64) {
        let Some(endpoint) = self.target.replay.clone() else { return };
        if self.rested.is_some_and(|rested| Instant::now() < rested) {
            return;
        }
        self.filling = Some(WallTime(Now::read().wall));
        self.outlet.waits(&self.target, self.filling);
        for _ in 0..ROUNDS {
            let before = self.sequence.last();
            let answer = timeout(self.patience.replay, self.ask(&endpoint, from)).await;
            let is_anew = matches!(answer, Ok(Ok(Answered::Anew)));
            match answer {
                Ok(Ok(Answered::Whole)) => break,
                // It began anew and is not that far, or it holds nothing.
                Ok(Ok(Answered::Nothing)) if from > 0 => {
                    from = 0;
                    continue;
                }
                Ok(Ok(Answered::Nothing)) => break,
                Ok(Ok(Answered::Again | Answered::Anew)) | Err(_) => {}
                Ok(Err(why)) => {
                    tracing::debug!(worker = %self.target.worker, why, "KV events are not replayed");
                }
            }
            if !is_anew && self.sequence.last() == before {
                // Nothing new came and no end: a publisher that does not answer is not asked at every gap.
                self.rested = Some(Instant::now() + self.patience.rest);
                break;
            }
            from = self.sequence.last().map_or(0, |last| last.seq + 1);
        }
        self.filling = None;
        self.outlet.waits(&self.target, None);
        self.hand_over().await;
    }

    /// One request and its answer.
    async fn ask(&mut self, endpoint: &Endpoint, from: u64) -> Result<Answered, String> {
        let mut connection = self.connect(endpoint, SocketType::Dealer).await?;
        let request = replay::request(from);
        let parts: Vec<&[u8]> = request.iter().map(Vec::as_slice).collect();
        connection.send(&parts).await.map_err(|error| error.to_string())?;
        let learns = self.is_first;
        let mut highest = None;
        loop {
            let received = match timeout(self.patience.reply, connection.receive()).await {
                Ok(received) => received.map_err(|error| error.to_string())?,
                // The publisher's queue to us was full and it dropped the rest, the end too.
                Err(_) => return Ok(Answered::Again),
            };
            let Some(reply) = replay::reply(&received.parts()) else {
                return Err("an answer that is none".to_owned());
            };
            let Reply::Batch { seq, payload } = reply else {
                let last = self.sequence.last().map(|last| last.seq);
                // It holds batches, but none up to the last of the one that was there before.
                let is_other = highest.is_some() && highest < last;
                if is_other {
                    self.begin_anew();
                }
                let is_missed = highest.is_none() && last.is_some_and(|last| from <= last);
                return Ok(match (is_other, is_missed) {
                    (true, _) => Answered::Anew,
                    (_, true) => Answered::Nothing,
                    _ => Answered::Whole,
                });
            };
            let is_begin = highest.is_none();
            highest = highest.max(Some(seq));
            let mark = mark(seq, payload);
            match self.sequence.judge(mark) {
                Step::Next => {
                    if self.sequence.last().is_none() {
                        self.lose_before(mark, payload);
                    }
                    self.deliver(mark, payload).await;
                }
                Step::Known | Step::Old => {
                    if learns {
                        self.learn(payload);
                    }
                }
                // It holds no earlier ones.
                Step::Missing { count, .. } if is_begin => {
                    self.lose_gap(mark, payload, count);
                    self.deliver(mark, payload).await;
                }
                Step::Missing { .. } => return Ok(Answered::Again),
                Step::Anew => {
                    self.begin_anew();
                    return Ok(Answered::Anew);
                }
            }
            if self.pending.len() >= TOGETHER {
                drop(received);
                self.hand_over().await;
            }
        }
    }
}
