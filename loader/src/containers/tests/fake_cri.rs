//! A container runtime on a Unix socket that says what a test wants. It speaks gRPC by itself and knows the messages from
//! the public definition, so that what it says is not made by what reads it.
#![allow(
    dead_code,
    unreachable_pub,
    clippy::unwrap_used,
    reason = "each test uses a part; a failed test says enough"
)]

use kvprov_wire::Raw;
use prost::Message as _;
use prost::bytes::Bytes;
use std::collections::HashMap;
use std::convert::Infallible;
use std::io::{Read as _, Write as _};
use std::path::{Path, PathBuf};
use std::pin::Pin;
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll};
use tokio::sync::oneshot;
use tonic::codegen::{Service, http};
use tonic::{Request, Response, Status};

/// What a question is answered with.
#[derive(Clone)]
pub enum Says {
    /// A container.
    Container(Container),
    /// A refusal.
    Refuses(tonic::Code, String),
    /// Bytes that are meant to be an answer.
    Bytes(Vec<u8>),
    /// A refusal whose headers are so long.
    LongHeaders(usize),
    /// Nothing, for ever.
    Nothing,
}

/// `ContainerStatusRequest`.
#[derive(Clone, PartialEq, prost::Message)]
pub struct Asked {
    #[prost(string, tag = "1")]
    pub container_id: String,
    #[prost(bool, tag = "2")]
    pub verbose: bool,
}

/// `ContainerStatusResponse`.
#[derive(Clone, PartialEq, prost::Message)]
struct Answered {
    #[prost(message, optional, tag = "1")]
    status: Option<Container>,
    #[prost(map = "string, string", tag = "2")]
    info: HashMap<String, String>,
}

/// `ContainerStatus`, with fields that nobody reads.
#[derive(Clone, PartialEq, prost::Message)]
pub struct Container {
    #[prost(string, tag = "1")]
    pub id: String,
    #[prost(int64, tag = "4")]
    pub created_at: i64,
    #[prost(message, optional, tag = "8")]
    pub image: Option<Image>,
    #[prost(string, tag = "9")]
    pub image_ref: String,
    #[prost(string, tag = "10")]
    pub reason: String,
    #[prost(map = "string, string", tag = "12")]
    pub labels: HashMap<String, String>,
    #[prost(map = "string, string", tag = "13")]
    pub annotations: HashMap<String, String>,
    #[prost(string, tag = "15")]
    pub log_path: String,
    #[prost(string, tag = "17")]
    pub image_id: String,
}

/// `ImageSpec`.
#[derive(Clone, PartialEq, prost::Message)]
pub struct Image {
    #[prost(string, tag = "1")]
    pub image: String,
    #[prost(string, tag = "18")]
    pub user_specified_image: String,
}

impl Container {
    /// A container of pod `decode-0` in `serving`, as containerd tells it.
    pub fn engine(id: &str) -> Self {
        let labels = [
            ("io.kubernetes.container.name", "engine"),
            ("io.kubernetes.pod.name", "decode-0"),
            ("io.kubernetes.pod.namespace", "serving"),
            ("io.kubernetes.pod.uid", "0f4b3a2c-1d5e-4f60-9a7b-8c9d0e1f2a3b"),
        ];
        Self {
            id: id.to_owned(),
            created_at: 1_785_000_000_000_000_000,
            image: Some(Image { image: "docker.io/vllm/vllm-openai:v0.32".to_owned(), ..Image::default() }),
            image_ref: format!("docker.io/vllm/vllm-openai@{}", digest()),
            labels: labels.into_iter().map(|(name, value)| (name.to_owned(), value.to_owned())).collect(),
            annotations: [("io.kubernetes.container.restartCount".to_owned(), "0".to_owned())].into(),
            log_path: "/var/log/pods/serving_decode-0/engine/0.log".to_owned(),
            ..Self::default()
        }
    }

    /// With another label.
    #[must_use]
    pub fn label(mut self, name: &str, value: &str) -> Self {
        self.labels.insert(name.to_owned(), value.to_owned());
        self
    }
}

