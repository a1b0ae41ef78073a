//! The task that empties the queue: one request at a time, oldest first.
//!
//! A request is sent again until the endpoint takes it or says that it never will; pauses grow while that fails. The
//! queue bounds what waits meanwhile.

use super::stats::Lost;
use super::transport::Transport;
use super::verdict::Verdict;
use super::{EndpointError, Traces};
use std::hash::{BuildHasher as _, RandomState};
use std::time::Duration;
use tokio::sync::watch;
use tokio::time::{sleep, timeout};

/// How often the queue is looked at although nothing came.
const TICK: Duration = Duration::from_secs(1);
/// Longest pause that an endpoint may ask for.
const LONGEST_ASKED: Duration = Duration::from_secs(300);

pub(super) struct Sender {
    traces: Traces,
    transport: Transport,
    failures: u32,
    random: RandomState,
}

// === impl Sender ===

impl Sender {
    /// Must be called on a runtime.
    pub(super) fn new(traces: Traces) -> Result<Self, EndpointError> {
        let transport = Transport::new(&traces.settings.endpoint, traces.settings.timeout)?;
        Ok(Self { traces, transport, failures: 0, random: RandomState::new() })
    }

    /// Runs until it is told to stop, in the middle of an export if need be.
    pub(super) async fn run(mut self, mut stop: watch::Receiver<bool>) {
        tokio::select! {
            () = self.forever() => {}
            // A sender that is gone means the same.
            _ = stop.wait_for(|stop| *stop) => {}
        }
    }

    async fn forever(&mut self) {
        loop {
            let spool = &self.traces.spool;
            let Some((number, parcel)) = spool.oldest() else {
                let _ = timeout(TICK, spool.wake.notified()).await;
                continue;
            };
            let sending = self.transport.send(parcel.request.clone());
            let verdict = timeout(self.traces.settings.timeout, sending)
                .await
                .unwrap_or_else(|_| Verdict::Retry(None, "no answer in time".to_owned()));
            let counters = &self.traces.counters;
            match verdict {
                Verdict::Taken(rejected) => {
                    let rejected = rejected.min(parcel.spans);
                    counters.lost(parcel.origin, Lost::Rejected, rejected);
                    counters.delivered(parcel.origin, parcel.spans - rejected);
                    self.traces.spool.done(number);
                    if self.failures > 0 {
                        tracing::info!(endpoint = %self.traces.settings.endpoint, "traces are delivered again");
                    }
                    self.failures = 0;
                }
                Verdict::TooLarge(reason) => self.give_up(number, &parcel, Lost::TooLarge, &reason).await,
                Verdict::Refused(reason) => self.give_up(number, &parcel, Lost::Refused, &reason).await,
                Verdict::Retry(after, reason) => {
                    counters.fails(&reason, true);
                    let pause = self.pause(after);
                    // Once when it begins, and now and then while it lasts.
                    if self.failures.is_power_of_two() {
                        let (endpoint, pause_ms) = (&self.traces.settings.endpoint, pause.as_millis() as u64);
                        tracing::warn!(reason, pause_ms, %endpoint, "traces cannot be delivered; they wait in the queue");
                    }
                    sleep(pause).await;
                }
            }
        }
    }

    /// What an endpoint never takes. It drains slowly, so that something is left when a wrong endpoint is mended.
    async fn give_up(&mut self, number: u64, parcel: &super::parcel::Parcel, why: Lost, reason: &str) {
        self.traces.counters.lost(parcel.origin, why, parcel.spans);
        self.traces.counters.fails(reason, false);
        self.traces.spool.done(number);
        let pause = self.pause(None);
        if self.failures.is_power_of_two() {
            let (endpoint, spans) = (&self.traces.settings.endpoint, parcel.spans);
            tracing::warn!(reason, spans, %endpoint, "the tracing endpoint refused spans for good; does it take OTLP traces?");
        }
        sleep(pause).await;
    }

    /// The next pause: doubled each time, between a half and the whole of it, and at least what was asked for.
    fn pause(&mut self, asked: Option<Duration>) -> Duration {
        let settings = &self.traces.settings;
        let doubled = settings.backoff.saturating_mul(1 << self.failures.min(20)).min(settings.backoff_max);
        self.failures = self.failures.saturating_add(1);
        let spread = (self.random.hash_one(self.failures) % 1024) as u32;
        let pause = doubled / 2 + doubled / 2048 * spread;
        pause.max(asked.unwrap_or_default().min(LONGEST_ASKED))
    }
}
