//! How fast model files are hashed, beside `sha256sum` and `openssl dgst -sha256` on the same file in the same run; and what
//! that does to memory, to the rate, and to what others have in the page cache.
//!
//! `cargo bench -p kvprov-agent --bench identity` prints one figure a line, `name: value`. Rates of one core are bytes by time of
//! the processor, the best of a few turns, so that a busy machine shows the same figures; those of all cores are by the clock.
//! The files are made in `KVPROV_BENCH_DIR`, else in the directory for temporary files, which has to be on a disk.
#![allow(clippy::print_stdout, clippy::unwrap_used, reason = "a bench prints what it measured")]

use kvprov_agent::identity::{Identities, IdentityOptions, OwnFiles, TensorDigests};
use kvprov_agent::kernel::ModelFile;
use kvprov_agent::kernel::live::ModelOpen;
use kvprov_agent_common::{FileIdentity, FileState};
use kvprov_model::clock::{SECOND, WallTime};
use kvprov_model::factor::FactorState;
use kvprov_model::id::{NodeId, WorkerId};
use kvprov_model::observation::Body;
use std::fs::File;
use std::io::Write;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

/// Bytes of a file.
const SIZE: u64 = 512 << 20;
/// Turns of everything that is compared.
const TURNS: usize = 5;
/// Bytes a second at which the limit is measured.
const RATE: u64 = 200 << 20;
/// Bytes of a file that is nearly all hole.
const SPARSE: u64 = 4 << 30;

fn main() {
    let folder = match std::env::var_os("KVPROV_BENCH_DIR") {
        Some(place) => tempfile::tempdir_in(place).unwrap(),
        None => tempfile::tempdir().unwrap(),
    };
    let place = |name: &str| folder.path().join(name);
    let cores = std::thread::available_parallelism().unwrap().get();
    let files: Vec<PathBuf> =
        (0..cores).map(|core| random(&place(&format!("model-{core}.safetensors")), core)).collect();
    let neighbour = random(&place("neighbour"), 99);
    let one = &files[..1];

    let (mut ours, mut sums, mut openssl) = (0.0f64, 0.0f64, 0.0f64);
    let (mut all, mut other) = (0.0f64, 0.0f64);
    for _ in 0..TURNS {
        ours = ours.max(of_core(one, || hash(one, 1, 0)));
        sums = sums.max(of_core(one, || run(&["sha256sum"], one)));
        openssl = openssl.max(of_core(one, || run(&["openssl", "dgst", "-sha256"], one)));
    }
    let faster: &[&str] = if sums > openssl { &["sha256sum"] } else { &["openssl", "dgst", "-sha256"] };
    for _ in 0..TURNS {
        all = all.max(by_clock(&files, || hash(&files, cores, 0)));
        other = other.max(by_clock(&files, || run(faster, &files)));
    }
    println!("GB/s of one core, kvprov: {ours:.3}");
    println!("GB/s of one core, sha256sum: {sums:.3}");
    println!("GB/s of one core, openssl: {openssl:.3}");
    println!("one core, to the faster one: {:.3}", ours / sums.max(openssl));
    println!("GB/s of {cores} cores, kvprov: {all:.3}");
    println!("all cores, to the faster one: {:.3}", all / other);

    let begin = Instant::now();
    hash(one, cores, RATE);
    println!("rate, to its limit: {:.3}", SIZE as f64 / begin.elapsed().as_secs_f64() / RATE as f64);

    // What was not in memory is not afterwards, and what was is.
    forget(&files[0]);
    let before = cached(&neighbour);
    let kept = cached(&files[0]);
    hash(one, cores, 0);
    let lost = before.saturating_sub(cached(&neighbour));
    let left = cached(&files[0]).saturating_sub(kept);
    println!("page cache of another file that went, MiB: {:.1}", lost as f64 / f64::from(1 << 20));
    println!("page cache that was left behind, MiB: {:.1}", left as f64 / f64::from(1 << 20));

    let sparse = place("sparse.safetensors");
    File::create(&sparse).unwrap().set_len(SPARSE).unwrap();
    let before = peak();
    hash(&[sparse], 1, 0);
    println!("memory for 4 GiB more, MiB: {:.1}", (peak() - before) as f64 / 1024.0);
}

