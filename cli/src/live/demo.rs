//! The child that shows kvprov to a newcomer: runs the doubles and waits until what they do is found.
#![allow(clippy::disallowed_methods, reason = "the page of another process signals nothing")]

use crate::demo::Demo;
use crate::live::agent::stop_on_signals;
use crate::live::arguments::{Common, Half};
use anyhow::{Context, bail};
use kvprov_loader::supervise::child;
use serde_json::Value;
use std::collections::BTreeMap;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::process::ExitCode;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

/// Its command, which people do not call.
pub(crate) const COMMAND: &str = "demo-child";
/// Until the agent has found every double.
const TO_FIND: Duration = Duration::from_secs(20);
/// Until everything is found.
const TO_SHOW: Duration = Duration::from_secs(60);
const PATIENCE: Duration = Duration::from_secs(5);

/// Runs the doubles; the exit status tells whether everything was found.
pub(crate) fn run(common: &Common) -> anyhow::Result<ExitCode> {
    child::enter()?;
    let config = common.config(Half::Collector)?;
    let api = config.collector.listen;
    let stop = stop_on_signals()?;
    let goes_on = || !stop.load(Ordering::Relaxed);
    let directory = std::env::temp_dir().join(format!("kvprov-demo-{}", std::process::id()));
    let demo = Demo::start(&directory)?;
    let scenarios = demo.scenarios().clone();
    println!("demo    {} engine doubles in {}", demo.pids().count(), directory.display());
    let begun = Instant::now();
    while goes_on() && !all_are_found(api, &demo) {
        if begun.elapsed() > TO_FIND {
            bail!("after {} s not every double is found; the lines above say what is", TO_FIND.as_secs());
        }
        std::thread::sleep(Duration::from_millis(200));
    }
    demo.open()?;
    let begun = Instant::now();
    let mut shown: BTreeMap<String, String> = BTreeMap::new();
    while goes_on() && shown.len() < scenarios.len() && begun.elapsed() < TO_SHOW {
        for finding in list(api, "findings").unwrap_or_default() {
            let detector = finding["detector"].as_str().unwrap_or_default();
            if finding["confidence"] == "confirmed" && scenarios.contains_key(detector) {
                let summary = finding["summary"].as_str().unwrap_or_default();
                shown.insert(detector.to_owned(), summary.to_owned());
            }
        }
        std::thread::sleep(Duration::from_millis(200));
    }
    println!("\ndemo    {} of {} faults found and confirmed", shown.len(), scenarios.len());
    for (detector, scenario) in &scenarios {
        let mark = if shown.contains_key(detector) { "found" } else { "MISSED" };
        println!("        {mark:<7} {detector:<20} {scenario}");
    }
    println!("        The same is at http://{api}/ while `kvprov up` runs beside engines of your own.");
    anyhow::ensure!(shown.len() == scenarios.len(), "the demo did not find everything");
    Ok(ExitCode::SUCCESS)
}

fn all_are_found(api: SocketAddr, demo: &Demo) -> bool {
    let Ok(workers) = list(api, "workers") else { return false };
    let known: Vec<String> = workers.iter().map(|worker| worker["pids"].to_string()).collect();
    let is_known = |pid: u32| {
        known
            .iter()
            .any(|pids| pids.split(|c: char| !c.is_ascii_digit()).any(|number| number.parse() == Ok(pid)))
    };
    demo.pids().all(|(_, pid)| is_known(pid))
}

/// A list of the API.
fn list(api: SocketAddr, name: &str) -> anyhow::Result<Vec<Value>> {
    let mut stream = TcpStream::connect_timeout(&api, PATIENCE)?;
    stream.set_read_timeout(Some(PATIENCE))?;
    write!(stream, "GET /api/v1/{name} HTTP/1.0\r\nHost: {api}\r\nConnection: close\r\n\r\n")?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer)?;
    let (_, body) = answer.split_once("\r\n\r\n").context("no HTTP answer")?;
    let mut body: Value = serde_json::from_str(body)?;
    match body[name].take() {
        Value::Array(list) => Ok(list),
        _ => bail!("no list {name}"),
    }
}
