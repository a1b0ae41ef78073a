//! One record of the ring at a time.

use super::connections;
use super::descriptors::{At, OpenFile};
use super::journal::Remark;
use super::notice::{ModelOpen, Notice, OutputPiece, ProcessEvent};
use super::path::{self, Unusable};
use super::process::{Kept, Process, known};
use super::roles::Named;
use super::{Listing, LiveKernel, Pending, take};
use crate::kernel::flags::OpenFlags;
use crate::kernel::names::FileRole;
use crate::kernel::record::{FileSystem, Operation, below};
use kvprov_agent_common::{
    Class, FileRecord, Header, Kind, OutputRecord, PathRecord, ProcessRecord, SocketRecord, notes,
};
use std::sync::Arc;

/// `AT_FDCWD`.
const WORKING_DIRECTORY: i32 = -100;
/// ECONNRESET, EPIPE, ETIMEDOUT: the connection broke.
const BROKE: [i64; 3] = [-104, -32, -110];

const REGULAR: u16 = Class::Regular as u16;
const DIRECTORY: u16 = Class::Directory as u16;

fn at(position: u64, header: &Header) -> At {
    At { position, time: header.time, tgid: header.tgid, tid: header.tid }
}

impl LiveKernel<'_> {
    /// The worker of the process that made a call.
    fn caller(&mut self, header: &Header) -> Option<u32> {
        let process = self.processes.get(&header.tgid).map(|process| process.worker);
        if process.is_none() {
            self.losses.one("process of no worker");
        }
        process
    }

    pub(super) fn on_file(&mut self, position: u64, call: &FileRecord, notices: &mut dyn FnMut(Notice<'_>)) {
        let header = &call.header;
        let Some(kind) = Kind::from_number(header.kind) else { return };
        match kind {
            Kind::ProcessVmReadv | Kind::ProcessVmWritev => return self.on_memory(position, kind, call),
            Kind::BlindSpot => {
                if let Some(index) = self.caller(header)
                    && let Some(worker) = self.worker(index)
                {
                    notices(Notice::BlindSpot { pid: header.tgid, way: header.flags, worker });
                }
                return;
            }
            _ if header.class != REGULAR && header.class != DIRECTORY => return,
            _ => {}
        }
        if header.notes & notes::FILE_UNREADABLE != 0 || call.file.inode == 0 {
            self.losses.one("file of a descriptor not readable");
            return;
        }
        let Some(worker) = self.caller(header) else { return };
        match kind {
            Kind::Read => self.on_use(worker, position, call, Operation::Read),
            Kind::Write => self.on_use(worker, position, call, Operation::Write),
            Kind::Mmap => self.on_use(worker, position, call, Operation::Mmap),
            Kind::Close => self.on_close(worker, position, call),
            Kind::Readdir if header.result >= 0 => self.on_listing(worker, position, call),
            Kind::Fchdir if header.result >= 0 => {
                let directory = self.descriptors.directory_of(&call.file).map(Arc::clone);
                if let Some(process) = self.processes.get_mut(&header.tgid) {
                    // Asked for anew at the next relative path where the directory is not known.
                    process.cwd = directory;
                }
            }
            _ => {}
        }
    }

    /// A read, write or mapping.
    fn on_use(&mut self, worker: u32, position: u64, call: &FileRecord, op: Operation) {
        let header = &call.header;
        if header.class != REGULAR {
            return;
        }
        let at = at(position, header);
        if self.descriptors.get_mut(&call.file).is_none()
            && (self.descriptors.is_ignored(&call.file) || !self.look_up(at, call))
        {
            return;
        }
        let Some(open) = self.descriptors.get_mut(&call.file) else { return };
        open.last = at;
        let is_told = open.told == self.segment;
        if !self.again {
            open.told = self.segment;
        }
        let mut record = connections::record(header.tgid, header.tid, op);
        record.path = Some(Arc::clone(&open.path));
        record.fs.clone_from(&open.file_system);
        let failed = (-4095..0).contains(&header.result);
        let wanted = i64::try_from(call.wanted).unwrap_or(i64::MAX);
        if op == Operation::Mmap {
            record.ret = Some(if failed { header.result } else { 0 });
            record.bytes = (!failed).then_some(wanted);
        } else {
            record.ret = Some(header.result);
            record.bytes = (!failed).then_some(header.result);
            record.want = (wanted != header.result).then_some(wanted);
        }
        self.push_call(worker, position, header.time, record, Remark::Used(call.file), is_told);
    }

    fn on_close(&mut self, worker: u32, position: u64, call: &FileRecord) {
        let header = &call.header;
        let is_last = call.references <= 1;
        if header.class == DIRECTORY {
            self.descriptors.close_directory(header.tgid, header.fd, &call.file, is_last);
            return;
        }
        let at = at(position, header);
        if !is_last {
            let Some(open) = self.descriptors.closing(call.file, at) else { return };
            let mut record = connections::record(header.tgid, header.tid, Operation::Close);
            record.path = Some(Arc::clone(&open.path));
            self.push(worker, position, header.time, record, Remark::Closing(call.file));
            return;
        }
        if let Some(open) = self.descriptors.remove(&call.file) {
            let mut record = connections::record(header.tgid, header.tid, Operation::Close);
            record.path = Some(open.path);
            record.fs = open.file_system;
            record.ret = Some(0);
            let is_told = open.told == self.segment;
            self.push_call(worker, position, header.time, record, Remark::Closed(call.file), is_told);
        }
    }

    fn on_listing(&mut self, worker: u32, position: u64, call: &FileRecord) {
        let header = &call.header;
        let known = self.descriptors.directory_of(&call.file).map(Arc::clone);
        let Some(directory) = known.or_else(|| self.directory_now(header, call)) else {
            self.losses.one("listed directory not known");
            return;
        };
        let mut record = connections::record(header.tgid, header.tid, Operation::Readdir);
        record.path = Some(directory);
        record.ret = Some(header.result);
        record.ts = Some(self.clock.seconds(header.time));
        let time = header.time;
        self.push(worker, position, time, record.clone(), Remark::Held);
        self.listings.insert(header.tid, Listing { worker, position, time, record });
    }

    /// A directory that was opened before the records began.
    fn directory_now(&mut self, header: &Header, call: &FileRecord) -> Option<Arc<str>> {
        let found = self.lookup.descriptor(header.tgid, header.fd)?;
        if found.inode.is_some_and(|inode| inode != call.file.inode) || found.path.ends_with(b" (deleted)") {
            return None;
        }
        let mut text = String::new();
        path::absolute("", &found.path, &mut text).ok()?;
        let path: Arc<str> = text.into();
        self.descriptors.open_directory(header.tgid, header.fd, call.file, Arc::clone(&path));
        Some(path)
    }

    /// Asks what an open file is that no record told of. False: not known, or of no interest; either is remembered.
    fn look_up(&mut self, at: At, call: &FileRecord) -> bool {
        // Whatever comes out, the next record does not ask again.
        self.descriptors.ignore(call.file);
        let Some(found) = self.lookup.descriptor(at.tgid, call.header.fd) else {
            self.losses.one("open file not known");
            return false;
        };
        let Some(process) = self.processes.get_mut(&at.tgid) else { return false };
        let is_same = found.inode.is_none_or(|inode| inode == call.file.inode)
            && found.mount.is_none_or(|mount| {
                let device = call.file.device;
                process.is_on(at.tgid, mount, device, at.time, &mut *self.lookup, &mut self.tables)
            });
        if !is_same {
            self.losses.one("descriptor was another file when it was looked at");
            return false;
        }
        if found.path.ends_with(b" (deleted)") {
            self.losses.one("open file was deleted when it was looked at");
            return false;
        }
        let mut text = std::mem::take(&mut self.path);
        let named = match path::absolute("", &found.path, &mut text) {
            Ok(()) => self.roles.of_store(&text),
            Err(problem) => {
                self.losses.one(problem.reason());
                None
            }
        };
        self.path = text;
        let Some(named) = named.filter(|named| !matches!(*named.role, FileRole::Model(_))) else {
            return false;
        };
        let Some(file_system) = self.kept(at, &named.path, Some(call.file.device)) else { return false };
        self.remember(call, named.path, file_system, at, 0);
        true
    }

    fn remember(
        &mut self,
        call: &FileRecord,
        path: Arc<str>,
        file_system: Option<Arc<FileSystem>>,
        at: At,
        told: u64,
    ) {
        let open = OpenFile { path, file_system, owner: at.tgid, last: at, closing: None, told };
        if self.descriptors.insert(call.file, open).is_some() {
            self.losses.one("too many open files");
        }
        if let Some(process) = self.processes.get_mut(&at.tgid) {
            process.has_files = true;
        }
    }

    /// The file system of a path; `None` where the record has to be dropped.
    fn kept(&mut self, at: At, path: &str, device: Option<u32>) -> Option<Option<Arc<FileSystem>>> {
        let kept = match self.processes.get_mut(&at.tgid) {
            Some(process) => {
                process.kept(at.tgid, path, device, at.time, &mut *self.lookup, &mut self.tables)
            }
            None => Kept::Untold,
        };
        known(kept, &mut self.losses)
    }

    fn on_memory(&mut self, position: u64, kind: Kind, call: &FileRecord) {
        let header = &call.header;
        let Some(worker) = self.caller(header) else { return };
        let op = match kind {
            Kind::ProcessVmReadv => Operation::ProcessVmReadv,
            _ => Operation::ProcessVmWritev,
        };
        let mut record = connections::record(header.tgid, header.tid, op);
        record.ret = Some(header.result);
        record.bytes = (header.result >= 0).then_some(header.result);
        record.peer_pid = Some(i64::from(header.fd));
        self.push(worker, position, header.time, record, Remark::None);
    }

    pub(super) fn on_socket(&mut self, position: u64, socket: &SocketRecord) {
        let header = &socket.call.header;
        let op = match Kind::from_number(header.kind) {
            Some(Kind::Send) => Operation::Send,
            Some(Kind::Recv) => Operation::Recv,
            Some(Kind::Close) => {
                let mut out = take(&self.clock, &mut self.pending);
                if socket.call.references <= 1 {
                    self.connections.closed((header.tgid, socket.call.file), &mut out);
                }
                return;
            }
            // HTTP goes through read and write, and a connect moves nothing.
            _ => return,
        };
        if socket.peer_port == 0 || self.again {
            return;
        }
        let Some(worker) = self.caller(header) else { return };
        let mut out = take(&self.clock, &mut self.pending);
        if header.result > 0 {
            self.connections.moved(worker, position, socket, op == Operation::Send, &mut out);
        } else if BROKE.contains(&header.result) {
            self.connections.failed(worker, position, socket, op, &mut out);
        }
    }

    pub(super) fn on_path(
        &mut self,
        position: u64,
        call: &PathRecord,
        first: &[u8],
        second: &[u8],
        notices: &mut dyn FnMut(Notice<'_>),
    ) {
        let header = &call.header;
        let Some(worker) = self.caller(header) else { return };
        let kind = Kind::from_number(header.kind);
        let worked = header.result >= 0;
        match kind {
            Some(Kind::Open) if worked && header.class != REGULAR && header.class != DIRECTORY => {
                // A device, a pipe, a socket.
                self.descriptors.is_no_directory(header.tgid, header.result as i32);
                return;
            }
            Some(Kind::Open | Kind::Rename | Kind::Unlink | Kind::Stat) => {}
            Some(Kind::Chdir) if worked => {}
            _ => return,
        }
        let unreadable = notes::PATH_UNREADABLE | notes::SECOND_PATH_UNREADABLE;
        if header.notes & unreadable != 0 {
            self.losses.one("path not readable");
            return;
        }
        // The state of an open file (`fstat`), or a call that cannot work.
        if first.is_empty() {
            return;
        }
        let mut text = std::mem::take(&mut self.path);
        match self.absolute(header.tgid, header.fd, first, &mut text) {
            Ok(()) => match kind {
                Some(Kind::Open) => self.on_open(worker, position, call, &text, notices),
                Some(Kind::Rename) => {
                    let mut target = std::mem::take(&mut self.second);
                    match self.absolute(header.tgid, call.second_fd, second, &mut target) {
                        Ok(()) => self.on_rename(worker, position, call, &text, &target),
                        Err(problem) => self.losses.one(problem.reason()),
                    }
                    self.second = target;
                }
                Some(Kind::Chdir) => {
                    if let Some(process) = self.processes.get_mut(&header.tgid) {
                        process.cwd = Some(Arc::from(text.as_str()));
                    }
                }
                _ => self.on_name(worker, position, call, kind, &text),
            },
            Err(problem) => self.losses.one(problem.reason()),
        }
        self.path = text;
    }

    /// Makes a path of a call absolute.
    fn absolute(&mut self, tgid: u32, fd: i32, bytes: &[u8], out: &mut String) -> Result<(), Unusable> {
        if bytes.first() == Some(&b'/') {
            return path::absolute("", bytes, out);
        }
        let base = if fd == WORKING_DIRECTORY {
            let process = self.processes.get_mut(&tgid).ok_or(Unusable::Base)?;
            process.directory(tgid, &mut *self.lookup)
        } else if let Some(known) = self.descriptors.directory(tgid, fd) {
            Some(Arc::clone(known))
        } else {
            // Opened before the records began, or come by fork.
            let found = self.lookup.descriptor(tgid, fd);
            let found = found.filter(|found| !found.path.ends_with(b" (deleted)"));
            found
                .filter(|found| path::absolute("", &found.path, out).is_ok())
                .map(|_| Arc::from(out.as_str()))
        };
        path::absolute(&base.ok_or(Unusable::Base)?, bytes, out)
    }

    fn on_open(
        &mut self,
        worker: u32,
        position: u64,
        call: &PathRecord,
        path: &str,
        notices: &mut dyn FnMut(Notice<'_>),
    ) {
        let header = &call.header;
        let worked = header.result >= 0;
        if worked && header.class == DIRECTORY {
            let fd = header.result as i32;
            let directory: Arc<str> = Arc::from(path);
            self.descriptors.open_directory(header.tgid, fd, call.file, Arc::clone(&directory));
            if self.roles.is_of_a_store(path) {
                let mut record = connections::record(header.tgid, header.tid, Operation::Open);
                record.path = Some(directory);
                self.push(worker, position, header.time, record, Remark::Directory(call.file));
            }
            return;
        }
        let flags = OpenFlags::from_bits(header.flags);
        let named = if worked && flags.may_write() { self.roles.of_store(path) } else { self.roles.of(path) };
        if worked {
            self.descriptors.is_no_directory(header.tgid, header.result as i32);
            if named.is_none() {
                self.forget_old(call);
                self.descriptors.ignore(call.file);
            }
        }
        let Some(Named { path, role }) = named else { return };
        let is_artifact = matches!(*role, FileRole::Artifact(_));
        if flags.is_no_file() || (!worked && !is_artifact) {
            return;
        }
        let at = at(position, header);
        let has_file = worked && call.file.inode != 0;
        let Some(file_system) = self.kept(at, &path, has_file.then_some(call.file.device)) else { return };
        let mut record = connections::record(header.tgid, header.tid, Operation::Open);
        record.path = Some(Arc::clone(&path));
        record.fs.clone_from(&file_system);
        record.flags = Some(flags);
        record.ret = Some(header.result);
        let opened = if has_file { Remark::Opened(call.file, call.state) } else { Remark::None };
        if let (true, FileRole::Model(file)) = (worked, &*role) {
            self.forget_old(call);
            self.descriptors.ignore(call.file);
            if let Some(worker) = self.worker(worker) {
                let open = ModelOpen {
                    pid: header.tgid,
                    path: Arc::clone(&path),
                    file: file.clone(),
                    identity: call.file,
                    state: call.state,
                    wall: self.clock.wall(header.time),
                    position,
                };
                notices(Notice::Model(open, worker));
            }
        } else if has_file {
            self.forget_old(call);
            let file = FileRecord { header: *header, file: call.file, wanted: 0, references: 0 };
            let told = if self.again { 0 } else { self.segment };
            self.remember(&file, path, file_system, at, told);
        } else if worked {
            self.losses.one("file of a descriptor not readable");
        }
        self.listing_before(header.tid, record.path.as_deref().unwrap_or_default());
        self.push(worker, position, header.time, record, opened);
    }

    /// What an open file was before, if its close was not seen or came on a way that is not followed.
    fn forget_old(&mut self, call: &PathRecord) {
        if let Some(old) = self.descriptors.remove(&call.file) {
            self.push_close(old, Remark::Closed(call.file));
        }
    }

    fn on_rename(&mut self, worker: u32, position: u64, call: &PathRecord, from: &str, to: &str) {
        let header = &call.header;
        let (source, target) = (self.roles.of_store(from), self.roles.of_store(to));
        if source.is_none() && target.is_none() {
            return;
        }
        let source = source.map_or_else(|| Arc::from(from), |named| named.path);
        let target = target.map_or_else(|| Arc::from(to), |named| named.path);
        let Some(file_system) = self.kept(at(position, header), &target, None) else { return };
        let mut record = connections::record(header.tgid, header.tid, Operation::Rename);
        record.path = Some(source);
        record.path2 = Some(target);
        record.fs = file_system;
        record.ret = Some(header.result);
        self.push(worker, position, header.time, record, Remark::None);
    }

    /// A look at a name, or its removal.
    fn on_name(&mut self, worker: u32, position: u64, call: &PathRecord, kind: Option<Kind>, path: &str) {
        let header = &call.header;
        let (op, named) = match kind {
            Some(Kind::Unlink) => (Operation::Unlink, self.roles.of_store(path)),
            _ => {
                let named = self.roles.of(path);
                (Operation::Stat, named.filter(|named| matches!(*named.role, FileRole::Artifact(_))))
            }
        };
        let Some(named) = named.filter(|named| !matches!(*named.role, FileRole::Model(_))) else { return };
        let Some(file_system) = self.kept(at(position, header), &named.path, None) else { return };
        let mut record = connections::record(header.tgid, header.tid, op);
        record.path = Some(named.path);
        record.fs = file_system;
        record.ret = Some(header.result);
        self.listing_before(header.tid, record.path.as_deref().unwrap_or_default());
        self.push(worker, position, header.time, record, Remark::None);
    }

    /// Tells the listing of a thread before its first look at a name below.
    fn listing_before(&mut self, tid: u32, path: &str) {
        if self.listings.is_empty() {
            return;
        }
        let is_below = |listing: &Listing| {
            listing.record.path.as_deref().is_some_and(|directory| below(path, directory).is_some())
        };
        if self.listings.get(&tid).is_some_and(is_below)
            && let Some(Listing { worker, position, time, record }) = self.listings.remove(&tid)
            && !self.again
        {
            self.pending.push(Pending { worker, position, time, record, remark: Remark::None, brief: false });
        }
    }

    pub(super) fn on_process(&mut self, event: &ProcessRecord, notices: &mut dyn FnMut(Notice<'_>)) {
        let header = &event.header;
        let pid = header.tgid;
        let told = ProcessEvent {
            pid,
            parent: event.parent,
            started: event.started,
            cgroup: event.cgroup,
            name: event.name,
        };
        // Another process by now has the number: the end of the one before was not seen.
        if self.processes.get(&pid).is_some_and(|process| !process.is_same(event.started)) {
            if header.kind == Kind::Exit as u16 {
                return; // the end of one before the one that is known
            }
            self.end_process(pid);
        }
        match Kind::from_number(header.kind) {
            Some(Kind::Exec) => {
                let worker = self.processes.get(&pid).and_then(|process| self.worker(process.worker));
                notices(Notice::Exec(told, worker));
            }
            Some(Kind::Fork) => {
                let Some(child) = self.processes.get(&event.parent).map(|it| it.child(event.started)) else {
                    self.losses.one("child of no worker");
                    return;
                };
                let index = child.worker;
                if !self.processes.contains_key(&pid) {
                    self.insert_process(pid, child);
                }
                if let Some(worker) = self.worker(index) {
                    notices(Notice::Fork(told, worker));
                }
            }
            Some(Kind::Exit) => {
                let Some(index) = self.processes.get(&pid).map(|process: &Process| process.worker) else {
                    return;
                };
                self.end_process(pid);
                if let Some(worker) = self.worker(index) {
                    notices(Notice::Exit(told, header.flags, worker));
                }
            }
            _ => {}
        }
    }

    pub(super) fn on_output(
        &mut self,
        position: u64,
        output: &OutputRecord,
        bytes: &[u8],
        notices: &mut dyn FnMut(Notice<'_>),
    ) {
        let header = &output.header;
        let wall = self.clock.wall(header.time);
        let Some(index) = self.caller(header) else { return };
        let Some(worker) = self.worker(index) else { return };
        let piece = OutputPiece {
            pid: header.tgid,
            fd: header.fd,
            file: output.file,
            wall,
            position,
            offset: output.offset,
            bytes,
            skipped: output.skipped,
        };
        notices(Notice::Output(piece, worker));
    }
}
