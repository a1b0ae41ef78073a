//! Files: names, identities, descriptors.

use crate::lab::{Seen, lab, of};
use kvprov_agent_common::kernel::watch;
use kvprov_agent_common::{Class, Kind, notes};
use std::os::unix::fs::MetadataExt;

const ENOENT: i64 = -2;
const AT_FDCWD: i32 = -100;

/// Records of the files below a directory, and of what was done to them by descriptor.
fn opens<'s>(seen: &'s [Seen], directory: &str) -> Vec<&'s Seen> {
    seen.iter().filter(|seen| seen.kind == Kind::Open && seen.path().starts_with(directory)).collect()
}

#[test]
fn every_program_is_attached() {
    let Some(lab) = lab() else { return };
    let refused: Vec<_> = lab
        .kernel
        .programs()
        .into_iter()
        .filter_map(|program| Some((program.name, program.attached.err()?)))
        .collect();
    assert!(refused.is_empty(), "{refused:#?}");
}

#[test]
fn an_open_tells_the_file_and_its_state() {
    let Some(mut lab) = lab() else { return };
    let home = tempfile::tempdir().unwrap();
    let path = home.path().join("a");
    std::fs::write(&path, b"twelve bytes").unwrap();
    let stat = std::fs::metadata(&path).unwrap();
    let seen = lab.watch(
        watch::ALL,
        &format!("sysopen(my $f, '{0}', O_RDONLY) or die; sysread($f, my $b, 5); close $f;", path.display()),
    );
    let open = opens(&seen, path.to_str().unwrap());
    assert_eq!(open.len(), 1, "{seen:#?}");
    assert!(open[0].is(Kind::Open, Class::Regular));
    assert_eq!(open[0].fd, AT_FDCWD);
    assert_eq!(open[0].file.inode, stat.ino());
    assert_eq!(open[0].state.size, 12);
    assert_eq!(open[0].state.modified, stat.mtime() * 1_000_000_000 + stat.mtime_nsec());
    assert_eq!(open[0].state.changed, stat.ctime() * 1_000_000_000 + stat.ctime_nsec());
    let (major, minor) = (rustix::fs::major(stat.dev()), rustix::fs::minor(stat.dev()));
    assert_eq!(open[0].file.device, major << 20 | minor);

    let read: Vec<_> = of(&seen, Kind::Read).into_iter().filter(|read| read.file == open[0].file).collect();
    assert_eq!(read.iter().map(|read| (read.result, read.wanted)).collect::<Vec<_>>(), [(5, 5)]);
    let close: Vec<_> =
        of(&seen, Kind::Close).into_iter().filter(|close| close.file == open[0].file).collect();
    assert_eq!(close.iter().map(|close| close.references).collect::<Vec<_>>(), [1]);
}

#[test]
fn an_open_that_fails_is_told_with_its_error() {
    let Some(mut lab) = lab() else { return };
    let seen = lab.watch(watch::ALL, "sysopen(my $f, '/kvprov-is-not-there', O_RDONLY) and die;");
    let open = opens(&seen, "/kvprov-is-not-there");
    assert_eq!(
        open.iter().map(|open| (open.result, open.class)).collect::<Vec<_>>(),
        [(ENOENT, Class::None as u16)]
    );
}

#[test]
fn a_process_that_is_not_watched_is_not_seen() {
    let Some(mut lab) = lab() else { return };
    let home = tempfile::tempdir().unwrap();
    let waiting = crate::lab::perl(&format!(
        "for (1..100) {{ open(my $f, '>', '{0}/a'); print $f 'x'; close $f; rename '{0}/a', '{0}/b'; unlink '{0}/b'; }}",
        home.path().display()
    ));
    let pid = waiting.pid();
    assert!(waiting.run().0.success());
    let seen: Vec<_> =
        lab.drain().into_iter().filter(|seen| seen.tgid == pid && seen.kind != Kind::Exec).collect();
    assert!(seen.is_empty(), "{seen:#?}");
}

#[test]
fn names_change_and_go() {
    let Some(mut lab) = lab() else { return };
    let home = tempfile::tempdir().unwrap();
    let home = home.path().display();
    let seen = lab.watch(
        watch::ALL,
        &format!(
            "open(my $f, '>', '{home}/a') or die; close $f; rename('{home}/a', '{home}/b') or die; \
             rename('{home}/b', '{home}/c') or die; unlink('{home}/c') or die; mkdir('{home}/d') or die; \
             stat('{home}/d') or die; rmdir('{home}/d') or die; stat('{home}/d') and die;"
        ),
    );
    let named = |kind: Kind| {
        of(&seen, kind)
            .into_iter()
            .filter(|seen| seen.path().starts_with(&home.to_string()))
            .map(|seen| (seen.path(), String::from_utf8_lossy(&seen.second).into_owned(), seen.result))
            .collect::<Vec<_>>()
    };
    let path = |name: &str| format!("{home}/{name}");
    assert_eq!(named(Kind::Rename), [(path("a"), path("b"), 0), (path("b"), path("c"), 0)]);
    assert_eq!(named(Kind::Unlink), [(path("c"), String::new(), 0)]);
    assert_eq!(named(Kind::Mkdir), [(path("d"), String::new(), 0)]);
    assert_eq!(named(Kind::Rmdir), [(path("d"), String::new(), 0)]);
    // The first one is of perl's unlink.
    let stats: Vec<_> = named(Kind::Stat).into_iter().filter(|(of, ..)| *of != path("c")).collect();
    assert_eq!(stats, [(path("d"), String::new(), 0), (path("d"), String::new(), ENOENT)]);
}

