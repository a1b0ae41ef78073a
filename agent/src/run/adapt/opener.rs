//! Files of models, opened as the process that loaded them sees them.

use super::io_error;
use crate::access::{Access, AccessError, ProcessAccess};
use crate::identity::FileOpener;
use std::fs::File;
use std::io;
use std::sync::Arc;

/// Opens files of the processes of this node.
#[derive(Debug)]
pub(crate) struct NodeOpener(pub(crate) Arc<Access>);

impl FileOpener for NodeOpener {
    /// A process that ended meanwhile mostly saw what this one sees; whether it is the same file is checked by who
    /// reads it.
    fn open_file_of(&mut self, pid: u32, path: &[u8]) -> io::Result<File> {
        let process = match self.0.identify(pid) {
            Err(AccessError::Gone) => self.0.identify(std::process::id()),
            found => found,
        };
        let process = process.map_err(io_error)?;
        self.0.open_file_of(process, path).map(|(file, _)| file).map_err(io_error)
    }
}
