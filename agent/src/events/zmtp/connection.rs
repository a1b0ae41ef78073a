//! A connection to one peer: handshake, then messages. Commands, heartbeats among them, are answered underneath.

use super::command::{self, Command};
use super::{Budget, Greeting, Incoming, Limits, SocketType, Sort, ZmtpError, write_frame};
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::time::{Instant, timeout_at};

/// What we tell the peer to wait for our next sign of life, in tenths of a second.
const PATIENCE: u16 = 300;
/// Most answers that wait to be sent: a peer that asks without reading is none to talk to.
const MAX_OUTGOING: usize = 256 << 10;

/// The connection.
#[derive(Debug)]
pub struct Connection<S> {
    stream: S,
    incoming: Incoming,
    outgoing: Vec<u8>,
    /// Bytes of `outgoing` that were sent.
    sent: usize,
    minor: u8,
    silence: Duration,
    heard: Instant,
    /// When a sign of life was asked for.
    asked: Option<Instant>,
}

/// A message. Its bytes are overwritten when it is dropped.
#[derive(Debug)]
pub struct Received<'c>(&'c mut Incoming);

// === impl Received ===

impl Received<'_> {
    /// The frames.
    pub fn parts(&self) -> Vec<&[u8]> {
        self.0.parts().collect()
    }
}

impl Drop for Received<'_> {
    fn drop(&mut self) {
        self.0.done();
    }
}

// === impl Connection ===

impl<S: AsyncRead + AsyncWrite + Unpin> Connection<S> {
    /// Shakes hands over a stream that is connected. Whoever calls bounds the time.
    ///
    /// # Errors
    /// When the peer speaks another protocol, asks for authentication, is another kind of socket or goes away.
    pub async fn open(stream: S, own: SocketType, limits: Limits, budget: Budget) -> Result<Self, ZmtpError> {
        let now = Instant::now();
        let incoming = Incoming::new(limits, budget);
        let mut connection = Self {
            stream,
            incoming,
            outgoing: Vec::new(),
            sent: 0,
            minor: 0,
            silence: limits.silence,
            heard: now,
            asked: None,
        };
        connection.outgoing.extend_from_slice(&Greeting::own());
        connection.flush().await?;
        let greeting = loop {
            if let Some(raw) = connection.incoming.raw() {
                break Greeting::read(&raw)?;
            }
            connection.read().await?;
        };
        connection.minor = greeting.minor;
        write_frame(&mut connection.outgoing, &command::ready(own.as_str()), false, true);
        connection.flush().await?;
        loop {
            match connection.incoming.look()? {
                None => connection.read().await?,
                Some(Sort::Message) => return Err(ZmtpError::Malformed("a message before the handshake")),
                Some(Sort::Command) => {
                    let body = connection.incoming.parts().next().unwrap_or_default();
                    let is_ready = match Command::read(body)? {
                        Command::Ready(peer) if own.fits(peer) => true,
                        Command::Ready(peer) => {
                            let named = String::from_utf8_lossy(&peer[..peer.len().min(16)]);
                            return Err(ZmtpError::SocketType(named.escape_debug().to_string()));
                        }
                        Command::Error => return Err(ZmtpError::Refused),
                        _ => false,
                    };
                    connection.incoming.done();
                    if is_ready {
                        return Ok(connection);
                    }
                }
            }
        }
    }

    /// Subscribes to what begins with a topic; the empty one is everything.
    ///
    /// # Errors
    /// When the peer went away.
    pub async fn subscribe(&mut self, topic: &[u8]) -> Result<(), ZmtpError> {
        if self.minor >= 1 {
            write_frame(&mut self.outgoing, &command::subscribe(topic), false, true);
        } else {
            write_frame(&mut self.outgoing, &[&b"\x01"[..], topic].concat(), false, false);
        }
        self.flush().await
    }

    /// Sends a message.
    ///
    /// # Errors
    /// When the peer went away.
    pub async fn send(&mut self, parts: &[&[u8]]) -> Result<(), ZmtpError> {
        for (index, part) in parts.iter().enumerate() {
            write_frame(&mut self.outgoing, part, index + 1 < parts.len(), false);
        }
        self.flush().await
    }

    /// Waits for the next message. May be given up at any time: nothing is lost.
    ///
    /// # Errors
    /// When the connection cannot be used any more.
    pub async fn receive(&mut self) -> Result<Received<'_>, ZmtpError> {
        loop {
            match self.incoming.look()? {
                Some(Sort::Message) => return Ok(Received(&mut self.incoming)),
                Some(Sort::Command) => {
                    let body = self.incoming.parts().next().unwrap_or_default();
                    match Command::read(body)? {
                        Command::Ping(context) => {
                            let pong = command::pong(context);
                            if self.outgoing.len() > MAX_OUTGOING {
                                return Err(ZmtpError::TooLarge("heartbeats"));
                            }
                            write_frame(&mut self.outgoing, &pong, false, true);
                        }
                        Command::Error => return Err(ZmtpError::Refused),
                        _ => {}
                    }
                    self.incoming.done();
                }
                None => {
                    self.flush().await?;
                    self.read_or_ask().await?;
                }
            }
        }
    }

    /// Whether a message can be taken without waiting.
    pub fn has_message(&mut self) -> bool {
        matches!(self.incoming.look(), Ok(Some(Sort::Message)))
    }

    /// Reads, and asks a peer that is silent for a sign of life.
    async fn read_or_ask(&mut self) -> Result<(), ZmtpError> {
        if self.minor == 0 {
            return self.read().await;
        }
        let until = match self.asked {
            Some(asked) => asked + self.silence,
            None => self.heard + self.silence,
        };
        match timeout_at(until, self.read()).await {
            Ok(read) => read,
            Err(_) if self.asked.is_some() => Err(ZmtpError::Silent),
            Err(_) => {
                self.asked = Some(Instant::now());
                write_frame(&mut self.outgoing, &command::ping(PATIENCE), false, true);
                Ok(())
            }
        }
    }

    async fn read(&mut self) -> Result<(), ZmtpError> {
        let count = self.stream.read(self.incoming.room()?).await?;
        if count == 0 {
            return Err(ZmtpError::Closed);
        }
        self.incoming.came(count);
        self.heard = Instant::now();
        self.asked = None;
        Ok(())
    }

    /// Sends what waits. What was sent is noted after each write, so that it may be given up at any time.
    async fn flush(&mut self) -> Result<(), ZmtpError> {
        while self.sent < self.outgoing.len() {
            let count = self.stream.write(&self.outgoing[self.sent..]).await?;
            if count == 0 {
                return Err(ZmtpError::Closed);
            }
            self.sent += count;
        }
        self.outgoing.clear();
        self.sent = 0;
        Ok(())
    }
}
