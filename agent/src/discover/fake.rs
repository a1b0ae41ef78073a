//! A machine in memory.

use super::system::{Output, Processes, Stat};
use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};

/// One process.
#[derive(Debug, Clone)]
pub(super) struct Fake {
    pub stat: Stat,
    pub arguments: Vec<u8>,
    pub environment: Option<Vec<u8>>,
    pub mapped: Vec<String>,
    pub cgroup: String,
    pub executable: PathBuf,
    pub output: Output,
}

/// The machine.
#[derive(Debug, Default)]
pub(super) struct FakeSystem {
    pub processes: RefCell<BTreeMap<u32, Fake>>,
    pub directories: RefCell<BTreeMap<PathBuf, Vec<String>>>,
    pub files: RefCell<BTreeMap<PathBuf, String>>,
    /// How often arguments were read.
    pub reads: Cell<usize>,
    clock: Cell<u64>,
}

// === impl FakeSystem ===

impl FakeSystem {
    /// A process that runs `line`, split at blanks; single quotes keep them.
    pub(super) fn start(&self, pid: u32, parent: u32, line: &str) -> u32 {
        self.clock.set(self.clock.get() + 1);
        let first = line.split_whitespace().next().unwrap_or_default();
        let executable = PathBuf::from(match first.rsplit('/').next() {
            Some(name) if name.starts_with("python") => "/usr/bin/python3.11".to_owned(),
            name => format!("/usr/bin/{}", name.unwrap_or_default()),
        });
        let fake = Fake {
            stat: Stat {
                thread_name: first.rsplit('/').next().unwrap_or_default().chars().take(15).collect(),
                state: 'S',
                parent,
                session: pid,
                start: self.clock.get(),
                arguments_at: self.clock.get() * 1000,
            },
            arguments: joined(line),
            environment: Some(b"HOME=/root\0".to_vec()),
            mapped: Vec::new(),
            cgroup: "0::/user.slice\n".to_owned(),
            executable,
            output: Output::Stream(format!("pipe:[{pid}]")),
        };
        self.processes.borrow_mut().insert(pid, fake);
        pid
    }

    /// A child that has not called exec.
    pub(super) fn fork(&self, pid: u32, parent: u32) -> u32 {
        self.clock.set(self.clock.get() + 1);
        let mut child = self.processes.borrow()[&parent].clone();
        child.stat.parent = parent;
        child.stat.start = self.clock.get();
        self.processes.borrow_mut().insert(pid, child);
        pid
    }

    /// The process calls itself something else, as `setproctitle` does.
    pub(super) fn title(&self, pid: u32, title: &str) {
        self.change(pid, |fake| {
            fake.stat.thread_name = title.chars().take(15).collect();
            fake.arguments = [title.as_bytes(), &[0; 8]].concat();
        });
    }

    /// The process calls exec.
    pub(super) fn exec(&self, pid: u32, line: &str) {
        let start = self.processes.borrow()[&pid].stat.clone();
        self.start(pid, start.parent, line);
        self.change(pid, |fake| {
            fake.stat.start = start.start;
            fake.stat.session = start.session;
        });
    }

    pub(super) fn change(&self, pid: u32, change: impl FnOnce(&mut Fake)) {
        if let Some(fake) = self.processes.borrow_mut().get_mut(&pid) {
            change(fake);
        }
    }

    pub(super) fn environment(&self, pid: u32, variables: &[&str]) {
        self.change(pid, |fake| fake.environment = Some(joined_all(variables.iter().copied())));
    }

    /// The process ends; its children go to `init`.
    pub(super) fn end(&self, pid: u32) {
        self.processes.borrow_mut().remove(&pid);
        for fake in self.processes.borrow_mut().values_mut().filter(|fake| fake.stat.parent == pid) {
            fake.stat.parent = 1;
        }
    }

    fn get<T>(&self, pid: u32, read: impl FnOnce(&Fake) -> T) -> io::Result<T> {
        self.processes.borrow().get(&pid).map(read).ok_or_else(|| io::ErrorKind::NotFound.into())
    }
}

fn joined(line: &str) -> Vec<u8> {
    let mut words = Vec::new();
    for (index, piece) in line.split('\'').enumerate() {
        if index % 2 == 0 {
            words.extend(piece.split_whitespace());
        } else {
            words.push(piece);
        }
    }
    joined_all(words.into_iter())
}

fn joined_all<'t>(texts: impl Iterator<Item = &'t str>) -> Vec<u8> {
    texts.flat_map(|text| text.bytes().chain([0])).collect()
}

impl Processes for FakeSystem {
    fn pids(&self) -> io::Result<Vec<u32>> {
        Ok(self.processes.borrow().keys().copied().collect())
    }

    fn stat(&self, pid: u32) -> io::Result<Stat> {
        self.get(pid, |fake| fake.stat.clone())
    }

    fn arguments(&self, pid: u32) -> io::Result<Vec<u8>> {
        self.reads.set(self.reads.get() + 1);
        self.get(pid, |fake| fake.arguments.clone())
    }

    fn environment(&self, pid: u32) -> io::Result<Vec<u8>> {
        self.get(pid, |fake| fake.environment.clone())?.ok_or_else(|| io::ErrorKind::PermissionDenied.into())
    }

    fn mapped_files(&self, pid: u32) -> io::Result<Vec<String>> {
        self.get(pid, |fake| fake.mapped.clone())
    }

    fn cgroup(&self, pid: u32) -> io::Result<String> {
        self.get(pid, |fake| fake.cgroup.clone())
    }

    fn executable(&self, pid: u32) -> io::Result<PathBuf> {
        self.get(pid, |fake| fake.executable.clone())
    }

    fn directory(&self, pid: u32) -> io::Result<PathBuf> {
        self.get(pid, |_| PathBuf::from("/run/engine"))
    }

    fn namespace_pids(&self, pid: u32) -> io::Result<Vec<u32>> {
        self.get(pid, |_| vec![pid])
    }

    fn output(&self, pid: u32, _fd: u32) -> Output {
        self.get(pid, |fake| fake.output.clone()).unwrap_or(Output::Nowhere)
    }

    fn list(&self, _pid: u32, directory: &Path) -> io::Result<Vec<String>> {
        self.directories.borrow().get(directory).cloned().ok_or_else(|| io::ErrorKind::NotFound.into())
    }

    fn read(&self, _pid: u32, path: &Path, limit: usize) -> io::Result<Vec<u8>> {
        let files = self.files.borrow();
        let text = files.get(path).ok_or_else(|| io::Error::from(io::ErrorKind::NotFound))?;
        Ok(text.bytes().take(limit).collect())
    }
}
