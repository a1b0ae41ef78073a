//! A publisher of KV events over real sockets, and a room that keeps what a subscription gives.
#![allow(dead_code, reason = "tests use some of it each")]
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use kvprov_agent::events::subscribe::{
    Endpoint, Ends, Locate, Mark, Outlet, Patience, Place, Subscription, Target, Unreachable,
};
use kvprov_agent::events::zmtp::{Budget, Connection, Limits, SocketType};
use kvprov_agent::source::Losses;
use kvprov_model::clock::WallTime;
use kvprov_model::content::FleetKey;
use kvprov_model::id::NodeId;
use kvprov_model::observation::{Block, Body, Observation};
use serde_json::{Value, json};
use std::cell::{Cell, RefCell};
use std::net::SocketAddr;
use std::rc::Rc;
use std::time::Duration;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::mpsc::{UnboundedSender, unbounded_channel};
use tokio::task::JoinHandle;
use tokio::time::{sleep, timeout};

/// JSON as MessagePack; a text `0x…` becomes bytes.
pub(crate) fn pack(value: &Value, to: &mut Vec<u8>) {
    match value {
        Value::Null => rmp::encode::write_nil(to).unwrap(),
        Value::Bool(flag) => rmp::encode::write_bool(to, *flag).unwrap(),
        Value::Number(number) => {
            if let Some(number) = number.as_u64() {
                rmp::encode::write_uint(to, number).unwrap();
            } else if let Some(number) = number.as_i64() {
                rmp::encode::write_sint(to, number).unwrap();
            } else {
                rmp::encode::write_f64(to, number.as_f64().unwrap()).unwrap();
            }
        }
        Value::String(text) => match text.strip_prefix("0x") {
            Some(digits) => {
                let bytes: Vec<u8> = (0..digits.len() / 2)
                    .map(|at| u8::from_str_radix(&digits[at * 2..at * 2 + 2], 16).unwrap())
                    .collect();
                rmp::encode::write_bin(to, &bytes).unwrap();
            }
            None => rmp::encode::write_str(to, text).unwrap(),
        },
        Value::Array(items) => {
            rmp::encode::write_array_len(to, items.len() as u32).unwrap();
            items.iter().for_each(|item| pack(item, to));
        }
        Value::Object(fields) => {
            rmp::encode::write_map_len(to, fields.len() as u32).unwrap();
            for (name, value) in fields {
                rmp::encode::write_str(to, name).unwrap();
                pack(value, to);
            }
        }
    }
}

/// A batch of events at a time.
pub(crate) fn batch(ts: f64, events: &[Value]) -> Vec<u8> {
    let mut bytes = Vec::new();
    pack(&json!([ts, events, 0]), &mut bytes);
    bytes
}

/// A block of 16 tokens.
pub(crate) fn stored(hash: u64, parent: Option<u64>, first: u32) -> Value {
    let tokens: Vec<u32> = (first..first + 16).collect();
    json!({"type": "BlockStored", "block_hashes": [hash], "parent_block_hash": parent, "token_ids": tokens,
        "block_size": 16, "lora_id": null, "medium": "GPU", "lora_name": null})
}

type Parts = Vec<Vec<u8>>;

#[derive(Default)]
struct Shared {
    subscribers: RefCell<Vec<UnboundedSender<Parts>>>,
    held: RefCell<Vec<(u64, Vec<u8>)>>,
    /// Replies that are sent before the rest is dropped in silence.
    most_replies: Cell<Option<usize>>,
    requests: RefCell<Vec<u64>>,
    with_topic: Cell<bool>,
}

/// The publisher.
pub(crate) struct Double {
    pub(crate) address: SocketAddr,
    pub(crate) replay: SocketAddr,
    shared: Rc<Shared>,
    next: Cell<u64>,
    time: Cell<f64>,
    tasks: Vec<JoinHandle<()>>,
}

/// Serves every connection to a listener by itself.
async fn serve<S: Future<Output = ()> + 'static>(
    listener: TcpListener,
    kind: SocketType,
    shared: Rc<Shared>,
    serve: impl Fn(Connection<TcpStream>, Rc<Shared>) -> S + 'static,
) {
    let serve = Rc::new(serve);
    loop {
        let (stream, _) = listener.accept().await.unwrap();
        let (shared, serve) = (Rc::clone(&shared), Rc::clone(&serve));
        tokio::task::spawn_local(async move {
            let budget = Budget::new(1 << 30);
            serve(Connection::open(stream, kind, Limits::default(), budget).await.unwrap(), shared).await;
        });
    }
}

async fn send_batches(mut connection: Connection<TcpStream>, shared: Rc<Shared>) {
    let (sender, mut parts) = unbounded_channel::<Parts>();
    shared.subscribers.borrow_mut().push(sender);
    while let Some(parts) = parts.recv().await {
        let parts: Vec<&[u8]> = parts.iter().map(Vec::as_slice).collect();
        if connection.send(&parts).await.is_err() {
            return;
        }
    }
}

