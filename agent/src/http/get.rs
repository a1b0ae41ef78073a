//! One GET over one connection.

use super::error::GetError;
use super::path::ReadPath;
use http_body_util::{BodyExt as _, Empty};
use hyper::body::{Body as _, Bytes};
use hyper::client::conn::http1;
use hyper::header::{ACCEPT, CONNECTION, CONTENT_ENCODING, HOST, USER_AGENT};
use hyper::{Request, StatusCode};
use hyper_util::rt::TokioIo;
use std::net::SocketAddr;
use std::time::Duration;
use tokio::net::TcpStream;
use tokio::task::JoinHandle;

/// How we call ourselves.
const AGENT: &str = concat!("kvprov/", env!("CARGO_PKG_VERSION"));
/// Buffer of a connection in bytes; a head that does not fit is refused.
const BUFFER: usize = 64 * 1024;
/// Lines of a head.
const MAX_HEADERS: usize = 64;

/// What one question may cost.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    /// Until the connection stands.
    pub connect: Duration,
    /// From then on until the last byte of the answer.
    pub total: Duration,
    /// Bytes of the body.
    pub bytes: usize,
}

/// A connection that serves for one question.
#[derive(Debug)]
pub struct Connection {
    stream: TcpStream,
    address: SocketAddr,
}

impl Default for Limits {
    /// For small answers of an engine that may be busy.
    fn default() -> Self {
        Self { connect: Duration::from_secs(1), total: Duration::from_secs(5), bytes: 1 << 20 }
    }
}

/// Asks, and keeps the body of an answer of status 200.
///
/// # Errors
/// When there is no whole answer of status 200 within the limits.
pub async fn get(address: SocketAddr, path: ReadPath, limits: &Limits) -> Result<Vec<u8>, GetError> {
    let mut body = Vec::new();
    let connection = Connection::open(address, limits).await?;
    connection.get_into(path, limits, &mut |piece| body.extend_from_slice(piece)).await?;
    Ok(body)
}

/// As [`get`], for threads without a runtime. Must not be called inside of one.
///
/// # Errors
/// As [`get`]; also when the system gives no runtime.
pub fn get_blocking(address: SocketAddr, path: ReadPath, limits: &Limits) -> Result<Vec<u8>, GetError> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .map_err(|error| GetError::NoConnection { address, reason: error.to_string() })?;
    runtime.block_on(get(address, path, limits))
}

// === impl Connection ===

impl Connection {
    /// Connects.
    ///
    /// # Errors
    /// When nobody takes the connection in time.
    pub async fn open(address: SocketAddr, limits: &Limits) -> Result<Self, GetError> {
        match tokio::time::timeout(limits.connect, TcpStream::connect(address)).await {
            Ok(Ok(stream)) => Ok(Self { stream, address }),
            Ok(Err(error)) => Err(GetError::NoConnection { address, reason: error.to_string() }),
            Err(_) => Err(GetError::TooSlow { after: limits.connect }),
        }
    }

    /// The own end.
    ///
    /// # Errors
    /// When the connection is over already.
    pub fn local_address(&self) -> Result<SocketAddr, GetError> {
        self.stream.local_addr().map_err(|error| GetError::Broken(error.to_string()))
    }

    /// Asks, and hands the body on as it comes; gives its length in bytes. After an error the pieces that were handed on
    /// are a beginning only.
    ///
    /// # Errors
    /// As [`get`].
    pub async fn get_into(
        self,
        path: ReadPath,
        limits: &Limits,
        take: &mut (dyn FnMut(&[u8]) + Send),
    ) -> Result<usize, GetError> {
        match tokio::time::timeout(limits.total, self.exchange(path, limits.bytes, take)).await {
            Ok(result) => result,
            Err(_) => Err(GetError::TooSlow { after: limits.total }),
        }
    }

    async fn exchange(
        self,
        path: ReadPath,
        limit: usize,
        take: &mut (dyn FnMut(&[u8]) + Send),
    ) -> Result<usize, GetError> {
        let (mut sender, connection) = http1::Builder::new()
            .max_buf_size(BUFFER)
            .max_headers(MAX_HEADERS)
            .handshake::<_, Empty<Bytes>>(TokioIo::new(self.stream))
            .await
            .map_err(|error| broken(&error))?;
        let _connection = Driven(tokio::spawn(async move { drop(connection.await) }));
        let request = Request::get(path.target())
            .header(HOST, self.address.to_string())
            .header(USER_AGENT, AGENT)
            .header(ACCEPT, path.accepts())
            .header(CONNECTION, "close")
            .body(Empty::new())
            .map_err(|error| GetError::Broken(error.to_string()))?;
        let response = sender.send_request(request).await.map_err(|error| broken(&error))?;
        if response.status() != StatusCode::OK {
            return Err(GetError::Status(response.status().as_u16()));
        }
        if response.headers().get(CONTENT_ENCODING).is_some_and(|encoding| encoding != "identity") {
            return Err(GetError::Encoded);
        }
        let mut body = response.into_body();
        let too_long = GetError::TooLong { limit };
        if body.size_hint().lower() > limit as u64 {
            return Err(too_long);
        }
        let mut length = 0;
        while let Some(frame) = body.frame().await {
            let frame = frame.map_err(|error| broken(&error))?;
            let Some(piece) = frame.data_ref() else { continue };
            length += piece.len();
            if length > limit {
                return Err(too_long);
            }
            take(piece);
        }
        Ok(length)
    }
}

/// A connection that is driven beside its request and ends with it.
struct Driven(JoinHandle<()>);

impl Drop for Driven {
    fn drop(&mut self) {
        self.0.abort();
    }
}

/// An error of the protocol, with its causes.
fn broken(error: &hyper::Error) -> GetError {
    let mut text = error.to_string();
    let mut cause = std::error::Error::source(error);
    while let Some(next) = cause {
        text.push_str(": ");
        text.push_str(&next.to_string());
        cause = next.source();
    }
    GetError::Broken(text)
}
