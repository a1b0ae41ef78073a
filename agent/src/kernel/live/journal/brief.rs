//! The short form of a call on a file that the journal told of before: most lines are such.
//!
//! A line `@[device,open file,inode,pid,tid,"worker"]` names the file and who calls; the lines after it are about these
//! until another one comes. `r64,1000,1,65536` is a call: a letter, then position, time and wall clock (in
//! microseconds) as the difference from the line before it, then the result; then, where they are not the result and
//! nothing, the bytes that moved and those that were wanted. A batch begins with zeros and no file, so that each can be
//! read by itself.

use super::Line;
use crate::kernel::record::{Operation, Record};
use crate::kernel::write::{number, text};
use kvprov_agent_common::FileIdentity;

/// What the lines so far said.
#[derive(Debug, Default)]
pub(super) struct Brief {
    /// File, process and thread.
    subject: Option<(FileIdentity, i64, i64)>,
    worker: String,
    position: i64,
    time: i64,
    micros: i64,
}

// === impl Brief ===

impl Brief {
    /// Adds a call. False: it cannot be told in this form.
    pub(super) fn write(
        &mut self,
        out: &mut Vec<u8>,
        worker: &str,
        position: u64,
        time: u64,
        record: &Record,
        file: FileIdentity,
    ) -> bool {
        let Some(letter) = letter(record.op) else { return false };
        let (Some(ts), Some(tid), Some(result)) = (record.ts, record.tid, record.ret) else { return false };
        let (Ok(position), Ok(time)) = (i64::try_from(position), i64::try_from(time)) else { return false };
        // Halves are rounded up; times before the epoch do not come back as they were, and go the long way.
        let micros = (ts * 1e6 + 0.5) as i64;
        if seconds(micros) != ts {
            return false; // no whole microseconds
        }
        let subject = (file, record.pid, tid);
        if self.subject != Some(subject) || self.worker != worker {
            self.subject = Some(subject);
            worker.clone_into(&mut self.worker);
            out.extend_from_slice(b"@[");
            for part in [i64::from(file.device), i64::from(file.open_file)] {
                number(out, part);
                out.push(b',');
            }
            // Writing to memory does not fail.
            let _ = serde_json::to_writer(&mut *out, &file.inode);
            out.push(b',');
            number(out, record.pid);
            out.push(b',');
            number(out, tid);
            text(out, ",", Some(worker));
            out.extend_from_slice(b"]\n");
        }
        out.push(letter);
        let differences = [
            position.wrapping_sub(self.position),
            time.wrapping_sub(self.time),
            micros.wrapping_sub(self.micros),
        ];
        for difference in differences {
            number(out, difference);
            out.push(b',');
        }
        (self.position, self.time, self.micros) = (position, time, micros);
        number(out, result);
        if record.bytes != Some(result) || record.want.is_some() {
            for value in [record.bytes, record.want] {
                out.push(b',');
                if let Some(value) = value {
                    number(out, value);
                }
            }
        }
        out.push(b'\n');
        true
    }

    /// Reads a line; `None` where it tells no call.
    pub(super) fn read(&mut self, line: &[u8]) -> Option<Line> {
        let (letter, rest) = line.split_first()?;
        if *letter == b'@' {
            let told: Option<(u32, u32, u64, i64, i64, String)> = serde_json::from_slice(rest).ok();
            self.subject = None;
            let (device, open_file, inode, pid, tid, worker) = told?;
            self.subject = Some((FileIdentity { device, open_file, inode }, pid, tid));
            self.worker = worker;
            return None;
        }
        let (op, closes) = operation(*letter)?;
        let mut parts = std::str::from_utf8(rest).ok()?.split(',');
        let mut difference = |before: &mut i64| -> Option<i64> {
            *before = before.wrapping_add(parts.next()?.parse().ok()?);
            Some(*before)
        };
        let position = difference(&mut self.position)?;
        let time = difference(&mut self.time)?;
        let micros = difference(&mut self.micros)?;
        let result: i64 = parts.next()?.parse().ok()?;
        let (bytes, want) = match parts.next() {
            None => (Some(result), None),
            Some(bytes) => (bytes.parse().ok(), parts.next()?.parse().ok()),
        };
        let (file, pid, tid) = self.subject?;
        let record = Record {
            ts: Some(seconds(micros)),
            pid,
            tid: Some(tid),
            op,
            path: None,
            path2: None,
            flags: None,
            ret: Some(result),
            bytes,
            want,
            fs: None,
            local: None,
            peer: None,
            peer_pid: None,
        };
        let (position, time) = (u64::try_from(position).ok()?, u64::try_from(time).ok()?);
        Some(Line::Brief { worker: self.worker.clone(), position, time, record, file, closes })
    }
}

