//! Working directories, descriptors and mounts for the kernel's records.

use crate::access::{Access, AccessError, Link, ProcessAccess, ProcessId};
use crate::kernel::live::{Descriptor, ProcessLookup};
use std::sync::Arc;

/// Answers about the processes of this node.
#[derive(Debug)]
pub(crate) struct NodeLookup(pub(crate) Arc<Access>);

impl NodeLookup {
    fn ask<T>(
        &self,
        pid: u32,
        question: impl FnOnce(&Access, ProcessId) -> Result<T, AccessError>,
    ) -> Option<T> {
        let process = self.0.identify(pid).ok()?;
        question(&self.0, process).ok()
    }
}

impl ProcessLookup for NodeLookup {
    fn cwd(&mut self, pid: u32) -> Option<Vec<u8>> {
        self.ask(pid, |access, process| access.link(process, Link::Cwd))
    }

    fn descriptor(&mut self, pid: u32, fd: i32) -> Option<Descriptor> {
        let number = u32::try_from(fd).ok()?;
        let found = self.ask(pid, |access, process| access.descriptor(process, number))?;
        let inode = (found.inode != 0).then_some(found.inode);
        let mount = u32::try_from(found.mount).ok().filter(|mount| *mount != 0);
        Some(Descriptor { path: found.target, mount, inode })
    }

    fn mountinfo(&mut self, pid: u32) -> Option<Vec<u8>> {
        self.ask(pid, |access, process| access.mountinfo(process))
    }

    fn mount_of(&mut self, pid: u32, directory: &[u8]) -> Option<u32> {
        let stat = self.ask(pid, |access, process| access.stat_path_of(process, directory, true))?;
        u32::try_from(stat.mount).ok().filter(|mount| *mount != 0)
    }
}
