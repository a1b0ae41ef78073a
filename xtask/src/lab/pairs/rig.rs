//! The rig as a program: what it can do, one run of it, and what a run left.

use crate::lab::live::unix_seconds;
use anyhow::{Context, Result, bail};
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

/// The rig.
#[derive(Debug)]
pub(super) struct Rig<'a> {
    directory: &'a Path,
    lab: Option<&'a Path>,
}

/// A run of one fault.
pub(super) struct Run<'a> {
    rig: &'a Rig<'a>,
    child: Child,
    words: PathBuf,
    /// Every process that was seen below it.
    family: BTreeSet<u32>,
}

// === impl Rig ===

impl<'a> Rig<'a> {
    pub(super) fn new(directory: &'a Path, lab: Option<&'a Path>) -> Self {
        Self { directory, lab }
    }

    fn command(&self) -> Command {
        let mut command = Command::new(self.directory.join("rig.sh"));
        command.stdin(Stdio::null());
        if let Some(lab) = self.lab {
            command.env("KVPROV_LAB", lab);
        }
        command
    }

    /// The faults that it can provoke, in its order: the first word of each line of its list.
    pub(super) fn faults(&self) -> Result<Vec<String>> {
        let output = self.command().arg("list").output().context("asking the rig for its faults")?;
        if !output.status.success() {
            bail!("rig.sh list: {}", String::from_utf8_lossy(&output.stderr).trim());
        }
        let text = String::from_utf8_lossy(&output.stdout);
        let names = text.lines().filter_map(|line| line.split_whitespace().next());
        Ok(names.map(str::to_owned).collect())
    }

    /// Begins a run; its bundle and its words go below `directory`.
    pub(super) fn start(&'a self, fault: &str, debug: bool, directory: &Path) -> Result<Run<'a>> {
        let words = directory.join("rig.log");
        let file = std::fs::File::create(&words)?;
        let mut command = self.command();
        command.args(["run", fault, "--out"]).arg(bundle(directory));
        if debug {
            command.args(["--level", "debug"]);
        }
        let child = command.stdout(file.try_clone()?).stderr(file).spawn().context("starting rig.sh")?;
        let family = BTreeSet::from([child.id()]);
        Ok(Run { rig: self, child, words, family })
    }
}

// === impl Run ===

impl Run<'_> {
    /// Notes which processes are below it now.
    pub(super) fn look(&mut self) -> Result<()> {
        let mut children: BTreeMap<u32, Vec<u32>> = BTreeMap::new();
        for entry in std::fs::read_dir("/proc")?.filter_map(Result::ok) {
            let Some(pid) = entry.file_name().to_str().and_then(|name| name.parse().ok()) else { continue };
            // It may end meanwhile.
            let stat = std::fs::read_to_string(entry.path().join("stat")).unwrap_or_default();
            let fields = stat.rsplit_once(')').map_or("", |(_, fields)| fields);
            if let Some(parent) = fields.split_whitespace().nth(1).and_then(|parent| parent.parse().ok()) {
                children.entry(parent).or_default().push(pid);
            }
        }
        let mut open: Vec<u32> = self.family.iter().copied().collect();
        while let Some(pid) = open.pop() {
            let below = children.get(&pid).into_iter().flatten();
            open.extend(below.copied().filter(|child| self.family.insert(*child)));
        }
        Ok(())
    }

    /// Whether a worker is of this run: others may run on the same machine.
    pub(super) fn has_worker(&self, worker: &str) -> bool {
        worker.split('-').any(|part| part.parse().is_ok_and(|pid: u32| self.family.contains(&pid)))
    }

    /// Whether it has ended.
    pub(super) fn is_over(&mut self) -> Result<bool> {
        Ok(self.child.try_wait()?.is_some())
    }

    /// # Errors
    /// When it ended otherwise than a run should.
    pub(super) fn succeeded(&mut self) -> Result<()> {
        let status = self.child.wait()?;
        if status.success() {
            return Ok(());
        }
        let words = std::fs::read_to_string(&self.words).unwrap_or_default();
        bail!("the rig ended with {status}: {}", words.trim().lines().last().unwrap_or_default())
    }
}

impl Drop for Run<'_> {
    fn drop(&mut self) {
        if matches!(self.child.try_wait(), Ok(Some(_))) {
            return;
        }
        // It takes its engines down when it is asked to end; what it leaves all the same is taken down by its records.
        let asked = Command::new("kill").args(["-TERM", &self.child.id().to_string()]).status();
        let ended = asked.and_then(|_| self.child.wait());
        let down = self.rig.command().arg("down").status();
        if ended.is_err() || down.is_err() {
            eprintln!("xtask: the rig could not be taken down; call `rig.sh down`");
        }
    }
}

/// Where the bundle of a run is.
pub(super) fn bundle(directory: &Path) -> PathBuf {
    directory.join("rig")
}

/// When the answer to each request was complete, in seconds since the epoch, by the client's id. The last one stands where
/// an id was sent again.
pub(super) fn ends_of_requests(bundle: &Path) -> Result<BTreeMap<String, f64>> {
    let path = bundle.join("result.jsonl");
    let text = std::fs::read_to_string(&path).with_context(|| format!("reading {}", path.display()))?;
    let mut ends = BTreeMap::new();
    for line in text.lines() {
        let line: Value =
            serde_json::from_str(line).with_context(|| format!("reading {}", path.display()))?;
        let sent = line["sent_at"].as_str().and_then(unix_seconds);
        if let (Some(id), Some(sent), Some(took)) = (line["id"].as_str(), sent, line["seconds"].as_f64()) {
            ends.insert(id.to_owned(), sent + took);
        }
    }
    Ok(ends)
}