async fn send_held(mut connection: Connection<TcpStream>, shared: Rc<Shared>) {
    let from = {
        let received = connection.receive().await.unwrap();
        let parts = received.parts();
        assert_eq!(parts.len(), 2);
        assert!(parts[0].is_empty());
        u64::from_be_bytes(parts[1].try_into().unwrap())
    };
    shared.requests.borrow_mut().push(from);
    let held: Vec<_> = shared.held.borrow().iter().filter(|(seq, _)| *seq >= from).cloned().collect();
    let most = shared.most_replies.get().unwrap_or(usize::MAX);
    let with_topic = shared.with_topic.get();
    for (seq, payload) in held.iter().take(most) {
        let seq = seq.to_be_bytes();
        let sent = if with_topic {
            connection.send(&[b"", b"kv", &seq, payload]).await
        } else {
            connection.send(&[b"", &seq, payload]).await
        };
        if sent.is_err() {
            return;
        }
    }
    if held.len() > most {
        // As a full queue does: the rest and the end are gone, the connection stays.
        sleep(Duration::from_secs(3600)).await;
    }
    let end = u64::MAX.to_be_bytes();
    let parts: &[&[u8]] = if with_topic { &[b"", b"", &end, b""] } else { &[b"", &end, b""] };
    let _ = connection.send(parts).await;
    sleep(Duration::from_secs(3600)).await;
}

impl Double {
    pub(crate) async fn start() -> Self {
        Self::at("127.0.0.1:0".parse().unwrap(), "127.0.0.1:0".parse().unwrap()).await
    }

    pub(crate) async fn at(address: SocketAddr, replay: SocketAddr) -> Self {
        let shared = Rc::new(Shared::default());
        let subscribers = TcpListener::bind(address).await.unwrap();
        let replays = TcpListener::bind(replay).await.unwrap();
        let (address, replay) = (subscribers.local_addr().unwrap(), replays.local_addr().unwrap());
        let tasks = vec![
            tokio::task::spawn_local(serve(subscribers, SocketType::Pub, Rc::clone(&shared), send_batches)),
            tokio::task::spawn_local(serve(replays, SocketType::Router, Rc::clone(&shared), send_held)),
        ];
        Self { address, replay, shared, next: Cell::new(0), time: Cell::new(1_800_000_000.5), tasks }
    }

    /// Batches of another run.
    pub(crate) fn later(self) -> Self {
        self.time.set(self.time.get() + 1000.0);
        self
    }

    pub(crate) fn with_topic(&self) {
        self.shared.with_topic.set(true);
    }

    pub(crate) fn drop_replies_after(&self, most: usize) {
        self.shared.most_replies.set(Some(most));
    }

    /// Forgets what was published before a number.
    pub(crate) fn forget_before(&self, seq: u64) {
        self.shared.held.borrow_mut().retain(|(held, _)| *held >= seq);
    }

    pub(crate) fn requests(&self) -> Vec<u64> {
        self.shared.requests.borrow().clone()
    }

    /// Publishes to nobody: as what a full queue drops.
    pub(crate) fn publish_unheard(&self, events: &[Value]) -> (u64, Vec<u8>) {
        let payload = batch(self.time.get(), events);
        self.time.set(self.time.get() + 0.25);
        let seq = self.next.get();
        self.next.set(seq + 1);
        self.shared.held.borrow_mut().push((seq, payload.clone()));
        (seq, payload)
    }

    pub(crate) fn publish(&self, events: &[Value]) {
        let (seq, payload) = self.publish_unheard(events);
        self.send(&[b"kv".to_vec(), seq.to_be_bytes().to_vec(), payload]);
    }

    /// Sends frames of any kind.
    pub(crate) fn send(&self, parts: &[Vec<u8>]) {
        self.shared.subscribers.borrow_mut().retain(|subscriber| subscriber.send(parts.to_vec()).is_ok());
    }

    pub(crate) async fn subscribed(&self) {
        wait("a subscriber", || !self.shared.subscribers.borrow().is_empty()).await;
    }

    /// Goes away, with its sockets.
    pub(crate) async fn vanish(self) -> (SocketAddr, SocketAddr) {
        self.shared.subscribers.borrow_mut().clear();
        for task in &self.tasks {
            task.abort();
        }
        for task in self.tasks {
            let _ = task.await;
        }
        (self.address, self.replay)
    }
}

/// What a subscription gave.
#[derive(Default)]
pub(crate) struct Room {
    pub(crate) observations: RefCell<Vec<Observation>>,
    pub(crate) losses: RefCell<Losses>,
    pub(crate) mark: Cell<Option<Mark>>,
    pub(crate) states: RefCell<Vec<Result<(), String>>>,
    pub(crate) empty: RefCell<Vec<u64>>,
    pub(crate) is_full: Cell<bool>,
    pub(crate) refused: Cell<u64>,
}