/// As `unix_seconds` makes them.
fn seconds(micros: i64) -> f64 {
    micros as f64 / 1e6
}

fn letter(op: Operation) -> Option<u8> {
    Some(match op {
        Operation::Read => b'r',
        Operation::Write => b'w',
        Operation::Mmap => b'm',
        Operation::Close => b'c',
        _ => return None,
    })
}

/// A call, and whether it is the last close.
fn operation(letter: u8) -> Option<(Operation, bool)> {
    Some(match letter {
        b'r' => (Operation::Read, false),
        b'w' => (Operation::Write, false),
        b'm' => (Operation::Mmap, false),
        b'c' => (Operation::Close, true),
        _ => return None,
    })
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test fails by panicking")]
mod tests {
    use super::*;
    use crate::kernel::write::unix_seconds;
    use proptest::prelude::*;

    type Call = (u8, u64, u64, i64, (i64, Option<i64>, Option<i64>), (u8, u8));

    fn any_call() -> impl Strategy<Value = Call> {
        let number = || any::<i64>();
        (
            0u8..4,
            0u64..1 << 62,
            0u64..1 << 62,
            0i64..4_000_000_000_000_000_000,
            (number(), proptest::option::of(number()), proptest::option::of(number())),
            (0u8..3, 0u8..2),
        )
    }

    fn line(call: Call) -> Line {
        let (letter, position, time, wall, (ret, bytes, want), (file, worker)) = call;
        let (op, closes) = operation(b"rwmc"[usize::from(letter)]).unwrap();
        let mut record = crate::kernel::live::connections::record(7, u32::from(file), op);
        record.ts = Some(unix_seconds(wall));
        (record.ret, record.bytes, record.want) = (Some(ret), bytes, want);
        let file = FileIdentity { device: 1, open_file: u32::from(file), inode: u64::MAX };
        Line::Brief { worker: format!("w \"{worker}\"\n"), position, time, record, file, closes }
    }

    proptest! {
        #[test]
        fn a_call_survives_its_line(calls in proptest::collection::vec(any_call(), 1..20)) {
            let (mut writes, mut out) = (Brief::default(), Vec::new());
            for call in &calls {
                let Line::Brief { worker, position, time, record, file, .. } = line(*call) else { return Ok(()) };
                prop_assert!(writes.write(&mut out, &worker, position, time, &record, file));
            }
            let mut reads = Brief::default();
            let lines: Vec<Line> = out.split(|byte| *byte == b'\n').filter_map(|line| reads.read(line)).collect();
            prop_assert_eq!(lines, calls.into_iter().map(line).collect::<Vec<_>>());
        }

        #[test]
        fn no_bytes_make_it_panic(lines in proptest::collection::vec("[@rwmc]?[0-9,\\-]{0,24}", 0..8)) {
            let mut reads = Brief::default();
            for line in lines {
                reads.read(line.as_bytes());
            }
        }
    }

    #[test]
    fn a_call_of_another_kind_is_not_told_briefly() {
        let file = FileIdentity { device: 1, open_file: 2, inode: 3 };
        let mut record = crate::kernel::live::connections::record(7, 7, Operation::Open);
        (record.ts, record.ret) = (Some(1.0), Some(0));
        let mut out = Vec::new();
        assert!(!Brief::default().write(&mut out, "w", 1, 1, &record, file));
        (record.op, record.ret) = (Operation::Read, None);
        assert!(!Brief::default().write(&mut out, "w", 1, 1, &record, file));
        assert!(out.is_empty());
    }
}
