//! A watched process in a kernel with the programs, and what the ring says of it.

use kvprov_agent_common::ring::Ring;
use kvprov_agent_common::{Class, Event, FileIdentity, FileState, Kind};
use kvprov_loader::attach::{Error, Kernel, Options};
use std::io::{Read, Write};
use std::ops::{Deref, DerefMut};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::{Mutex, MutexGuard, PoisonError};

/// One test at a time; and programs with the usual options stay for the next one, since attaching takes seconds.
static KEPT: Mutex<Option<Lab>> = Mutex::new(None);

/// The programs and their reader.
pub(crate) struct Lab {
    pub(crate) kernel: Kernel,
    pub(crate) ring: Ring,
}

/// A lab for as long as a test needs it.
pub(crate) struct Borrowed {
    lab: Option<Lab>,
    keep: bool,
    kept: MutexGuard<'static, Option<Lab>>,
}

impl Deref for Borrowed {
    type Target = Lab;

    fn deref(&self) -> &Lab {
        self.lab.as_ref().expect("a lab until the end")
    }
}

impl DerefMut for Borrowed {
    fn deref_mut(&mut self) -> &mut Lab {
        self.lab.as_mut().expect("a lab until the end")
    }
}

impl Drop for Borrowed {
    fn drop(&mut self) {
        if self.keep {
            *self.kept = self.lab.take();
        }
    }
}

/// A record, copied.
#[derive(Debug, Clone)]
pub(crate) struct Seen {
    pub kind: Kind,
    pub class: u16,
    pub notes: u16,
    pub tgid: u32,
    pub result: i64,
    pub fd: i32,
    pub flags: u32,
    pub first: Vec<u8>,
    pub second: Vec<u8>,
    pub second_fd: i32,
    pub file: FileIdentity,
    pub state: FileState,
    pub wanted: u64,
    pub references: u64,
    pub local: ([u8; 16], u16),
    pub peer: ([u8; 16], u16),
    pub socket_type: u16,
    pub parent: u32,
    pub started: u64,
    pub name: [u8; 16],
    pub offset: u32,
    pub skipped: u64,
    pub bytes: Vec<u8>,
}

/// The lab with the usual options. `None`, with a word of why, where this machine refuses; a failure where it must not.
pub(crate) fn lab() -> Option<Borrowed> {
    let mut kept = KEPT.lock().unwrap_or_else(PoisonError::into_inner);
    let mut lab = kept.take().or_else(|| start(&Options::default()))?;
    for tgid in lab.kernel.watched().into_keys() {
        lab.kernel.unwatch(tgid).expect("leaving nobody watched");
    }
    lab.drain();
    Some(Borrowed { lab: Some(lab), keep: true, kept })
}

/// A lab of its own.
pub(crate) fn with(options: &Options) -> Option<Borrowed> {
    let kept = KEPT.lock().unwrap_or_else(PoisonError::into_inner);
    Some(Borrowed { lab: Some(start(options)?), keep: false, kept })
}

fn start(options: &Options) -> Option<Lab> {
    let root = rustix::process::geteuid().is_root();
    if root && !std::path::Path::new("/sys/kernel/tracing/events").exists() {
        let _ = Command::new("mount").args(["-t", "tracefs", "tracefs", "/sys/kernel/tracing"]).status();
    }
    match Kernel::start(options) {
        Ok(kernel) => {
            for program in kernel.programs() {
                if let Err(why) = &program.attached {
                    eprintln!("{}: {}; not seen: {}", program.name, why.reason, why.lost);
                }
            }
            let descriptor = kernel.ring_fd().try_clone_to_owned().expect("copying the ring's descriptor");
            let ring = Ring::new(descriptor, u64::from(kernel.ring_bytes())).expect("mapping the ring");
            Some(Lab { kernel, ring })
        }
        Err(error) => {
            assert!(
                !root || std::env::var_os("CI").is_none() || matches!(error, Error::NoTypes { .. }),
                "root in CI cannot watch the kernel: {error}"
            );
            eprintln!("skipped: {error}");
            None
        }
    }
}

/// A process that waits to be told to begin.
pub(crate) struct Waiting {
    pub child: Child,
}