#[test]
fn a_descriptor_is_followed_through_every_copy() {
    let Some(mut lab) = lab() else { return };
    let home = tempfile::tempdir().unwrap();
    let path = home.path().join("a");
    std::fs::write(&path, vec![7; 100]).unwrap();
    let seen = lab.watch(
        watch::ALL,
        &format!(
            "use POSIX (); my $a = POSIX::open('{0}', O_RDONLY); my $b = POSIX::dup($a); POSIX::dup2($a, 77); \
             open(my $f, '<&=', $a); my $c = fcntl($f, F_DUPFD, 99); my $x; \
             POSIX::read($b, $x, 1); POSIX::read(77, $x, 2); POSIX::read($c, $x, 3); \
             if (!fork()) {{ POSIX::read($a, $x, 4); POSIX::_exit(0); }} wait(); \
             fcntl($f, F_SETFD, 0); \
             if (!fork()) {{ exec('/bin/dd', \"if=/proc/self/fd/$a\", 'of=/dev/null', 'bs=5', 'count=1', 'status=none') }} wait(); \
             if (!fork()) {{ POSIX::dup2($a, 0); exec('/usr/bin/head', '-c', '6') }} wait();",
            path.display()
        ),
    );
    let inode = std::fs::metadata(&path).unwrap().ino();
    let sizes: Vec<_> = of(&seen, Kind::Read)
        .into_iter()
        .filter(|read| read.file.inode == inode)
        .map(|read| (read.result, read.file.open_file))
        .collect();
    let results: Vec<_> = sizes.iter().map(|(result, _)| *result).collect();
    assert_eq!(results[..4], [1, 2, 3, 4], "{seen:#?}");
    assert!(results.contains(&5), "the child's program opened it anew: {results:?}");
    assert!(sizes[..4].iter().all(|(_, file)| *file == sizes[0].1), "copies are one open file: {sizes:?}");
    let inherited = sizes.last().unwrap();
    assert_eq!(inherited.1, sizes[0].1, "what a new program inherits is the same open file: {sizes:?}");
}

#[test]
fn a_file_that_was_open_before_is_known() {
    let Some(mut lab) = lab() else { return };
    let home = tempfile::tempdir().unwrap();
    let path = home.path().join("a");
    std::fs::write(&path, b"0123456789").unwrap();
    let waiting = crate::lab::perl(
        // The file is opened before the script waits: BEGIN runs first.
        &format!("sysread($main::f, my $b, 4); BEGIN {{ open($main::f, '<', '{}') or die }}", path.display()),
    );
    let pid = waiting.pid();
    lab.kernel.watch(pid, watch::ALL).unwrap();
    assert!(waiting.run().0.success());
    let seen = lab.drain();
    let inode = std::fs::metadata(&path).unwrap().ino();
    let reads: Vec<_> = of(&seen, Kind::Read).into_iter().filter(|read| read.file.inode == inode).collect();
    assert_eq!(reads.iter().map(|read| read.result).collect::<Vec<_>>(), [4], "{seen:#?}");
    assert!(opens(&seen, path.to_str().unwrap()).is_empty());
}

#[test]
fn a_path_may_hold_newlines_and_any_byte() {
    let Some(mut lab) = lab() else { return };
    let seen = lab.watch(watch::ALL, r#"stat("/kvprov-none/a\nb\xff\xfe c");"#);
    let stats: Vec<_> = of(&seen, Kind::Stat).into_iter().map(|stat| stat.first.clone()).collect();
    assert!(stats.contains(&b"/kvprov-none/a\nb\xff\xfe c".to_vec()), "{stats:?}");
}

#[test]
fn the_longest_path_is_whole_and_a_longer_one_is_said_to_be_cut() {
    let Some(mut lab) = lab() else { return };
    // 4095 bytes and the closing NUL are what the kernel takes.
    let seen = lab.watch(
        watch::ALL,
        "my $p = '/kvprov-none' . ('/' . 'x' x 99) x 41; stat(substr($p, 0, 4095)); stat(substr($p, 0, 4096)); \
         rename(substr($p, 0, 4095), substr($p, 0, 4094));",
    );
    let stats = of(&seen, Kind::Stat);
    let long: Vec<_> = stats.iter().filter(|stat| stat.first.len() == 4095).collect();
    assert_eq!(long.len(), 1);
    assert_eq!((long[0].result, long[0].notes), (ENOENT, 0));
    let cut: Vec<_> = stats.iter().filter(|stat| stat.notes & notes::PATH_UNREADABLE != 0).collect();
    assert_eq!(cut.iter().map(|stat| (stat.first.len(), stat.result)).collect::<Vec<_>>(), [(0, -36)]);
    let renames = of(&seen, Kind::Rename);
    assert_eq!(
        renames.iter().map(|seen| (seen.first.len(), seen.second.len())).collect::<Vec<_>>(),
        [(4095, 4094)]
    );
}
