//! What the kernel programs cost, beside bpftrace in the same run.
//!
//! A child makes one kind of call over and over and measures its own processor time. It does so with nothing attached,
//! with the programs (not watched, then watched), with bpftrace that filters it out, and with bpftrace that prints for
//! every call what a record holds; in turns, so that a machine that becomes slower slows all of them. What is printed is
//! the median over the turns: of the time added to a call that is hooked, of the whole time of one that is not, to which
//! neither adds anything that could be divided. A turn measures with nothing attached twice: how far these two lie apart
//! is what cannot be told. Needs root and bpftrace.
//!
//! bpftrace filters in two ways: on begin and end of every call that the programs watch, and on those of the measured
//! calls alone, which is the least that it can be told. Lines that begin with `figure` are for a program to read:
//! what was measured, the ratio, and the goal, divided by tabs.
//!
//! Usage: `kernel_cost [ROUNDS]`

#![allow(clippy::print_stdout, clippy::print_stderr, reason = "it speaks to a terminal")]
#![allow(clippy::disallowed_methods, reason = "a load has a rate, and a reader looks at intervals")]

use kvprov_agent_common::Event;
use kvprov_agent_common::kernel::watch;
use kvprov_agent_common::ring::Ring;
use kvprov_loader::attach::{Kernel, Options};
use rustix::event::epoll;
use rustix::fs::{CWD, Mode, OFlags};
use rustix::time::{ClockId, clock_gettime};
use std::collections::BTreeSet;
use std::error::Error;
use std::io::{BufRead, BufReader, Read, Write};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::time::{Duration, Instant};

type Result<T> = std::result::Result<T, Box<dyn Error>>;

/// What the child can do: name, calls a batch, whether it is hooked.
const CALLS: [(&str, u32, bool); 5] = [
    ("write", 5_000, true),
    ("write-file", 5_000, true),
    ("openat", 2_500, true),
    ("futex", 10_000, false),
    ("epoll_wait", 10_000, false),
];
/// Batches of one measurement; the fastest counts: whatever else runs on the machine only makes a call slower.
const BATCHES: usize = 40;
const ROUNDS: usize = 5;
const LOAD_SECONDS: u64 = 5;
const LOAD_PER_SECOND: u32 = 100_000;

fn main() -> Result<()> {
    match std::env::args().nth(1).as_deref() {
        Some("--child") => child(),
        rounds => compare(rounds.map_or(Ok(ROUNDS), str::parse)?),
    }
}

/// Nanoseconds of processor time of this thread.
fn now() -> f64 {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    time.tv_sec as f64 * 1e9 + time.tv_nsec as f64
}

fn median(mut numbers: Vec<f64>) -> f64 {
    numbers.sort_by(f64::total_cmp);
    numbers.get(numbers.len() / 2).copied().unwrap_or(f64::NAN)
}

// === the child ===

/// Does what it reads a line at a time: a call's name, or `load`. Answers with nanoseconds a call.
fn child() -> Result<()> {
    let home = std::env::temp_dir();
    let path = home.join(format!("kernel-cost-{}", std::process::id()));
    let flags = OFlags::RDWR | OFlags::CREATE;
    let file = rustix::fs::openat(CWD, &path, flags, Mode::RUSR | Mode::WUSR)?;
    let null = rustix::fs::openat(CWD, "/dev/null", OFlags::WRONLY, Mode::empty())?;
    let poll = epoll::create(epoll::CreateFlags::empty())?;
    let word = AtomicU32::new(0);
    let data = [b'x'; 64];
    for line in std::io::stdin().lock().lines() {
        let line = line?;
        if line == "load" {
            load(&file)?;
            println!("0");
            continue;
        }
        let Some((_, count, _)) = CALLS.iter().find(|(name, ..)| *name == line) else { continue };
        let mut times = Vec::new();
        for _ in 0..BATCHES {
            rustix::fs::seek(&file, rustix::fs::SeekFrom::Start(0))?;
            let start = now();
            for _ in 0..*count {
                match line.as_str() {
                    "write" => write(&null, &data)?,
                    "write-file" => write(&file, &data)?,
                    "openat" => drop(rustix::fs::openat(CWD, &path, OFlags::RDONLY, Mode::empty())?),
                    "futex" => {
                        rustix::thread::futex::wake(&word, rustix::thread::futex::Flags::PRIVATE, 1)?;
                    }

                    _ => {
                        let mut events = [epoll::Event {
                            flags: epoll::EventFlags::IN,
                            data: epoll::EventData::new_u64(0),
                        }];
                        epoll::wait(
                            &poll,
                            &mut events,
                            Some(&rustix::time::Timespec { tv_sec: 0, tv_nsec: 0 }),
                        )?;
                    }
                }
            }
            times.push((now() - start) / f64::from(*count));
        }
        println!("{}", times.into_iter().fold(f64::INFINITY, f64::min));
    }
    std::fs::remove_file(&path)?;
    Ok(())
}

