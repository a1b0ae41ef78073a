//! Ways past the programs, and calls that no library makes by itself.

#![cfg(target_arch = "x86_64")]

use crate::lab::{lab, of};
use kvprov_agent_common::kernel::watch;
use kvprov_agent_common::{BlindSpot, Class, Kind};

#[test]
fn a_way_past_the_programs_is_told_once_a_process() {
    let Some(mut lab) = lab() else { return };
    let home = tempfile::tempdir().unwrap();
    let seen = lab.watch(
        watch::ALL,
        &format!(
            "open(my $a, '+>', '{0}/a'); open(my $b, '+>', '{0}/b'); syswrite($a, 'abc'); \
             for (1..3) {{ syscall(40, fileno($b), fileno($a), 0, 3); syscall(326, fileno($a), 0, fileno($b), 0, 3, 0); }} \
             pipe(my $r, my $w); sysseek($a, 0, 0); syscall(275, fileno($a), 0, fileno($w), 0, 3, 0); \
             if (!fork()) {{ syscall(40, fileno($b), fileno($a), 0, 3); exit 0 }} wait();",
            home.path().display()
        ),
    );
    let told: Vec<_> = of(&seen, Kind::BlindSpot).iter().map(|seen| (seen.tgid, seen.flags)).collect();
    let (parent, child) = (told[0].0, told.last().unwrap().0);
    assert_ne!(parent, child);
    let expected = [
        (parent, BlindSpot::Sendfile as u32),
        (parent, BlindSpot::CopyFileRange as u32),
        (parent, BlindSpot::Splice as u32),
        (child, BlindSpot::Sendfile as u32),
    ];
    assert_eq!(told, expected);
}

#[test]
fn a_32_bit_program_is_told() {
    use std::os::unix::fs::PermissionsExt;
    let Some(mut lab) = lab() else { return };
    // _exit(0) by the 32-bit way, at 0x10000.
    let code = [0xb8, 1, 0, 0, 0, 0x31, 0xdb, 0xcd, 0x80];
    let mut elf = b"\x7fELF\x01\x01\x01\0\0\0\0\0\0\0\0\0".to_vec();
    elf.extend([2u8, 0, 3, 0, 1, 0, 0, 0]);
    for word in [0x1_0054u32, 52, 0, 0] {
        elf.extend(word.to_le_bytes());
    }
    elf.extend([52u8, 0, 32, 0, 1, 0, 0, 0, 0, 0, 0, 0]);
    for word in [1u32, 0, 0x1_0000, 0x1_0000, 84 + code.len() as u32, 84 + code.len() as u32, 5, 0x1000] {
        elf.extend(word.to_le_bytes());
    }
    elf.extend(code);
    let home = tempfile::tempdir().unwrap();
    let path = home.path().join("old");
    std::fs::write(&path, elf).unwrap();
    std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o755)).unwrap();
    if std::process::Command::new(&path).status().is_err() {
        eprintln!("skipped: this kernel runs no 32-bit programs");
        return;
    }
    let seen = lab.watch(watch::ALL, &format!("exec('{}');", path.display()));
    assert_eq!(
        of(&seen, Kind::BlindSpot).iter().map(|seen| seen.flags).collect::<Vec<_>>(),
        [BlindSpot::Compat as u32]
    );
}

#[test]
fn a_range_of_descriptors_is_closed_one_by_one() {
    let Some(mut lab) = lab() else { return };
    let seen = lab.watch(
        watch::ALL,
        "use POSIX (); my $f = POSIX::open('/etc/passwd', O_RDONLY); POSIX::dup2($f, 40); POSIX::dup2($f, 43); \
         syscall(436, 40, 50, 4); syscall(436, 40, 50, 0) == 0 or die; syscall(436, 60, 0xffffffff, 0);",
    );
    let closed: Vec<_> = of(&seen, Kind::Close)
        .iter()
        .filter(|seen| seen.fd >= 40)
        .map(|seen| (seen.fd, seen.references))
        .collect();
    assert_eq!(closed, [(40, 3), (43, 3)], "{seen:#?}");
}

#[test]
fn old_and_rare_calls_are_seen() {
    let Some(mut lab) = lab() else { return };
    let home = tempfile::tempdir().unwrap();
    let home = home.path().display().to_string();
    let seen = lab.watch(
        watch::ALL,
        &format!(
            "my $h = '{home}'; my ($a, $b) = (\"$h/a\", \"$h/b\"); \
             syscall(85, $a, 0644); syscall(2, $a, 2, 0); my $how = pack('QQQ', 2, 0, 0); syscall(437, -100, $a, $how, 24); \
             syscall(82, $a, $b); syscall(264, -100, $b, -100, $a); syscall(316, -100, $a, -100, $b, 0); \
             my $st = \"\\0\" x 256; syscall(4, $b, $st); syscall(6, $b, $st); syscall(262, -100, $b, $st, 0); \
             syscall(332, -100, $b, 0, 0x7ff, $st); syscall(21, $b, 0); syscall(269, -100, $b, 0); syscall(439, -100, $b, 0, 0); \
             syscall(76, $b, 3); syscall(137, $b, $st); syscall(87, $b); syscall(263, -100, $b, 0); \
             syscall(83, $b, 0755); syscall(84, $b); syscall(258, -100, $b, 0755); syscall(263, -100, $b, 0x200); \
             syscall(80, $h); opendir(my $d, $h); readdir $d; syscall(81, fileno($d)); \
             open(my $f, '+>', 'relative'); truncate($f, 5); my $e = ''; syscall(262, fileno($f), $e, $st, 0x1000);"
        ),
    );
    let count = |kind: Kind, below: bool| {
        of(&seen, kind).iter().filter(|seen| !below || seen.path().starts_with(&home)).count()
    };
    assert_eq!(count(Kind::Rename, true), 3);
    assert_eq!(count(Kind::Stat, true), 8 - 1, "{:#?}", of(&seen, Kind::Stat));
    assert_eq!(count(Kind::Truncate, true), 1);
    assert_eq!(count(Kind::Statfs, true), 1);
    assert_eq!(count(Kind::Unlink, true), 2);
    assert_eq!(count(Kind::Mkdir, true), 2);
    assert_eq!(count(Kind::Rmdir, true), 2);
    assert_eq!(count(Kind::Chdir, true), 1);
    assert_eq!(count(Kind::Fchdir, false), 1);
    assert_eq!(count(Kind::Ftruncate, false), 1);
    assert!(count(Kind::Readdir, false) >= 1);
    let opens: Vec<_> =
        of(&seen, Kind::Open).into_iter().filter(|seen| seen.path() == format!("{home}/a")).collect();
    assert_eq!(opens.iter().map(|open| open.flags).collect::<Vec<_>>(), [0o1101, 2, 2]);
    assert!(
        of(&seen, Kind::Open).iter().any(|open| open.is(Kind::Open, Class::Directory) && open.path() == home)
    );
    assert!(
        of(&seen, Kind::Stat).iter().all(|stat| !stat.first.is_empty()),
        "a question about an open file is none"
    );
}
