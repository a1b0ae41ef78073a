//! A server and a client on a real socket.

use super::*;
use crate::client::{Client, ClientError};
use crate::process::{Link, ProcFile};
use crate::protocol::{KernelCounter, KernelCounters, Problem};
use rustix::fd::BorrowedFd;
use rustix::net::{RecvFlags, SendFlags};
use std::io::Read;
use std::process::{Command, Stdio};
use std::sync::mpsc::{Receiver, Sender};
use std::time::Duration;

/// Programs that tell the test what they are told.
#[derive(Debug)]
struct Recorder {
    told: Sender<String>,
    ring: OwnedFd,
}

impl KernelPrograms for Recorder {
    fn ring(&self) -> Option<(BorrowedFd<'_>, u32)> {
        Some((self.ring.as_fd(), 4096))
    }

    fn watch(&mut self, tgid: u32, flags: u32) -> Result<(), String> {
        if flags == 99 {
            return Err("flags 99 are not for this kernel".into());
        }
        self.told.send(format!("watch {tgid} {flags}")).map_err(|error| error.to_string())
    }

    fn unwatch(&mut self, tgid: u32) -> Result<(), String> {
        self.told.send(format!("unwatch {tgid}")).map_err(|error| error.to_string())
    }

    fn counters(&mut self) -> KernelCounters {
        let opens = KernelCounter { kind: 1, fired: 3, filtered: 1, delivered: 1, dropped: 1, unreadable: 0 };
        KernelCounters { by_kind: vec![opens], unfollowed: 2 }
    }

    fn programs(&mut self) -> Vec<ProgramStatus> {
        let problem = |number: usize| {
            number.is_multiple_of(2).then(|| Problem { reason: "x".repeat(900), lost: "opened files".into() })
        };
        (0..200)
            .map(|number| ProgramStatus {
                name: format!("program {number}"),
                problem: problem(number),
                run_time_ns: Some(number as u64),
                run_count: Some(1),
                missed: None,
            })
            .collect()
    }

    fn lost(&self) -> Vec<String> {
        vec!["no sockets".into()]
    }
}

/// A server in a thread, its programs' ear, and a client.
fn start() -> (Client, Receiver<String>, std::thread::JoinHandle<Served>) {
    let (told, heard) = std::sync::mpsc::channel();
    let ring = rustix::fs::memfd_create("ring", rustix::fs::MemfdFlags::CLOEXEC).unwrap();
    let server = Server::new(Box::new(Recorder { told, ring })).unwrap();
    let (ours, theirs) = channel::pair().unwrap();
    let thread = std::thread::spawn(move || server.serve(ours).unwrap());
    (Client::new(theirs).unwrap(), heard, thread)
}

fn own() -> ProcessId {
    inspect::identify(std::process::id()).unwrap()
}

#[test]
fn a_greeting_brings_the_ring_and_what_is_lost() {
    let (client, _heard, _) = start();
    let (hello, ring) = client.hello().unwrap();
    assert_eq!((hello.version, hello.ring_bytes, hello.lost), (VERSION, 4096, vec!["no sockets".to_owned()]));
    assert!(rustix::fs::fcntl_get_seals(ring.unwrap()).is_ok(), "the descriptor is the file in memory");
}

#[test]
fn without_kernel_programs_proc_is_served_and_watching_says_why_not() {
    let reasons = vec!["the kernel has no BTF".to_owned()];
    let server = Server::new(Box::new(NoKernel { reasons: reasons.clone() })).unwrap();
    let (ours, theirs) = channel::pair().unwrap();
    std::thread::spawn(move || server.serve(ours));
    let client = Client::new(theirs).unwrap();
    let (hello, ring) = client.hello().unwrap();
    assert_eq!((hello.ring_bytes, hello.lost), (0, reasons));
    assert!(ring.is_none());
    assert_eq!(client.watch(own(), 1), Err(ClientError::Kernel("the kernel has no BTF".into())));
    assert!(client.proc_file(own(), ProcFile::Environ).is_ok());
}

#[test]
fn watching_goes_to_the_programs_once_and_is_remembered() {
    let (client, heard, _) = start();
    client.watch(own(), 5).unwrap();
    assert_eq!(heard.recv().unwrap(), format!("watch {} 5", own().pid));
    assert_eq!(client.watched().unwrap(), vec![own()]);
    client.unwatch(own()).unwrap();
    assert_eq!(heard.recv().unwrap(), format!("unwatch {}", own().pid));
    assert_eq!(client.watched().unwrap(), vec![]);
    client.unwatch(own()).unwrap();
    assert!(heard.try_recv().is_err(), "not told twice");
}