/// Writes at a steady rate.
fn load(file: &impl std::os::fd::AsFd) -> Result<()> {
    let step = Duration::from_millis(2);
    let start = Instant::now();
    let mut next = start + step;
    while start.elapsed() < Duration::from_secs(LOAD_SECONDS) {
        rustix::fs::seek(file, rustix::fs::SeekFrom::Start(0))?;
        for _ in 0..LOAD_PER_SECOND / 500 {
            rustix::io::write(file, &[b'x'; 64])?;
        }
        std::thread::sleep(next.saturating_duration_since(Instant::now()));
        next += step;
    }
    Ok(())
}

fn write(file: &impl std::os::fd::AsFd, data: &[u8]) -> Result<()> {
    rustix::io::write(file, data)?;
    Ok(())
}

struct Caller {
    process: Child,
    tell: ChildStdin,
    answers: BufReader<ChildStdout>,
}

impl Caller {
    fn start() -> Result<Self> {
        let mut process = Command::new(std::env::current_exe()?)
            .arg("--child")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()?;
        let tell = process.stdin.take().ok_or("no stdin")?;
        let answers = BufReader::new(process.stdout.take().ok_or("no stdout")?);
        Ok(Self { process, tell, answers })
    }

    fn measure(&mut self, call: &str) -> Result<f64> {
        writeln!(self.tell, "{call}")?;
        let mut answer = String::new();
        self.answers.read_line(&mut answer)?;
        Ok(answer.trim().parse()?)
    }

    /// All calls.
    fn all(&mut self) -> Result<Vec<f64>> {
        CALLS.iter().map(|(call, ..)| self.measure(call)).collect()
    }
}

// === bpftrace ===

struct Bpftrace(Child);

impl Bpftrace {
    fn start(probes: &str) -> Result<Self> {
        // It writes out full buffers only.
        let script = format!("BEGIN {{ printf(\"READY{}\"); }} {probes}", " ".repeat(8192));
        let mut process = Command::new("bpftrace")
            .args(["-e", &script])
            .env("BPFTRACE_PERF_RB_PAGES", "1024")
            .env("BPFTRACE_MAX_PROBES", "1024")
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()?;
        // It prints once attached.
        let mut output = process.stdout.take().ok_or("no stdout")?;
        let mut seen = Vec::new();
        let mut byte = [0];
        while !seen.ends_with(b"READY") {
            if output.read(&mut byte)? == 0 {
                return Err(format!("bpftrace did not start; try: bpftrace -e '{probes}'").into());
            }
            seen.push(byte[0]);
        }
        std::thread::spawn(move || std::io::copy(&mut output, &mut std::io::sink()));
        Ok(Self(process))
    }
}

impl Drop for Bpftrace {
    fn drop(&mut self) {
        // A signal between its look at the flag and its wait for events wakes nothing: it is asked until it goes.
        while matches!(self.0.try_wait(), Ok(None)) {
            let _ = rustix::process::kill_process(
                rustix::process::Pid::from_child(&self.0),
                rustix::process::Signal::INT,
            );
            std::thread::sleep(Duration::from_millis(100));
        }
    }
}

/// Begin and end of every call that the programs watch, with a filter that the child does not pass.
fn filtering(kernel: &Kernel) -> (String, usize) {
    let programs = kernel.programs();
    let calls: BTreeSet<&str> = programs
        .iter()
        .filter_map(|program| {
            program.name.strip_prefix("sys_exit_").or_else(|| program.name.strip_prefix("sys_enter_"))
        })
        .collect();
    let count = calls.len();
    (unpassed(calls), count)
}

/// Begin and end of the measured calls that are watched, nothing else, with a filter that the child does not pass.
fn filtering_pairs() -> String {
    unpassed(["write", "openat", "close"])
}

