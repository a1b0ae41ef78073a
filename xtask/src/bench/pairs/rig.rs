//! A pair of the rig that is left running while it is measured.

use super::Place;
use anyhow::{Context, Result, bail};
use std::net::SocketAddr;
use std::process::{Command, Stdio};

/// Where the rig's router listens.
const ROUTER: SocketAddr = SocketAddr::new(std::net::IpAddr::V4(std::net::Ipv4Addr::LOCALHOST), 8000);
/// Ticks of the clock by which the kernel counts processor time, a second.
const TICKS: f64 = 100.0;

/// A running pair.
pub(super) struct Pair<'p> {
    place: &'p Place,
    /// Sessions of the engines.
    sessions: Vec<u32>,
}

// === impl Pair ===

impl<'p> Pair<'p> {
    pub(super) fn start(place: &'p Place) -> Result<Self> {
        let mut pair = Self { place, sessions: Vec::new() };
        pair.command("up")?;
        for engine in ["p", "d"] {
            let record = place.lab.join("vllm-pd/run").join(format!("{engine}.pid"));
            let text =
                std::fs::read_to_string(&record).with_context(|| format!("reading {}", record.display()))?;
            let pid = text.split_whitespace().next().and_then(|pid| pid.parse().ok());
            pair.sessions.push(pid.with_context(|| format!("{} names no process", record.display()))?);
        }
        Ok(pair)
    }

    pub(super) fn router(&self) -> SocketAddr {
        ROUTER
    }

    /// Processor seconds that the engines have taken so far.
    pub(super) fn processor(&self) -> Result<f64> {
        let mut ticks = 0.0;
        for entry in std::fs::read_dir("/proc").context("listing processes")?.flatten() {
            let stat = std::fs::read_to_string(entry.path().join("stat")).unwrap_or_default();
            let Some((_, fields)) = stat.rsplit_once(") ") else { continue };
            let fields: Vec<&str> = fields.split_whitespace().collect();
            let number = |at: usize| fields.get(at).and_then(|field| field.parse::<f64>().ok());
            // Behind the name: state, parent, group, session; user and system time are the 12th and 13th.
            let session = number(3).unwrap_or(-1.0);
            if self.sessions.iter().any(|one| f64::from(*one) == session) {
                ticks += number(11).unwrap_or(0.0) + number(12).unwrap_or(0.0);
            }
        }
        Ok(ticks / TICKS)
    }

    fn command(&self, what: &str) -> Result<()> {
        let status = Command::new(self.place.rig.join("rig.sh"))
            .arg(what)
            .env("KVPROV_LAB", &self.place.lab)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .status()
            .with_context(|| format!("starting rig.sh {what}"))?;
        if !status.success() {
            bail!("rig.sh {what} ended with {status}");
        }
        Ok(())
    }
}

impl Drop for Pair<'_> {
    fn drop(&mut self) {
        if let Err(error) = self.command("down") {
            eprintln!("xtask: {error:#}; call `rig.sh down`");
        }
    }
}
