//! Files of models, opened as the process that loaded them sees them.

use super::io_error;
use crate::access::{Access, ProcessAccess};
use crate::identity::FileOpener;
use std::fs::File;
use std::io;
use std::sync::Arc;

/// Opens files of the processes of this node.
#[derive(Debug)]
pub(crate) struct NodeOpener(pub(crate) Arc<Access>);

impl FileOpener for NodeOpener {
    fn open_file_of(&mut self, pid: u32, path: &[u8]) -> io::Result<File> {
        let process = self.0.identify(pid).map_err(io_error)?;
        self.0.open_file_of(process, path).map(|(file, _)| file).map_err(io_error)
    }
}