#[test]
fn a_reused_pid_is_neither_watched_nor_unwatched() {
    let (client, heard, _) = start();
    let earlier = ProcessId { started: own().started - 1, ..own() };
    assert_eq!(client.watch(earlier, 5), Err(ClientError::Refused(Failure::Gone)));
    client.watch(own(), 5).unwrap();
    client.unwatch(earlier).unwrap();
    assert_eq!(heard.recv().unwrap(), format!("watch {} 5", own().pid));
    assert!(heard.try_recv().is_err());
    assert_eq!(client.watched().unwrap(), vec![own()]);
}

#[test]
fn a_refusal_of_the_programs_comes_with_its_reason() {
    let (client, _heard, _) = start();
    assert_eq!(client.watch(own(), 99), Err(ClientError::Kernel("flags 99 are not for this kernel".into())));
    assert_eq!(client.watched().unwrap(), vec![]);
}

#[test]
fn counters_and_all_pages_of_programs_come_over() {
    let (client, _heard, _) = start();
    assert_eq!(client.counters().unwrap().by_kind[0].fired, 3);
    let programs = client.programs().unwrap();
    assert_eq!(programs.len(), 200);
    assert_eq!(programs[199].name, "program 199");
}

#[test]
fn processes_files_links_and_descriptors_come_over() {
    let (client, _heard, _) = start();
    assert!(client.processes().unwrap().contains(&own()));
    assert_eq!(client.identify(own().pid), Ok(own()));
    let maps = client.proc_file(own(), ProcFile::Maps).unwrap();
    assert!(inspect::read_at_most(maps, 1 << 20).unwrap().0.len() > 100);
    let exe = std::env::current_exe().unwrap();
    assert_eq!(client.link(own(), Link::Exe).unwrap(), exe.as_os_str().as_encoded_bytes());
    let page = client.descriptors(own(), 0, 1).unwrap();
    assert_eq!((page.items.len(), page.items[0].fd), (1, 0));
    assert!(page.next.is_some());
}

#[test]
fn files_and_directories_come_over_as_descriptors() {
    let (client, _heard, _) = start();
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("a file");
    std::fs::write(&path, b"content").unwrap();
    let bytes = path.as_os_str().as_encoded_bytes();
    let (file, stat) = client.open_path(own(), bytes).unwrap();
    let mut text = String::new();
    std::fs::File::from(file).read_to_string(&mut text).unwrap();
    assert_eq!((text.as_str(), stat.size), ("content", 7));
    assert_eq!(client.stat_path(own(), bytes, true).unwrap(), stat);
    let listed = client.open_directory(own(), directory.path().as_os_str().as_encoded_bytes()).unwrap();
    assert_eq!(inspect::list(listed).unwrap().entries[0].name, b"a file");
    assert_eq!(
        client.open_path(own(), b"/nowhere").map(|_| ()),
        Err(ClientError::Refused(Failure::NotFound))
    );
}

#[test]
fn a_malformed_request_is_answered_and_the_next_one_too() {
    let (told, _heard) = std::sync::mpsc::channel();
    let ring = rustix::fs::memfd_create("ring", rustix::fs::MemfdFlags::CLOEXEC).unwrap();
    let server = Server::new(Box::new(Recorder { told, ring })).unwrap();
    let (ours, theirs) = channel::pair().unwrap();
    let thread = std::thread::spawn(move || server.serve(ours).unwrap());
    let answer = |message: &[u8]| {
        rustix::net::send(&theirs, message, SendFlags::NOSIGNAL).unwrap();
        Answer::decode(&channel::receive(&theirs, true).unwrap().unwrap().bytes).unwrap()
    };
    let malformed = Answer::Failed(Failure::Malformed);
    assert_eq!(answer(b"x"), (0, malformed.clone()));
    assert_eq!(answer(&[7, 0, 0, 0, 200]), (7, malformed.clone()));
    let big = vec![1; 2 * MESSAGE_MAX];
    assert_eq!(answer(&big), (0x0101_0101, malformed));
    assert_eq!(answer(&Request::Identify { pid: own().pid }.encode(9)), (9, Answer::Identity(own())));
    drop(theirs);
    assert_eq!(thread.join().unwrap(), Served { answered: 1, malformed: 3 });
}

#[test]
fn a_descriptor_that_an_agent_sends_is_closed_unseen() {
    let server = Server::new(Box::new(NoKernel::default())).unwrap();
    let (ours, theirs) = channel::pair().unwrap();
    std::thread::spawn(move || server.serve(ours));
    let (mut read, write) = std::io::pipe().unwrap();
    channel::send(&theirs, &Request::Counters.encode(1), Some(write.as_fd())).unwrap();
    drop(write);
    assert!(channel::receive(&theirs, true).unwrap().is_some());
    let mut rest = Vec::new();
    read.read_to_end(&mut rest).unwrap();
    assert_eq!(rest, b"", "nobody holds the other end");
}

