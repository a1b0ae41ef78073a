//! NIXL's Python side: `2025-11-25 02:39:46 NIXL INFO    _api.py:361 msg`. Its C++ side speaks glog.

use super::python::set_engine;
use super::scan::{eat, file_line, one_blank, some_blanks};
use super::{Peeled, Prefix, level, stamp};
use std::borrow::Cow;

/// The whole prefix.
pub(super) fn peel<'a>(text: &'a str, prefix: &mut Prefix<'a>) -> Option<Peeled<'a>> {
    let (stamp, rest) = stamp::full(text)?;
    let (level, rest) = level::word(some_blanks(eat(some_blanks(rest)?, "NIXL")?)?)?;
    let rest = some_blanks(rest)?;
    set_engine(prefix, stamp);
    prefix.level = Some(level);
    match file_line(rest) {
        Some((file, line, rest)) => {
            prefix.set_place(Cow::Owned(format!("nixl/{file}")), line);
            Some(Peeled::Message(one_blank(rest)))
        }
        None => {
            prefix.module = Some(Cow::Borrowed("nixl"));
            Some(Peeled::Message(rest))
        }
    }
}
