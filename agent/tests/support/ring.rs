//! Records as the kernel programs write them, for tests and benches.

use kvprov_agent_common::{
    Class, FileIdentity, FileRecord, FileState, Header, Kind, OutputRecord, PathRecord, ProcessRecord,
    SocketRecord,
};
use zerocopy::IntoBytes;

/// A record, aligned as in the ring.
#[derive(Debug, Clone)]
pub(crate) struct Bytes(Vec<u64>, usize);

impl Bytes {
    pub(crate) fn new(parts: &[&[u8]]) -> Self {
        let bytes: Vec<u8> = parts.concat();
        let mut words = vec![0u64; bytes.len().div_ceil(8)];
        words.as_mut_bytes()[..bytes.len()].copy_from_slice(&bytes);
        Self(words, bytes.len())
    }

    pub(crate) fn as_slice(&self) -> &[u8] {
        &self.0.as_bytes()[..self.1.next_multiple_of(8)]
    }
}

pub(crate) const FIRST_TIME: u64 = 1_000_000_000_000;
pub(crate) const AT_FDCWD: i32 = -100;
pub(crate) const O_RDONLY: u32 = 0;
pub(crate) const O_WRITE: u32 = 0o1 | 0o100 | 0o1000;

/// Writes records of one process; time passes by a millisecond each.
#[derive(Debug, Clone)]
pub(crate) struct Process {
    pub(crate) pid: u32,
    pub(crate) time: u64,
    pub(crate) device: u32,
}

pub(crate) fn file(device: u32, open_file: u32, inode: u64) -> FileIdentity {
    FileIdentity { device, open_file, inode }
}

pub(crate) fn inet(text: &str) -> ([u8; 16], u16) {
    let address: std::net::SocketAddr = text.parse().unwrap();
    let ip = match address.ip() {
        std::net::IpAddr::V4(ip) => ip.to_ipv6_mapped(),
        std::net::IpAddr::V6(ip) => ip,
    };
    (ip.octets(), address.port())
}

#[allow(dead_code, reason = "tests and benches use some of it each")]
impl Process {
    pub(crate) fn new(pid: u32) -> Self {
        Self { pid, time: FIRST_TIME, device: 8 << 20 | 1 }
    }

    pub(crate) fn wait(&mut self, millis: u64) {
        self.time += millis * 1_000_000;
    }

    pub(crate) fn header(&mut self, kind: Kind, class: Class, result: i64, fd: i32, flags: u32) -> Header {
        self.time += 1_000_000;
        Header {
            kind: kind as u16,
            class: class as u16,
            notes: 0,
            reserved: 0,
            time: self.time,
            tgid: self.pid,
            tid: self.pid,
            result,
            fd,
            flags,
        }
    }

    pub(crate) fn path(&mut self, record: PathRecord, first: &[u8], second: &[u8]) -> Bytes {
        let record =
            PathRecord { first_length: first.len() as u16, second_length: second.len() as u16, ..record };
        Bytes::new(&[record.as_bytes(), first, second])
    }

    pub(crate) fn named(&mut self, kind: Kind, path: impl AsRef<[u8]>, result: i64) -> Bytes {
        let record = self.path_record(kind, Class::None, result, AT_FDCWD, 0, FileIdentity::default());
        self.path(record, path.as_ref(), b"")
    }

    pub(crate) fn path_record(
        &mut self,
        kind: Kind,
        class: Class,
        result: i64,
        fd: i32,
        flags: u32,
        file: FileIdentity,
    ) -> PathRecord {
        PathRecord {
            header: self.header(kind, class, result, fd, flags),
            file,
            state: FileState { size: 100, modified: 1, changed: 1 },
            second_fd: AT_FDCWD,
            first_length: 0,
            second_length: 0,
        }
    }

