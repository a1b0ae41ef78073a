//! Capabilities: which are needed and why, and how a process gets rid of the others.
//!
//! The loader keeps exactly what [`CAPABILITIES`] names of what it was given; its children keep nothing. Both are
//! checked against what `/proc/self/status` says afterwards, and neither can be undone: the bounding set is emptied and
//! NO_NEW_PRIVS is set, so that no program started later has more.
//!
//! Linux keeps capabilities per thread. So all of this happens while a process has one thread, and is refused later.

mod status;
mod table;

pub use status::{Status, StatusError};
pub use table::{CAPABILITIES, Held, Need, by_name, name, wanted};

use rustix::io::Errno;
use rustix::thread::{CapabilitySet, CapabilitySets};

/// Why privileges are not what they should be.
#[derive(Debug, thiserror::Error)]
pub enum PrivilegeError {
    /// Other threads would keep what this one drops.
    #[error("{0} threads run already; privileges have to be dropped before the second one starts")]
    Threads(u32),
    /// The kernel refused a step.
    #[error("{step}: {source}")]
    Refused {
        /// What was tried.
        step: &'static str,
        /// What the kernel said.
        source: Errno,
    },
    /// The process cannot see its own privileges.
    #[error(transparent)]
    Unknown(#[from] StatusError),
    /// After all steps the process has something that it should not have.
    #[error("privileges are left after they were dropped: {0}")]
    Left(Status),
}

/// Gives up everything, for ever: all capabilities in all sets, and the right to get any by starting a program.
///
/// # Errors
/// When something is left; the process should end then.
pub fn drop_all() -> Result<Status, PrivilegeError> {
    give_up(CapabilitySet::empty())
}

/// Keeps what is wanted of what the process has, gives up the rest, for ever. The children have nothing.
///
/// # Errors
/// As [`drop_all`].
pub fn restrict(keep: CapabilitySet) -> Result<Status, PrivilegeError> {
    let refused = |source| PrivilegeError::Refused { step: "reading capabilities", source };
    let permitted = rustix::thread::capabilities(None).map_err(refused)?.permitted;
    give_up(keep & permitted)
}

fn give_up(keep: CapabilitySet) -> Result<Status, PrivilegeError> {
    let before = Status::own()?;
    if before.threads != 1 {
        return Err(PrivilegeError::Threads(before.threads));
    }
    let refused = |step| move |source| PrivilegeError::Refused { step, source };
    rustix::thread::set_no_new_privs(true).map_err(refused("setting NO_NEW_PRIVS"))?;
    match rustix::thread::clear_ambient_capability_set() {
        // Linux before 4.3 has none.
        Ok(()) | Err(Errno::INVAL) => {}
        Err(source) => return Err(PrivilegeError::Refused { step: "clearing the ambient set", source }),
    }
    for bit in 0..u64::BITS {
        let capability = CapabilitySet::from_bits_retain(1 << bit);
        // An error is a capability that this kernel does not know.
        if !rustix::thread::capability_is_in_bounding_set(capability).unwrap_or(false) {
            continue;
        }
        match rustix::thread::remove_capability_from_bounding_set(capability) {
            // Without CAP_SETPCAP the set stays. NO_NEW_PRIVS makes it worthless.
            Ok(()) | Err(Errno::PERM) => {}
            Err(source) => return Err(PrivilegeError::Refused { step: "emptying the bounding set", source }),
        }
    }
    let sets = CapabilitySets { effective: keep, permitted: keep, inheritable: CapabilitySet::empty() };
    rustix::thread::set_capabilities(None, sets).map_err(refused("setting the capability sets"))?;
    let after = Status::own()?;
    let could_empty = before.effective & CapabilitySet::SETPCAP.bits() != 0;
    let clean = after.effective == keep.bits()
        && after.permitted == keep.bits()
        && after.inheritable == 0
        && after.ambient == 0
        && after.no_new_privs
        && (after.bounding == 0 || !could_empty);
    if clean { Ok(after) } else { Err(PrivilegeError::Left(after)) }
}

#[cfg(test)]
mod tests;
