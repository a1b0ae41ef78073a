//! One question over one socket: connect, ask, read the answer, close.
//!
//! A container is asked for once, so that a connection which is kept would gain nothing and would have to be watched. The
//! answer is bounded in time and in bytes, its headers too.
//!
//! Tried against containerd 1.6.20: a container of a pod, one that it does not know, an image with and without a digest,
//! a containerd that was stopped.

use super::cri::{CONTAINER_STATUS, ContainerStatusRequest, ContainerStatusResponse};
use super::names::{ContainerId, ContainerNames};
use kvprov_wire::Raw;
use kvprov_wire::error::chain;
use prost::Message as _;
use std::path::Path;
use std::time::Duration;
use tonic::codegen::http::uri::PathAndQuery;
use tonic::transport::Endpoint;
use tonic::{Code, Request, Status};

/// Longest answer that is read, in bytes. Mounts and annotations of the container are in it and not used.
const ANSWER_MAX: usize = 256 << 10;
/// Longest headers of an answer, in bytes.
const HEADERS_MAX: u32 = 16 << 10;
/// Bytes that a runtime may send before somebody read them; what HTTP/2 begins with.
const WINDOW: u32 = 65_535;
/// Longest part of a runtime's own words that is handed on, in bytes.
const WORDS_MAX: usize = 200;

/// Why one socket tells nothing.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Silence {
    /// The runtime has no such container.
    NotFound,
    /// What answers is no container runtime interface of version 1.
    NoCri,
    /// Anything else, which may be over later.
    NotNow(String),
}

/// Asks a runtime. Blocks for at most `patience`.
pub(super) fn status(socket: &Path, id: &ContainerId, patience: Duration) -> Result<ContainerNames, Silence> {
    let path = socket.to_str().ok_or_else(|| Silence::NotNow("its path is not UTF-8".to_owned()))?;
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_io()
        .enable_time()
        .build()
        .map_err(|error| Silence::NotNow(error.to_string()))?;
    let asked = runtime.block_on(async { tokio::time::timeout(patience, ask(path, id)).await });
    // Whatever the runtime still does is nobody's business any more.
    runtime.shutdown_background();
    asked.unwrap_or_else(|_| {
        Err(Silence::NotNow(format!("it did not answer within {} ms", patience.as_millis())))
    })
}

async fn ask(path: &str, id: &ContainerId) -> Result<ContainerNames, Silence> {
    let endpoint = Endpoint::from_shared(format!("unix://{path}"))
        .map_err(|error| Silence::NotNow(chain(&error)))?
        .http2_max_header_list_size(HEADERS_MAX)
        .initial_stream_window_size(WINDOW)
        .initial_connection_window_size(WINDOW);
    let channel = endpoint.connect().await.map_err(|error| Silence::NotNow(chain(&error)))?;
    let mut client = tonic::client::Grpc::new(channel).max_decoding_message_size(ANSWER_MAX);
    client.ready().await.map_err(|error| Silence::NotNow(chain(&error)))?;
    let request = ContainerStatusRequest { container_id: id.as_str().to_owned() }.encode_to_vec();
    let method = PathAndQuery::from_static(CONTAINER_STATUS);
    let answer =
        client.unary(Request::new(request.into()), method, Raw).await.map_err(|status| refusal(&status))?;
    let answer = ContainerStatusResponse::decode(answer.into_inner())
        .map_err(|error| Silence::NotNow(format!("its answer is damaged: {error}")))?;
    let status = answer.status.ok_or(Silence::NotFound)?;
    // Runtimes also take the beginning of an id; the whole one is asked for, and has to come back.
    if status.id != id.as_str() {
        return Err(Silence::NotNow("it answered for another container".to_owned()));
    }
    Ok(status.names())
}

fn refusal(status: &Status) -> Silence {
    match status.code() {
        Code::NotFound => Silence::NotFound,
        Code::Unimplemented => Silence::NoCri,
        code => Silence::NotNow(match words(status.message()) {
            words if words.is_empty() => format!("it answered {code:?}"),
            words => format!("it answered {code:?}: {words}"),
        }),
    }
}

/// A runtime's own words, short and on one line.
fn words(text: &str) -> String {
    let text = &text[..text.floor_char_boundary(WORDS_MAX)];
    text.chars()
        .map(|letter| if letter.is_control() { ' ' } else { letter })
        .collect::<String>()
        .trim()
        .to_owned()
}
