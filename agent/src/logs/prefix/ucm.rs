//! UCM: `[2026-09-11 04:12:39.730411][UC][E] msg [412,413][ucm_connector.py:2426,start_load_kv]`: clock, name, a letter for
//! the level; behind the message process and thread, then the place.

use super::python::set_engine;
use super::scan::{eat, run};
use super::{Level, Peeled, Prefix, Process, stamp};
use std::borrow::Cow;

const NAME: &str = "UC";

/// What stands before the message.
pub(super) fn peel<'a>(text: &'a str, prefix: &mut Prefix<'a>) -> Option<Peeled<'a>> {
    let (stamp, rest) = stamp::full(eat(text, "[")?)?;
    let rest = eat(rest, "][UC][")?;
    let level = Level::from_letter(*rest.as_bytes().first()?)?;
    let message = eat(rest.get(1..)?, "]")?;
    prefix.level = Some(level);
    prefix.module.get_or_insert(Cow::Borrowed(NAME));
    prefix.spoken = true;
    set_engine(prefix, stamp);
    let message = message.strip_prefix(' ').unwrap_or(message);
    Some(Peeled::Message(trailer(message, prefix).unwrap_or(message)))
}

/// What stands behind it.
fn trailer<'a>(message: &'a str, prefix: &mut Prefix<'a>) -> Option<&'a str> {
    let (rest, place) = message.trim_end().strip_suffix(']')?.rsplit_once('[')?;
    let (file, line) = place.split_once(',')?.0.rsplit_once(':')?;
    let line = line.parse().ok()?;
    let (rest, processes) = rest.strip_suffix(']')?.rsplit_once('[')?;
    let (pid, after) = run(processes, 10, |byte| byte.is_ascii_digit())?;
    eat(after, ",")?;
    prefix.process.get_or_insert(Process { name: Cow::Borrowed(NAME), pid: pid.parse().ok() });
    prefix.set_place(Cow::Borrowed(file), line);
    Some(rest.trim_end())
}

#[cfg(test)]
mod tests {
    use super::super::peel as peel_line;
    use super::*;

    #[test]
    fn clock_level_process_and_place_are_no_message() {
        let line = "[2026-09-11 04:12:39.730411][UC][E] wait load [4] task error. [412,413][ucm_connector.py:2426,start_load_kv]";
        let peeled = peel_line(line, Prefix::default());
        assert_eq!(peeled.message, "wait load [4] task error.");
        assert_eq!(peeled.prefix.level, Some(Level::Error));
        assert!(peeled.prefix.engine.is_some() && peeled.prefix.spoken);
        assert_eq!(peeled.prefix.process.and_then(|process| process.pid), Some(412));
        assert_eq!(peeled.prefix.source_line, Some(2426));
    }

    #[test]
    fn a_message_without_its_end_is_kept_whole() {
        for message in ["wait load task error [4", "wait load [4]", "wait [4][5]", ""] {
            let line = format!("[2026-09-11 04:12:39.730411][UC][I] {message}");
            let peeled = peel_line(&line, Prefix::default());
            assert_eq!((peeled.message.as_ref(), peeled.prefix.level), (message, Some(Level::Info)));
        }
    }
}
