//! The `kvprov` binary under test.
//!
//! `KVPROV_BIN` names it; without it the binary of this workspace is built in the profile of the test and used. A test
//! never runs against a stale binary: cargo is asked every time, which costs a fraction of a second when nothing changed.

use crate::verdict::Found;
use serde_json::Value;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc;
use std::time::Duration;

/// An executable that speaks the contract of `kvprov`.
#[derive(Debug, Clone)]
pub struct Binary {
    path: PathBuf,
    timeout: Duration,
}

/// What one run printed.
#[derive(Debug, Clone, Default)]
pub struct Output {
    /// Exit status; `None` when a signal ended it.
    pub status: Option<i32>,
    /// Standard output.
    pub stdout: Vec<u8>,
    /// Standard error.
    pub stderr: Vec<u8>,
}

/// A replay that worked.
#[derive(Debug, Clone)]
pub struct Replay {
    /// The findings.
    pub findings: Vec<Found>,
    /// The whole printed object.
    pub output: Value,
}

/// The binary could not be built or run, or what it printed is unusable.
#[derive(Debug, thiserror::Error)]
pub enum RunError {
    /// Building it failed.
    #[error("building kvprov for the tests: {0}; run `cargo build --package kvprov`")]
    Build(String),
    /// It did not start.
    #[error("cannot run {0}: {1}")]
    Start(PathBuf, std::io::Error),
    /// It took too long.
    #[error("no answer within {} s", .0.as_secs())]
    Timeout(Duration),
    /// It failed.
    #[error("exit status {status}: {last_line}")]
    Failed {
        /// Exit status or signal.
        status: String,
        /// The last line of standard error.
        last_line: String,
    },
    /// It printed something else than agreed.
    #[error("unusable output: {0}")]
    Output(String),
}

// === impl Binary ===

impl Binary {
    /// An executable at a path, with a time limit for every run.
    pub fn at(path: PathBuf, timeout: Duration) -> Self {
        Self { path, timeout }
    }

    /// The binary named by `KVPROV_BIN`, or that of this workspace, built when it is missing or old.
    pub fn of_workspace() -> Result<Self, RunError> {
        let path = match std::env::var_os("KVPROV_BIN") {
            Some(path) => PathBuf::from(path),
            None => build()?,
        };
        Ok(Self::at(path, Duration::from_secs(60)))
    }

    /// Where it is.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// `replay --format json` of a bundle.
    pub fn replay(&self, bundle: &Path) -> Result<Replay, RunError> {
        let output =
            self.run(&["replay".as_ref(), "--format".as_ref(), "json".as_ref(), bundle.as_os_str()])?;
        if output.status != Some(0) {
            return Err(RunError::Failed {
                status: output.status.map_or_else(|| "by signal".to_owned(), |status| status.to_string()),
                last_line: last_line(&output.stderr),
            });
        }
        let value: Value =
            serde_json::from_slice(&output.stdout).map_err(|error| RunError::Output(error.to_string()))?;
        let findings = Found::all(&value).map_err(|error| RunError::Output(error.to_string()))?;
        Ok(Replay { findings, output: value })
    }

    /// Any call. Standard input is empty.
    pub fn run(&self, arguments: &[&std::ffi::OsStr]) -> Result<Output, RunError> {
        let mut child = Command::new(&self.path)
            .args(arguments)
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .map_err(|error| RunError::Start(self.path.clone(), error))?;
        let stdout = drain(child.stdout.take());
        let stderr = drain(child.stderr.take());
        // Both pipes close when the program ends, so waiting for them is waiting for it, with a limit.
        let limit = self.timeout;
        let (Ok(stdout), Ok(stderr)) = (stdout.recv_timeout(limit), stderr.recv_timeout(limit)) else {
            end(&mut child);
            return Err(RunError::Timeout(limit));
        };
        let status = child.wait().map_err(|error| RunError::Start(self.path.clone(), error))?;
        Ok(Output { status: status.code(), stdout, stderr })
    }
}

fn drain(pipe: Option<impl Read + Send + 'static>) -> mpsc::Receiver<Vec<u8>> {
    let (sender, receiver) = mpsc::channel();
    std::thread::spawn(move || {
        let mut bytes = Vec::new();
        if let Some(mut pipe) = pipe {
            // A pipe that breaks gives what came before; the judge sees that it is cut.
            let _ = pipe.read_to_end(&mut bytes);
        }
        let _ = sender.send(bytes);
    });
    receiver
}

fn end(child: &mut Child) {
    // Already gone is as good as ended.
    let _ = child.kill();
    let _ = child.wait();
}

fn last_line(bytes: &[u8]) -> String {
    let text = String::from_utf8_lossy(bytes);
    text.trim().lines().last().unwrap_or("").chars().take(200).collect()
}

fn build() -> Result<PathBuf, RunError> {
    let release = !cfg!(debug_assertions);
    let mut cargo = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    cargo.args(["build", "--quiet", "--package", "kvprov", "--message-format", "json-render-diagnostics"]);
    if release {
        cargo.arg("--release");
    }
    let output = cargo
        .current_dir(env!("CARGO_MANIFEST_DIR"))
        .stdin(Stdio::null())
        .output()
        .map_err(|error| RunError::Build(error.to_string()))?;
    if !output.status.success() {
        return Err(RunError::Build(last_line(&output.stderr)));
    }
    String::from_utf8_lossy(&output.stdout)
        .lines()
        .filter_map(|line| serde_json::from_str::<Value>(line).ok())
        .filter(|message| message.pointer("/target/name").and_then(Value::as_str) == Some("kvprov"))
        .find_map(|message| message.get("executable")?.as_str().map(PathBuf::from))
        .ok_or_else(|| RunError::Build("cargo names no executable".to_owned()))
}
