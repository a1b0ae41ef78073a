//! Which results nobody wants to hear of.

const EINTR: i64 = -4;
const EAGAIN: i64 = -11;
const EINPROGRESS: i64 = -115;
/// ERESTARTSYS to ERESTART_RESTARTBLOCK: the call begins again after a signal.
const RESTARTS: core::ops::RangeInclusive<i64> = -516..=-512;

/// The call did nothing and will be made again.
#[inline(always)]
pub(crate) fn is_retry(result: i64) -> bool {
    result == EAGAIN || result == EINTR || (result >= *RESTARTS.start() && result <= *RESTARTS.end())
}

/// The call goes on in the background.
#[inline(always)]
pub(crate) fn is_in_progress(result: i64) -> bool {
    result == EINPROGRESS
}
