//! Sockets.

use crate::lab::{Seen, lab, of, perl};
use kvprov_agent_common::kernel::watch;
use kvprov_agent_common::{Class, Kind};
use std::io::{Read, Write};
use std::net::{IpAddr, Ipv6Addr, SocketAddr, TcpListener, UdpSocket};

fn address(place: &([u8; 16], u16)) -> SocketAddr {
    let ip = Ipv6Addr::from(place.0);
    SocketAddr::new(ip.to_ipv4_mapped().map_or(IpAddr::V6(ip), IpAddr::V4), place.1)
}

fn results(seen: &[Seen], kind: Kind) -> Vec<i64> {
    of(seen, kind).iter().filter(|seen| seen.class == Class::Inet as u16).map(|seen| seen.result).collect()
}

#[test]
fn bytes_over_tcp_are_seen_with_both_ends() {
    let Some(mut lab) = lab() else { return };
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let server = listener.local_addr().unwrap();
    let waiting = perl(&format!(
        "socket(my $s, PF_INET, SOCK_STREAM, 0); connect($s, sockaddr_in({0}, inet_aton('127.0.0.1'))) or die; \
         send($s, 'hello', 0); syswrite($s, 'you'); recv($s, my $b, 100, 0); sysread($s, $b, 100); \
         fcntl($s, F_SETFL, O_NONBLOCK); recv($s, $b, 100, 0); syswrite($s, '!'); fcntl($s, F_SETFL, 0); \
         while (sysread($s, $b, 100)) {{}} close $s;",
        server.port()
    ));
    let pid = waiting.pid();
    lab.kernel.watch(pid, watch::ALL).unwrap();
    let talk = std::thread::spawn(move || {
        let (mut peer, from) = listener.accept().unwrap();
        let mut got = [0; 8];
        peer.read_exact(&mut got).unwrap();
        peer.write_all(b"first").unwrap();
        std::thread::sleep(std::time::Duration::from_millis(100));
        peer.write_all(b"second").unwrap();
        peer.read_exact(&mut got[..1]).unwrap();
        from
    });
    assert!(waiting.run().0.success());
    let client = talk.join().unwrap();
    let seen = lab.drain();
    let connect = of(&seen, Kind::Connect);
    assert_eq!(
        connect.iter().map(|seen| (seen.result, address(&seen.peer))).collect::<Vec<_>>(),
        [(0, server)]
    );
    assert_eq!(results(&seen, Kind::Send), [5]);
    assert_eq!(results(&seen, Kind::Write), [3, 1]);
    // Neither the attempt that found nothing, nor the end.
    assert_eq!(results(&seen, Kind::Recv), [5]);
    assert_eq!(results(&seen, Kind::Read), [6]);
    for moved in
        seen.iter().filter(|seen| matches!(seen.kind, Kind::Send | Kind::Recv | Kind::Read | Kind::Close))
    {
        if moved.class == Class::Inet as u16 {
            assert_eq!((address(&moved.local), address(&moved.peer)), (client, server), "{moved:?}");
            assert_eq!(moved.socket_type, 1);
        }
    }
    assert_eq!(of(&seen, Kind::Close).iter().filter(|seen| seen.class == Class::Inet as u16).count(), 1);
}

#[test]
fn version_six_and_datagrams_have_their_addresses() {
    let Some(mut lab) = lab() else { return };
    let Ok(listener) = TcpListener::bind("[::1]:0") else { return };
    let datagrams = UdpSocket::bind("127.0.0.1:0").unwrap();
    let server = listener.local_addr().unwrap();
    let seen = lab.watch(
        watch::ALL,
        &format!(
            "socket(my $s, PF_INET6, SOCK_STREAM, 0); connect($s, Socket::pack_sockaddr_in6({}, Socket::inet_pton(AF_INET6, '::1'))) or die; \
             send($s, 'six', 0); socket(my $u, PF_INET, SOCK_DGRAM, 0); \
             send($u, 'datagram', 0, sockaddr_in({}, inet_aton('127.0.0.1'))); ",
            server.port(),
            datagrams.local_addr().unwrap().port()
        ),
    );
    let sent: Vec<_> = of(&seen, Kind::Send)
        .iter()
        .map(|seen| (seen.result, address(&seen.peer), seen.socket_type))
        .collect();
    assert_eq!(sent, [(3, server, 1), (8, datagrams.local_addr().unwrap(), 2)]);
}

#[test]
fn a_refused_connection_is_told_with_the_address_asked_for() {
    let Some(mut lab) = lab() else { return };
    let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    let seen = lab.watch(
        watch::ALL,
        &format!("socket(my $s, PF_INET, SOCK_STREAM, 0); connect($s, sockaddr_in({port}, inet_aton('127.0.0.1')));"),
    );
    let connect = of(&seen, Kind::Connect);
    assert_eq!(connect.iter().map(|seen| (seen.result, seen.peer.1)).collect::<Vec<_>>(), [(-111, port)]);
}

#[test]
#[cfg(target_arch = "x86_64")]
fn of_many_messages_in_one_call_the_bytes_are_added_up() {
    let Some(mut lab) = lab() else { return };
    let datagrams = UdpSocket::bind("127.0.0.1:0").unwrap();
    let seen = lab.watch(
        watch::ALL,
        &format!(
            "socket(my $u, PF_INET, SOCK_DGRAM, 0); connect($u, sockaddr_in({}, inet_aton('127.0.0.1'))); \
             sub at {{ unpack('Q', pack('P', $_[0])) }} my ($a, $b) = ('abc', 'defgh'); \
             my $v = pack('QQ', at($a), 3); my $w = pack('QQ', at($b), 5); \
             my $m = pack('QQQQQQQQ', 0, 0, at($v), 1, 0, 0, 0, 0) . pack('QQQQQQQQ', 0, 0, at($w), 1, 0, 0, 0, 0); \
             syscall(307, fileno($u), $m, 2, 0) == 2 or die;",
            datagrams.local_addr().unwrap().port()
        ),
    );
    assert_eq!(results(&seen, Kind::Send), [8]);
}

#[test]
fn other_sockets_events_and_timers_are_nothing() {
    let Some(mut lab) = lab() else { return };
    let seen = lab.watch(
        watch::ALL,
        "socketpair(my $a, my $b, AF_UNIX, SOCK_STREAM, 0); send($a, 'x', 0); recv($b, my $x, 1, 0); \
         syswrite($a, 'y'); sysread($b, $x, 1); \
         my $e = syscall(290, 1, 0); if ($e > 0) { my $v = pack('Q', 1); syscall(1, $e, $v, 8); syscall(0, $e, $v, 8); }",
    );
    let moved: Vec<_> = seen
        .iter()
        .filter(|seen| matches!(seen.kind, Kind::Send | Kind::Recv | Kind::Read | Kind::Write | Kind::Output))
        .filter(|seen| seen.fd > 2)
        .collect();
    assert!(moved.is_empty(), "{moved:#?}");
}
