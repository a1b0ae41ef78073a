//! One GET to a server on this machine.

use anyhow::{Context, Result, bail};
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

/// Gets a path; the body as text.
pub(crate) fn get(address: SocketAddr, path: &str) -> Result<String> {
    // A machine full of engines, whose disk is busy, answers late.
    let patience = Duration::from_secs(30);
    let mut stream =
        TcpStream::connect_timeout(&address, patience).with_context(|| format!("connecting to {address}"))?;
    stream.set_read_timeout(Some(patience))?;
    write!(stream, "GET {path} HTTP/1.0\r\nHost: {address}\r\nConnection: close\r\n\r\n")?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer).with_context(|| format!("reading {path} from {address}"))?;
    let Some((head, body)) = answer.split_once("\r\n\r\n") else { bail!("{path}: no HTTP answer") };
    let status = head.lines().next().unwrap_or_default();
    if !status.contains(" 200") {
        bail!("{path}: {status}");
    }
    Ok(body.to_owned())
}
