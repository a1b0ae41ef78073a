//! Requests over several connections, each with a prompt of its own.

use anyhow::{Context, Result, bail};
use std::fmt;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use super::super::figure::median;

const CONNECTIONS: usize = 4;
/// One request in so many asks for one token only: its duration is the time to the first token.
const FIRST_TOKEN_OF: usize = 4;
const TOKENS: u32 = 8;
const PATIENCE: Duration = Duration::from_secs(60);

/// Makes requests that were never made before.
#[derive(Debug)]
pub(super) struct Load {
    router: SocketAddr,
    next: usize,
}

/// How fast requests were answered.
#[derive(Debug, Clone, Copy)]
pub(super) struct Pace {
    /// Requests a second.
    pub(super) rate: f64,
    /// Seconds to the first token, the median.
    pub(super) first_token: f64,
}

// === impl Load ===

impl Load {
    pub(super) fn new(router: SocketAddr) -> Self {
        Self { router, next: 0 }
    }

    /// Makes so many requests and waits for all of them.
    pub(super) fn run(&mut self, requests: usize) -> Result<Pace> {
        let (first, end) = (self.next, self.next + requests);
        self.next = end;
        let turn = AtomicUsize::new(first);
        let firsts = Mutex::new(Vec::new());
        let begun = Instant::now();
        std::thread::scope(|scope| -> Result<()> {
            let one = || -> Result<()> {
                loop {
                    let number = turn.fetch_add(1, Ordering::Relaxed);
                    if number >= end {
                        return Ok(());
                    }
                    let is_first = number.is_multiple_of(FIRST_TOKEN_OF);
                    let sent = Instant::now();
                    ask(self.router, number, if is_first { 1 } else { TOKENS })?;
                    if let (true, Ok(mut firsts)) = (is_first, firsts.lock()) {
                        firsts.push(sent.elapsed().as_secs_f64());
                    }
                }
            };
            let threads: Vec<_> = (0..CONNECTIONS).map(|_| scope.spawn(one)).collect();
            for thread in threads {
                thread.join().map_err(|_| anyhow::anyhow!("a connection's thread panicked"))??;
            }
            Ok(())
        })?;
        let rate = requests as f64 / begun.elapsed().as_secs_f64();
        let firsts = firsts.into_inner().unwrap_or_default();
        Ok(Pace { rate, first_token: median(firsts) })
    }
}

impl fmt::Display for Pace {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "{:.1}/s, first token after {:.0} ms", self.rate, self.first_token * 1e3)
    }
}

/// One request over a connection of its own.
fn ask(router: SocketAddr, number: usize, tokens: u32) -> Result<()> {
    let prompt = format!(
        "{number} bottles stood on a wall, one fell, and {} were left to be counted by a fox.",
        number + 7
    );
    let body = serde_json::json!({
        "model": "tiny", "prompt": prompt, "max_tokens": tokens, "temperature": 0, "ignore_eos": true,
    });
    let body = body.to_string();
    let mut stream = TcpStream::connect_timeout(&router, PATIENCE).context("connecting to the router")?;
    stream.set_read_timeout(Some(PATIENCE))?;
    write!(
        stream,
        "POST /v1/completions HTTP/1.1\r\nHost: {router}\r\nConnection: close\r\nX-Request-Id: bench-{number}\r\n\
         Content-Type: application/json\r\nContent-Length: {}\r\n\r\n{body}",
        body.len()
    )?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer).context("reading an answer of the router")?;
    let status = answer.lines().next().unwrap_or_default();
    if !status.contains(" 200") {
        bail!("request {number} was answered with {status:?}");
    }
    Ok(())
}
