//! Runtimes that answer, refuse, hang and lie, asked over real sockets.

mod fake_cri;
mod through_the_loader;

use super::*;
use fake_cri::{Container, FakeCri, Image, Says, digest, no_runtime};
use tempfile::TempDir;
use tonic::Code;

const SHORT: Duration = Duration::from_millis(300);

fn id() -> ContainerId {
    ContainerId::parse(&"9f".repeat(32)).unwrap()
}

/// A directory, and a runtime in it that says something.
fn runtime(says: Says) -> (TempDir, FakeCri) {
    let directory = tempfile::tempdir().unwrap();
    let runtime = FakeCri::start(&directory.path().join("cri.sock"), says);
    (directory, runtime)
}

fn engine() -> Container {
    Container::engine(id().as_str())
}

fn ask(says: Says) -> Result<ContainerNames, NotTold> {
    let (_directory, runtime) = runtime(says);
    Runtimes::at(&runtime.path).ask(&id())
}

fn reason_of(says: Says) -> String {
    match ask(says) {
        Err(NotTold::NotNow(reason)) => reason,
        other => panic!("{other:?}"),
    }
}

#[test]
fn pod_namespace_name_and_image_are_told() {
    let names = ask(Says::Container(engine())).unwrap();
    assert_eq!(names.pod.as_deref(), Some("decode-0"));
    assert_eq!(names.namespace.as_deref(), Some("serving"));
    assert_eq!(names.container.as_deref(), Some("engine"));
    assert_eq!(names.pod_uid.as_deref(), Some("0f4b3a2c-1d5e-4f60-9a7b-8c9d0e1f2a3b"));
    assert_eq!(names.image.as_deref(), Some("docker.io/vllm/vllm-openai:v0.32"));
    assert_eq!(names.image_digest, Some(digest()));
}

#[test]
fn one_short_question_is_asked_and_nothing_else() {
    let (_directory, runtime) = runtime(Says::Container(engine()));
    Runtimes::at(&runtime.path).ask(&id()).unwrap();
    // Every other method would have failed the runtime itself.
    let asked = runtime.asked();
    assert_eq!(asked.len(), 1);
    assert_eq!(asked[0].container_id, id().as_str());
    assert!(!asked[0].verbose, "a verbose answer holds the environment of the container");
}

#[test]
fn the_image_is_what_was_asked_for_and_the_digest_what_runs() {
    let image = Image { image: digest(), user_specified_image: "vllm:latest".to_owned() };
    let names = ask(Says::Container(Container { image: Some(image), ..engine() })).unwrap();
    assert_eq!((names.image.as_deref(), names.image_digest), (Some("vllm:latest"), Some(digest())));
}

#[test]
fn an_image_without_a_name_has_no_digest() {
    // It was built on the node: its id is told, which means another thing in every runtime.
    let image = Image { image: digest(), ..Image::default() };
    let names =
        ask(Says::Container(Container { image: Some(image), image_ref: digest(), ..engine() })).unwrap();
    assert_eq!((names.image, names.image_digest), (None, None));
    assert_eq!(names.pod.as_deref(), Some("decode-0"));
}

#[test]
fn a_container_of_no_pod_has_an_image_and_no_pod() {
    let names = ask(Says::Container(Container { labels: [].into(), ..engine() })).unwrap();
    assert_eq!((names.pod, names.namespace, names.container), (None, None, None));
    assert_eq!(names.image_digest, Some(digest()));
}

#[test]
fn labels_that_are_no_names_are_left_out() {
    let long = "a".repeat(100_000);
    for wrong in ["", "../../etc/passwd", "decode 0", "\u{202e}0-edoced", "a\nb", long.as_str()] {
        let names = ask(Says::Container(engine().label("io.kubernetes.pod.namespace", wrong))).unwrap();
        assert_eq!(names.namespace, None);
        assert_eq!(names.pod.as_deref(), Some("decode-0"));
    }
}

