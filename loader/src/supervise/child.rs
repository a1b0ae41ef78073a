//! The first thing that a child does.

use crate::privileges::{self, PrivilegeError, Status};
use rustix::io::Errno;
use rustix::process::Signal;

/// Why a child must not go on.
#[derive(Debug, thiserror::Error)]
pub enum ChildError {
    /// It could not get rid of its privileges.
    #[error(transparent)]
    Privileges(#[from] PrivilegeError),
    /// It could not see to it that it ends with its parent.
    #[error("asking the kernel for a signal when the parent dies: {0}")]
    Signal(Errno),
    /// Its parent died before it could.
    #[error("the parent is gone")]
    Orphan,
}

/// Gives up all privileges for ever, and asks the kernel for SIGTERM when the parent dies. To be called before any other
/// thread starts. Also right for a process that nobody supervises; then only the privileges go.
///
/// # Errors
/// The process has to end then.
pub fn enter() -> Result<Status, ChildError> {
    let status = privileges::drop_all()?;
    // The other end of the socket on standard input was made by the parent. Nothing else is there without one.
    let parent = match rustix::net::sockopt::socket_peercred(std::io::stdin()) {
        Ok(credentials) => credentials.pid,
        Err(_) => return Ok(status),
    };
    rustix::process::set_parent_process_death_signal(Some(Signal::TERM)).map_err(ChildError::Signal)?;
    // It may have died before the kernel knew that it matters.
    if rustix::process::getppid() == Some(parent) { Ok(status) } else { Err(ChildError::Orphan) }
}