impl Outlet for Room {
    fn take(&self, observations: &[Observation]) -> bool {
        if self.is_full.get() {
            self.refused.set(self.refused.get() + 1);
            return false;
        }
        self.observations.borrow_mut().extend_from_slice(observations);
        true
    }

    fn reached(&self, _: &str, mark: Mark) {
        self.mark.set(Some(mark));
    }

    fn lose(&self, losses: &Losses) {
        for (reason, count) in losses.iter() {
            self.losses.borrow_mut().add(reason, count);
        }
    }

    fn empty_batch(&self, _: &Target, seq: u64, _: Option<WallTime>) {
        self.empty.borrow_mut().push(seq);
    }

    fn state(&self, _: &Target, state: Result<(), String>) {
        let mut states = self.states.borrow_mut();
        if states.last() != Some(&state) {
            states.push(state);
        }
    }

    fn waits(&self, _: &Target, _: Option<WallTime>) {}
}

impl Room {
    pub(crate) fn blocks(&self) -> Vec<Block> {
        let observations = self.observations.borrow();
        let block = |one: &Observation| match &one.body {
            Body::Block(block) => Some(block.clone()),
            _ => None,
        };
        observations.iter().filter_map(block).collect()
    }

    /// Sequence numbers of the blocks.
    pub(crate) fn numbers(&self) -> Vec<i64> {
        self.blocks().iter().filter_map(|block| block.sequence).collect()
    }

    /// Losses that were observed: reason and records.
    pub(crate) fn lost(&self) -> Vec<(String, Option<i64>)> {
        let observations = self.observations.borrow();
        let loss = |one: &Observation| match &one.body {
            Body::Loss(loss) => Some((loss.reason.clone().unwrap(), loss.records)),
            _ => None,
        };
        observations.iter().filter_map(loss).collect()
    }

    pub(crate) fn ids(&self) -> Vec<String> {
        self.observations.borrow().iter().map(|one| format!("{:?}", one.envelope.id)).collect()
    }

    pub(crate) async fn numbers_are(&self, wanted: &[i64]) {
        wait(&format!("batches {wanted:?}"), || self.numbers().len() >= wanted.len()).await;
        assert_eq!(self.numbers(), wanted);
    }
}

/// Everything listens here, and is the worker's unless told.
pub(crate) struct Here {
    pub(crate) is_ours: bool,
}

impl Locate for Here {
    fn locate(&self, endpoint: &Endpoint) -> Result<Place, Unreachable> {
        match endpoint {
            Endpoint::Tcp { port, .. } => Ok(Place::Tcp(vec![([127, 0, 0, 1], *port).into()])),
            Endpoint::Ipc(path) => Ok(Place::Unix(path.clone())),
        }
    }

    fn is_peer(&self, _: &Endpoint, ends: Ends) -> bool {
        self.is_ours
            && match ends {
                Ends::Unix(pid) => pid == Some(std::process::id()),
                Ends::Tcp { .. } => true,
            }
    }
}

/// Short times, so that a test is.
pub(crate) fn patience() -> Patience {
    let millis = Duration::from_millis;
    Patience {
        handshake: millis(500),
        reply: millis(150),
        replay: millis(2000),
        rest: millis(100),
        again: (millis(5), millis(20)),
        vanished: millis(100),
        queue: millis(5),
    }
}

pub(crate) fn target(double: &Double, replays: bool) -> Target {
    let endpoint = |address: SocketAddr| Endpoint::parse(&format!("tcp://*:{}", address.port())).unwrap();
    Target {
        node: NodeId::from("n"),
        worker: "w".into(),
        endpoint: endpoint(double.address),
        replay: replays.then(|| endpoint(double.replay)),
        topic: String::new(),
    }
}

/// Follows a publisher behind a batch.
pub(crate) fn follow(target: Target, last: Option<Mark>) -> (Rc<Room>, JoinHandle<()>) {
    follow_with(target, last, true)
}

pub(crate) fn follow_with(target: Target, last: Option<Mark>, is_ours: bool) -> (Rc<Room>, JoinHandle<()>) {
    let room = Rc::new(Room::default());
    let key: &'static FleetKey = Box::leak(Box::new(FleetKey::from_secret(b"test")));
    let outlet: Rc<Room> = Rc::clone(&room);
    let locate = Rc::new(Here { is_ours });
    let subscription =
        Subscription::new(target, last, key, Budget::new(64 << 20), patience(), locate, outlet);
    (room, tokio::task::spawn_local(subscription.run()))
}

/// Waits for something, not for ever.
pub(crate) async fn wait(what: &str, mut is_so: impl FnMut() -> bool) {
    let waited = timeout(Duration::from_secs(10), async {
        while !is_so() {
            sleep(Duration::from_millis(2)).await;
        }
    });
    assert!(waited.await.is_ok(), "waited in vain for {what}");
}