/// Starts a Perl script, which waits before its body.
pub(crate) fn perl(body: &str) -> Waiting {
    let script = format!("$|=1; sysread(STDIN, my $go, 1) == 1 or exit 0; {body}");
    let child = Command::new("perl")
        .args(["-MSocket", "-MFcntl", "-e", &script])
        .env("LC_ALL", "C")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("starting perl");
    // It has loaded what it needs once it sleeps in its first read.
    let stack = format!("/proc/{}/syscall", child.id());
    for _ in 0..500 {
        if std::fs::read_to_string(&stack).is_ok_and(|call| call.starts_with("0 0x0 ")) {
            break;
        }
        std::thread::sleep(std::time::Duration::from_millis(10));
    }
    Waiting { child }
}

impl Waiting {
    pub(crate) fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Lets it run to its end. What it printed comes back.
    pub(crate) fn run(mut self) -> (ExitStatus, Vec<u8>) {
        self.child.stdin.take().expect("stdin").write_all(b"x").expect("telling it to begin");
        let mut printed = Vec::new();
        self.child.stdout.take().expect("stdout").read_to_end(&mut printed).expect("reading what it prints");
        let mut complaint = String::new();
        self.child.stderr.take().expect("stderr").read_to_string(&mut complaint).expect("reading stderr");
        if !complaint.is_empty() {
            eprintln!("helper: {complaint}");
        }
        (self.child.wait().expect("waiting"), printed)
    }
}

impl Lab {
    /// Runs a script as a watched process; what was seen of it and its children.
    pub(crate) fn watch(&mut self, flags: u32, body: &str) -> Vec<Seen> {
        let waiting = perl(body);
        let pid = waiting.pid();
        self.kernel.watch(pid, flags).expect("watching");
        let (status, _) = waiting.run();
        assert!(status.success(), "{body}: {status}");
        let seen = self.drain();
        seen.into_iter()
            .filter(|seen| seen.tgid == pid || seen.parent == pid || seen.kind != Kind::Exec)
            .collect()
    }

    /// Everything that waits in the ring.
    pub(crate) fn drain(&mut self) -> Vec<Seen> {
        let mut all = Vec::new();
        self.ring
            .peek(usize::MAX, |_, bytes| {
                assert_eq!(bytes.len() % 8, 0, "a record is a multiple of eight");
                all.push(copy(&Event::parse(bytes).expect("a record of a known kind")));
            })
            .expect("reading the ring");
        self.ring.release();
        all
    }
}

fn copy(event: &Event<'_>) -> Seen {
    let header = event.header();
    let mut seen = Seen {
        kind: Kind::from_number(header.kind).expect("a kind"),
        class: header.class,
        notes: header.notes,
        tgid: header.tgid,
        result: header.result,
        fd: header.fd,
        flags: header.flags,
        first: Vec::new(),
        second: Vec::new(),
        second_fd: 0,
        file: FileIdentity::default(),
        state: FileState::default(),
        wanted: 0,
        references: 0,
        local: ([0; 16], 0),
        peer: ([0; 16], 0),
        socket_type: 0,
        parent: 0,
        started: 0,
        name: [0; 16],
        offset: 0,
        skipped: 0,
        bytes: Vec::new(),
    };
    match event {
        Event::Path { record, first, second } => {
            (seen.first, seen.second) = (first.to_vec(), second.to_vec());
            (seen.file, seen.state, seen.second_fd) = (record.file, record.state, record.second_fd);
        }
        Event::File(record) => {
            (seen.file, seen.wanted, seen.references) = (record.file, record.wanted, record.references);
        }
        Event::Socket(record) => {
            (seen.file, seen.wanted, seen.references) =
                (record.call.file, record.call.wanted, record.call.references);
            seen.local = (record.local, record.local_port);
            seen.peer = (record.peer, record.peer_port);
            seen.socket_type = record.socket_type;
        }
        Event::Process(record) => {
            (seen.parent, seen.started, seen.name) = (record.parent, record.started, record.name);
        }
        Event::Output { record, bytes } => {
            (seen.offset, seen.skipped, seen.bytes) = (record.offset, record.skipped, bytes.to_vec());
            seen.file = record.file;
        }
    }
    seen
}

impl Seen {
    pub(crate) fn is(&self, kind: Kind, class: Class) -> bool {
        self.kind == kind && self.class == class as u16
    }

    pub(crate) fn path(&self) -> String {
        String::from_utf8_lossy(&self.first).into_owned()
    }
}

/// Those of one kind.
pub(crate) fn of(seen: &[Seen], kind: Kind) -> Vec<&Seen> {
    seen.iter().filter(|seen| seen.kind == kind).collect()
}
