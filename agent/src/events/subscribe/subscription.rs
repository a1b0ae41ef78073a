//! One publisher, followed for as long as its worker lives.

mod asking;
mod telling;

use super::place::Stream;
use super::{Endpoint, Locate, Mark, Outlet, Patience, Sequence, Step, Target, replay};
use crate::events::blocks::Blocks;
use crate::events::msgpack;
use crate::events::zmtp::{Budget, Connection, Limits, SocketType, ZmtpError};
use crate::ship::Backoff;
use crate::source::SourceContext;
use kvprov_model::clock::WallTime;
use kvprov_model::content::FleetKey;
use kvprov_model::observation::Observation;
use std::rc::Rc;
use tokio::time::{Instant, sleep, timeout};

/// Blocks of one publisher whose content is remembered.
const BLOCKS: usize = 128 * 1024;
/// Observations that are handed over together.
const TOGETHER: usize = 256;

/// The subscription.
pub struct Subscription<'k> {
    target: Target,
    /// What makes ids unique, and the name under which its last batch is kept.
    name: String,
    source: SourceContext,
    locate: Rc<dyn Locate>,
    outlet: Rc<dyn Outlet>,
    limits: Limits,
    budget: Budget,
    patience: Patience,
    blocks: Blocks<'k>,
    sequence: Sequence,
    /// A batch came, of this publisher or of the one that it was before it began anew.
    is_known: bool,
    /// Nothing was replayed since this process started.
    is_first: bool,
    /// No replay before this.
    rested: Option<Instant>,
    /// Since when batches are asked for that are missing.
    filling: Option<WallTime>,
    pending: Vec<Observation>,
}

// === impl Subscription ===

impl<'k> Subscription<'k> {
    /// Behind the last batch that was taken, by this agent or one before it.
    pub fn new(
        target: Target,
        last: Option<Mark>,
        key: &'k FleetKey,
        budget: Budget,
        patience: Patience,
        locate: Rc<dyn Locate>,
        outlet: Rc<dyn Outlet>,
    ) -> Self {
        let source = SourceContext {
            node: target.node.clone(),
            worker: Some(target.worker.clone()),
            stream: target.stream(),
            instance: String::new(),
            generation: 0,
        };
        Self {
            name: target.name(),
            source,
            target,
            locate,
            outlet,
            limits: Limits::default(),
            budget,
            patience,
            blocks: Blocks::new(key, BLOCKS),
            sequence: Sequence::after(last),
            is_known: last.is_some(),
            is_first: true,
            rested: None,
            filling: None,
            pending: Vec::new(),
        }
    }

    /// Follows the publisher until it is dropped.
    pub async fn run(mut self) {
        let (first, longest) = self.patience.again;
        let mut backoff = Backoff::new(first, longest);
        let mut gone: Option<Instant> = None;
        let mut is_told = false;
        loop {
            let mut was_there = false;
            let why = self.session(&mut was_there).await;
            self.hand_over().await;
            if was_there {
                backoff.reset();
                gone = None;
                is_told = false;
            }
            let gone = *gone.get_or_insert_with(Instant::now);
            if self.is_known && !is_told && gone.elapsed() >= self.patience.vanished {
                is_told = true;
                self.tell_vanished();
                self.hand_over().await;
            }
            self.outlet.state(&self.target, Err(why));
            sleep(backoff.next(None)).await;
        }
    }

    /// Connects and follows until that ends; why it ended.
    async fn session(&mut self, was_there: &mut bool) -> String {
        let endpoint = self.target.endpoint.clone();
        let mut connection = match self.connect(&endpoint, SocketType::Sub).await {
            Ok(connection) => connection,
            Err(why) => return why,
        };
        if let Err(error) = connection.subscribe(self.target.topic.as_bytes()).await {
            return error.to_string();
        }
        *was_there = true;
        self.outlet.state(&self.target, Ok(()));
        self.catch_up().await;
        loop {
            if self.pending.len() >= TOGETHER || !connection.has_message() {
                self.hand_over().await;
            }
            match connection.receive().await {
                Ok(received) => match replay::published(&received.parts()) {
                    Some((seq, payload)) => self.live(seq, payload).await,
                    None => self.lose_one("message that is no KV event"),
                },
                Err(error) => {
                    if !matches!(error, ZmtpError::Closed | ZmtpError::Io(_)) {
                        self.lose_one(error.reason());
                    }
                    return error.to_string();
                }
            }
        }
    }

    /// Connects to an endpoint if it is the worker's, which is asked before and after.
    async fn connect(
        &self,
        endpoint: &Endpoint,
        own: SocketType,
    ) -> Result<Connection<Box<dyn Stream>>, String> {
        let place = self.locate.locate(endpoint).map_err(|why| why.to_string())?;
        let open = async {
            let (stream, ends) = place.connect().await?;
            if !self.locate.is_peer(endpoint, ends) {
                return Ok(None);
            }
            Connection::open(stream, own, self.limits, self.budget.clone()).await.map(Some)
        };
        match timeout(self.patience.handshake, open).await {
            Ok(Ok(Some(connection))) => Ok(connection),
            Ok(Ok(None)) => Err("who answers is no process of the worker".to_owned()),
            Ok(Err(error)) => Err(error.to_string()),
            Err(_) => Err("it does not answer as a publisher does".to_owned()),
        }
    }

    /// A batch of the subscription.
    async fn live(&mut self, seq: u64, payload: &[u8]) {
        let mark = mark(seq, payload);
        match self.sequence.judge(mark) {
            Step::Next if self.sequence.last().is_none() && seq > 0 => self.fill(0).await,
            Step::Next | Step::Known => {}
            Step::Missing { from, .. } => self.fill(from).await,
            Step::Old | Step::Anew => {
                self.begin_anew();
                if seq > 0 {
                    self.fill(0).await;
                }
            }
        }
        match self.sequence.judge(mark) {
            Step::Known => {}
            Step::Next => {
                if self.sequence.last().is_none() {
                    self.lose_before(mark, payload);
                }
                self.deliver(mark, payload).await;
            }
            Step::Missing { count, .. } => {
                self.lose_gap(mark, payload, count);
                self.deliver(mark, payload).await;
            }
            Step::Old | Step::Anew => {
                self.begin_anew();
                self.deliver(mark, payload).await;
            }
        }
    }

    /// The publisher began anew: its hashes may be of another seed.
    fn begin_anew(&mut self) {
        self.sequence.begin_anew();
        self.blocks.forget();
    }
}

/// The time stands in the batch, so that the same batch has the same mark whenever it is read.
fn mark(seq: u64, payload: &[u8]) -> Mark {
    Mark { seq, time: msgpack::time_of(payload).unwrap_or_default().to_bits() }
}
