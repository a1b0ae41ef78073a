//! Every message comes back as it was, and no bytes break the decoder.

use super::*;
use crate::containers::{ContainerId, ContainerNames, NotTold};
use crate::process::{Descriptor, Failure, FileKind, FileStat, Link, PATH_MAX, Page, ProcFile, ProcessId};
use proptest::collection::vec;
use proptest::option;
use proptest::prelude::*;

fn process() -> impl Strategy<Value = ProcessId> {
    (1..=i32::MAX as u32, any::<u64>()).prop_map(|(pid, started)| ProcessId { pid, started })
}

fn path() -> impl Strategy<Value = Vec<u8>> {
    vec(1..=255_u8, 0..300).prop_map(|tail| [b"/".as_slice(), &tail].concat())
}

fn request() -> impl Strategy<Value = Request> {
    prop_oneof![
        any::<u32>().prop_map(|version| Request::Hello { version }),
        (process(), any::<u32>()).prop_map(|(process, flags)| Request::Watch { process, flags }),
        process().prop_map(|process| Request::Unwatch { process }),
        any::<u32>().prop_map(|after| Request::Watched { after }),
        Just(Request::Counters),
        any::<u32>().prop_map(|from| Request::Programs { from }),
        any::<u32>().prop_map(|after| Request::Processes { after }),
        any::<u32>().prop_map(|pid| Request::Identify { pid }),
        (process(), prop::sample::select(ProcFile::ALL.to_vec()))
            .prop_map(|(process, file)| Request::ProcFile { process, file }),
        (process(), prop::sample::select(Link::ALL.to_vec()))
            .prop_map(|(process, link)| Request::Link { process, link }),
        (process(), any::<u32>(), any::<u32>()).prop_map(|(process, from, most)| Request::Descriptors {
            process,
            from,
            most
        }),
        (process(), path()).prop_map(|(process, path)| Request::OpenPath { process, path }),
        (process(), any::<u32>()).prop_map(|(process, fd)| Request::OpenDescriptor { process, fd }),
        (process(), path()).prop_map(|(process, path)| Request::OpenDirectory { process, path }),
        (process(), path(), any::<bool>()).prop_map(|(process, path, follow)| Request::Stat {
            process,
            path,
            follow
        }),
        "[0-9a-f]{64}"
            .prop_filter_map("an id", |id| ContainerId::parse(&id))
            .prop_map(|id| Request::Container { id }),
    ]
}

fn names() -> impl Strategy<Value = ContainerNames> {
    let kubernetes =
        (option::of("[a-z]([a-z0-9.-]{0,250}[a-z0-9])?"), option::of("[a-z]([a-z0-9-]{0,61}[a-z0-9])?"));
    let rest = (option::of("[0-9a-f]{8}-[0-9a-f]{4}"), option::of("[A-Za-z0-9][a-z_.-]{0,60}"));
    let image = (
        option::of("[a-z]{1,9}(:[0-9]{2,4})?/[a-z/]{1,400}(:v[0-9.]{1,5})?"),
        option::of("sha256:[0-9a-f]{64}"),
    );
    (kubernetes, rest, image).prop_map(|((pod, namespace), (pod_uid, container), (image, image_digest))| {
        ContainerNames { pod, namespace, pod_uid, container, image, image_digest }
    })
}

fn not_told() -> impl Strategy<Value = NotTold> {
    let reason = || "[a-zü :/]{0,200}";
    prop_oneof![
        reason().prop_map(NotTold::NoRuntime),
        reason().prop_map(NotTold::NotFound),
        reason().prop_map(NotTold::NotNow),
    ]
}

fn stat() -> impl Strategy<Value = FileStat> {
    let numbers = (any::<u32>(), any::<u64>(), 0..8_u8, any::<u16>());
    (numbers, any::<u64>(), any::<i64>(), any::<i64>(), any::<u64>()).prop_map(
        |((device, inode, kind, permissions), size, modified, changed, mount)| FileStat {
            device,
            inode,
            kind: FileKind::from_number(kind),
            permissions,
            size,
            modified,
            changed,
            mount,
        },
    )
}

