//! One publisher, followed for as long as its worker lives.

use super::place::Stream;
use super::replay::{self, Reply};
use super::{Endpoint, Locate, Mark, Outlet, Sequence, Step};
use crate::events::blocks::{Blocks, says};
use crate::events::event::Head;
use crate::events::reader::{gap, lane};
use crate::events::zmtp::{Budget, Connection, Limits, SocketType, ZmtpError};
use crate::events::{GAP, msgpack};
use crate::ship::Backoff;
use crate::source::{self, Losses, SourceContext};
use kvprov_model::clock::WallTime;
use kvprov_model::content::FleetKey;
use kvprov_model::id::{NodeId, WorkerId};
use kvprov_model::observation::{Body, Loss, Observation, SourceKind};
use std::rc::Rc;
use std::time::Duration;
use tokio::time::{Instant, sleep, timeout};

/// Blocks of one publisher whose content is remembered.
const BLOCKS: usize = 128 * 1024;
/// Observations that are handed over together.
const TOGETHER: usize = 256;
/// Answers that are asked for one after another while each brings something new.
const ROUNDS: usize = 64;
/// Which observation of a batch tells that its publisher vanished behind it.
const VANISHED: u32 = u32::MAX;

/// How long things may take.
#[derive(Debug, Clone, Copy)]
pub struct Patience {
    /// To connect and shake hands.
    pub handshake: Duration,
    /// Between two messages of a replay.
    pub reply: Duration,
    /// For one answer as a whole.
    pub replay: Duration,
    /// Without replays after one that failed.
    pub rest: Duration,
    /// Between attempts to connect: the first and the longest.
    pub again: (Duration, Duration),
    /// Until a publisher that is gone while its worker lives counts as vanished.
    pub vanished: Duration,
    /// Between attempts to hand observations over.
    pub queue: Duration,
}

impl Default for Patience {
    fn default() -> Self {
        let seconds = Duration::from_secs;
        Self {
            handshake: seconds(5),
            reply: seconds(2),
            replay: seconds(10),
            rest: seconds(30),
            again: (Duration::from_millis(200), seconds(15)),
            vanished: seconds(5),
            queue: Duration::from_millis(50),
        }
    }
}

/// Whom to follow.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Target {
    /// The node.
    pub node: NodeId,
    /// The worker.
    pub worker: WorkerId,
    /// Where it publishes.
    pub endpoint: Endpoint,
    /// Where it is asked for batches that were published before.
    pub replay: Option<Endpoint>,
    /// The topic; empty: all.
    pub topic: String,
}

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

// === impl Target ===

impl Target {
    /// The name of the source, for people.
    pub fn stream(&self) -> String {
        self.endpoint.to_string()
    }

    /// The name by which a publisher is told from all others.
    pub fn name(&self) -> String {
        Self::name_of(&self.worker, &self.endpoint)
    }

    /// The name of the publisher of a worker at an endpoint.
    pub fn name_of(worker: &WorkerId, endpoint: &Endpoint) -> String {
        format!("{worker} {endpoint}")
    }
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

    /// What was published before the subscription, or while there was none.
    async fn catch_up(&mut self) {
        // In this process for the first time everything is asked for: what was taken by an agent before this one tells
        // what the blocks hold that later ones continue.
        let from = self.sequence.last().filter(|_| !self.is_first).map_or(0, |last| last.seq);
        self.fill(from).await;
        self.is_first = false;
    }

