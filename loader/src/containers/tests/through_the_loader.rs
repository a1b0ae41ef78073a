//! The question on its whole way: agent, loader, runtime, and back.

use super::*;
use crate::channel;
use crate::client::{Client, ClientError};
use crate::inspect;
use crate::server::{NoKernel, Server};

/// A loader that asks these runtimes, and the agent's end of its socket.
fn loader(runtimes: Runtimes) -> Client {
    let server = Server::new(Box::new(NoKernel::default())).unwrap().asking(runtimes);
    let (ours, theirs) = channel::pair().unwrap();
    std::thread::spawn(move || server.serve(ours));
    Client::new(theirs).unwrap()
}

#[test]
fn names_come_over() {
    let (_directory, runtime) = runtime(Says::Container(engine()));
    let names = loader(Runtimes::at(&runtime.path)).container(&id()).unwrap();
    assert_eq!(names.pod.as_deref(), Some("decode-0"));
    assert_eq!(names.image_digest, Some(digest()));
}

#[test]
fn a_reason_comes_over() {
    let client = loader(Runtimes::at("/nowhere/cri.sock"));
    let refused = client.container(&id());
    assert!(
        matches!(&refused, Err(ClientError::NotTold(NotTold::NoRuntime(why))) if why.contains("/nowhere"))
    );
    let (_directory, runtime) = runtime(Says::Refuses(Code::NotFound, String::new()));
    let refused = loader(Runtimes::at(&runtime.path)).container(&id());
    assert!(matches!(refused, Err(ClientError::NotTold(NotTold::NotFound(_)))));
}

#[test]
fn a_loader_that_was_told_of_no_runtime_asks_none() {
    let server = Server::new(Box::new(NoKernel::default())).unwrap();
    let (ours, theirs) = channel::pair().unwrap();
    std::thread::spawn(move || server.serve(ours));
    let refused = Client::new(theirs).unwrap().container(&id());
    assert!(matches!(refused, Err(ClientError::NotTold(NotTold::NoRuntime(_)))));
}

#[test]
fn while_a_runtime_hangs_every_other_question_is_answered() {
    let (_directory, runtime) = runtime(Says::Nothing);
    let client = loader(Runtimes::at(&runtime.path).with_patience(Duration::from_secs(1)));
    let own = inspect::identify(std::process::id()).unwrap();
    std::thread::scope(|scope| {
        let hangs: Vec<_> = (0..3).map(|_| scope.spawn(|| client.container(&id()))).collect();
        let begun = Instant::now();
        for _ in 0..20 {
            assert!(client.processes().unwrap().contains(&own));
            assert!(client.stat_path(own, b"/", true).is_ok());
        }
        assert!(begun.elapsed() < Duration::from_secs(1), "files are asked for by other threads");
        for hang in hangs {
            let answer = hang.join().unwrap();
            assert!(matches!(answer, Err(ClientError::NotTold(NotTold::NotNow(_)))), "{answer:?}");
        }
    });
}

#[test]
fn no_descriptor_of_the_runtime_reaches_the_agent() {
    let (_directory, runtime) = runtime(Says::Container(engine()));
    let server = Server::new(Box::new(NoKernel::default())).unwrap().asking(Runtimes::at(&runtime.path));
    let (ours, theirs) = channel::pair().unwrap();
    std::thread::spawn(move || server.serve(ours));
    let request = crate::protocol::Request::Container { id: id() };
    channel::send(&theirs, &request.encode(1), None).unwrap();
    let packet = channel::receive(&theirs, true).unwrap().unwrap();
    assert!(packet.descriptor.is_none());
    assert!(matches!(
        crate::protocol::Answer::decode(&packet.bytes),
        Ok((1, crate::protocol::Answer::Container(_)))
    ));
}
