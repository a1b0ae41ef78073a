//! Connections that cannot use up the process: a bounded number of them, and none that idles for ever.

use axum::serve::Listener;
use std::io;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::{Instant, Sleep};

/// What readers may use.
#[derive(Debug, Clone, Copy)]
pub struct Limits {
    /// Connections at once; further ones wait in the system's queue.
    pub connections: usize,
    /// Requests that are answered at once.
    pub requests: usize,
    /// How long a request may take, waiting included.
    pub time: Duration,
    /// A connection on which nothing moves for this long is closed.
    pub idle: Duration,
}

impl Default for Limits {
    fn default() -> Self {
        Self { connections: 128, requests: 16, time: Duration::from_secs(10), idle: Duration::from_secs(30) }
    }
}

/// A listener with limits.
pub(super) struct Bounded {
    listener: TcpListener,
    room: Arc<Semaphore>,
    idle: Duration,
}

/// A connection that gives its place back when it ends.
pub(super) struct Connection {
    stream: TcpStream,
    idle: Duration,
    deadline: Pin<Box<Sleep>>,
    _place: Option<OwnedSemaphorePermit>,
}

impl Bounded {
    pub(super) fn new(listener: TcpListener, limits: Limits) -> Self {
        Self { listener, room: Arc::new(Semaphore::new(limits.connections.max(1))), idle: limits.idle }
    }
}

impl Listener for Bounded {
    type Io = Connection;
    type Addr = SocketAddr;

    async fn accept(&mut self) -> (Self::Io, Self::Addr) {
        let place = Arc::clone(&self.room).acquire_owned().await.ok();
        let (stream, address) = Listener::accept(&mut self.listener).await;
        let deadline = Box::pin(tokio::time::sleep(self.idle));
        (Connection { stream, idle: self.idle, deadline, _place: place }, address)
    }

    fn local_addr(&self) -> io::Result<Self::Addr> {
        self.listener.local_addr()
    }
}

impl Connection {
    /// Whether nothing moved for too long.
    fn is_idle(&mut self, context: &mut Context<'_>) -> bool {
        self.deadline.as_mut().poll(context).is_ready()
    }

    fn moved(&mut self) {
        self.deadline.as_mut().reset(Instant::now() + self.idle);
    }

    /// A result of the stream; an error where it waits for what never comes.
    fn judge<T>(&mut self, context: &mut Context<'_>, result: Poll<io::Result<T>>) -> Poll<io::Result<T>> {
        match result {
            Poll::Ready(result) => {
                self.moved();
                Poll::Ready(result)
            }
            Poll::Pending if self.is_idle(context) => {
                Poll::Ready(Err(io::Error::new(io::ErrorKind::TimedOut, "the connection is idle")))
            }
            Poll::Pending => Poll::Pending,
        }
    }
}

impl AsyncRead for Connection {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let result = Pin::new(&mut self.stream).poll_read(context, buffer);
        self.judge(context, result)
    }
}

impl AsyncWrite for Connection {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        let result = Pin::new(&mut self.stream).poll_write(context, bytes);
        self.judge(context, result)
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(context)
    }
}