#[test]
fn a_container_that_the_runtime_does_not_know_is_unknown() {
    let refusal = ask(Says::Refuses(Code::NotFound, "an error occurred: not found".to_owned()));
    assert!(matches!(&refusal, Err(NotTold::NotFound(reason)) if reason.contains("has none with this id")));
    assert!(
        matches!(ask(Says::Bytes(Vec::new())), Err(NotTold::NotFound(_))),
        "an answer without a container"
    );
}

#[test]
fn another_container_than_the_one_asked_for_tells_nothing() {
    let other = Container::engine(&"0a".repeat(32));
    assert!(reason_of(Says::Container(other)).contains("another container"));
    // The beginning of the id, as runtimes accept it too.
    let short = Container::engine(&id().as_str()[..13]);
    assert!(reason_of(Says::Container(short)).contains("another container"));
}

#[test]
fn a_damaged_answer_is_unknown_and_says_so() {
    for bytes in [vec![0xff; 100], vec![0x0a, 0x05, b'x'], b"HTTP/1.1 200 OK".to_vec()] {
        assert!(reason_of(Says::Bytes(bytes)).contains("damaged"));
    }
    // A text that is no UTF-8.
    assert!(reason_of(Says::Bytes(vec![0x0a, 0x03, 0x0a, 0x01, 0xff])).contains("damaged"));
}

#[test]
fn an_answer_without_end_is_refused() {
    assert!(reason_of(Says::Bytes(vec![0x0a; 8 << 20])).contains("OutOfRange"));
    let huge = engine().label("x", &"y".repeat(1 << 20));
    assert!(reason_of(Says::Container(huge)).contains("OutOfRange"));
}

#[test]
fn headers_without_end_are_refused() {
    let reason = reason_of(Says::LongHeaders(64 << 10));
    assert!(reason.len() < 1000, "{reason}");
}

#[test]
fn a_refusal_is_told_in_few_words_on_one_line() {
    let reason =
        reason_of(Says::Refuses(Code::Unavailable, format!("not\nready \u{1b}[31m{}", "x".repeat(3000))));
    assert!(reason.contains("not ready"), "{reason}");
    assert!(reason.len() < 400 && !reason.contains(['\n', '\u{1b}']), "{reason}");
}

#[test]
fn a_runtime_that_hangs_costs_no_more_than_the_patience() {
    let (_directory, runtime) = runtime(Says::Nothing);
    let begun = Instant::now();
    let answer = Runtimes::at(&runtime.path).with_patience(SHORT).ask(&id());
    assert!(
        matches!(&answer, Err(NotTold::NotNow(reason)) if reason.contains("did not answer")),
        "{answer:?}"
    );
    assert!(begun.elapsed() < Duration::from_secs(2));
}

#[test]
fn somebody_who_listens_and_never_speaks_costs_no_more_either() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("cri.sock");
    let _listener = std::os::unix::net::UnixListener::bind(&path).unwrap();
    let answer = Runtimes::at(&path).with_patience(SHORT).ask(&id());
    assert!(matches!(answer, Err(NotTold::NotNow(_))), "{answer:?}");
}

#[test]
fn what_speaks_no_grpc_is_no_runtime() {
    for bytes in [b"HTTP/1.1 400 Bad Request\r\n\r\n".as_slice(), b"\0\0\0\x04\0\0\0\0\0", b""] {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("cri.sock");
        no_runtime(&path, bytes);
        let answer = Runtimes::at(&path).with_patience(SHORT).ask(&id());
        assert!(matches!(answer, Err(NotTold::NotNow(_))), "{answer:?}");
    }
}

#[test]
fn a_containerd_without_cri_is_said_to_be_one() {
    // As the containerd of Docker, which has the plugin switched off.
    let answer =
        ask(Says::Refuses(Code::Unimplemented, "unknown service runtime.v1.RuntimeService".to_owned()));
    assert!(matches!(&answer, Err(NotTold::NoRuntime(reason)) if reason.contains("CRI")), "{answer:?}");
}