fn unpassed<'c>(calls: impl IntoIterator<Item = &'c str>) -> String {
    let probes: Vec<_> = calls
        .into_iter()
        .flat_map(|call| [format!("t:syscalls:sys_enter_{call}"), format!("t:syscalls:sys_exit_{call}")])
        .collect();
    format!("{} /pid == 1/ {{ @[tid] = nsecs; }}", probes.join(","))
}

/// The fields of a record, printed.
fn printing(pid: u32) -> String {
    let file = |fd: &str| {
        format!(
            "$t = (struct task_struct *)curtask; $i = ((struct file *)*(uint64 *)((uint64)$t->files->fdt->fd + \
             8 * (uint64){fd}))->f_inode;"
        )
    };
    format!(
        r#"t:syscalls:sys_enter_write /pid == {pid}/ {{ @a[tid] = (args->fd, args->count); }}
t:syscalls:sys_exit_write /pid == {pid}/ {{ $a = @a[tid]; {write} printf("%llu %d %d %d %d %d %d %x %lu\n", nsecs, pid, tid,
 $a.0, args->ret, $a.1, $i->i_mode, $i->i_sb->s_dev, $i->i_ino); delete(@a[tid]); }}
t:syscalls:sys_enter_openat /pid == {pid}/ {{ @p[tid] = (args->dfd, args->filename, args->flags); }}
t:syscalls:sys_exit_openat /pid == {pid}/ {{ $a = @p[tid]; {open}
 printf("%llu %d %d %d %d %x %d %x %lu %ld %ld %d %ld %d %s\n", nsecs, pid, tid, $a.0, args->ret, $a.2, $i->i_mode,
 $i->i_sb->s_dev, $i->i_ino, $i->i_size, $i->i_mtime_sec, $i->i_mtime_nsec, $i->i_ctime_sec, $i->i_ctime_nsec, str($a.1));
 delete(@p[tid]); }}
t:syscalls:sys_enter_close /pid == {pid}/ {{ {close} printf("%llu %d %d %d %d %x %lu %d\n", nsecs, pid, tid, args->fd,
 $i->i_mode, $i->i_sb->s_dev, $i->i_ino, 1); }}"#,
        write = file("$a.0"),
        open = file("args->ret"),
        close = file("args->fd"),
    )
}

// === the comparison ===

/// Reads the ring away on a thread of its own, until told to stop. Returns events and processor time.
fn reader(kernel: &Kernel, stop: Arc<AtomicBool>) -> Result<std::thread::JoinHandle<(u64, f64)>> {
    let mut ring = Ring::new(kernel.ring_fd().try_clone_to_owned()?, u64::from(kernel.ring_bytes()))?;
    Ok(std::thread::spawn(move || {
        let start = now();
        let (mut events, mut sum) = (0, 0i64);
        while !stop.load(Ordering::Relaxed) {
            std::thread::sleep(Duration::from_millis(10));
            let taken = ring.peek(usize::MAX, |_, bytes| {
                if let Some(event) = Event::parse(bytes) {
                    sum = sum.wrapping_add(event.header().result);
                }
            });
            ring.release();
            events += taken.unwrap_or_default() as u64;
        }
        std::hint::black_box(sum);
        (events, now() - start)
    }))
}

/// Programs on tracepoints that somebody else has attached: with them nothing is bare.
fn others() -> usize {
    const TRACEPOINT: u32 = 5;
    aya::programs::loaded_programs()
        .flatten()
        .filter(|program| program.program_type() as u32 == TRACEPOINT)
        .count()
}

