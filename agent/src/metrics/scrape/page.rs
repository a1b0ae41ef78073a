//! One page, from whom it has to be from.

use crate::access::{ProcessAccess, ProcessId};
use crate::endpoint::{self, NotServed, Served};
use crate::http::{Connection, GetError, Limits, ReadPath};
use crate::metrics::{Meanings, Trim};
use std::net::SocketAddr;
use std::time::Duration;

/// What to ask.
#[derive(Debug, Clone)]
pub struct Ask {
    /// The worker's processes, its leader first.
    pub processes: Vec<ProcessId>,
    /// The port that its settings say.
    pub port: u16,
    /// Where it was the last time.
    pub before: Option<Served>,
}

/// What came.
#[derive(Debug, Clone)]
pub struct Got<T> {
    /// The answer.
    pub answer: T,
    /// Bytes that were read for it.
    pub bytes: usize,
    /// Where from.
    pub served: Served,
    /// The address of it that answered.
    pub address: SocketAddr,
    /// Processor time that looking and reading took.
    pub worked: Duration,
}

/// Why nothing came, or nothing that is used.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Trouble {
    /// No address leads to the worker.
    #[error(transparent)]
    NotServed(#[from] NotServed),
    /// No answer.
    #[error(transparent)]
    NoAnswer(#[from] GetError),
    /// It ended or gave the socket away while it was asked.
    #[error("the worker no longer holds the socket that answered")]
    ChangedHands,
    /// In another network namespace the connection is not to be found.
    #[error(
        "{0} leads to somebody else, or through a translation of addresses, so that who answers is not known"
    )]
    NotProven(SocketAddr),
    /// A line that matters cannot be read; the page is not used.
    #[error("the page is damaged: {0}")]
    Damaged(&'static str),
}

// === impl Trouble ===

impl Trouble {
    /// A word of a closed list, for counters.
    pub fn reason(&self) -> &'static str {
        match self {
            Self::NotServed(why) => why.reason(),
            Self::NoAnswer(why) => why.reason(),
            Self::ChangedHands => "changed_hands",
            Self::NotProven(_) => "not_proven",
            Self::Damaged(_) => "damaged",
        }
    }

    /// Whether it is just not there yet.
    pub fn is_silence(&self) -> bool {
        matches!(self, Self::NotServed(NotServed::Silent(_)))
    }
}

/// Reads a page and keeps of it what packs know.
///
/// # Errors
/// When there is no whole page that is the worker's for sure.
pub async fn read_page(
    access: &dyn ProcessAccess,
    ask: &Ask,
    meanings: &dyn Meanings,
    limits: &Limits,
) -> Result<Got<String>, Trouble> {
    let mut trim = Trim::new(meanings);
    let got = read_into(access, ask, ReadPath::Metrics, limits, &mut |piece| trim.feed(piece)).await?;
    let (answer, worked) = timed(|| trim.finish());
    let answer = answer.map_err(Trouble::Damaged)?;
    Ok(Got {
        answer,
        bytes: got.bytes,
        served: got.served,
        address: got.address,
        worked: got.worked + worked,
    })
}

/// Reads an answer whole.
///
/// # Errors
/// As [`read_page`].
pub(crate) async fn read_answer(
    access: &dyn ProcessAccess,
    ask: &Ask,
    path: ReadPath,
    limits: &Limits,
) -> Result<Got<Vec<u8>>, Trouble> {
    let mut body = Vec::new();
    let got = read_into(access, ask, path, limits, &mut |piece| body.extend_from_slice(piece)).await?;
    let Got { bytes, served, address, worked, answer: () } = got;
    Ok(Got { answer: body, bytes, served, address, worked })
}

async fn read_into(
    access: &dyn ProcessAccess,
    ask: &Ask,
    path: ReadPath,
    limits: &Limits,
    take: &mut (dyn FnMut(&[u8]) + Send),
) -> Result<Got<()>, Trouble> {
    let (served, mut worked) =
        timed(|| endpoint::find(access, &ask.processes, ask.port, ask.before.as_ref()));
    let served = served?;
    let (connection, address) = connect(&served, limits).await?;
    if served.is_foreign {
        let local = connection.local_address()?;
        let (is_peer, took) = timed(|| endpoint::is_peer(access, &served, address, local));
        worked += took;
        if !is_peer {
            return Err(Trouble::NotProven(address));
        }
    }
    let mut took = Duration::ZERO;
    let mut take = |piece: &[u8]| took += timed(|| take(piece)).1;
    let bytes = connection.get_into(path, limits, &mut take).await?;
    worked += took;
    if !served.is_still_held(access) {
        return Err(Trouble::ChangedHands);
    }
    Ok(Got { answer: (), bytes, served, address, worked })
}

/// Does something that waits for nothing, and tells the processor time that it took.
fn timed<T>(work: impl FnOnce() -> T) -> (T, Duration) {
    let now = || {
        let time = rustix::time::clock_gettime(rustix::time::ClockId::ThreadCPUTime);
        Duration::new(time.tv_sec.unsigned_abs(), u32::try_from(time.tv_nsec).unwrap_or(0))
    };
    let begun = now();
    let result = work();
    (result, now().saturating_sub(begun))
}

/// The first address that takes a connection.
async fn connect(served: &Served, limits: &Limits) -> Result<(Connection, SocketAddr), GetError> {
    let mut last = GetError::Broken("no address".to_owned());
    for address in &served.addresses {
        match Connection::open(*address, limits).await {
            Ok(connection) => return Ok((connection, *address)),
            Err(error) => last = error,
        }
    }
    Err(last)
}
