//! Ways past the programs: told once a process and way.

use crate::arguments::result;
use crate::caller::Caller;
use crate::maps::{Counters, TOLD};
use crate::records::{emit, header};
use aya_ebpf::programs::TracePointContext;
use kvprov_agent_common::{BlindSpot, Class, FileIdentity, FileRecord, Kind};

/// All ways.
pub(crate) const WAYS: [BlindSpot; 5] =
    [BlindSpot::IoUring, BlindSpot::Sendfile, BlindSpot::Splice, BlindSpot::CopyFileRange, BlindSpot::Compat];

/// What [`TOLD`] keeps a way under.
#[inline(always)]
pub(crate) fn key(tgid: u32, way: BlindSpot) -> u64 {
    (u64::from(tgid) << 32) | way as u64
}

/// The end of a call that is such a way; one that failed is none.
#[inline(always)]
pub(crate) fn taken(context: &TracePointContext, way: BlindSpot) -> Option<()> {
    let caller = Caller::watched()?;
    if result(context) < 0 {
        Counters::fired(Kind::BlindSpot)?.filtered();
        return None;
    }
    tell(caller, way)
}

/// Tells of it, unless that was done.
#[inline(always)]
pub(crate) fn tell(caller: Caller, way: BlindSpot) -> Option<()> {
    let counters = Counters::fired(Kind::BlindSpot)?;
    let key = key(caller.tgid, way);
    if TOLD.get_ptr(&key).is_some() {
        counters.filtered();
        return None;
    }
    let _ = TOLD.insert(&key, &1, 0);
    let header = header(caller, Kind::BlindSpot, Class::None, 0, -1, way as u32);
    let file = FileIdentity { device: 0, open_file: 0, inode: 0 };
    emit(counters, &FileRecord { header, file, wanted: 0, references: 0 });
    None
}
