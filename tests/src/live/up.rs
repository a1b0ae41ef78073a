//! A running `kvprov up` of a test: ports and a directory of its own, its output as it comes, an end in order.

use crate::binary::Binary;
use serde_json::Value;
use std::ffi::OsString;
use std::io::{self, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

const PATIENCE: Duration = Duration::from_secs(5);
/// How often what cannot be waited for is looked at.
const LOOK: Duration = Duration::from_millis(50);

/// A copy of the binary that every user may run, and a place to write for every user. Both go with it.
#[derive(Debug)]
pub struct Place {
    directory: tempfile::TempDir,
    binary: PathBuf,
}

/// `kvprov up`, or another command that runs until it is told to stop.
#[derive(Debug)]
pub struct Up {
    child: Child,
    output: PathBuf,
    api: String,
    agent: String,
}

/// An engine double: it waits for [`Double::begin`], plays, and stays until it is dropped.
#[derive(Debug)]
pub struct Double {
    child: Child,
    gate: PathBuf,
}

// === impl Double ===

impl Double {
    /// Starts the double of a script like `cli/demo/doubles.toml` that has this one double, named `name`.
    pub fn start(place: &Place, name: &str, arguments: &[&str], script: &str) -> io::Result<Self> {
        let directory = place.path(&format!("double-{name}"));
        for inside in ["models", "logs", "stores/nothing"] {
            std::fs::create_dir_all(directory.join(inside))?;
        }
        std::fs::write(directory.join("doubles.toml"), script)?;
        let log = std::fs::File::create(directory.join(format!("logs/{name}.log")))?;
        let child = Command::new(place.binary())
            .arg0("python3")
            .args(arguments)
            .env("KVPROV_DEMO_DOUBLE", format!("{name}:{}", directory.display()))
            .env("SGLANG_HICACHE_FILE_BACKEND_STORAGE_DIR", directory.join("stores/nothing"))
            .stdin(Stdio::null())
            .stdout(log.try_clone()?)
            .stderr(log)
            .spawn()?;
        Ok(Self { child, gate: directory.join("begin") })
    }

    /// Lets it play.
    pub fn begin(&self) -> io::Result<()> {
        std::fs::write(&self.gate, b"")
    }

    /// The id of its worker, once it is known.
    pub fn worker(&self, up: &Up) -> Option<String> {
        let pid = self.child.id().to_string();
        let is_it =
            |worker: &&Value| worker["pids"].as_array().is_some_and(|pids| pids.iter().any(|of| *of == pid));
        up.list("workers").iter().find(is_it)?["id"].as_str().map(str::to_owned)
    }
}

impl Drop for Double {
    fn drop(&mut self) {
        // Already gone is as good as ended.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

// === impl Place ===

impl Place {
    /// Copies a binary.
    pub fn of(binary: &Binary) -> io::Result<Self> {
        let directory = tempfile::Builder::new().prefix("kvprov-live-").tempdir()?;
        std::fs::set_permissions(directory.path(), PermissionsExt::from_mode(0o777))?;
        let copy = directory.path().join("kvprov");
        std::fs::copy(binary.path(), &copy)?;
        std::fs::set_permissions(&copy, PermissionsExt::from_mode(0o755))?;
        Ok(Self { directory, binary: copy })
    }

    /// The copy.
    pub fn binary(&self) -> &Path {
        &self.binary
    }

    /// A path in it.
    pub fn path(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    /// Starts `before` + kvprov + `arguments`, with a data directory of the name `data` in this place.
    pub fn start(
        &self,
        before: &[OsString],
        arguments: &[&str],
        environment: &[(&str, &str)],
        data: &str,
    ) -> io::Result<Up> {
        let [api, agent, grpc, http] = ports()?.map(|port| format!("127.0.0.1:{port}"));
        let output = self.path(&format!("{data}.out"));
        let file = std::fs::File::create(&output)?;
        let mut words = before.iter().cloned();
        let mut command = match words.next() {
            Some(first) => {
                let mut command = Command::new(first);
                command.args(words).arg(&self.binary);
                command
            }
            None => Command::new(&self.binary),
        };
        command
            .args(arguments)
            .arg("--data")
            .arg(self.path(data))
            .env("KVPROV_COLLECTOR_LISTEN", &api)
            .env("KVPROV_AGENT_LISTEN", &agent)
            .env("KVPROV_COLLECTOR_OTLP_GRPC", &grpc)
            .env("KVPROV_COLLECTOR_OTLP_HTTP", &http)
            .env("KVPROV_AGENT_ENDPOINT", format!("http://{grpc}"))
            .envs(environment.iter().copied())
            .stdin(Stdio::null())
            .stdout(file.try_clone()?)
            .stderr(file);
        Ok(Up { child: command.spawn()?, output, api, agent })
    }
}

/// Ports that were free just now.
fn ports() -> io::Result<[u16; 4]> {
    let taken: Vec<TcpListener> =
        (0..4).map(|_| TcpListener::bind(("127.0.0.1", 0))).collect::<io::Result<_>>()?;
    let mut ports = [0; 4];
    for (port, listener) in ports.iter_mut().zip(&taken) {
        *port = listener.local_addr()?.port();
    }
    Ok(ports)
}

// === impl Up ===

impl Up {
    /// Its halves, and whatever else it started.
    pub fn children(&self) -> Vec<u32> {
        let pid = self.child.id();
        let text = std::fs::read_to_string(format!("/proc/{pid}/task/{pid}/children")).unwrap_or_default();
        text.split_whitespace().filter_map(|pid| pid.parse().ok()).collect()
    }

    /// Ends the parent without a word.
    pub fn kill(&mut self) {
        // It fails only where it ended already.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }

    /// Everything printed so far.
    pub fn output(&self) -> String {
        std::fs::read(&self.output)
            .map(|bytes| String::from_utf8_lossy(&bytes).into_owned())
            .unwrap_or_default()
    }

    /// A page of the collector.
    pub fn page(&self, path: &str) -> Option<String> {
        get(&self.api, path).ok()
    }

    /// A page of the agent.
    pub fn agent_page(&self, path: &str) -> Option<String> {
        get(&self.agent, path).ok()
    }

    /// A list of the API: `findings`, `workers`.
    pub fn list(&self, name: &str) -> Vec<Value> {
        let body = self.page(&format!("/api/v1/{name}")).unwrap_or_default();
        let mut body: Value = serde_json::from_str(&body).unwrap_or_default();
        match body.get_mut(name).map(Value::take) {
            Some(Value::Array(list)) => list,
            _ => Vec::new(),
        }
    }

    /// Waits until something is so; whether it was within `patience`.
    #[allow(clippy::disallowed_methods, reason = "the pages of another process signal nothing")]
    pub fn wait(&mut self, patience: Duration, mut is_so: impl FnMut(&Self) -> bool) -> bool {
        let begun = Instant::now();
        loop {
            if is_so(self) {
                return true;
            }
            if begun.elapsed() > patience || !matches!(self.child.try_wait(), Ok(None)) {
                return is_so(self);
            }
            std::thread::sleep(LOOK);
        }
    }

    /// Whether both halves answer.
    pub fn is_up(&self) -> bool {
        self.agent_page("/metrics").is_some_and(|page| page.contains("kvprov_"))
            && self.page("/api/v1/workers").is_some_and(|page| page.contains("workers"))
    }

    /// Waits for its end; `None`: it goes on.
    #[allow(clippy::disallowed_methods, reason = "waiting for a process with a limit")]
    pub fn ended(&mut self, patience: Duration) -> Option<ExitStatus> {
        let begun = Instant::now();
        loop {
            match self.child.try_wait() {
                Ok(None) if begun.elapsed() < patience => std::thread::sleep(LOOK),
                ended => return ended.ok().flatten(),
            }
        }
    }

    /// Tells it to stop, as an init system does, and waits.
    pub fn stop(&mut self, patience: Duration) -> Option<ExitStatus> {
        // Once it was waited for, its number may be another's.
        if let Ok(Some(status)) = self.child.try_wait() {
            return Some(status);
        }
        let pid = self.child.id().to_string();
        // A refusal shows in that it does not end.
        let _ = Command::new("kill").args(["-TERM", &pid]).status();
        self.ended(patience)
    }
}

impl Drop for Up {
    fn drop(&mut self) {
        if self.stop(Duration::from_secs(12)).is_none() {
            let _ = self.child.kill();
            let _ = self.child.wait();
        }
    }
}

fn get(address: &str, path: &str) -> io::Result<String> {
    let mut stream = TcpStream::connect(address)?;
    stream.set_read_timeout(Some(PATIENCE))?;
    write!(stream, "GET {path} HTTP/1.0\r\nHost: {address}\r\nConnection: close\r\n\r\n")?;
    let mut answer = Vec::new();
    stream.read_to_end(&mut answer)?;
    let answer = String::from_utf8_lossy(&answer).into_owned();
    Ok(answer.split_once("\r\n\r\n").map(|(_, body)| body.to_owned()).unwrap_or_default())
}
