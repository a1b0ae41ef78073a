//! The thread that sends what waits in the queue.
//!
//! One request at a time, in order: a sign of life arrives after everything that it vouches for. A batch is sent again
//! until the receiver takes it or says that it never will; pauses grow while that fails. The queue bounds what waits
//! meanwhile.

use super::ShipError;
use super::backoff::Backoff;
use super::batch::{Batch, Limit};
use super::config::{Protocol, ShipConfig};
use super::grpc::Grpc;
use super::http::Http;
use super::loss::{Lost, Reason, Tally};
use super::outbox::Outbox;
use super::queue::Queue;
use super::verdict::{self, Verdict};
use prost::bytes::Bytes;
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};
use tokio::sync::watch;
use tokio::time::{sleep, timeout};

/// How often the queue is looked at although nothing came.
const TICK: Duration = Duration::from_secs(1);
/// How long it takes after an answer "too large" until larger requests are tried again, in requests.
const SMALL_FOR: u32 = 256;

/// The running thread. Dropping it stops it.
#[derive(Debug)]
pub struct Shipper {
    stop: watch::Sender<bool>,
    thread: Option<JoinHandle<()>>,
    state: Arc<Mutex<ShipStats>>,
}

/// What became of the requests so far.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ShipStats {
    /// Requests that the receiver took.
    pub taken: u64,
    /// Bytes of these, before compression.
    pub taken_bytes: u64,
    /// Requests that are sent again, each time counted.
    pub retried: u64,
    /// Requests that were too large and are sent in smaller ones.
    pub split: u64,
    /// Requests that the receiver refused for good.
    pub refused: u64,
    /// When a request was taken last.
    pub last_taken: Option<Instant>,
    /// Why the last attempt failed; none when it did not.
    pub failing: Option<String>,
}

enum Transport {
    Grpc(Grpc),
    Http(Http),
}

// === impl Shipper ===

impl Shipper {
    /// Starts to send what is in an outbox.
    ///
    /// # Errors
    ///
    /// When the endpoint is no address that can be sent to. That nobody answers there is no error.
    pub fn start(outbox: &Outbox, config: ShipConfig) -> Result<Self, ShipError> {
        let invalid = |reason: &str| ShipError::Endpoint {
            endpoint: config.endpoint.clone(),
            reason: reason.to_owned(),
        };
        if !config.endpoint.starts_with("http://") {
            return Err(invalid("only http:// is spoken; let a proxy on this machine do TLS"));
        }
        let failed = |error: std::io::Error| ShipError::Thread { reason: error.to_string() };
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().map_err(failed)?;
        let mut transport = {
            // A lazy connection wants a runtime around.
            let _inside = runtime.enter();
            match config.protocol {
                Protocol::Grpc => Transport::Grpc(Grpc::new(&config)?),
                Protocol::Http => Transport::Http(Http::new(&config)?),
            }
        };
        let (stop, stopped) = watch::channel(false);
        let state = Arc::new(Mutex::new(ShipStats::default()));
        let (queue, shared) = (outbox.queue(), Arc::clone(&state));
        let thread = std::thread::Builder::new()
            .name("kvprov-ship".to_owned())
            .spawn(move || {
                let run = Run { queue, config, state: shared };
                runtime.block_on(run.until(stopped, &mut transport));
            })
            .map_err(failed)?;
        Ok(Self { stop, thread: Some(thread), state })
    }