fn descriptor() -> impl Strategy<Value = Descriptor> {
    let file = (any::<u32>(), vec(any::<u8>(), 0..100), any::<u32>(), any::<u64>());
    (file, 0..8_u8, any::<u32>(), any::<u64>(), any::<u64>()).prop_map(
        |((fd, target, device, inode), kind, flags, position, mount)| Descriptor {
            fd,
            target,
            device,
            inode,
            kind: FileKind::from_number(kind),
            flags,
            position,
            mount,
        },
    )
}

fn failure() -> impl Strategy<Value = Failure> {
    prop_oneof![
        prop::sample::select(vec![
            Failure::Gone,
            Failure::NotFound,
            Failure::Denied,
            Failure::NotRegular,
            Failure::Unsupported,
            Failure::Busy,
            Failure::Malformed,
            Failure::NoKernel,
        ]),
        any::<i32>().prop_map(Failure::Os),
    ]
}

fn answer() -> impl Strategy<Value = Answer> {
    let counter = any::<[u64; 5]>().prop_map(|[fired, filtered, delivered, dropped, unreadable]| {
        KernelCounter { kind: 7, fired, filtered, delivered, dropped, unreadable }
    });
    let problem = ("[a-z ß]{0,80}", "[a-z]{0,30}").prop_map(|(reason, lost)| Problem { reason, lost });
    let number = || option::of(any::<u64>());
    let program = ("[a-zü]{0,20}", option::of(problem), number(), number(), number()).prop_map(
        |(name, problem, run_time_ns, run_count, missed)| ProgramStatus {
            name,
            problem,
            run_time_ns,
            run_count,
            missed,
        },
    );
    prop_oneof![
        (any::<u32>(), any::<u32>(), any::<u64>(), vec("[a-zé ]{0,60}", 0..5)).prop_map(
            |(version, ring_bytes, capabilities, lost)| Answer::Hello(Hello {
                version,
                ring_bytes,
                capabilities,
                lost
            })
        ),
        Just(Answer::Done),
        (vec(counter, 0..20), any::<u64>())
            .prop_map(|(by_kind, unfollowed)| Answer::Counters(KernelCounters { by_kind, unfollowed })),
        (vec(program, 0..10), option::of(any::<u64>()))
            .prop_map(|(items, next)| Answer::Programs(Page { items, next })),
        (vec(process(), 0..30), option::of(any::<u64>()))
            .prop_map(|(items, next)| Answer::Processes(Page { items, next })),
        Just(Answer::Opened),
        stat().prop_map(Answer::OpenedFile),
        vec(any::<u8>(), 0..PATH_MAX).prop_map(Answer::Target),
        (vec(descriptor(), 0..20), option::of(any::<u64>()))
            .prop_map(|(items, next)| Answer::Descriptors(Page { items, next })),
        stat().prop_map(Answer::Stat),
        process().prop_map(Answer::Identity),
        failure().prop_map(Answer::Failed),
        "[a-zü ]{0,200}".prop_map(Answer::KernelFailed),
        names().prop_map(Answer::Container),
        not_told().prop_map(Answer::NotTold),
    ]
}

