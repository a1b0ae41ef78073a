//! The collector as a whole: the ledger's thread, the receivers, the page and the API.
//!
//! Everything that listens is bound before anything starts, so that an address in use is told at once and nothing is half
//! begun.

use crate::declare::Declarations;
use crate::export::traces::{self, Traces, TracesError};
use crate::intake::{Queue, Room};
use crate::ledger::{EmbeddedLedger, Ledger, LedgerError, Limits, MemoryLedger};
use crate::receive::{Beside, Forward, ReceiveConfig, ReceiveError, Receivers};
use crate::run::{self, Board, RunError, Running, Subscriber};
use crate::web;
use kvprov_packs::Packs;
use std::io;
use std::net::SocketAddr;
use std::os::unix::fs::DirBuilderExt as _;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use tokio::net::TcpListener;
use tokio::runtime::Runtime;
use tokio::sync::watch;

/// Directory of the ledger below the data directory.
const LEDGER: &str = "ledger";
/// File of the counters below the data directory.
const COUNTERS: &str = "counters.json";
/// File below the data directory that tells what was declared last.
const DECLARED: &str = "expected.json";
/// Observations that one selection of a running collector returns: what one evaluation may decode.
const SELECTION: usize = 50_000;
/// Threads that answer readers and senders.
const THREADS: usize = 2;
/// How long requests may take to end when the collector stops.
const GRACE: Duration = Duration::from_secs(5);
/// How often the ledger's thread is looked after.
const LOOK: Duration = Duration::from_millis(500);

/// What to start.
pub struct Config {
    /// Directory of the ledger and the counters; `None`: in memory, gone at the end.
    pub data: Option<PathBuf>,
    /// Where the page, the API and the metrics are.
    pub http: SocketAddr,
    /// Where observations are taken; `None`: only from this process, by [`Collector::intake`].
    pub receive: Option<ReceiveConfig>,
    /// What the ledger keeps.
    pub limits: Limits,
    /// How much may wait in front of the ledger.
    pub room: Room,
    /// What readers may use.
    pub readers: web::Limits,
    /// Told what findings become.
    pub subscribers: Vec<Box<dyn Subscriber>>,
    /// Where requests are traced; `None`: nowhere.
    pub traces: Option<traces::Settings>,
    /// The file in which operators declare what names should mean; `None`: nothing is declared.
    pub expected: Option<PathBuf>,
    /// Which spans of engines tell of requests.
    pub packs: &'static Packs,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            data: None,
            http: SocketAddr::from(([127, 0, 0, 1], 9470)),
            receive: Some(ReceiveConfig::default()),
            limits: Limits { selection: SELECTION, ..Limits::default() },
            room: Room::default(),
            readers: web::Limits::default(),
            subscribers: Vec::new(),
            traces: None,
            expected: None,
            packs: Packs::builtin(),
        }
    }
}

