//! Maps and constants that the loader fills.

use aya_ebpf::macros::map;
use aya_ebpf::maps::{Array, HashMap, LruHashMap, PerCpuArray, RingBuf};
use kvprov_agent_common::{Kind, kernel::counter, kernel::layout};

/// Records on their way to the agent. The loader sets the size.
#[map]
pub(crate) static EVENTS: RingBuf = RingBuf::with_byte_size(16 << 20, 0);

/// Watched processes and their flags.
#[map]
pub(crate) static WORKERS: HashMap<u32, u32> = HashMap::with_max_entries(16_384, 0);

/// Processes of kvprov, which are never watched.
#[map]
pub(crate) static OWN: HashMap<u32, u32> = HashMap::with_max_entries(64, 0);

/// Blind spots that were told: process and way.
#[map]
pub(crate) static TOLD: LruHashMap<u64, u8> = LruHashMap::with_max_entries(4096, 0);

/// Counters by kind.
#[map]
static COUNTERS: PerCpuArray<[u64; counter::COUNT]> = PerCpuArray::with_max_entries(Kind::SLOTS as u32, 0);

/// Room to build a record in, and copies of structures.
#[map]
static ROOM: PerCpuArray<Room> = PerCpuArray::with_max_entries(1, 0);

/// Forks that could not be followed because [`WORKERS`] was full.
#[map]
pub(crate) static UNFOLLOWED: Array<u64> = Array::with_max_entries(1, 0);

/// Where the running kernel keeps things; a constant to the verifier, so that offsets cost nothing.
#[unsafe(no_mangle)]
static LAYOUT: [u32; layout::COUNT] = [0; layout::COUNT];

/// Control group that bounds what is watched: its id; 0 is none. And its level below the root.
#[unsafe(no_mangle)]
static SCOPE: [u64; 2] = [0; 2];

/// Bytes of the room for a record: two longest paths as the masks allow them, or a piece of output.
pub(crate) const RECORD_MAX: usize = 20 << 10;

/// Per-CPU room. A program on a system call runs to its end before another one begins on its processor.
#[repr(C, align(8))]
pub(crate) struct Room {
    pub(crate) record: [u8; RECORD_MAX],
    pub(crate) file: [u8; layout::FILE_MAX],
    pub(crate) inode: [u8; layout::INODE_MAX],
    pub(crate) socket: [u8; layout::SOCKET_MAX],
    pub(crate) sock: [u8; layout::SOCK_MAX],
}

/// An offset or size of [`layout`].
#[inline(always)]
pub(crate) fn layout_of(what: usize) -> usize {
    // SAFETY: `what` is a constant below COUNT. Volatile, since the loader changes the value.
    unsafe { core::ptr::read_volatile((&raw const LAYOUT).cast::<u32>().add(what)) as usize }
}

/// Whether the kernel has a member.
#[inline(always)]
pub(crate) fn has(what: usize) -> bool {
    layout_of(what) != layout::MISSING as usize
}

/// Id and level of the control group that bounds what is watched.
#[inline(always)]
pub(crate) fn scope() -> (u64, u64) {
    let scope = (&raw const SCOPE).cast::<u64>();
    // SAFETY: both are inside. Volatile, since the loader changes the values.
    unsafe { (core::ptr::read_volatile(scope), core::ptr::read_volatile(scope.add(1))) }
}

/// The room of this processor.
#[inline(always)]
pub(crate) fn room() -> Option<*mut Room> {
    ROOM.get_ptr_mut(0)
}

/// Counters of a kind on this processor.
#[derive(Clone, Copy)]
pub(crate) struct Counters(*mut [u64; counter::COUNT]);

impl Counters {
    /// Those of `kind`, with one more event fired.
    #[inline(always)]
    pub(crate) fn fired(kind: Kind) -> Option<Self> {
        let counters = Self(COUNTERS.get_ptr_mut(kind.index() as u32)?);
        counters.add(counter::FIRED);
        Some(counters)
    }

    /// One more of `what`, a place of [`counter`].
    #[inline(always)]
    pub(crate) fn add(self, what: usize) {
        // SAFETY: a pointer into the map, and `what` is a constant below COUNT.
        unsafe { *self.0.cast::<u64>().add(what) += 1 }
    }

    /// The event was left out on purpose.
    #[inline(always)]
    pub(crate) fn filtered(self) {
        self.add(counter::FILTERED);
    }
}
