//! What a process has after it gave up privileges.

use crate::{Test, in_role, is_root};
use kvprov_loader::privileges::{PrivilegeError, Status, drop_all, restrict};
use rustix::io::Errno;
use rustix::thread::{CapabilitySet, CapabilitySets};
use std::os::unix::process::CommandExt;
use std::process::{Command, ExitCode};

pub(crate) const TESTS: &[Test] = &[
    ("a_process_that_drops_everything_has_nothing_and_gets_nothing", drops),
    ("a_process_of_an_ordinary_user_drops_too", an_ordinary_user_drops),
    ("a_restricted_process_has_what_it_keeps_and_its_children_have_nothing", restricts),
    ("with_a_second_thread_nothing_is_dropped_and_that_is_said", refuses_with_threads),
];

const NOBODY: u32 = 65_534;

fn drops() {
    passes(in_role("privileges").arg("drop"));
}

fn an_ordinary_user_drops() {
    if !is_root() {
        return; // It was one in the test before.
    }
    // It may not reach the place where this program was built.
    let place = tempfile::tempdir().unwrap();
    std::fs::set_permissions(place.path(), std::os::unix::fs::PermissionsExt::from_mode(0o755)).unwrap();
    let copy = place.path().join("test");
    std::fs::copy(std::env::current_exe().unwrap(), &copy).unwrap();
    let mut command = Command::new(&copy);
    passes(command.arg("drop").env(crate::ROLE, "privileges").current_dir("/").uid(NOBODY).gid(NOBODY));
}

fn restricts() {
    if is_root() {
        passes(in_role("privileges").arg("restrict"));
    }
}

fn refuses_with_threads() {
    passes(in_role("privileges").arg("threads"));
}

fn passes(command: &mut Command) {
    assert!(command.status().unwrap().success(), "{command:?}");
}

/// What the processes do; a panic fails the test that started them.
pub(crate) fn role(role: &str) -> ExitCode {
    match role {
        "drop" => {
            let could_empty = Status::own().unwrap().effective & CapabilitySet::SETPCAP.bits() != 0;
            let status = drop_all().unwrap();
            nothing(status);
            assert!(!could_empty || status.bounding == 0);
            assert_eq!(drop_all().unwrap(), status, "a second time changes nothing");
            nothing(of_a_child());
            let wish = CapabilitySet::BPF;
            let sets =
                CapabilitySets { effective: wish, permitted: wish, inheritable: CapabilitySet::empty() };
            assert_eq!(rustix::thread::set_capabilities(None, sets), Err(Errno::PERM));
            if is_root() {
                let file = tempfile::NamedTempFile::new().unwrap();
                let given = rustix::fs::chown(file.path(), Some(rustix::fs::Uid::from_raw(1)), None);
                assert_eq!(given, Err(Errno::PERM), "root without capabilities gives no file away");
            }
        }
        "restrict" => {
            let keep = CapabilitySet::BPF | CapabilitySet::SYS_PTRACE;
            let status = restrict(keep | CapabilitySet::from_bits_retain(1 << 62)).unwrap();
            assert_eq!((status.effective, status.permitted), (keep.bits(), keep.bits()));
            assert_eq!((status.inheritable, status.ambient, status.bounding), (0, 0, 0));
            nothing(of_a_child());
        }
        "threads" => {
            let (hold, held) = std::sync::mpsc::channel::<()>();
            let thread = std::thread::spawn(move || held.recv());
            assert!(matches!(drop_all(), Err(PrivilegeError::Threads(2))));
            drop(hold);
            assert!(thread.join().unwrap().is_err());
        }
        other => panic!("no role {other}"),
    }
    ExitCode::SUCCESS
}

fn nothing(status: Status) {
    assert_eq!((status.effective, status.permitted, status.inheritable, status.ambient), (0, 0, 0, 0));
    assert!(status.no_new_privs);
}

/// What a program has that this process starts.
fn of_a_child() -> Status {
    let text = Command::new("cat").arg("/proc/self/status").output().unwrap().stdout;
    Status::parse(&String::from_utf8(text).unwrap()).unwrap()
}