#[test]
fn an_agent_that_dies_ends_only_its_own_connection() {
    let server = Arc::new(Server::new(Box::new(NoKernel::default())).unwrap());
    for _ in 0..3 {
        let (ours, theirs) = channel::pair().unwrap();
        // A child that has the socket and is killed with a question on its way.
        channel::send(&theirs, &Request::Processes { after: 0 }.encode(1), None).unwrap();
        let mut child = Command::new("sleep").arg("600").stdin(Stdio::from(theirs)).spawn().unwrap();
        let serving = Arc::clone(&server);
        let thread = std::thread::spawn(move || serving.serve(ours));
        child.kill().unwrap();
        child.wait().unwrap();
        assert!(thread.join().unwrap().is_ok_and(|served| served.answered == 1));
    }
}

#[test]
fn when_the_loader_goes_every_question_fails_at_once() {
    let (ours, theirs) = channel::pair().unwrap();
    let client = Arc::new(Client::new(theirs).unwrap());
    let askers: Vec<_> = (0..4)
        .map(|_| {
            let client = Arc::clone(&client);
            std::thread::spawn(move || client.counters())
        })
        .collect();
    for _ in 0..4 {
        channel::receive(&ours, false).unwrap().unwrap();
    }
    drop(ours);
    for asker in askers {
        assert_eq!(asker.join().unwrap(), Err(ClientError::LoaderGone));
    }
    assert!(client.is_gone());
    assert_eq!(client.counters(), Err(ClientError::LoaderGone));
}

#[test]
fn a_loader_that_does_not_answer_costs_no_more_than_the_timeout() {
    let (ours, theirs) = channel::pair().unwrap();
    let timeout = Duration::from_millis(50);
    let client = Client::with_timeout(theirs, timeout).unwrap();
    assert_eq!(client.counters(), Err(ClientError::Timeout(timeout)));
    // The late answer is not taken for that of the next question.
    let late = Request::decode(&channel::receive(&ours, false).unwrap().unwrap().bytes).0.unwrap();
    channel::send(&ours, &Answer::Done.encode(late), None).unwrap();
    let answering = std::thread::spawn(move || {
        let number = Request::decode(&channel::receive(&ours, false).unwrap().unwrap().bytes).0.unwrap();
        channel::send(&ours, &Answer::Counters(KernelCounters::default()).encode(number), None).unwrap();
        ours
    });
    assert_eq!(client.counters(), Ok(KernelCounters::default()));
    drop(answering.join().unwrap());
}

#[test]
fn a_loader_that_talks_nonsense_counts_as_gone() {
    let (ours, theirs) = channel::pair().unwrap();
    let client = Client::new(theirs).unwrap();
    channel::send(&ours, b"nonsense", None).unwrap();
    assert_eq!(client.counters(), Err(ClientError::LoaderGone));
}

#[test]
fn a_socket_of_another_kind_is_no_loader() {
    let (one, _other) = std::os::unix::net::UnixStream::pair().unwrap();
    assert!(matches!(Client::new(one.into()), Err(ClientError::Socket(_))));
    let file = tempfile::tempfile().unwrap();
    assert!(matches!(Client::new(file.into()), Err(ClientError::Socket(_))));
}

#[test]
fn many_threads_ask_at_once_and_each_gets_its_own_answer() {
    let (client, _heard, _) = start();
    let client = &client;
    std::thread::scope(|scope| {
        for _ in 0..8 {
            scope.spawn(move || {
                for pid in [own().pid, 1, own().pid] {
                    assert_eq!(client.identify(pid).unwrap().pid, pid);
                    assert_eq!(client.link(own(), Link::Root).unwrap(), b"/");
                }
            });
        }
    });
}

#[test]
fn a_greeting_of_another_version_is_told() {
    let (ours, theirs) = channel::pair().unwrap();
    let client = Client::new(theirs).unwrap();
    let answering = std::thread::spawn(move || {
        let number = Request::decode(&channel::receive(&ours, false).unwrap().unwrap().bytes).0.unwrap();
        let hello = Hello { version: 77, ring_bytes: 0, capabilities: 0, lost: vec![] };
        channel::send(&ours, &Answer::Hello(hello).encode(number), None).unwrap();
        let mut end = [0];
        let _ = rustix::net::recv(&ours, &mut end, RecvFlags::empty());
    });
    assert_eq!(client.hello().map(|_| ()), Err(ClientError::Version { theirs: 77 }));
    drop(client);
    answering.join().unwrap();
}
