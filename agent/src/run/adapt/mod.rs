//! The agent's parts ask for what they need in words of their own; here each is answered with the agent's rights first,
//! and with the loader's where these do not suffice.

mod files;
mod lookup;
mod opener;
mod processes;

pub(crate) use files::NodeFiles;
pub(crate) use lookup::NodeLookup;
pub(crate) use opener::NodeOpener;
pub(crate) use processes::NodeProcesses;

use crate::access::AccessError;
use std::io::{self, ErrorKind};

/// The error of the system that says the same.
fn io_error(error: AccessError) -> io::Error {
    let kind = match &error {
        AccessError::Gone | AccessError::NotFound => ErrorKind::NotFound,
        AccessError::NotRegular => ErrorKind::InvalidInput,
        AccessError::Refused { .. } => ErrorKind::PermissionDenied,
        AccessError::NotNow(_) => ErrorKind::WouldBlock,
        AccessError::Failed(_) => ErrorKind::Other,
    };
    io::Error::new(kind, error)
}

/// `first`, or `second` where the rights did not suffice.
fn or_ask<T>(first: io::Result<T>, second: impl FnOnce() -> Result<T, AccessError>) -> io::Result<T> {
    match first {
        Err(error) if error.kind() == ErrorKind::PermissionDenied => second().map_err(io_error),
        other => other,
    }
}
