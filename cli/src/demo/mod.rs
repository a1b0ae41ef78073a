//! `kvprov up --demo`: engine doubles run through four faults, for people without engines at hand.
//!
//! A double is this binary under another name and with the arguments of an engine; what it does stands in
//! `demo/doubles.toml`. Everything it writes lies below one directory, which goes when the demo ends.
#![allow(clippy::disallowed_methods, reason = "a double works at the pace its script says")]

mod double;
mod script;
mod store;

use anyhow::Context;
use script::Double;
use std::collections::BTreeMap;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

/// The variable by which a process learns that it is a double: `<name>:<directory>`.
const IS_DOUBLE: &str = "KVPROV_DEMO_DOUBLE";
/// The program that an engine is run by.
const PROGRAM: &str = "python3";

/// The doubles of a running demo. Those that still run end with it.
pub(crate) struct Demo {
    directory: PathBuf,
    children: Vec<(String, Child)>,
    scenarios: BTreeMap<String, String>,
}

/// Runs as a double, where this process was started as one.
pub(crate) fn run_if_double() -> Option<anyhow::Result<()>> {
    let told = std::env::var(IS_DOUBLE).ok()?;
    Some(double::run(&told))
}

// === impl Demo ===

impl Demo {
    /// Starts every double; each waits until `open` is called.
    pub(crate) fn start(directory: &Path) -> anyhow::Result<Self> {
        std::fs::create_dir_all(directory)
            .with_context(|| format!("making the demo's directory {}", directory.display()))?;
        let binary = std::env::current_exe().context("finding the own binary")?;
        let mut demo =
            Self { directory: directory.to_owned(), children: Vec::new(), scenarios: BTreeMap::new() };
        for double in script::doubles(directory)? {
            let child = demo.spawn(&binary, &double)?;
            demo.scenarios.insert(double.expects.clone(), double.scenario.clone());
            demo.children.push((double.name, child));
        }
        Ok(demo)
    }

    fn spawn(&self, binary: &Path, double: &Double) -> anyhow::Result<Child> {
        let places = script::Places::new(&self.directory, double);
        places.make().with_context(|| format!("making the files of the double {}", double.name))?;
        let log = std::fs::File::create(places.log())
            .with_context(|| format!("making {}", places.log().display()))?;
        let mut command = Command::new(binary);
        command.arg0(PROGRAM).args(double.arguments.iter().map(|argument| places.fill(argument)));
        for (name, value) in &double.environment {
            command.env(name, places.fill(value));
        }
        command.env(IS_DOUBLE, format!("{}:{}", double.name, self.directory.display()));
        command.stdin(Stdio::null()).stdout(log.try_clone()?).stderr(log);
        command.spawn().with_context(|| format!("starting the double {}", double.name))
    }

    /// Lets the doubles begin.
    pub(crate) fn open(&self) -> anyhow::Result<()> {
        std::fs::write(script::gate(&self.directory), b"")
            .with_context(|| format!("opening the gate in {}", self.directory.display()))
    }

    /// What is shown, by the detector that is to find it.
    pub(crate) fn scenarios(&self) -> &BTreeMap<String, String> {
        &self.scenarios
    }

    /// Names and pids of the doubles.
    pub(crate) fn pids(&self) -> impl Iterator<Item = (&str, u32)> {
        self.children.iter().map(|(name, child)| (name.as_str(), child.id()))
    }
}

impl Drop for Demo {
    fn drop(&mut self) {
        for (_, child) in &mut self.children {
            // One that ended by itself cannot be ended again.
            let _ = child.kill();
            let _ = child.wait();
        }
        let _ = std::fs::remove_dir_all(&self.directory);
    }
}
