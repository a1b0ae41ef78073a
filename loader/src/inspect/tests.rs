//! Looking at real processes: children of the test, and the test itself.

use super::*;
use crate::process::{Descriptor, FileKind};
use std::io::{BufRead, BufReader, Read, Seek, SeekFrom, Write};
use std::process::{Child, Command, Stdio};

/// A child that lives until the test ends it.
struct Sleeper(Child);

impl Sleeper {
    fn start() -> Self {
        Self(Command::new("sleep").arg("600").env("KVPROV_TEST", "a value").spawn().unwrap())
    }

    fn id(&self) -> ProcessId {
        identify(self.0.id()).unwrap()
    }
}

impl Drop for Sleeper {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn own() -> OpenProcess {
    OpenProcess::open(identify(std::process::id()).unwrap()).unwrap()
}

fn bytes(path: &std::path::Path) -> &[u8] {
    path.as_os_str().as_encoded_bytes()
}

fn all_descriptors(process: &OpenProcess, most: usize, budget: usize) -> Vec<Descriptor> {
    let mut all = Vec::new();
    let mut from = Some(0);
    while let Some(next) = from {
        let page = process.descriptors(next, most, budget).unwrap();
        all.extend(page.items);
        from = page.next.map(|next| u32::try_from(next).unwrap());
    }
    all
}

#[test]
fn a_name_may_hold_parentheses_and_blanks() {
    let stat = b"77 (a) S 9 (b)) R 1 77 77 0 -1 4194304 1 2 3 4 5 6 7 8 20 0 1 0 4711 0 0";
    assert_eq!(start_of_stat(stat), Some(4711));
    assert_eq!(start_of_stat(b"77 (a) R 1 2"), None);
    assert_eq!(start_of_stat(b""), None);
    assert_eq!(start_of_stat(b")"), None);
}

#[test]
fn a_child_is_listed_with_its_start_time() {
    let child = Sleeper::start();
    let page = processes(0, usize::MAX).unwrap();
    assert_eq!(page.next, None);
    assert!(page.items.contains(&child.id()));
}

#[test]
fn processes_come_in_pages() {
    let mut all = Vec::new();
    let mut after = Some(0);
    while let Some(from) = after {
        let page = processes(u32::try_from(from).unwrap(), 7).unwrap();
        assert!(page.items.len() <= 7);
        all.extend(page.items);
        after = page.next;
    }
    assert!(all.is_sorted());
    assert!(all.contains(&own().id()));
}

#[test]
fn a_pid_of_another_start_time_is_gone() {
    let child = Sleeper::start();
    let id = child.id();
    assert!(OpenProcess::open(id).is_ok());
    let earlier = ProcessId { started: id.started - 1, ..id };
    assert_eq!(OpenProcess::open(earlier).unwrap_err(), Failure::Gone);
}

#[test]
fn a_process_that_ends_while_it_is_held_is_gone() {
    let mut child = Sleeper::start();
    let process = OpenProcess::open(child.id()).unwrap();
    child.0.kill().unwrap();
    child.0.wait().unwrap();
    assert_eq!(process.file(ProcFile::Environ).unwrap_err(), Failure::Gone);
    assert_eq!(process.link(Link::Cwd).unwrap_err(), Failure::Gone);
    assert_eq!(process.descriptors(0, usize::MAX, 1000).unwrap_err(), Failure::Gone);
    assert_eq!(process.open_path(b"/etc/passwd").unwrap_err(), Failure::Gone);
    assert_eq!(process.open_descriptor(0).unwrap_err(), Failure::Gone);
    assert_eq!(identify(child.0.id()).unwrap_err(), Failure::Gone);
}

#[test]
fn a_corpse_that_nobody_buried_is_gone() {
    let mut child = Sleeper::start();
    let id = child.id();
    let process = OpenProcess::open(id).unwrap();
    child.0.kill().unwrap();
    // Waits for its end without burying it.
    rustix::process::waitid(
        rustix::process::WaitId::Pid(rustix::process::Pid::from_child(&child.0)),
        rustix::process::WaitIdOptions::EXITED | rustix::process::WaitIdOptions::NOWAIT,
    )
    .unwrap();
    assert_eq!(process.link(Link::Exe).unwrap_err(), Failure::Gone);
    assert_eq!(OpenProcess::open(id).unwrap_err(), Failure::Gone);
}

#[test]
fn the_files_of_a_child_can_be_read() {
    let child = Sleeper::start();
    let process = OpenProcess::open(child.id()).unwrap();
    let read = |file| read_at_most(process.file(file).unwrap(), 1 << 20).unwrap().0;
    // Between fork and exec a child shows its parent's.
    while !read(ProcFile::Cmdline).starts_with(b"sleep\x00600\0") {
        std::thread::yield_now();
    }
    assert!(read(ProcFile::Environ).split(|byte| *byte == 0).any(|entry| entry == b"KVPROV_TEST=a value"));
    for file in ProcFile::ALL {
        // Without IPv6 there is neither.
        if !matches!(file, ProcFile::Tcp6 | ProcFile::IfInet6) {
            assert!(!read(file).is_empty(), "{file:?}");
        }
    }
    for link in Link::ALL {
        assert!(!process.link(link).unwrap().is_empty(), "{link:?}");
    }
}

#[test]
fn a_long_text_is_cut_and_says_so() {
    let text = std::io::Cursor::new(vec![b'x'; 100_000]);
    let mut file = tempfile::tempfile().unwrap();
    file.write_all(text.get_ref()).unwrap();
    file.rewind().unwrap();
    let (bytes, complete) = read_at_most(&file, 60_000).unwrap();
    assert_eq!((bytes.len(), complete), (60_000, false));
}

#[test]
fn descriptors_tell_file_flags_and_position() {
    let mut file = tempfile::NamedTempFile::new().unwrap();
    file.write_all(b"twelve bytes").unwrap();
    file.seek(SeekFrom::Start(5)).unwrap();
    let fd = u32::try_from(rustix::fd::AsRawFd::as_raw_fd(file.as_file())).unwrap();
    let found = own().descriptors(fd, 1, usize::MAX).unwrap().items.remove(0);
    let stat = own().stat_path(bytes(file.path()), false).unwrap();
    assert_eq!(found.fd, fd);
    assert_eq!(found.target, bytes(file.path()));
    assert_eq!((found.device, found.inode, found.kind), (stat.device, stat.inode, FileKind::Regular));
    assert_eq!((found.position, found.mount), (5, stat.mount));
    assert_eq!(OFlags::from_bits_retain(found.flags) & OFlags::RWMODE, OFlags::RDWR);
}

#[test]
fn a_thousand_descriptors_come_in_pages() {
    let directory = tempfile::tempdir().unwrap();
    let files: Vec<std::fs::File> = (0..900)
        .map(|number| std::fs::File::create(directory.path().join(format!("{number}"))).unwrap())
        .collect();
    let in_directory = |all: Vec<Descriptor>| {
        all.into_iter().filter(|found| found.target.starts_with(bytes(directory.path()))).count()
    };
    assert_eq!(in_directory(all_descriptors(&own(), usize::MAX, 2000)), files.len());
    assert_eq!(in_directory(all_descriptors(&own(), 13, usize::MAX)), files.len());
}

#[test]
fn a_file_is_opened_for_reading_only() {
    let mut file = tempfile::NamedTempFile::new().unwrap();
    file.write_all(b"content").unwrap();
    let (opened, stat) = own().open_path(bytes(file.path())).unwrap();
    let mut opened = std::fs::File::from(opened);
    let mut text = String::new();
    opened.read_to_string(&mut text).unwrap();
    assert_eq!((text.as_str(), stat.size, stat.kind), ("content", 7, FileKind::Regular));
    assert!(opened.write_all(b"x").is_err());
}

#[test]
fn a_deleted_file_is_reached_by_its_descriptor() {
    let mut file = tempfile::NamedTempFile::new().unwrap();
    file.write_all(b"still here").unwrap();
    let held = file.reopen().unwrap();
    let path = file.path().to_owned();
    drop(file);
    assert_eq!(own().open_path(bytes(&path)).unwrap_err(), Failure::NotFound);
    let fd = u32::try_from(rustix::fd::AsRawFd::as_raw_fd(&held)).unwrap();
    let (opened, _) = own().open_descriptor(fd).unwrap();
    assert_eq!(read_at_most(opened, 100).unwrap().0, b"still here");
}

#[test]
fn pipes_devices_sockets_and_made_up_files_are_never_opened() {
    let directory = tempfile::tempdir().unwrap();
    let pipe = directory.path().join("pipe");
    rustix::fs::mknodat(CWD, &pipe, rustix::fs::FileType::Fifo, Mode::from_raw_mode(0o600), 0).unwrap();
    let socket = directory.path().join("socket");
    let _listener = std::os::unix::net::UnixListener::bind(&socket).unwrap();
    for path in [
        bytes(&pipe),
        bytes(&socket),
        bytes(directory.path()),
        b"/dev/null",
        b"/dev/zero",
        b"/proc/self/mem",
        b"/proc/1/environ",
        b"/proc/kcore",
        b"/sys/kernel/notes",
    ] {
        let shown = String::from_utf8_lossy(path);
        let failure = own().open_path(path).unwrap_err();
        assert!(matches!(failure, Failure::NotRegular | Failure::NotFound), "{shown}: {failure:?}");
    }
    assert_eq!(own().open_path(b"/dev/null").unwrap_err(), Failure::NotRegular);
    assert_eq!(own().open_path(b"/proc/self/status").unwrap_err(), Failure::NotRegular);
    assert_eq!(own().open_path(b"/proc/self/cwd/Cargo.toml").unwrap_err(), Failure::NotRegular);
    assert_eq!(own().open_directory(b"/proc").unwrap_err(), Failure::NotRegular);
}

#[test]
fn a_descriptor_of_a_pipe_is_not_opened() {
    let (read, _write) = std::io::pipe().unwrap();
    let fd = u32::try_from(rustix::fd::AsRawFd::as_raw_fd(&read)).unwrap();
    assert_eq!(own().open_descriptor(fd).unwrap_err(), Failure::NotRegular);
    assert_eq!(own().open_descriptor(1_000_000).unwrap_err(), Failure::NotFound);
}

#[test]
fn paths_have_to_be_absolute_and_short() {
    let long = [b"/".as_slice(), &[b'x'; 5000]].concat();
    for path in [b"".as_slice(), b"etc/passwd", b"/etc\0/passwd", long.as_slice()] {
        assert_eq!(own().open_path(path).unwrap_err(), Failure::Malformed);
        assert_eq!(own().stat_path(path, true).unwrap_err(), Failure::Malformed);
    }
    let name = [b"/".as_slice(), &[b'x'; 300]].concat();
    assert_eq!(own().open_path(&name).unwrap_err(), Failure::Os(Errno::NAMETOOLONG.raw_os_error()));
}

#[test]
fn a_link_is_followed_where_asked() {
    let directory = tempfile::tempdir().unwrap();
    let target = directory.path().join("target");
    std::fs::write(&target, b"four").unwrap();
    let link = directory.path().join("link");
    std::os::unix::fs::symlink(&target, &link).unwrap();
    assert_eq!(own().stat_path(bytes(&link), false).unwrap().kind, FileKind::Symlink);
    assert_eq!(own().stat_path(bytes(&link), true).unwrap().size, 4);
    assert_eq!(own().open_path(bytes(&link)).unwrap().1.size, 4);
}

#[test]
fn names_of_a_directory_may_hold_any_byte() {
    use std::os::unix::ffi::OsStrExt;
    let directory = tempfile::tempdir().unwrap();
    let name = b"new\nline \xff";
    std::fs::write(directory.path().join(std::ffi::OsStr::from_bytes(name)), b"").unwrap();
    let listing = list(own().open_directory(bytes(directory.path())).unwrap()).unwrap();
    assert!(listing.complete);
    assert_eq!(listing.entries.len(), 1);
    assert_eq!(
        (listing.entries[0].name.as_slice(), listing.entries[0].kind),
        (name.as_slice(), FileKind::Regular)
    );
}

/// A process that changed its root, where the test may do that.
fn in_another_root(root: &std::path::Path) -> Option<(Child, ProcessId)> {
    let script = "chroot($ARGV[0]) or exit 1; chdir('/'); $| = 1; print \"ready\\n\"; sleep 600";
    let mut child =
        Command::new("perl").args(["-e", script]).arg(root).stdout(Stdio::piped()).spawn().ok()?;
    let mut line = String::new();
    BufReader::new(child.stdout.take()?).read_line(&mut line).ok()?;
    if line != "ready\n" {
        let _ = child.wait();
        return None;
    }
    let id = identify(child.id()).ok()?;
    Some((child, id))
}

#[test]
fn links_and_dots_do_not_lead_out_of_a_process_root() {
    let root = tempfile::tempdir().unwrap();
    std::fs::create_dir(root.path().join("etc")).unwrap();
    std::fs::write(root.path().join("etc/passwd"), b"inside").unwrap();
    std::os::unix::fs::symlink("/etc/passwd", root.path().join("absolute")).unwrap();
    std::os::unix::fs::symlink("../../../../../etc/passwd", root.path().join("etc/dots")).unwrap();
    let Some((mut child, id)) = in_another_root(root.path()) else {
        return; // Only root may change a root.
    };
    let process = OpenProcess::open(id).unwrap();
    for path in ["/etc/passwd", "/absolute", "/etc/dots", "/../../etc/passwd"] {
        let (file, _) = process.open_path(path.as_bytes()).unwrap();
        assert_eq!(read_at_most(file, 100).unwrap().0, b"inside", "{path}");
    }
    child.kill().unwrap();
    child.wait().unwrap();
}