    /// Asks for everything from a number on, as often as that brings something new.
    async fn fill(&mut self, mut from: u64) {
        let Some(endpoint) = self.target.replay.clone() else { return };
        if self.rested.is_some_and(|rested| Instant::now() < rested) {
            return;
        }
        self.filling = Some(now());
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

    /// Turns a batch into observations.
    async fn deliver(&mut self, mark: Mark, payload: &[u8]) {
        let before = self.pending.len();
        let place = place(mark);
        self.source.generation = mark.time;
        let mut skipped = Losses::default();
        let (name, source, blocks, pending) =
            (&self.name, &mut self.source, &mut self.blocks, &mut self.pending);
        let mut index = 0;
        let read = msgpack::read_batch(
            payload,
            |reason| skipped.one(reason),
            |head, event| {
                if index == 0 {
                    source.instance = format!("{name} {}", head.publisher);
                }
                let lane = lane(index);
                index += 1;
                let Some(block) = blocks.event(Some(mark.seq), event) else { return };
                let says = says(&block);
                let body = Body::Block(block);
                pending.push(source.observe(SourceKind::Events, place, lane, wall(head), Some(says), body));
            },
        );
        if let Err(reason) = &read {
            skipped.one(reason);
        }
        for (reason, count) in skipped.iter() {
            self.blocks.losses().add(reason, count);
        }
        self.sequence.take(mark);
        self.is_known = true;
        if self.pending.len() == before {
            self.hand_over().await;
            let wall = read.ok().as_ref().and_then(wall);
            self.outlet.empty_batch(&self.target, mark.seq, wall);
        }
    }

    /// Learns what the blocks of a batch hold that was taken by an agent before this one.
    fn learn(&mut self, payload: &[u8]) {
        let blocks = &mut self.blocks;
        // What is not readable was counted when it was taken.
        let _ = msgpack::read_batch(payload, |_| {}, |_, event| drop(blocks.event(None, event)));
        std::mem::take(self.blocks.losses());
    }

    /// The publisher began anew: its hashes may be of another seed.
    fn begin_anew(&mut self) {
        self.sequence.begin_anew();
        self.blocks.forget();
    }

    /// Before the first batch there were others. Of a publisher that is new to us they count and are no loss of what
    /// was watched; of one that began anew they are.
    fn lose_before(&mut self, mark: Mark, payload: &[u8]) {
        match mark.seq {
            0 => {}
            seq if self.is_known => self.lose_gap(mark, payload, seq),
            seq => self.blocks.losses().add("before the subscription", seq),
        }
    }

    fn lose_gap(&mut self, mark: Mark, payload: &[u8], count: u64) {
        self.blocks.losses().add(GAP, count);
        self.source.generation = mark.time;
        self.source.instance.clone_from(&self.name);
        let wall = msgpack::time_of(payload).and_then(WallTime::from_unix_seconds);
        self.pending.push(gap(&self.source, place(mark), wall, count));
    }

    fn lose_one(&mut self, reason: &'static str) {
        self.blocks.losses().one(reason);
    }

    /// The publisher is gone and the worker is not: what it may say meanwhile is not heard. Dated behind the last batch
    /// that came, so that it is told the same after a restart.
    fn tell_vanished(&mut self) {
        let last = self.sequence.last();
        let mark = last.unwrap_or(Mark { seq: 0, time: 0 });
        self.source.generation = mark.time;
        self.source.instance.clone_from(&self.name);
        let body = Body::Loss(Loss {
            stage: Some("read".to_owned()),
            reason: Some("publisher of KV events vanished".to_owned()),
            records: None,
            bytes: None,
        });
        let says = format!("the publisher of KV events at {} is gone", self.target.endpoint);
        let wall = last.and_then(|last| WallTime::from_unix_seconds(f64::from_bits(last.time)));
        self.pending.push(self.source.observe(
            SourceKind::Events,
            place(mark),
            VANISHED,
            wall,
            Some(says),
            body,
        ));
        self.lose_one("publisher of KV events vanished");
    }

    /// Hands over what waits. While the queue takes nothing, nothing more is read.
    async fn hand_over(&mut self) {
        let losses = std::mem::take(self.blocks.losses());
        if !losses.is_empty() {
            self.outlet.lose(&losses);
        }
        if !self.pending.is_empty() {
            while !self.outlet.take(&self.pending) {
                let first = self.pending.first().and_then(|first| first.envelope.wall);
                self.outlet.waits(&self.target, self.filling.or(first));
                sleep(self.patience.queue).await;
            }
            self.outlet.waits(&self.target, self.filling);
            self.pending.clear();
        }
        if let Some(last) = self.sequence.last() {
            self.outlet.reached(&self.name, last);
        }
    }
}

/// The time stands in the batch, so that the same batch has the same mark whenever it is read.
fn mark(seq: u64, payload: &[u8]) -> Mark {
    Mark { seq, time: msgpack::time_of(payload).unwrap_or_default().to_bits() }
}

fn place(mark: Mark) -> source::Place {
    source::Place { position: mark.seq.saturating_add(1), offset: mark.seq }
}

fn wall(head: &Head) -> Option<WallTime> {
    head.ts.and_then(WallTime::from_unix_seconds)
}

fn now() -> WallTime {
    WallTime(crate::kernel::live::Now::read().wall)
}
