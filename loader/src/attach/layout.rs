//! The array `LAYOUT` of the programs, from the running kernel's type information.

use super::btf::Types;
use kvprov_agent_common::kernel::layout::{self as l, COUNT, MISSING};

/// A member that the programs cannot do without is not there.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
#[error(
    "the kernel's type information does not tell where {0} is; this kernel is too old or too new for kvprov"
)]
pub struct Unknown(String);

/// Fills the array.
pub(crate) fn of(types: &Types<'_>) -> Result<[u32; COUNT], Unknown> {
    let mut layout = [MISSING; COUNT];
    for (place, structure, member) in [
        (l::TASK_FILES, "task_struct", "files"),
        (l::TASK_TGID, "task_struct", "tgid"),
        (l::TASK_REAL_PARENT, "task_struct", "real_parent"),
        (l::TASK_NAME, "task_struct", "comm"),
        (l::TASK_SIGNAL, "task_struct", "signal"),
        (l::TASK_EXIT_CODE, "task_struct", "exit_code"),
        (l::SIGNAL_LIVE, "signal_struct", "live"),
        (l::FILES_TABLE, "files_struct", "fdt"),
        (l::TABLE_LENGTH, "fdtable", "max_fds"),
        (l::TABLE_FILES, "fdtable", "fd"),
    ] {
        layout[place] = required(types, structure, &[member])?;
    }
    layout[l::TASK_STARTED] = required(types, "task_struct", &["start_boottime", "real_start_time"])?;
    layout[l::SUPER_DEVICE] = required(types, "super_block", &["s_dev"])?;
    for (place, structure, member) in
        [(l::TASK_MM, "task_struct", "mm"), (l::MM_TASK_SIZE, "mm_struct", "task_size")]
    {
        layout[place] = types.offset(structure, member).unwrap_or(MISSING);
    }
    if layout[l::TASK_MM] == MISSING {
        layout[l::MM_TASK_SIZE] = MISSING;
    }

    let file = Copied { from: l::FILE_FROM, bytes: l::FILE_BYTES, max: l::FILE_MAX };
    let (references, bias) = match types.offset("file", "f_ref") {
        Some(at) => (at, 1),
        None => (types.offset("file", "f_count").unwrap_or(MISSING), 0),
    };
    layout[l::FILE_REFERENCES_BIAS] = bias;
    file.place(
        &mut layout,
        &[
            (l::FILE_INODE, required(types, "file", &["f_inode"])?, 8),
            (l::FILE_PRIVATE, required(types, "file", &["private_data"])?, 8),
            (l::FILE_REFERENCES, references, 8),
        ],
    )?;

    // Since Linux 6.11 times are numbers of their own; before, and with another name since 6.6, a `timespec64`.
    let time = |which: &str| -> Result<[u32; 2], Unknown> {
        let seconds = [format!("i_{which}_sec"), format!("__i_{which}.tv_sec"), format!("i_{which}.tv_sec")];
        let nanos = [format!("i_{which}_nsec"), format!("__i_{which}.tv_nsec"), format!("i_{which}.tv_nsec")];
        let find = |names: &[String; 3]| required(types, "inode", &names.each_ref().map(String::as_str));
        Ok([find(&seconds)?, find(&nanos)?])
    };
    let [modified, modified_nanos] = time("mtime")?;
    let [changed, changed_nanos] = time("ctime")?;
    let identity = [
        (l::INODE_MODE, required(types, "inode", &["i_mode"])?, 2),
        (l::INODE_FLAGS, required(types, "inode", &["i_flags"])?, 4),
        (l::INODE_SUPER, required(types, "inode", &["i_sb"])?, 8),
        (l::INODE_NUMBER, required(types, "inode", &["i_ino"])?, 8),
        (l::INODE_DEVICE, required(types, "inode", &["i_rdev"])?, 4),
    ];
    let state = [
        (l::INODE_SIZE, required(types, "inode", &["i_size"])?, 8),
        (l::INODE_MODIFIED, modified, 8),
        (l::INODE_MODIFIED_NANOS, modified_nanos, 4),
        (l::INODE_CHANGED, changed, 8),
        (l::INODE_CHANGED_NANOS, changed_nanos, 4),
    ];
    let inode = Copied { from: l::INODE_FROM, bytes: l::INODE_LONG_BYTES, max: l::INODE_MAX };
    inode.place(&mut layout, &[identity.as_slice(), &state].concat())?;
    // The short copy begins at the same place and ends with the identity.
    let end = identity.iter().map(|(_, at, size)| at + size).max().unwrap_or_default();
    layout[l::INODE_BYTES] =
        (end - layout[l::INODE_FROM]).next_multiple_of(8).min(layout[l::INODE_LONG_BYTES]);

    let socket = Copied { from: l::SOCKET_FROM, bytes: l::SOCKET_BYTES, max: l::SOCKET_MAX };
    socket.place(
        &mut layout,
        &[
            (l::SOCKET_TYPE, required(types, "socket", &["type"])?, 2),
            (l::SOCKET_SOCK, required(types, "socket", &["sk"])?, 8),
        ],
    )?;
    let sock = Copied { from: l::SOCK_FROM, bytes: l::SOCK_BYTES, max: l::SOCK_MAX };
    let common = |member: &str| required(types, "sock_common", &[member]);
    let v6 = |member: &str| types.offset("sock_common", member).unwrap_or(MISSING);
    sock.place(
        &mut layout,
        &[
            (l::SOCK_FAMILY, common("skc_family")?, 2),
            (l::SOCK_PORT, common("skc_num")?, 2),
            (l::SOCK_PEER_PORT, common("skc_dport")?, 2),
            (l::SOCK_V4, common("skc_rcv_saddr")?, 4),
            (l::SOCK_PEER_V4, common("skc_daddr")?, 4),
            (l::SOCK_V6, v6("skc_v6_rcv_saddr"), 16),
            (l::SOCK_PEER_V6, v6("skc_v6_daddr"), 16),
        ],
    )?;
    Ok(layout)
}

/// The first of several names under which kernels know a member.
fn required(types: &Types<'_>, structure: &str, names: &[&str]) -> Result<u32, Unknown> {
    names
        .iter()
        .find_map(|name| types.offset(structure, name))
        .ok_or_else(|| Unknown(format!("{structure}.{}", names.first().copied().unwrap_or_default())))
}

/// A structure of which one piece is copied.
struct Copied {
    from: usize,
    bytes: usize,
    max: usize,
}

impl Copied {
    /// Finds the piece that holds all members (place, offset, size), and their places within.
    fn place(&self, layout: &mut [u32; COUNT], members: &[(usize, u32, u32)]) -> Result<(), Unknown> {
        let present = || members.iter().filter(|(_, at, _)| *at != MISSING);
        let from = present().map(|(_, at, _)| *at).min().unwrap_or_default() & !7;
        let end = present().map(|(_, at, size)| at.saturating_add(*size)).max().unwrap_or_default();
        let bytes = (end - from).next_multiple_of(8);
        if bytes as usize > self.max {
            return Err(Unknown(format!("a structure whose members lie {bytes} bytes apart")));
        }
        (layout[self.from], layout[self.bytes]) = (from, bytes);
        for (place, at, _) in members {
            layout[*place] = if *at == MISSING { MISSING } else { at - from };
        }
        Ok(())
    }
}
