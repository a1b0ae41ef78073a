//! What an agent sees: as the owner of a process, as somebody else, with and without a loader.

use super::fake::{Fake, FakeProcess};
use super::*;
use kvprov_loader::abilities::hides_processes;
use kvprov_loader::client::Client;
use kvprov_loader::server::{NoKernel, Server};
use rustix::fd::OwnedFd;
use std::io::Read;
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;

/// The user of the tests that have no rights.
const NOBODY: u32 = 65_534;
/// Tells the test below that it is the process without rights, and whom to look at.
const WHOM: &str = "KVPROV_TEST_ACCESS_PID";
/// And at which file.
const FILE: &str = "KVPROV_TEST_ACCESS_FILE";

/// A child that lives until the test ends it.
struct Sleeper(Child);

impl Sleeper {
    fn start() -> Self {
        Self(Command::new("sleep").arg("600").env("KVPROV_TEST", "a value").spawn().unwrap())
    }
}

impl Drop for Sleeper {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn loader() -> OwnedFd {
    let server = Server::new(Box::new(NoKernel::default())).unwrap();
    let (ours, theirs) = kvprov_loader::channel::pair().unwrap();
    std::thread::spawn(move || server.serve(ours));
    theirs
}

fn text((mut file, _): (File, FileStat)) -> String {
    let mut text = String::new();
    file.read_to_string(&mut text).unwrap();
    text
}

#[test]
fn an_agent_sees_the_processes_of_its_own_user_without_a_loader() {
    let child = Sleeper::start();
    let access = Access::new(None);
    let process = access.identify(child.0.id()).unwrap();
    assert!(access.pids().unwrap().contains(&process));
    while !access.cmdline(process).unwrap().starts_with(b"sleep\0") {
        std::thread::yield_now();
    }
    let environment = access.environ(process).unwrap();
    assert!(environment.split(|byte| *byte == 0).any(|entry| entry == b"KVPROV_TEST=a value"));
    let directory = std::env::current_dir().unwrap();
    assert_eq!(access.link(process, Link::Cwd).unwrap(), directory.as_os_str().as_encoded_bytes());
    assert_eq!(access.descriptor(process, 0).unwrap().fd, 0);
    assert_eq!(access.descriptor(process, 900), Err(AccessError::NotFound));
    assert!(!access.has_loader());
    assert_eq!(access.cut(), 0);
}

#[test]
fn a_process_that_is_no_more_is_gone() {
    let child = Sleeper::start();
    let access = Access::new(None);
    let process = access.identify(child.0.id()).unwrap();
    drop(child);
    assert_eq!(access.environ(process), Err(AccessError::Gone));
    assert_eq!(access.open_file_of(process, b"/etc/passwd").map(|_| ()), Err(AccessError::Gone));
    assert_eq!(access.identify(process.pid), Err(AccessError::Gone));
}

/// Runs this test executable again as another user, who may not reach the place where it was built.
fn as_nobody(whom: u32, file: &std::path::Path, socket: Option<OwnedFd>) -> bool {
    let place = tempfile::tempdir().unwrap();
    std::fs::set_permissions(place.path(), std::os::unix::fs::PermissionsExt::from_mode(0o755)).unwrap();
    let copy = place.path().join("test");
    std::fs::copy(std::env::current_exe().unwrap(), &copy).unwrap();
    Command::new(&copy)
        .args(["--exact", "access::tests::somebody_without_rights", "--quiet"])
        .env(WHOM, whom.to_string())
        .env(FILE, file)
        .current_dir("/")
        .stdin(socket.map_or_else(Stdio::null, Stdio::from))
        .uid(NOBODY)
        .gid(NOBODY)
        .status()
        .unwrap()
        .success()
}

#[test]
fn an_agent_without_rights_sees_through_the_loader_and_is_refused_without() {
    if !rustix::process::geteuid().is_root() {
        return; // Only root may become somebody else.
    }
    let child = Sleeper::start();
    let secret = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(secret.path(), "for root alone").unwrap();
    assert!(as_nobody(child.0.id(), secret.path(), None), "without a loader");
    assert!(as_nobody(child.0.id(), secret.path(), Some(loader())), "with a loader");
}

/// Does nothing unless the test above starts it as another user.
#[test]
fn somebody_without_rights() {
    let (Ok(whom), Ok(path)) = (std::env::var(WHOM), std::env::var(FILE)) else { return };
    assert_eq!(rustix::process::geteuid().as_raw(), NOBODY);
    let client = Client::from_stdin().map(Arc::new);
    let access = Access::new(client.clone());
    let process = access.identify(whom.parse().unwrap()).unwrap();
    let directory = std::path::Path::new(&path).parent().unwrap().as_os_str().as_encoded_bytes();
    assert!(!access.stat(process).unwrap().is_empty(), "everybody may read the times");
    let environ = access.environ(process);
    let maps = access.maps(process);
    let cwd = access.link(process, Link::Cwd);
    let descriptors = access.descriptors(process, 0, 0);
    let file = access.open_file_of(process, path.as_bytes()).map(text);
    let listing = access.list_dir_of(process, directory);
    if client.is_some() {
        assert!(environ.unwrap().windows(7).any(|part| part == b"a value"));
        assert!(!maps.unwrap().is_empty());
        assert!(cwd.unwrap().starts_with(b"/"));
        assert_eq!(descriptors.unwrap().items[0].fd, 0);
        assert_eq!(file.unwrap(), "for root alone");
        assert!(listing.unwrap().entries.iter().any(|entry| path.as_bytes().ends_with(&entry.name)));
        assert!(access.stat_path_of(process, path.as_bytes(), true).is_ok());
        assert_eq!(access.open_file_of(process, b"/dev/null").map(text), Err(AccessError::NotRegular));
    } else {
        let refused = |error| matches!(error, AccessError::Refused { .. });
        assert!(environ.is_err_and(refused));
        assert!(maps.is_err_and(refused));
        assert!(cwd.is_err_and(refused));
        assert!(descriptors.is_err_and(refused));
        assert!(file.is_err_and(refused));
        let error = listing.unwrap_err().to_string();
        assert!(error.contains("list the directory") && error.contains("CAP_SYS_PTRACE"), "{error}");
        assert!(std::fs::read(&path).is_err());
    }
}

#[test]
fn when_the_loader_is_gone_own_rights_still_count() {
    let (ours, theirs) = kvprov_loader::channel::pair().unwrap();
    let client = Arc::new(Client::new(theirs).unwrap());
    drop(ours);
    let access = Access::new(Some(client));
    let own = access.identify(std::process::id()).unwrap();
    assert!(access.environ(own).is_ok());
}

#[test]
fn a_hiding_proc_is_noticed() {
    let line = |options: &str| format!("24 30 0:22 / /proc rw,nosuid shared:12 - proc proc rw{options}\n");
    assert!(hides_processes(&line(",hidepid=2")));
    assert!(hides_processes(&line(",gid=5,hidepid=invisible")));
    assert!(!hides_processes(&line("")));
    assert!(!hides_processes(&line(",hidepid=0")));
    assert!(!hides_processes(&line(",hidepid=off")));
    assert!(!hides_processes("24 30 0:22 / /other rw - proc proc rw,hidepid=2\n"));
    assert!(!hides_processes("garbage - \n - \n"));
}

#[test]
fn a_fake_machine_answers_like_a_real_one() {
    let process = FakeProcess::new(7, 70)
        .arguments(&["engine", "--flag"])
        .environment(&["A=1"])
        .leads(Link::Cwd, "/srv")
        .file("/models/a/weights", "abc")
        .file("/models/b", "d");
    let id = process.id();
    let fake = Fake::new([process, FakeProcess::new(8, 80).of_another_user()]);
    assert_eq!(fake.pids().unwrap().len(), 2);
    assert_eq!(fake.cmdline(id).unwrap(), b"engine\0--flag\0");
    assert_eq!(kvprov_loader::inspect::start_of_stat(&fake.stat(id).unwrap()), Some(70));
    assert_eq!(text(fake.open_file_of(id, b"/models/b").unwrap()), "d");
    let names: Vec<Vec<u8>> =
        fake.list_dir_of(id, b"/models").unwrap().entries.into_iter().map(|entry| entry.name).collect();
    assert_eq!(names, [b"a".to_vec(), b"b".to_vec()]);
    let other = fake.identify(8).unwrap();
    assert!(matches!(fake.environ(other), Err(AccessError::Refused { .. })));
    fake.end(7);
    assert_eq!(fake.cmdline(id), Err(AccessError::Gone));
    fake.put(FakeProcess::new(7, 71));
    assert_eq!(fake.cmdline(id), Err(AccessError::Gone), "another process of the same pid");
}
