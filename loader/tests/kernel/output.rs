//! What processes print.

use crate::lab::{Seen, lab, of, perl};
use kvprov_agent_common::kernel::watch;
use kvprov_agent_common::{Class, Kind, notes};

/// Bytes of all pieces in their order.
fn joined(pieces: &[&Seen]) -> Vec<u8> {
    pieces.iter().flat_map(|piece| piece.bytes.clone()).collect()
}

#[test]
fn what_goes_to_a_pipe_is_seen_to_the_byte() {
    let Some(mut lab) = lab() else { return };
    // 64 KiB in one write, of bytes that tell their place.
    let body = "my $b = ''; $b .= sprintf(\"%07d\\n\", $_) for 0..8191; syswrite(STDOUT, $b); syswrite(STDOUT, \"end\\n\");";
    let waiting = perl(body);
    lab.kernel.watch(waiting.pid(), watch::OUTPUT).unwrap();
    let (_, printed) = waiting.run();
    let seen = lab.drain();
    let pieces = of(&seen, Kind::Output);
    assert_eq!(printed.len(), 65_536 + 4);
    assert!(joined(&pieces) == printed, "{} pieces", pieces.len());
    assert!(
        pieces.iter().all(|piece| piece.fd == 1 && piece.is(Kind::Output, Class::Pipe) && piece.skipped == 0)
    );
    assert_eq!(pieces.iter().map(|piece| piece.offset).max(), Some(57_344));
    assert!(of(&seen, Kind::Write).is_empty());
}

#[test]
fn of_a_longer_write_the_rest_is_counted() {
    let Some(mut lab) = lab() else { return };
    let waiting = perl("syswrite(STDOUT, 'x' x 100_000);");
    lab.kernel.watch(waiting.pid(), watch::OUTPUT).unwrap();
    let (_, printed) = waiting.run();
    let seen = lab.drain();
    let pieces = of(&seen, Kind::Output);
    let kept: usize = pieces.iter().map(|piece| piece.bytes.len()).sum();
    let skipped: u64 = pieces.iter().map(|piece| piece.skipped).sum();
    assert_eq!(printed.len(), 100_000);
    assert_eq!((kept, skipped), (65_536, 100_000 - 65_536));
    assert!(pieces.iter().all(|piece| (piece.notes & notes::OUTPUT_CUT != 0) == (piece.skipped > 0)));
}

#[test]
fn a_duplicate_of_standard_output_is_standard_output() {
    let Some(mut lab) = lab() else { return };
    let waiting = perl(
        "open(my $d, '>&', \\*STDOUT); syswrite($d, 'one'); open(my $e, '>&', \\*STDERR); syswrite($e, 'two');",
    );
    lab.kernel.watch(waiting.pid(), watch::OUTPUT).unwrap();
    waiting.run();
    let seen = lab.drain();
    let pieces: Vec<_> =
        of(&seen, Kind::Output).iter().map(|piece| (piece.fd, piece.bytes.clone())).collect();
    assert_eq!(pieces, [(1, b"one".to_vec()), (2, b"two".to_vec())]);
}

#[test]
fn a_terminal_or_a_socket_may_be_standard_output_too() {
    let Some(mut lab) = lab() else { return };
    let waiting = perl(
        "socketpair(my $a, my $b, AF_UNIX, SOCK_STREAM, 0); open(STDERR, '>&', $a); syswrite(STDERR, 'journal'); \
         if (open(my $m, '+<', '/dev/ptmx')) { open(STDOUT, '>&', $m); syswrite(STDOUT, 'terminal'); }",
    );
    lab.kernel.watch(waiting.pid(), watch::OUTPUT).unwrap();
    waiting.run();
    let seen = lab.drain();
    let pieces: Vec<_> =
        of(&seen, Kind::Output).iter().map(|piece| (piece.fd, piece.class, piece.bytes.clone())).collect();
    assert_eq!(pieces[0], (2, Class::OtherSocket as u16, b"journal".to_vec()));
    // Not every place has terminals.
    let terminal = (1, Class::Character as u16, b"terminal".to_vec());
    assert!(pieces[1..].iter().all(|piece| *piece == terminal), "{pieces:?}");
}

#[test]
fn another_pipe_is_not_output() {
    let Some(mut lab) = lab() else { return };
    let seen = lab.watch(watch::ALL, "pipe(my $r, my $w); syswrite($w, 'secret'); sysread($r, my $b, 6);");
    assert!(of(&seen, Kind::Output).is_empty(), "{seen:#?}");
    assert!(seen.iter().all(|seen| seen.class != Class::Pipe as u16));
}

#[test]
fn output_that_nobody_asked_for_is_not_taken() {
    let Some(mut lab) = lab() else { return };
    let seen = lab.watch(watch::FILES | watch::SOCKETS, "syswrite(STDOUT, 'secret');");
    assert!(of(&seen, Kind::Output).is_empty(), "{seen:#?}");
}

#[test]
fn output_to_a_file_is_a_write_and_output_to_the_null_device_is_nothing() {
    let Some(mut lab) = lab() else { return };
    let home = tempfile::tempdir().unwrap();
    let seen = lab.watch(
        watch::ALL,
        &format!(
            "open(STDOUT, '>', '{}/log'); syswrite(STDOUT, 'line'); open(STDOUT, '>', '/dev/null'); syswrite(STDOUT, 'gone');",
            home.path().display()
        ),
    );
    assert!(of(&seen, Kind::Output).is_empty(), "{seen:#?}");
    assert_eq!(of(&seen, Kind::Write).iter().map(|write| write.result).collect::<Vec<_>>(), [4]);
}

#[test]
#[cfg(target_arch = "x86_64")]
fn a_vector_is_one_piece_and_the_rest_of_a_long_one_is_counted() {
    let Some(mut lab) = lab() else { return };
    let body = "my @p = ('ab', '', 'cde', \"f\\n\"); \
                my $v = join '', map { pack('QQ', length($_) ? unpack('Q', pack('P', $_)) : 0, length($_)) } @p; \
                syscall(20, 1, $v, 4) == 7 or die;";
    let waiting = perl(body);
    lab.kernel.watch(waiting.pid(), watch::OUTPUT).unwrap();
    let (_, printed) = waiting.run();
    let seen = lab.drain();
    let pieces = of(&seen, Kind::Output);
    assert_eq!(printed, b"abcdef\n");
    assert_eq!(joined(&pieces), b"abcdef\n");
    assert_eq!(pieces.iter().map(|piece| (piece.offset, piece.skipped)).collect::<Vec<_>>(), [(0, 0)]);

    let body = "my @p = ('a' x 5000, 'b' x 5000, 'c' x 5000); \
                my $v = join '', map { pack('QQ', unpack('Q', pack('P', $_)), length($_)) } @p; \
                syscall(20, 1, $v, 3) == 15_000 or die;";
    let waiting = perl(body);
    lab.kernel.watch(waiting.pid(), watch::OUTPUT).unwrap();
    let (_, printed) = waiting.run();
    let seen = lab.drain();
    let pieces = of(&seen, Kind::Output);
    assert!(joined(&pieces) == printed[..8192]);
    assert_eq!(pieces.iter().map(|piece| piece.skipped).collect::<Vec<_>>(), [15_000 - 8192]);
}