#[test]
fn a_runtime_that_was_restarted_answers_again() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("cri.sock");
    let runtimes = Runtimes::at(&path);
    assert!(matches!(runtimes.ask(&id()), Err(NotTold::NoRuntime(_))), "not yet there");
    for _ in 0..2 {
        let runtime = FakeCri::start(&path, Says::Container(engine()));
        assert!(runtimes.ask(&id()).is_ok());
        drop(runtime);
        assert!(matches!(runtimes.ask(&id()), Err(NotTold::NoRuntime(_))));
    }
    // One that died leaves its socket behind.
    drop(std::os::unix::net::UnixListener::bind(&path).unwrap());
    assert!(matches!(runtimes.ask(&id()), Err(NotTold::NotNow(_))));
}

#[test]
fn of_two_runtimes_the_one_that_knows_the_container_tells() {
    let directory = tempfile::tempdir().unwrap();
    let start = |name: &str, says| FakeCri::start(&directory.path().join(name), says);
    let knows = || Says::Container(engine());
    for first in [Says::Refuses(Code::NotFound, String::new()), Says::Nothing, Says::Bytes(vec![0xff])] {
        let (one, two) = (start("one", first), start("two", knows()));
        let socket = |fake: &FakeCri| Socket { name: "r".to_owned(), path: fake.path.clone() };
        let both = Runtimes::of(vec![socket(&one), socket(&two)]).with_patience(SHORT);
        assert_eq!(both.ask(&id()).unwrap().pod.as_deref(), Some("decode-0"));
    }
}

#[test]
fn all_runtimes_together_cost_no_more_than_the_agent_waits() {
    let directory = tempfile::tempdir().unwrap();
    let hang = |name: &str| FakeCri::start(&directory.path().join(name), Says::Nothing);
    let all: Vec<FakeCri> = ["one", "two", "three"].map(hang).into();
    let sockets = all.iter().map(|fake| Socket { name: "r".to_owned(), path: fake.path.clone() }).collect();
    let runtimes =
        Runtimes { in_all: Duration::from_millis(450), ..Runtimes::of(sockets) }.with_patience(SHORT);
    let begun = Instant::now();
    assert!(matches!(runtimes.ask(&id()), Err(NotTold::NotNow(_))));
    assert!(begun.elapsed() < Duration::from_secs(2));
    assert!(PATIENCE_IN_ALL < crate::client::TIMEOUT);
}

#[test]
fn where_no_socket_is_the_places_are_named() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("none.sock");
    let Err(NotTold::NoRuntime(reason)) = Runtimes::at(&path).ask(&id()) else { panic!("told") };
    assert!(reason.contains("none.sock"), "{reason}");
    std::fs::write(&path, b"").unwrap();
    let Err(NotTold::NoRuntime(reason)) = Runtimes::at(&path).ask(&id()) else { panic!("told") };
    assert!(reason.contains("may not be asked"), "a file is no socket: {reason}");
}

#[test]
fn a_runtime_that_is_switched_off_is_never_asked() {
    let answer = Runtimes::off("switched off").ask(&id());
    assert_eq!(answer, Err(NotTold::NoRuntime("switched off".to_owned())));
}

#[test]
fn a_socket_of_root_tells_another_user_that_it_may_not_be_asked() {
    use std::os::unix::fs::PermissionsExt as _;
    let (_directory, runtime) = runtime(Says::Container(engine()));
    std::fs::set_permissions(&runtime.path, std::fs::Permissions::from_mode(0o000)).unwrap();
    let answer = Runtimes::at(&runtime.path).ask(&id());
    if rustix::process::geteuid().is_root() {
        return; // Who may do everything is refused nothing.
    }
    assert!(matches!(&answer, Err(NotTold::NoRuntime(reason)) if reason.contains("ermission")), "{answer:?}");
    assert!(runtime.asked().is_empty());
}