/// The digest of the image of [`Container::engine`].
pub fn digest() -> String {
    format!("sha256:{}", "5c".repeat(32))
}

/// A runtime that listens until it is dropped.
pub struct FakeCri {
    pub path: PathBuf,
    asked: Arc<Mutex<Vec<Asked>>>,
    stop: Option<oneshot::Sender<()>>,
    thread: Option<std::thread::JoinHandle<()>>,
}

impl FakeCri {
    /// Listens at a path.
    pub fn start(path: &Path, says: Says) -> Self {
        let asked = Arc::new(Mutex::new(Vec::new()));
        let answering = Answering { says, asked: Arc::clone(&asked) };
        let (stop, stopped) = oneshot::channel::<()>();
        let (ready, is_ready) = std::sync::mpsc::channel();
        let socket = path.to_owned();
        let thread = std::thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
            runtime.block_on(async {
                let listener = tokio::net::UnixListener::bind(&socket).unwrap();
                ready.send(()).unwrap();
                let incoming = tokio_stream::wrappers::UnixListenerStream::new(listener);
                let serving =
                    tonic::transport::Server::builder().add_service(answering).serve_with_incoming(incoming);
                tokio::select! {
                    served = serving => served.unwrap(),
                    _ = stopped => {}
                }
            });
            runtime.shutdown_background();
        });
        is_ready.recv().unwrap();
        Self { path: path.to_owned(), asked, stop: Some(stop), thread: Some(thread) }
    }

    /// What it was asked so far.
    pub fn asked(&self) -> Vec<Asked> {
        self.asked.lock().unwrap().clone()
    }
}

impl Drop for FakeCri {
    fn drop(&mut self) {
        drop(self.stop.take());
        if let Some(thread) = self.thread.take() {
            thread.join().unwrap();
        }
        let _ = std::fs::remove_file(&self.path);
    }
}

/// Somebody who listens at a path, answers everybody with the same bytes and knows no gRPC.
pub fn no_runtime(path: &Path, bytes: &'static [u8]) {
    let listener = std::os::unix::net::UnixListener::bind(path).unwrap();
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let Ok(mut stream) = stream else { return };
            let _ = stream.read(&mut [0; 64]);
            let _ = stream.write_all(bytes);
        }
    });
}

#[derive(Clone)]
struct Answering {
    says: Says,
    asked: Arc<Mutex<Vec<Asked>>>,
}

impl tonic::server::NamedService for Answering {
    const NAME: &'static str = "runtime.v1.RuntimeService";
}

type Pending<T, E> = Pin<Box<dyn Future<Output = Result<T, E>> + Send>>;

impl Service<http::Request<tonic::body::Body>> for Answering {
    type Response = http::Response<tonic::body::Body>;
    type Error = Infallible;
    type Future = Pending<Self::Response, Infallible>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: http::Request<tonic::body::Body>) -> Self::Future {
        let method = ContainerStatus(self.clone());
        Box::pin(async move {
            assert_eq!(
                request.uri().path(),
                "/runtime.v1.RuntimeService/ContainerStatus",
                "nothing else is asked"
            );
            Ok(tonic::server::Grpc::new(Raw).unary(method, request).await)
        })
    }
}

/// The method.
struct ContainerStatus(Answering);

impl Service<Request<Bytes>> for ContainerStatus {
    type Response = Response<Bytes>;
    type Error = Status;
    type Future = Pending<Response<Bytes>, Status>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Status>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<Bytes>) -> Self::Future {
        let Answering { says, asked } = self.0.clone();
        asked.lock().unwrap().push(Asked::decode(request.into_inner()).unwrap());
        Box::pin(async move {
            match says {
                Says::Container(container) => {
                    let answer = Answered { status: Some(container), ..Answered::default() };
                    Ok(Response::new(answer.encode_to_vec().into()))
                }
                Says::Refuses(code, words) => Err(Status::new(code, words)),
                Says::Bytes(bytes) => Ok(Response::new(bytes.into())),
                Says::LongHeaders(length) => Err(Status::unknown("x".repeat(length))),
                Says::Nothing => std::future::pending().await,
            }
        })
    }
}
