//! What this process costs, as the kernel counts it.

use std::fs;
use std::time::Duration;

/// What this process has used.
#[derive(Debug, Clone, Default, PartialEq)]
pub(super) struct Usage {
    /// Processor time in user and kernel mode.
    pub(super) cpu: Option<Duration>,
    /// Bytes in memory.
    pub(super) resident: Option<u64>,
    /// Bytes of address space.
    pub(super) virtual_memory: Option<u64>,
    /// Open descriptors.
    pub(super) descriptors: Option<u64>,
    /// Threads.
    pub(super) threads: Option<u64>,
}

/// Reads it; what cannot be read is left out.
pub(super) fn usage() -> Usage {
    let stat = fs::read_to_string("/proc/self/stat").unwrap_or_default();
    // The name in parentheses may hold anything; the fields come after its end.
    let fields: Vec<&str> =
        stat.rsplit_once(')').map(|(_, rest)| rest.split_ascii_whitespace().collect()).unwrap_or_default();
    let number = |field: usize| fields.get(field).and_then(|text| text.parse::<u64>().ok());
    let ticks = rustix::param::clock_ticks_per_second().max(1);
    let statm = fs::read_to_string("/proc/self/statm").unwrap_or_default();
    let page = rustix::param::page_size() as u64;
    // Fields 14, 15, 20 of proc(5), counted from 3 after the name.
    Usage {
        cpu: number(11).zip(number(12)).map(|(user, kernel)| {
            Duration::from_millis(user.saturating_add(kernel).saturating_mul(1_000) / ticks)
        }),
        resident: statm
            .split_ascii_whitespace()
            .nth(1)
            .and_then(|pages| pages.parse::<u64>().ok())
            .map(|n| n * page),
        virtual_memory: number(20),
        descriptors: fs::read_dir("/proc/self/fd").ok().map(|entries| entries.count() as u64),
        threads: number(17),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn this_process_uses_something() {
        let usage = usage();
        assert!(usage.cpu.is_some());
        assert!(usage.resident.is_some_and(|bytes| bytes > 1 << 20 && bytes < 64 << 30));
        assert!(usage.threads.is_some_and(|threads| (1..10_000).contains(&threads)), "{usage:?}");
    }
}
