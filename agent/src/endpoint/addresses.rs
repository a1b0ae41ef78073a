//! Addresses of a network namespace: where from outside one reaches what listens on every address in it.
//!
//! Source: `/proc/PID/net/fib_trie`, in which an address of the namespace is a leaf `|-- A.B.C.D` whose next line begins
//! with `/32 host LOCAL`; and `/proc/PID/net/if_inet6`, whose lines are address, interface, prefix, scope (00: global),
//! flags, name.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// Addresses that are told; a pod has one or two.
const MAX_ADDRESSES: usize = 8;

/// IPv4 addresses but loopback ones, each once.
pub(super) fn of_trie(table: &str) -> Vec<IpAddr> {
    let mut found = Vec::new();
    let mut leaf: Option<Ipv4Addr> = None;
    for line in table.lines().map(str::trim) {
        if let Some(address) = line.strip_prefix("|-- ") {
            leaf = address.parse().ok();
        } else if line == "/32 host LOCAL"
            && let Some(address) = leaf.filter(|address| !address.is_loopback())
        {
            add(&mut found, address.into());
        }
    }
    found
}

/// Global IPv6 addresses.
pub(super) fn of_inet6(table: &str) -> Vec<IpAddr> {
    let mut found = Vec::new();
    for line in table.lines() {
        let mut words = line.split_ascii_whitespace();
        let (Some(address), Some("00")) = (words.next(), words.nth(2)) else { continue };
        if let Ok(address) = u128::from_str_radix(address, 16) {
            add(&mut found, Ipv6Addr::from(address).into());
        }
    }
    found
}

fn add(found: &mut Vec<IpAddr>, address: IpAddr) {
    if found.len() < MAX_ADDRESSES && !found.contains(&address) {
        found.push(address);
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test fails by panicking")]
    use super::*;

    const TRIE: &str = "Main:
  +-- 0.0.0.0/0 3 0 5
     |-- 0.0.0.0
        /0 universe UNICAST
     +-- 127.0.0.0/8 2 0 2
           |-- 127.0.0.1
              /32 host LOCAL
        +-- 192.0.2.0/30 2 0 2
           |-- 192.0.2.0
              /24 link UNICAST
           |-- 192.0.2.2
              /32 host LOCAL
        |-- 192.0.2.255
           /32 link BROADCAST
Local:
           |-- 192.0.2.2
              /32 host LOCAL
";

    #[test]
    fn local_leaves_are_the_addresses() {
        assert_eq!(of_trie(TRIE), ["192.0.2.2".parse::<IpAddr>().unwrap()]);
        assert!(of_trie("|-- x\n/32 host LOCAL\n").is_empty());
    }

    #[test]
    fn addresses_of_one_link_or_of_loopback_lead_nowhere() {
        let table = "fe8000000000000000fc00fffe000001 04 40 20 80     eth0
00000000000000000000000000000001 01 80 10 80       lo
20010db8000000000000000000000002 04 40 00 82     eth0
";
        assert_eq!(of_inet6(table), ["2001:db8::2".parse::<IpAddr>().unwrap()]);
    }
}
