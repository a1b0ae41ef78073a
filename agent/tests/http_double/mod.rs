//! An engine's HTTP server, played over a real socket: answers as it is told, and notes what it was asked.
#![allow(dead_code, reason = "every test uses a part of it")]
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::collections::BTreeMap;
use std::io::{BufRead as _, BufReader, Write as _};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;

/// What a path answers with.
#[derive(Debug, Clone)]
pub(crate) enum Reply {
    /// Status 200 and this body.
    Page(String),
    /// As [`Reply::Page`], in chunks of so many bytes.
    Chunked(String, usize),
    /// This line again and again until so many bytes are sent, without a length.
    Endless(&'static str, usize),
    /// Nothing; the connection stays open.
    Never,
    /// A head that promises the body, half of it, and the end.
    Half(String),
    /// Status 302 to another path.
    Redirect(String),
    /// A status without a body.
    Status(u16),
    /// These bytes, whatever they are.
    Raw(Vec<u8>),
}

/// The server. Dropping it stops it.
#[derive(Debug)]
pub(crate) struct Double {
    address: SocketAddr,
    state: Arc<State>,
    thread: Option<JoinHandle<()>>,
}

#[derive(Debug, Default)]
struct State {
    replies: Mutex<BTreeMap<String, Reply>>,
    /// First lines and heads of requests, as they came.
    asked: Mutex<Vec<String>>,
    is_over: AtomicBool,
}

impl Double {
    /// Listens on a free port of loopback.
    pub(crate) fn start() -> Self {
        Self::on(TcpListener::bind("127.0.0.1:0").unwrap())
    }

    pub(crate) fn on(listener: TcpListener) -> Self {
        let address = listener.local_addr().unwrap();
        let state = Arc::new(State::default());
        let shared = Arc::clone(&state);
        let thread = std::thread::spawn(move || {
            for stream in listener.incoming() {
                if shared.is_over.load(Ordering::Relaxed) {
                    return;
                }
                let (stream, shared) = (stream.unwrap(), Arc::clone(&shared));
                std::thread::spawn(move || drop(serve(stream, &shared)));
            }
        });
        Self { address, state, thread: Some(thread) }
    }

    pub(crate) fn address(&self) -> SocketAddr {
        self.address
    }

    /// What a path, with its query, answers with from now on; without one it is 404.
    pub(crate) fn reply(&self, path: &str, reply: Reply) {
        self.state.replies.lock().unwrap().insert(path.to_owned(), reply);
    }

    pub(crate) fn page(&self, path: &str, text: &str) {
        self.reply(path, Reply::Page(text.to_owned()));
    }

    /// Heads of the requests so far.
    pub(crate) fn asked(&self) -> Vec<String> {
        self.state.asked.lock().unwrap().clone()
    }

    /// How often a path was asked for.
    pub(crate) fn times_asked(&self, path: &str) -> usize {
        let line = format!("GET {path} ");
        self.asked().iter().filter(|head| head.starts_with(&line)).count()
    }
}

impl Drop for Double {
    fn drop(&mut self) {
        self.state.is_over.store(true, Ordering::Relaxed);
        let _ = TcpStream::connect(self.address);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

fn serve(mut stream: TcpStream, state: &State) -> std::io::Result<()> {
    let mut head = String::new();
    let mut reader = BufReader::new(stream.try_clone()?);
    while reader.read_line(&mut head)? > 2 {}
    let path = head.split(' ').nth(1).unwrap_or_default().to_owned();
    state.asked.lock().unwrap().push(head);
    let reply = state.replies.lock().unwrap().get(&path).cloned().unwrap_or(Reply::Status(404));
    match reply {
        Reply::Page(body) => {
            write!(stream, "HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n{body}", body.len())
        }
        Reply::Chunked(body, size) => {
            write!(stream, "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n")?;
            for piece in body.as_bytes().chunks(size) {
                write!(stream, "{:x}\r\n", piece.len())?;
                stream.write_all(piece)?;
                write!(stream, "\r\n")?;
            }
            write!(stream, "0\r\n\r\n")
        }
        Reply::Endless(line, bytes) => {
            write!(stream, "HTTP/1.0 200 OK\r\n\r\n")?;
            let piece = line.repeat(64 * 1024 / line.len());
            let mut sent = 0;
            while sent < bytes {
                stream.write_all(piece.as_bytes())?;
                sent += piece.len();
            }
            Ok(())
        }
        Reply::Never => {
            // Until the other side gives up.
            let mut rest = String::new();
            reader.read_line(&mut rest).map(drop)
        }
        Reply::Half(body) => {
            let half = &body[..body.len() / 2];
            write!(stream, "HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n{half}", body.len())
        }
        Reply::Redirect(to) => {
            write!(stream, "HTTP/1.1 302 Found\r\nLocation: {to}\r\nContent-Length: 0\r\n\r\n")
        }
        Reply::Status(status) => write!(stream, "HTTP/1.1 {status} No\r\nContent-Length: 0\r\n\r\n"),
        Reply::Raw(bytes) => stream.write_all(&bytes),
    }
}