proptest! {
    #[test]
    fn a_request_comes_back_as_it_was(number: u32, request in request()) {
        prop_assert_eq!(Request::decode(&request.encode(number)), (Some(number), Ok(request)));
    }

    #[test]
    fn an_answer_comes_back_as_it_was(number: u32, answer in answer()) {
        prop_assert_eq!(Answer::decode(&answer.encode(number)), Ok((number, answer)));
    }

    #[test]
    fn any_bytes_are_a_message_or_malformed(bytes in vec(any::<u8>(), 0..2000)) {
        if let (Some(number), Ok(request)) = Request::decode(&bytes) {
            prop_assert_eq!(request.encode(number), bytes.clone());
        }
        let _ = Answer::decode(&bytes);
    }

    #[test]
    fn a_damaged_message_is_another_message_or_malformed(
        request in request(),
        answer in answer(),
        place: prop::sample::Index,
        value: u8,
    ) {
        let mut bytes = request.encode(1);
        let at = place.index(bytes.len());
        bytes[at] = value;
        if let (Some(number), Ok(request)) = Request::decode(&bytes) {
            prop_assert_eq!(request.encode(number), bytes);
        }
        let mut bytes = answer.encode(1);
        let at = place.index(bytes.len());
        bytes[at] = value;
        let _ = Answer::decode(&bytes);
    }

    #[test]
    fn a_message_cut_anywhere_is_malformed(request in request(), answer in answer(), place: prop::sample::Index) {
        let bytes = request.encode(1);
        prop_assert!(Request::decode(&bytes[..place.index(bytes.len())]).1.is_err());
        let bytes = answer.encode(1);
        prop_assert!(Answer::decode(&bytes[..place.index(bytes.len())]).is_err());
    }

    #[test]
    fn nothing_may_follow_a_message(request in request(), answer in answer(), more in vec(any::<u8>(), 1..20)) {
        let mut bytes = request.encode(1);
        bytes.extend(&more);
        prop_assert!(Request::decode(&bytes).1.is_err());
        let mut bytes = answer.encode(1);
        bytes.extend(&more);
        prop_assert!(Answer::decode(&bytes).is_err());
    }
}

#[test]
fn a_path_that_is_relative_or_holds_nul_is_refused() {
    let process = ProcessId { pid: 1, started: 1 };
    for path in [b"".as_slice(), b"etc", b"/a\0b", &[b'/'; PATH_MAX + 1]] {
        let message = Request::OpenPath { process, path: path.to_vec() }.encode(1);
        assert!(Request::decode(&message).1.is_err());
    }
    let longest = Request::OpenPath { process, path: vec![b'/'; PATH_MAX] };
    assert!(Request::decode(&longest.encode(1)).1.is_ok());
    assert!(longest.encode(1).len() < MESSAGE_MAX);
}

#[test]
fn pid_zero_names_nobody() {
    let message = Request::Unwatch { process: ProcessId { pid: 0, started: 1 } }.encode(1);
    assert!(Request::decode(&message).1.is_err());
}

#[test]
fn what_is_no_id_of_a_container_is_refused() {
    let good = Request::Container { id: ContainerId::parse(&"9f".repeat(32)).unwrap() }.encode(1);
    assert!(Request::decode(&good).1.is_ok());
    for place in [good.len() - 64, good.len() - 1] {
        for byte in [b'/', b'.', b'F', b'\0', 0xff] {
            let mut message = good.clone();
            message[place] = byte;
            assert!(Request::decode(&message).1.is_err(), "{byte}");
        }
    }
}

#[test]
fn a_text_that_is_no_name_is_no_answer() {
    for wrong in ["../etc", "a b", "\u{202e}", &"a".repeat(700)] {
        let names = ContainerNames { pod: Some(wrong.to_owned()), ..ContainerNames::default() };
        assert!(Answer::decode(&Answer::Container(names).encode(1)).is_err(), "{wrong}");
    }
    let id = ContainerNames { image_digest: Some("9f".repeat(32)), ..ContainerNames::default() };
    assert!(Answer::decode(&Answer::Container(id).encode(1)).is_err());
}

#[test]
fn a_long_reason_is_cut_between_characters() {
    let message = Answer::KernelFailed("ü".repeat(2000)).encode(1);
    let Ok((1, Answer::KernelFailed(reason))) = Answer::decode(&message) else { panic!("no reason") };
    assert_eq!(reason, "ü".repeat(TEXT_MAX / 2));
}