    /// An open that gave descriptor `fd`.
    pub(crate) fn open(&mut self, path: impl AsRef<[u8]>, flags: u32, fd: i32, open_file: u32, inode: u64) -> Bytes {
        let identity = file(self.device, open_file, inode);
        let record = self.path_record(Kind::Open, Class::Regular, i64::from(fd), AT_FDCWD, flags, identity);
        self.path(record, path.as_ref(), b"")
    }

    pub(crate) fn open_at(&mut self, directory: i32, path: &str, flags: u32, open_file: u32, inode: u64) -> Bytes {
        let identity = file(self.device, open_file, inode);
        let record = self.path_record(Kind::Open, Class::Regular, 9, directory, flags, identity);
        self.path(record, path.as_bytes(), b"")
    }

    pub(crate) fn open_directory(&mut self, path: &str, fd: i32, open_file: u32, inode: u64) -> Bytes {
        let identity = file(self.device, open_file, inode);
        let flags = 0o200000;
        let record = self.path_record(Kind::Open, Class::Directory, i64::from(fd), AT_FDCWD, flags, identity);
        self.path(record, path.as_bytes(), b"")
    }

    pub(crate) fn open_failed(&mut self, path: &str, flags: u32, error: i64) -> Bytes {
        let none = FileIdentity::default();
        let record = self.path_record(Kind::Open, Class::None, error, AT_FDCWD, flags, none);
        self.path(record, path.as_bytes(), b"")
    }

    pub(crate) fn rename(&mut self, from: &str, to: &str, result: i64) -> Bytes {
        let none = FileIdentity::default();
        let record = self.path_record(Kind::Rename, Class::None, result, AT_FDCWD, 0, none);
        self.path(record, from.as_bytes(), to.as_bytes())
    }

    pub(crate) fn call(
        &mut self,
        kind: Kind,
        class: Class,
        file: FileIdentity,
        result: i64,
        wanted: u64,
        references: u64,
    ) -> Bytes {
        let record = FileRecord { header: self.header(kind, class, result, 4, 0), file, wanted, references };
        Bytes::new(&[record.as_bytes()])
    }

    pub(crate) fn read(&mut self, file: FileIdentity, result: i64, wanted: u64) -> Bytes {
        self.call(Kind::Read, Class::Regular, file, result, wanted, 0)
    }

    pub(crate) fn write(&mut self, file: FileIdentity, result: i64, wanted: u64) -> Bytes {
        self.call(Kind::Write, Class::Regular, file, result, wanted, 0)
    }

    pub(crate) fn close(&mut self, file: FileIdentity, references: u64) -> Bytes {
        self.call(Kind::Close, Class::Regular, file, 0, 0, references)
    }

    pub(crate) fn socket(&mut self, kind: Kind, open_file: u32, ends: (&str, &str), result: i64) -> Bytes {
        let header = self.header(kind, Class::Inet, result, 5, 0);
        let identity = file(7, open_file, u64::from(open_file));
        let ((local, local_port), (peer, peer_port)) = (inet(ends.0), inet(ends.1));
        let call = FileRecord { header, file: identity, wanted: result.max(0) as u64, references: 1 };
        let record =
            SocketRecord { call, local, peer, local_port, peer_port, socket_type: 1, reserved: 0 };
        Bytes::new(&[record.as_bytes()])
    }

    pub(crate) fn event(&mut self, kind: Kind, pid: u32, parent: u32, started: u64) -> Bytes {
        let mut header = self.header(kind, Class::None, 0, 0, 0);
        header.tgid = pid;
        let record = ProcessRecord { header, parent, reserved: 0, started, cgroup: 1, name: *b"python\0\0\0\0\0\0\0\0\0\0" };
        Bytes::new(&[record.as_bytes()])
    }

    pub(crate) fn output(&mut self, text: &[u8]) -> Bytes {
        let header = self.header(Kind::Output, Class::Pipe, text.len() as i64, 1, 0);
        let record = OutputRecord {
            header,
            file: file(9, 1, 1),
            offset: 0,
            length: text.len() as u32,
            skipped: 0,
        };
        Bytes::new(&[record.as_bytes(), text])
    }
}