fn compare(rounds: usize) -> Result<()> {
    let others = others();
    if others > 0 {
        eprintln!(
            "{others} programs of others are on tracepoints: what is bare here is not; stop them first"
        );
    }
    let mut caller = Caller::start()?;
    let pid = caller.process.id();
    let [mut base, mut base_again, mut unwatched, mut watched, mut filtered, mut pairs, mut printed] =
        [const { Vec::new() }; 7];
    let mut watched_calls = 0;
    let mut consumer = (0, f64::NAN);
    for round in 0..rounds {
        eprintln!("round {} of {rounds}", round + 1);
        base.push(caller.all()?);
        let script = {
            let mut kernel = Kernel::start(&Options { ring_bytes: 64 << 20, ..Options::default() })?;
            let stop = Arc::new(AtomicBool::new(false));
            let thread = reader(&kernel, stop.clone())?;
            unwatched.push(caller.all()?);
            kernel.watch(pid, watch::ALL)?;
            watched.push(caller.all()?);
            stop.store(true, Ordering::Relaxed);
            thread.join().map_err(|_| "the reader failed")?;
            if round + 1 == rounds {
                let stop = Arc::new(AtomicBool::new(false));
                let thread = reader(&kernel, stop.clone())?;
                let start = Instant::now();
                caller.measure("load")?;
                stop.store(true, Ordering::Relaxed);
                let (events, nanoseconds) = thread.join().map_err(|_| "the reader failed")?;
                let seconds = start.elapsed().as_secs_f64();
                consumer = ((events as f64 / seconds) as u64, nanoseconds / 1e9 / seconds);
            }
            let total = kernel.counters()?.total();
            if total.dropped > 0 {
                eprintln!("{} of {} records were dropped", total.dropped, total.fired);
            }
            filtering(&kernel)
        };
        watched_calls = script.1;
        let bpftrace = Bpftrace::start(&script.0)?;
        filtered.push(caller.all()?);
        drop(bpftrace);
        let bpftrace = Bpftrace::start(&filtering_pairs())?;
        pairs.push(caller.all()?);
        drop(bpftrace);
        let bpftrace = Bpftrace::start(&printing(pid))?;
        printed.push(caller.all()?);
        drop(bpftrace);
        base_again.push(caller.all()?);
    }
    let turns = || base.iter().zip(&base_again);
    let added = |with: &[Vec<f64>], call: usize| {
        let bare = turns().map(|(one, other)| f64::midpoint(one[call], other[call]));
        median(with.iter().zip(bare).map(|(with, bare)| with[call] - bare).collect())
    };
    let ratio = |own: &[Vec<f64>], other: &[Vec<f64>], call: usize| {
        if CALLS[call].2 {
            added(own, call) / added(other, call)
        } else {
            median(own.iter().zip(other).map(|(own, other)| own[call] / other[call]).collect())
        }
    };
    println!(
        "bpftrace filters by process on begin and end of the same {watched_calls} calls that the programs watch (all), and of\n\
         write, openat and close alone (pair); for a worker it prints the fields of a record. An openat is closed again.\n\
         Medians of {rounds} turns; processor time added to a call, in nanoseconds.\n"
    );
    println!(
        "{:<12}{:>8}{:>8}{:>11}{:>8}{:>8}{:>8}{:>8}{:>10}{:>10}{:>8}",
        "", "bare", "apart", "unwatched", "all", "ratio", "pair", "ratio", "watched", "bpftrace", "ratio"
    );
    let mut figures = Vec::new();
    for (n, (call, _, is_hooked)) in CALLS.iter().enumerate() {
        let bare = median(base.iter().map(|base| base[n]).collect());
        let apart = median(turns().map(|(one, other)| (one[n] - other[n]).abs()).collect());
        let [own, all, pair] = [&unwatched, &filtered, &pairs].map(|with| added(with, n));
        let [to_all, to_pair] = [&filtered, &pairs].map(|other| ratio(&unwatched, other, n));
        print!(
            "{call:<12}{bare:>8.0}{apart:>8.0}{own:>+11.0}{all:>+8.0}{to_all:>8.2}{pair:>+8.0}{to_pair:>8.2}"
        );
        let (kind, goal) = if *is_hooked {
            ("no worker, hooked, time added:", 1.15)
        } else {
            ("no worker, not hooked, whole call:", 1.2)
        };
        figures.push((format!("{kind} {call}, to bpftrace on all calls"), to_all, goal));
        figures.push((format!("{kind} {call}, to bpftrace on the pair"), to_pair, goal));
        if n == 1 || n == 2 {
            let [own, other] = [&watched, &printed].map(|with| added(with, n));
            print!("{own:>+10.0}{other:>+10.0}{:>8.2}", own / other);
            figures.push((
                format!("worker, time added: {call}, to bpftrace printing the fields"),
                own / other,
                0.8,
            ));
        }
        println!();
    }
    println!();
    for (name, ratio, goal) in figures {
        println!("figure\t{name}\t{ratio:.3}\t{goal}");
    }
    println!(
        "reading the ring: {} records a second for {:.2} % of a processor",
        consumer.0,
        consumer.1 * 100.0
    );
    drop(caller.tell);
    caller.process.wait()?;
    Ok(())
}
