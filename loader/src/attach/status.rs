//! How a program is doing.

use std::os::fd::{AsRawFd, BorrowedFd};

/// A program and what became of it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ProgramStatus {
    /// Its name, which is that of its tracepoint.
    pub name: String,
    /// Why it is not attached, and what is not seen therefore.
    pub attached: Result<(), Unattached>,
    /// Nanoseconds that it ran; `None` unless the kernel keeps statistics (`kernel.bpf_stats_enabled`).
    pub run_time_ns: Option<u64>,
    /// How often it ran; as above.
    pub run_count: Option<u64>,
    /// How often the kernel skipped it since another program was running on that processor. `None` before Linux 5.12.
    pub missed: Option<u64>,
}

/// A program that is not attached.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Unattached {
    /// Why.
    pub reason: String,
    /// What is not seen without it.
    pub lost: String,
}

/// Numbers of a loaded program.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Numbers {
    pub(crate) run_time_ns: Option<u64>,
    pub(crate) run_count: Option<u64>,
    pub(crate) missed: Option<u64>,
}

/// Reads the numbers of a program's descriptor.
pub(crate) fn numbers(program: BorrowedFd<'_>) -> Numbers {
    let path = format!("/proc/self/fdinfo/{}", program.as_raw_fd());
    std::fs::read_to_string(path).map(|text| parse(&text)).unwrap_or_default()
}

fn parse(text: &str) -> Numbers {
    let field = |name: &str| {
        text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':')?.trim().parse::<u64>().ok())
    };
    // Without statistics both are 0, which is not known rather than none.
    let count = field("run_cnt").filter(|count| *count > 0);
    Numbers {
        run_time_ns: count.and_then(|_| field("run_time_ns")),
        run_count: count,
        missed: field("recursion_misses"),
    }
}

/// What is not seen without a program, by its name.
pub(crate) fn lost_without(name: &str) -> String {
    let call = name.trim_start_matches("sys_exit_").trim_start_matches("sys_enter_");
    let what = match call {
        "openat" | "open" | "openat2" | "creat" => "opened files",
        "rename" | "renameat" | "renameat2" => "renamed files",
        "unlink" | "unlinkat" => "removed files",
        "rmdir" | "mkdir" | "mkdirat" => "made and removed directories",
        "newstat" | "newlstat" | "newfstatat" | "statx" | "access" | "faccessat" | "faccessat2" => {
            "questions whether a file is there"
        }
        "read" | "pread64" | "readv" | "preadv" | "preadv2" => "reads of files and sockets",
        "write" | "pwrite64" | "writev" | "pwritev" | "pwritev2" => {
            "writes to files, sockets and standard output"
        }
        "close" | "close_range" => "the end of the use of files; it is known when their process ends",
        "getdents64" => "listed directories",
        "mmap" => "files that are read through memory",
        "truncate" | "ftruncate" => "truncated files",
        "statfs" => "questions for free space",
        "chdir" | "fchdir" => "changes of directory: relative paths become unknown",
        "sendto" | "sendmsg" | "sendmmsg" => "bytes sent over sockets",
        "recvfrom" | "recvmsg" | "recvmmsg" => "bytes received over sockets",
        "connect" => "connections as they begin",
        "process_vm_readv" | "process_vm_writev" => "transfers between processes",
        "sched_process_exec" => "programs as they start; they are found by looking from time to time",
        "sched_process_fork" => {
            "children of watched processes: what they do is not seen until they are found"
        }
        "sched_process_exit" => "the end of processes; it is found by looking from time to time",
        "io_uring_setup" | "sendfile64" | "splice" | "tee" | "vmsplice" | "copy_file_range" => {
            "whether bytes went past the programs"
        }
        _ => "what it would see",
    };
    format!("{what} ({call})")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_come_from_the_description_of_a_descriptor() {
        let with = parse("pos:\t0\nprog_type:\t5\nrun_time_ns:\t2500\nrun_cnt:\t10\nrecursion_misses:\t3\n");
        assert_eq!((with.run_time_ns, with.run_count, with.missed), (Some(2500), Some(10), Some(3)));
    }

    #[test]
    fn without_statistics_the_run_time_is_unknown() {
        let without = parse("run_time_ns:\t0\nrun_cnt:\t0\nrecursion_misses:\t0\n");
        assert_eq!((without.run_time_ns, without.run_count, without.missed), (None, None, Some(0)));
        let old = parse("pos:\t0\n");
        assert_eq!((old.run_time_ns, old.run_count, old.missed), (None, None, None));
    }
}
