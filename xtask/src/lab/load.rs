//! A load of engine doubles that is the same in every run.

use anyhow::{Context, Result, bail};
use std::collections::BTreeMap;
use std::io::Read;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

const SCRIPT: &str = include_str!("load.toml");
/// The doubles whose output is a pipe.
const PIPED: [&str; 2] = ["says-in-pipe", "leaves-early"];
/// What the doubles take longer than they are told to.
const PATIENCE: u32 = 4;

/// Running doubles.
pub(crate) struct Load {
    directory: PathBuf,
    children: Vec<(String, Child)>,
    seconds: u32,
}

// === impl Load ===

impl Load {
    /// Starts the doubles; each waits until [`Self::open`]. `directory` is made.
    pub(crate) fn start(binary: &Path, directory: &Path, seconds: u32) -> Result<Self> {
        let script = SCRIPT
            .replace("{rounds}", &(seconds * 4 / 3).max(2).to_string())
            .replace("{few}", &(seconds * 9).to_string())
            .replace("{lines}", &(seconds * 20).to_string());
        Self::of(binary, directory, &script, seconds)
    }

    /// The same with the doubles of a script; `seconds` is how long they work.
    pub(crate) fn of(binary: &Path, directory: &Path, script: &str, seconds: u32) -> Result<Self> {
        std::fs::create_dir_all(directory.join("logs"))?;
        std::fs::create_dir_all(directory.join("models"))?;
        std::fs::write(directory.join("doubles.toml"), script)?;
        let script: toml::Table = toml::from_str(script).context("the script of the doubles")?;
        let mut load = Self { directory: directory.to_owned(), children: Vec::new(), seconds };
        for double in script["double"].as_array().map(Vec::as_slice).unwrap_or_default() {
            let child = load.spawn(binary, double)?;
            load.children.push(child);
        }
        Ok(load)
    }

    fn spawn(&self, binary: &Path, double: &toml::Value) -> Result<(String, Child)> {
        let text = |name: &str| double[name].as_str().unwrap_or_default().to_owned();
        let name = text("name");
        let store = self.directory.join("stores").join(text("expects"));
        std::fs::create_dir_all(&store)?;
        let fill = |value: &toml::Value| {
            value
                .as_str()
                .unwrap_or_default()
                .replace("{store}", &store.to_string_lossy())
                .replace("{models}", &self.directory.join("models").to_string_lossy())
        };
        let mut command = Command::new(binary);
        command.arg0("python3").stdin(Stdio::null());
        command.args(double["arguments"].as_array().into_iter().flatten().map(fill));
        for (name, value) in double["environment"].as_table().into_iter().flatten() {
            command.env(name, fill(value));
        }
        command.env("KVPROV_DEMO_DOUBLE", format!("{name}:{}", self.directory.display()));
        if PIPED.contains(&name.as_str()) {
            command.stdout(Stdio::piped()).stderr(Stdio::null());
        } else {
            let log = std::fs::File::create(self.directory.join("logs").join(format!("{name}.log")))?;
            command.stdout(log.try_clone()?).stderr(log);
        }
        let mut child = command.spawn().with_context(|| format!("starting the double {name}"))?;
        if let Some(mut pipe) = child.stdout.take() {
            // Somebody has to read, or the double would wait.
            std::thread::spawn(move || {
                let mut room = [0; 4096];
                while pipe.read(&mut room).is_ok_and(|count| count > 0) {}
            });
        }
        Ok((name, child))
    }

    /// Names of the doubles by pid.
    pub(crate) fn names(&self) -> BTreeMap<u32, String> {
        self.children.iter().map(|(name, child)| (child.id(), name.clone())).collect()
    }

    /// Lets them begin.
    pub(crate) fn open(&self) -> Result<()> {
        Ok(std::fs::write(self.directory.join("begin"), b"")?)
    }

    /// Whether all have done everything.
    pub(crate) fn is_done(&mut self) -> Result<bool> {
        let mut done = true;
        for (name, child) in &mut self.children {
            if self.directory.join(format!("done-{name}")).exists() {
                continue;
            }
            if let Some(status) = child.try_wait()? {
                bail!("the double {name} ended before it had done everything: {status}");
            }
            done = false;
        }
        Ok(done)
    }

    /// How long all may take.
    pub(crate) fn patience(&self) -> Duration {
        Duration::from_secs(u64::from(self.seconds * PATIENCE + 30))
    }

    /// Lets them end and waits for it.
    pub(crate) fn end(&mut self) -> Result<()> {
        std::fs::remove_file(self.directory.join("begin"))?;
        let begun = Instant::now();
        for (name, child) in &mut self.children {
            while child.try_wait()?.is_none() {
                if begun.elapsed() > Duration::from_secs(20) {
                    bail!("the double {name} does not end");
                }
                std::thread::sleep(Duration::from_millis(50));
            }
        }
        Ok(())
    }
}

impl Drop for Load {
    fn drop(&mut self) {
        for (_, child) in &mut self.children {
            // One that has ended cannot be ended again.
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}