/// Why the collector could not start.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// The ledger cannot be opened; another collector may have it.
    #[error(transparent)]
    Ledger(#[from] LedgerError),
    /// The ledger's thread could not begin.
    #[error(transparent)]
    Run(#[from] RunError),
    /// Observations cannot be taken.
    #[error(transparent)]
    Receive(#[from] ReceiveError),
    /// Nothing can be traced.
    #[error(transparent)]
    Traces(#[from] TracesError),
    /// The data directory cannot be made.
    #[error("could not make the data directory {}: {source}; give another one with --data", .directory.display())]
    Data {
        /// Where.
        directory: PathBuf,
        /// What the system said.
        source: io::Error,
    },
    /// Something else listens there.
    #[error("{address} is in use, so {what} cannot be served there; {advice}")]
    InUse {
        /// The address.
        address: SocketAddr,
        /// What was to be served.
        what: &'static str,
        /// What to do.
        advice: String,
    },
    /// It cannot be listened at for another reason.
    #[error("could not listen at {address} to serve {what}: {source}; give another address")]
    Listen {
        /// The address.
        address: SocketAddr,
        /// What was to be served.
        what: &'static str,
        /// What the system said.
        source: io::Error,
    },
    /// No threads.
    #[error("could not start threads: {0}; raise the limit on processes (ulimit -u)")]
    Threads(#[source] io::Error),
}

/// A collector that runs. Dropping it stops it, which blocks: not to be done within an asynchronous task.
pub struct Collector {
    receivers: Option<Receivers>,
    running: Option<Running>,
    queue: Queue,
    board: Arc<Board>,
    alive: Arc<AtomicBool>,
    runtime: Option<Runtime>,
    stop: watch::Sender<bool>,
    http: SocketAddr,
}

impl Collector {
    /// Starts everything. When it returns, readers are answered and batches are taken.
    pub fn start(config: Config) -> Result<Self, StartError> {
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(THREADS)
            .thread_name("kvprov-http")
            .enable_all()
            .build()
            .map_err(StartError::Threads)?;
        let listener = runtime.block_on(listen(config.http, "the page, the API and the metrics"))?;
        let http = listener.local_addr().unwrap_or(config.http);
        let (ledger, directory): (Box<dyn Ledger>, _) = match &config.data {
            None => (Box::new(MemoryLedger::new(config.limits.clone())), None),
            Some(data) => {
                std::fs::DirBuilder::new()
                    .recursive(true)
                    .mode(0o700)
                    .create(data)
                    .map_err(|source| StartError::Data { directory: data.clone(), source })?;
                let directory = data.join(LEDGER);
                (Box::new(EmbeddedLedger::open(&directory, config.limits.clone())?), Some(directory))
            }
        };
        let beside = Beside { packs: config.packs, ..Beside::default() };
        let traces = match config.traces {
            Some(settings) => Some(open_traces(settings, config.data.clone(), config.receive.as_ref())?),
            None => None,
        };
        let teller = traces.as_ref().map(|traces| traces.teller(Arc::clone(&beside.clocks)));
        let running = run::start(run::Options {
            ledger,
            horizon_ns: config.limits.horizon_ns,
            directory,
            counters: config.data.as_ref().map(|data| data.join(COUNTERS)),
            room: config.room,
            subscribers: config.subscribers,
            teller,
        })?;
        let (queue, board) = (running.intake(), running.board());
        let (stop, _) = watch::channel(false);
        let alive = running.alive();
        let receivers = match config.receive {
            Some(receive) => {
                let forward = traces.clone().filter(Traces::forwards);
                let forward = forward.map(|traces| Arc::new(traces) as Arc<dyn Forward>);
                let beside = Beside { forward, ..beside };
                let start = Receivers::start_beside(receive, Arc::new(queue.clone()), beside);
                Some(runtime.block_on(start)?)
            }
            None => None,
        };
        let received = receivers.as_ref().map(|receivers| {
            let stats = Arc::new(receivers.watch());
            web::Received { stats, clocks: receivers.clocks() }
        });
        if let Some(traces) = traces.clone() {
            let until = stop.subscribe();
            runtime.spawn(async move {
                if let Err(error) = traces.send(until).await {
                    tracing::error!(%error, "nothing is traced");
                }
            });
        }
        let shared = web::Shared {
            received,
            traces,
            board: Arc::clone(&board),
            queue: queue.clone(),
            packs: config.packs,
            alive: Arc::clone(&alive),
        };
        let until = stopped(stop.subscribe());
        let readers = config.readers;
        runtime.spawn(async move {
            if let Err(error) = web::serve(listener, Arc::new(shared), readers, until).await {
                tracing::error!(%error, "the page and the API are no longer served");
            }
        });
        let memory = config.data.as_ref().map(|data| data.join(DECLARED));
        let declarations = Declarations::new(config.expected, memory);
        let (offers, shown, until) = (queue.clone(), Arc::clone(&board), stopped(stop.subscribe()));
        runtime.spawn(async move {
            tokio::select! {
                () = declarations.keep(offers, shown) => {}
                () = until => {}
            }
        });
        tracing::info!(address = %http, "the collector runs; findings are at http://{http}/");
        let collector = Self {
            receivers,
            running: Some(running),
            queue,
            board,
            alive,
            runtime: Some(runtime),
            stop,
            http,
        };
        Ok(collector)
    }

    /// Where batches are offered.
    pub fn intake(&self) -> Queue {
        self.queue.clone()
    }

    /// What readers see.
    pub fn board(&self) -> Arc<Board> {
        Arc::clone(&self.board)
    }

    /// Where the page, the API and the metrics are; with the port that the system chose where none was given.
    pub fn http(&self) -> SocketAddr {
        self.http
    }

    /// Where OTLP is taken over gRPC and over HTTP.
    pub fn otlp(&self) -> (Option<SocketAddr>, Option<SocketAddr>) {
        let receivers = self.receivers.as_ref();
        (receivers.and_then(Receivers::grpc_address), receivers.and_then(Receivers::http_address))
    }

    /// Runs a receiver on the collector's threads until the collector stops.
    pub fn spawn(&self, task: impl Future<Output = ()> + Send + 'static) {
        if let Some(runtime) = &self.runtime {
            let mut until = self.stop.subscribe();
            runtime.spawn(async move {
                tokio::select! {
                    () = task => {}
                    _ = until.wait_for(|stop| *stop) => {}
                }
            });
        }
    }

    /// Resolves when the collector stops: for servers that end gracefully by themselves.
    pub fn until_stopped(&self) -> impl Future<Output = ()> + Send + 'static {
        stopped(self.stop.subscribe())
    }

    /// A handle of the threads that answer senders and readers.
    pub fn threads(&self) -> Option<tokio::runtime::Handle> {
        self.runtime.as_ref().map(|runtime| runtime.handle().clone())
    }

    /// Waits at most this long; whether the ledger's thread ended by itself, after which nothing is taken any more.
    pub fn has_failed_within(&self, patience: Duration) -> bool {
        let deadline = std::time::Instant::now() + patience;
        loop {
            if !self.alive.load(Ordering::Relaxed) {
                return true;
            }
            let left = deadline.saturating_duration_since(std::time::Instant::now());
            if left.is_zero() {
                return false;
            }
            std::thread::park_timeout(left.min(LOOK));
        }
    }

    /// Stops: no batch is taken any more, requests that run get some seconds, what waits is merged, the ledger is closed.
    pub fn stop(mut self) {
        self.end();
    }

    fn end(&mut self) {
        // Receivers first: requests under way are still answered by the ledger.
        if let (Some(runtime), Some(receivers)) = (&self.runtime, self.receivers.take()) {
            runtime.block_on(receivers.stop());
        }
        let _ = self.stop.send(true);
        if let Some(running) = self.running.take() {
            running.stop();
        }
        if let Some(runtime) = self.runtime.take() {
            runtime.shutdown_timeout(GRACE);
        }
    }
}

impl Drop for Collector {
    fn drop(&mut self) {
        self.end();
    }
}

/// Opens the queue of traces, unless they would come back here.
fn open_traces(
    settings: traces::Settings,
    data: Option<PathBuf>,
    receive: Option<&ReceiveConfig>,
) -> Result<Traces, TracesError> {
    let own = receive.map(|receive| receive.grpc.into_iter().chain(receive.http).collect::<Vec<_>>());
    if settings.endpoint.is_one_of(&own.unwrap_or_default()) {
        return Err(TracesError::Itself { endpoint: settings.endpoint.to_string() });
    }
    Traces::open(settings, data)
}

/// Listens at an address. `what`: what is to be served there, for the error.
pub async fn listen(address: SocketAddr, what: &'static str) -> Result<TcpListener, StartError> {
    TcpListener::bind(address).await.map_err(|source| match source.kind() {
        io::ErrorKind::AddrInUse => StartError::InUse {
            address,
            what,
            advice: "another collector may run here already: use that one, stop it, or give another address with --listen"
                .to_owned(),
        },
        _ => StartError::Listen { address, what, source },
    })
}

async fn stopped(mut stop: watch::Receiver<bool>) {
    let _ = stop.wait_for(|stop| *stop).await;
}
