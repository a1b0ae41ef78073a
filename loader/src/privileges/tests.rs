//! The table of capabilities and the reading of `status`. Real processes are tested in `tests/processes`.

use super::*;

#[test]
fn a_status_is_read() {
    let text = "Name:\tx\nUid:\t0\t65534\t0\t0\nThreads:\t3\nCapInh:\t0000000000000001\nCapPrm:\t2\nCapEff:\t000001ffffffffff\n\
                CapBnd:\t4\nCapAmb:\t8\nNoNewPrivs:\t1\n";
    let status = Status::parse(text).unwrap();
    assert_eq!((status.inheritable, status.permitted, status.bounding, status.ambient), (1, 2, 4, 8));
    assert_eq!((status.effective, status.no_new_privs), (0x1ff_ffff_ffff, true));
    assert_eq!((status.threads, status.user), (3, 65_534));
    assert!(Status::parse("").is_err());
    assert!(Status::parse("CapInh:\tzz\n").is_err());
}

#[test]
fn names_are_those_of_the_manual() {
    assert_eq!(name(CapabilitySet::BPF), "CAP_BPF");
    assert_eq!(name(CapabilitySet::BPF | CapabilitySet::SYS_ADMIN), "CAP_SYS_ADMIN,CAP_BPF");
    assert_eq!(name(CapabilitySet::from_bits_retain(1 << 62)), "0x4000000000000000");
    for need in CAPABILITIES {
        assert_eq!(by_name(&need.name()), Some(need.capability));
    }
    assert_eq!(by_name("BPF"), None);
}

#[test]
fn a_new_kernel_asks_for_no_admin_and_an_old_one_does() {
    let all = u64::MAX;
    let new = wanted(all, (6, 18));
    assert!(new.contains(CapabilitySet::BPF | CapabilitySet::PERFMON));
    assert!(!new.intersects(CapabilitySet::SYS_ADMIN | CapabilitySet::SYS_RESOURCE));
    let old = wanted(all, (5, 4));
    assert!(old.contains(CapabilitySet::SYS_ADMIN | CapabilitySet::SYS_RESOURCE));
}

#[test]
fn admin_is_kept_where_there_is_nothing_better() {
    let admin = CapabilitySet::SYS_ADMIN;
    assert_eq!(wanted(admin.bits(), (6, 18)), admin);
    assert_eq!(Held::of(admin.bits(), (6, 18)).missing().count(), 2);
}

#[test]
fn what_is_missing_is_named_with_its_loss() {
    let held = Held::of((CapabilitySet::BPF | CapabilitySet::PERFMON).bits(), (6, 18));
    let missing: Vec<String> = held.missing().map(Need::name).collect();
    assert_eq!(missing, ["CAP_DAC_READ_SEARCH", "CAP_SYS_PTRACE"]);
    assert!(held.missing().all(|need| !need.lost.is_empty()));
    assert_eq!(Held::of(u64::MAX, (6, 18)).missing().count(), 0);
}