    /// What became of the requests so far.
    pub fn stats(&self) -> ShipStats {
        self.state.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Shares [`Shipper::stats`] with a page of metrics.
    pub fn watch(&self) -> impl Fn() -> ShipStats + Clone + Send + Sync + 'static {
        let state = Arc::clone(&self.state);
        move || state.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Stops sending, in the middle of a request if need be; what waits stays in the queue. To send it first, call
    /// [`Outbox::flush`].
    pub fn stop(mut self) {
        self.end();
    }

    fn end(&mut self) {
        let _ = self.stop.send(true);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

impl Drop for Shipper {
    fn drop(&mut self) {
        self.end();
    }
}

// === impl Transport ===

impl Transport {
    async fn send(&mut self, request: Bytes) -> Verdict {
        match self {
            Self::Grpc(grpc) => grpc.send(request).await,
            Self::Http(http) => http.send(request).await,
        }
    }
}

struct Run {
    queue: Arc<Queue>,
    config: ShipConfig,
    state: Arc<Mutex<ShipStats>>,
}

impl Run {
    async fn until(&self, mut stopped: watch::Receiver<bool>, transport: &mut Transport) {
        tokio::select! {
            () = self.forever(transport) => {}
            // A sender that is gone means the same.
            _ = stopped.wait_for(|stop| *stop) => {}
        }
    }

    async fn forever(&self, transport: &mut Transport) {
        let full = self.config.batch_records.max(1);
        let mut limit = Limit { records: full, bytes: self.config.batch_bytes.max(1) };
        let mut backoff = Backoff::new(self.config.backoff, self.config.backoff_max);
        let mut small = 0;
        loop {
            self.gather(limit).await;
            self.queue.tick();
            let Some(batch) = self.queue.next(limit) else {
                // Nothing to send after all: never in a hurry.
                sleep(self.config.linger.max(Duration::from_millis(10))).await;
                continue;
            };
            let verdict = match timeout(self.config.timeout, transport.send(batch.request.clone())).await {
                Ok(verdict) => verdict,
                Err(_) => verdict::retry("no answer in time"),
            };
            let too_small_to_split = batch.records == 1;
            match verdict {
                Verdict::Taken { rejected, message } => {
                    self.taken(&batch, rejected, &message, backoff.failures());
                    backoff.reset();
                    small = u32::saturating_sub(small, 1);
                    if small == 0 {
                        limit = Limit { records: full, ..limit };
                    }
                }
                Verdict::TooLarge { reason } if !too_small_to_split => {
                    tracing::debug!(
                        reason,
                        records = batch.records,
                        "a request is too large; sending half of it"
                    );
                    limit.records = (batch.records as usize / 2).max(1);
                    small = SMALL_FOR;
                    self.update(|state| state.split += 1);
                }
                Verdict::TooLarge { reason } | Verdict::Refused { reason } => {
                    self.refused(&batch, &reason);
                    // A receiver that is the wrong one refuses everything: the queue drains slowly, so that there is
                    // something left when that is mended.
                    self.pause(backoff.next(None)).await;
                }
                Verdict::Retry { after, reason } => {
                    let pause = backoff.next(after);
                    self.failed(&reason, backoff.failures(), pause);
                    self.pause(pause).await;
                }
            }
        }
    }

    /// Waits until there is enough for a request, or what there is has waited long enough.
    async fn gather(&self, limit: Limit) {
        let mut deadline = None;
        loop {
            let (waiting, hurry) = self.queue.waiting();
            if waiting >= limit.records as u64 || (hurry && waiting > 0) {
                return;
            }
            let now = Instant::now();
            if waiting > 0 {
                let deadline = *deadline.get_or_insert(now + self.config.linger);
                let Some(left) = deadline.checked_duration_since(now).filter(|left| !left.is_zero()) else {
                    return;
                };
                let _ = timeout(left, self.queue.wake.notified()).await;
            } else if timeout(TICK, self.queue.wake.notified()).await.is_err() {
                return;
            }
        }
    }

    /// Waits between attempts, and keeps an eye on the disk meanwhile.
    async fn pause(&self, pause: Duration) {
        let end = Instant::now() + pause;
        while let Some(left) = end.checked_duration_since(Instant::now()).filter(|left| !left.is_zero()) {
            sleep(left.min(TICK)).await;
            self.queue.tick();
        }
    }

    fn taken(&self, batch: &Batch, rejected: u64, message: &str, failures: u32) {
        let mut lost = Tally::default();
        // More than were sent cannot have been rejected.
        let rejected = rejected.min(batch.records);
        if rejected > 0 {
            lost.add(None, Reason::Rejected, Lost { records: rejected, bytes: 0, window: None });
            tracing::warn!(
                rejected,
                message,
                endpoint = self.config.endpoint,
                "the receiver rejected records"
            );
        } else if !message.is_empty() {
            tracing::info!(message, endpoint = self.config.endpoint, "the receiver says");
        }
        if failures > 0 {
            tracing::info!(endpoint = self.config.endpoint, "delivering again");
        }
        self.queue.done(batch, &lost);
        self.update(|state| {
            state.taken += 1;
            state.taken_bytes += batch.request.len() as u64;
            state.last_taken = Some(Instant::now());
            state.failing = None;
        });
    }

    fn refused(&self, batch: &Batch, reason: &str) {
        tracing::warn!(
            reason,
            records = batch.records,
            endpoint = self.config.endpoint,
            "the receiver refused records for good; is it a kvprov collector?"
        );
        self.queue.done(batch, &batch.given_up(Reason::Refused));
        self.update(|state| {
            state.refused += 1;
            state.failing = Some(reason.to_owned());
        });
    }

    fn failed(&self, reason: &str, failures: u32, pause: Duration) {
        // Once when it begins, and now and then while it lasts.
        if failures.is_power_of_two() {
            tracing::warn!(
                reason,
                failures,
                pause_ms = pause.as_millis() as u64,
                endpoint = self.config.endpoint,
                "cannot deliver; what is observed waits in the queue"
            );
        }
        self.update(|state| {
            state.retried += 1;
            state.failing = Some(reason.to_owned());
        });
    }

    fn update(&self, change: impl FnOnce(&mut ShipStats)) {
        change(&mut self.state.lock().unwrap_or_else(PoisonError::into_inner));
    }
}