/// A file of bytes that no two files share, in memory and on the disk.
fn random(path: &Path, seed: usize) -> PathBuf {
    let mut file = File::create(path).unwrap();
    let mut state = 0x9e37_79b9_7f4a_7c15u64 ^ seed as u64;
    let mut chunk = vec![0u8; 1 << 20];
    for _ in 0..SIZE >> 20 {
        for word in chunk.chunks_exact_mut(8) {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            word.copy_from_slice(&state.to_le_bytes());
        }
        file.write_all(&chunk).unwrap();
    }
    file.sync_all().unwrap();
    path.to_owned()
}

/// Hashes files through the agent's own way, until all of them are known.
fn hash(files: &[PathBuf], threads: usize, rate: u64) {
    let options = IdentityOptions {
        node: NodeId("n".to_owned()),
        ring: "r".to_owned(),
        boot: "b".to_owned(),
        cache: None,
        rate,
        threads,
        tensors: TensorDigests::Off,
    };
    let mut identities = Identities::new(options, Box::new(OwnFiles)).unwrap();
    for (index, path) in files.iter().enumerate() {
        identities.opened(&WorkerId(index.to_string()), &open_of(path));
    }
    let (_kept, never) = std::sync::mpsc::channel::<()>();
    let mut full = 0;
    while full < files.len() {
        identities.poll(WallTime(100 * SECOND), &mut |observation| {
            let Body::Factor(factor) = observation.body else { return };
            full += usize::from(factor.state == Some(FactorState::Full));
        });
        let _ = never.recv_timeout(Duration::from_millis(1));
    }
}

fn open_of(path: &Path) -> ModelOpen {
    let now = std::fs::metadata(path).unwrap();
    ModelOpen {
        pid: std::process::id(),
        path: path.to_str().unwrap().into(),
        file: ModelFile { factor: "weights".to_owned(), digest: None, evidence: None },
        identity: FileIdentity {
            device: rustix::fs::major(now.dev()) << 20 | rustix::fs::minor(now.dev()),
            open_file: 1,
            inode: now.ino(),
        },
        state: FileState {
            size: now.size(),
            modified: now.mtime() * SECOND + now.mtime_nsec(),
            changed: now.ctime() * SECOND + now.ctime_nsec(),
        },
        wall: WallTime(0),
        position: 1,
    }
}

/// Runs a program once a file, all at the same time.
fn run(program: &[&str], files: &[PathBuf]) {
    let start =
        |file| Command::new(program[0]).args(&program[1..]).arg(file).stdout(Stdio::null()).spawn().unwrap();
    let children: Vec<_> = files.iter().map(start).collect();
    for mut child in children {
        assert!(child.wait().unwrap().success());
    }
}

/// GB by a second of the processor, ours and of what was started.
fn of_core(files: &[PathBuf], work: impl FnOnce()) -> f64 {
    let before = processor();
    work();
    SIZE as f64 * files.len() as f64 / 1e9 / (processor() - before)
}

/// GB by a second of the clock.
fn by_clock(files: &[PathBuf], work: impl FnOnce()) -> f64 {
    let begin = Instant::now();
    work();
    SIZE as f64 * files.len() as f64 / 1e9 / begin.elapsed().as_secs_f64()
}

/// Seconds of the processor that this process and its children took.
fn processor() -> f64 {
    let stat = procfs::process::Process::myself().unwrap().stat().unwrap();
    let own = stat.utime + stat.stime;
    let children = u64::try_from(stat.cutime + stat.cstime).unwrap();
    (own + children) as f64 / procfs::ticks_per_second() as f64
}

/// KiB of memory at most, so far.
fn peak() -> u64 {
    procfs::process::Process::myself().unwrap().status().unwrap().vmhwm.unwrap()
}

/// Bytes of a file in the page cache, as `fincore` of util-linux counts them.
fn cached(path: &Path) -> u64 {
    let output =
        Command::new("fincore").args(["--bytes", "--noheadings", "--output", "RES"]).arg(path).output();
    String::from_utf8(output.unwrap().stdout).unwrap().trim().parse().unwrap()
}

fn forget(path: &Path) {
    let file = File::open(path).unwrap();
    rustix::fs::fadvise(&file, 0, None, rustix::fs::Advice::DontNeed).unwrap();
}
