//! glog and klog: `I0320 11:44:26.698262  1822 rpc_service.cpp:41] msg`, one or two blanks before the thread, the
//! blank behind the bracket may be missing; NIXL's C++ side leaves clock and thread out: `W ucx_utils.cpp:590] msg`.

use super::python::set_engine;
use super::scan::{blanks, eat, file_line, one_blank, run};
use super::{Level, Peeled, Prefix, stamp};
use std::borrow::Cow;

/// Both forms.
pub(super) fn peel<'a>(text: &'a str, prefix: &mut Prefix<'a>) -> Option<Peeled<'a>> {
    let level = Level::from_letter(*text.as_bytes().first()?)?;
    let rest = text.get(1..)?;
    let (stamp, rest) = match stamp::glog(rest) {
        Some((stamp, rest)) => {
            let (_thread, rest) = run(blanks(rest), 12, |b| b.is_ascii_digit())?;
            (Some(stamp), rest)
        }
        None => (None, rest),
    };
    let (file, line, rest) = file_line(blanks(eat(rest, " ")?))?;
    let rest = one_blank(eat(rest, "]")?);
    prefix.level = Some(level);
    prefix.set_place(Cow::Borrowed(file), line);
    prefix.spoken = true;
    if let Some(stamp) = stamp {
        set_engine(prefix, stamp);
    }
    Some(Peeled::Message(rest))
}
