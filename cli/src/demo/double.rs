//! What a double does once it runs: loads its model, uses its store, prints its lines, and stays.

use crate::demo::script::{self, Chatter, Double, Model, Places};
use crate::demo::store::Store;
use anyhow::Context;
use sha2::{Digest, Sha256};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::time::Duration;

const WEIGHTS_BYTES: usize = 64 << 10;
/// A double whose demo is gone ends by itself.
const LONGEST: Duration = Duration::from_secs(600);

/// Runs the double that `told` names.
pub(crate) fn run(told: &str) -> anyhow::Result<()> {
    let (name, directory) = told.split_once(':').context("no name and directory of a double")?;
    let directory = Path::new(directory);
    // A demo that was killed leaves none of its doubles behind.
    rustix::process::set_parent_process_death_signal(Some(rustix::process::Signal::TERM))
        .context("asking the kernel for a signal when the demo dies")?;
    let double = script::doubles(directory)?
        .into_iter()
        .find(|double| double.name == name)
        .with_context(|| format!("no double of the name {name:?}"))?;
    let places = Places::new(directory, &double);
    let gate = script::gate(directory);
    wait_for(&gate);
    play(&double, &places)?;
    std::fs::write(places.done(), b"").with_context(|| format!("making {}", places.done().display()))?;
    if !double.leaves {
        wait_until_gone(&gate);
    }
    Ok(())
}

fn play(double: &Double, places: &Places) -> anyhow::Result<()> {
    load(&places.model(&double.model.directory), &double.model)?;
    std::thread::scope(|scope| {
        let talking = double.chatter.as_ref().map(|chatter| scope.spawn(|| talk(chatter)));
        if let Some(usage) = &double.store {
            Store::new(places.store(), places.turn(), usage).play()?;
        }
        match talking.map(std::thread::ScopedJoinHandle::join) {
            Some(Ok(talked)) => talked,
            Some(Err(_)) => anyhow::bail!("the printing thread failed"),
            None => Ok(()),
        }
    })?;
    for line in &double.lines {
        print(line, 0)?;
        std::thread::sleep(Duration::from_millis(50));
    }
    Ok(())
}

fn talk(chatter: &Chatter) -> anyhow::Result<()> {
    for (number, line) in (0..chatter.count).zip(chatter.lines.iter().cycle()) {
        print(line, number)?;
        std::thread::sleep(Duration::from_millis(chatter.pause_ms));
    }
    Ok(())
}

fn print(line: &str, number: u64) -> anyhow::Result<()> {
    let pid = std::process::id().to_string();
    let line = line.replace("{date}", &clock()).replace("{pid}", &pid).replace("{n}", &number.to_string());
    let mut out = std::io::stdout().lock();
    writeln!(out, "{line}")?;
    Ok(out.flush()?)
}

/// Reads the model, as an engine does at its start. Whoever comes first writes it.
fn load(directory: &Path, model: &Model) -> anyhow::Result<()> {
    std::fs::create_dir_all(directory)?;
    let weights = directory.join("model.safetensors");
    if !weights.exists() {
        let temporary: PathBuf = directory.join(format!("model.{}.part", std::process::id()));
        std::fs::write(&temporary, weights_of(&model.seed))?;
        // Not by a rename, which would put a second file in the place of the one that another double has open.
        match std::fs::hard_link(&temporary, &weights) {
            Err(error) if error.kind() != std::io::ErrorKind::AlreadyExists => return Err(error.into()),
            _ => std::fs::remove_file(&temporary)?,
        }
    }
    std::fs::read(&weights).with_context(|| format!("reading {}", weights.display()))?;
    Ok(())
}

/// A safetensors file of one tensor.
fn weights_of(seed: &str) -> Vec<u8> {
    let head = format!(
        r#"{{"w":{{"dtype":"BF16","shape":[{}],"data_offsets":[0,{WEIGHTS_BYTES}]}}}}"#,
        WEIGHTS_BYTES / 2
    );
    let mut file = (head.len() as u64).to_le_bytes().to_vec();
    file.extend_from_slice(head.as_bytes());
    let end = file.len() + WEIGHTS_BYTES;
    let mut block = Sha256::digest(seed.as_bytes());
    while file.len() < end {
        file.extend_from_slice(&block);
        block = Sha256::digest(block);
    }
    file.truncate(end);
    file
}

/// The local clock as the engine prints it: month, day and time, UTC.
fn clock() -> String {
    jiff::Timestamp::now().strftime("%m-%d %H:%M:%S").to_string()
}

fn wait_for(gate: &Path) {
    let begun = std::time::Instant::now();
    while !gate.exists() && begun.elapsed() < LONGEST {
        std::thread::sleep(Duration::from_millis(20));
    }
}

fn wait_until_gone(gate: &Path) {
    let begun = std::time::Instant::now();
    while gate.exists() && begun.elapsed() < LONGEST {
        std::thread::sleep(Duration::from_millis(200));
    }
}
