//! Which node this is, and names of workers on it.

use kvprov_model::clock::{SECOND, WallTime};
use kvprov_model::id::{NodeId, WorkerId, hex};
use sha2::{Digest, Sha256};
use std::{fs, io};

use super::system::ProcessKey;

/// Bytes of the hash in a worker's name.
const HASH_BYTES: usize = 4;

/// The node as everything on it is told apart from other nodes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NodeIdentity {
    /// Its name.
    pub node: NodeId,
    /// This boot of it.
    pub boot_id: String,
    /// The installation, where it has one.
    pub machine_id: Option<String>,
    /// When it was booted, by its wall clock.
    pub booted: Option<WallTime>,
    /// Clock ticks in a second.
    pub ticks_per_second: u64,
}

// === impl NodeIdentity ===

impl NodeIdentity {
    /// Reads it from the system. `name`: what an operator or Kubernetes calls the node; the host name where absent.
    ///
    /// # Errors
    /// When the kernel shows no boot id: without it, a process cannot be told from one of another boot.
    pub fn read(name: Option<String>) -> io::Result<Self> {
        let boot_id = fs::read_to_string("/proc/sys/kernel/random/boot_id")?.trim().to_owned();
        let line = |path: &str| fs::read_to_string(path).ok().map(|text| text.trim().to_owned());
        let node = name
            .filter(|name| !name.is_empty())
            .or_else(|| line("/proc/sys/kernel/hostname"))
            .filter(|name| !name.is_empty())
            .unwrap_or_else(|| boot_id.clone());
        let machine_id = line("/etc/machine-id").filter(|id| !id.is_empty() && id != "uninitialized");
        let booted = fs::read_to_string("/proc/stat").ok().and_then(|text| boot_time(&text));
        let ticks_per_second = rustix::param::clock_ticks_per_second();
        Ok(Self { node: NodeId(node), boot_id, machine_id, booted, ticks_per_second })
    }

    /// When a process started, by the node's wall clock; to the second, and the same at every look.
    pub fn start_of(&self, process: ProcessKey) -> Option<WallTime> {
        let seconds = process.start / self.ticks_per_second.max(1);
        let nanos = i64::try_from(seconds).ok()?.checked_mul(SECOND)?;
        self.booted.map(|booted| booted.plus(nanos))
    }

    /// The name of a worker: `{engine}-{leader pid}-{hash}`, the hash over node, boot, leader and its start. It stays the same
    /// for whoever looks at the same process, and is another after a restart.
    pub fn worker(&self, engine: &str, leader: ProcessKey) -> WorkerId {
        let mut hash = Sha256::new();
        for part in [self.node.as_str(), &self.boot_id, &leader.pid.to_string(), &leader.start.to_string()] {
            hash.update(part.as_bytes());
            hash.update([0]);
        }
        let digest = hash.finalize();
        WorkerId(format!("{engine}-{}-{}", leader.pid, hex(&digest[..HASH_BYTES])))
    }
}

/// `btime` of `/proc/stat`: seconds since the epoch.
fn boot_time(stat: &str) -> Option<WallTime> {
    let seconds = stat.lines().find_map(|line| line.strip_prefix("btime "))?;
    WallTime::from_unix_seconds(seconds.trim().parse().ok()?)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test may stop at a broken premise")]
    use super::*;

    #[test]
    fn a_worker_has_one_name_and_a_restarted_one_another() {
        let node = NodeIdentity::read(Some("n".to_owned())).unwrap();
        let key = |pid, start| ProcessKey { pid, start };
        let name = node.worker("e", key(7, 100));
        assert_eq!(name, node.worker("e", key(7, 100)));
        assert!(name.as_str().starts_with("e-7-") && name.as_str().len() == "e-7-".len() + 8);
        assert_ne!(name, node.worker("e", key(7, 101)), "the same number used again");
        let other = NodeIdentity { boot_id: "x".to_owned(), ..node.clone() };
        assert_ne!(name, other.worker("e", key(7, 100)), "another boot");
        assert!(node.start_of(key(7, 100)) < Some(WallTime(i64::MAX)) && node.booted.is_some());
    }
}
