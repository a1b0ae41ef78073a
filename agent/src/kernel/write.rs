//! Writes records as the JSON lines of a recording, which [`Record::parse`] reads back as they were.
//!
//! Invariant: no allocation but the growth of the buffer. Times survive when they are whole microseconds
//! ([`unix_seconds`]): a decimal of at most sixteen digits is read back as the same number.

use crate::kernel::record::Record;

/// Unix nanoseconds as the seconds of a record, in whole microseconds.
pub fn unix_seconds(nanos: i64) -> f64 {
    // Both numbers are exact, so that the quotient is the number nearest to the decimal.
    nanos.div_euclid(1000) as f64 / 1e6
}

// === impl Record ===

impl Record {
    /// Appends the record as one JSON object, without a line end.
    pub fn write_json(&self, out: &mut Vec<u8>) {
        out.push(b'{');
        self.write_members(out);
        out.push(b'}');
    }

    /// Appends the members of the object.
    pub(crate) fn write_members(&self, out: &mut Vec<u8>) {
        if let Some(ts) = self.ts.filter(|ts| ts.is_finite()) {
            out.extend_from_slice(b"\"ts\":");
            // Writing to memory does not fail.
            let _ = serde_json::to_writer(&mut *out, &ts);
            out.push(b',');
        }
        out.extend_from_slice(b"\"pid\":");
        number(out, self.pid);
        member(out, ",\"tid\":", self.tid);
        out.extend_from_slice(b",\"op\":\"");
        out.extend_from_slice(self.op.as_str().as_bytes());
        out.push(b'"');
        text(out, ",\"path\":", self.path.as_deref());
        text(out, ",\"path2\":", self.path2.as_deref());
        if let Some(flags) = self.flags {
            out.extend_from_slice(b",\"flags\":\"");
            flags.write_to(out);
            out.push(b'"');
        }
        member(out, ",\"ret\":", self.ret);
        member(out, ",\"bytes\":", self.bytes);
        member(out, ",\"want\":", self.want);
        if let Some(fs) = &self.fs {
            text(out, ",\"fs\":", Some(&fs.name));
            text(out, ",\"mount\":", fs.mount.as_deref());
            text(out, ",\"root\":", Some(&*fs.root).filter(|root| *root != "/"));
        }
        text(out, ",\"local\":", self.local.as_deref());
        text(out, ",\"peer\":", self.peer.as_deref());
        member(out, ",\"peer_pid\":", self.peer_pid);
    }
}

fn member(out: &mut Vec<u8>, name: &str, value: Option<i64>) {
    if let Some(value) = value {
        out.extend_from_slice(name.as_bytes());
        number(out, value);
    }
}

pub(crate) fn number(out: &mut Vec<u8>, value: i64) {
    let _ = serde_json::to_writer(&mut *out, &value);
}

pub(crate) fn text(out: &mut Vec<u8>, name: &str, value: Option<&str>) {
    if let Some(value) = value {
        out.extend_from_slice(name.as_bytes());
        let _ = serde_json::to_writer(&mut *out, value);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kernel::flags::OpenFlags;
    use crate::kernel::record::{FileSystem, Operation};
    use proptest::prelude::*;
    use std::sync::Arc;

    fn any_text() -> impl Strategy<Value = Option<Arc<str>>> {
        proptest::option::of(any::<String>().prop_map(Arc::from))
    }

    fn any_operation() -> impl Strategy<Value = Operation> {
        proptest::sample::select(vec![
            Operation::Open,
            Operation::Read,
            Operation::Write,
            Operation::Rename,
            Operation::Unlink,
            Operation::Stat,
            Operation::Close,
            Operation::Readdir,
            Operation::Statfs,
            Operation::Mkdir,
            Operation::Rmdir,
            Operation::Truncate,
            Operation::Mmap,
            Operation::Connect,
            Operation::Send,
            Operation::Recv,
            Operation::ProcessVmReadv,
            Operation::ProcessVmWritev,
            Operation::Other,
        ])
    }

    prop_compose! {
        fn any_record()(
            nanos in 0i64..4_000_000_000_000_000_000,
            pid in any::<i64>(),
            op in any_operation(),
            paths in (any_text(), any_text()),
            flags in proptest::option::of(any::<u32>().prop_map(OpenFlags::from_bits)),
            numbers in proptest::array::uniform5(proptest::option::of(any::<i64>())),
            fs in proptest::option::of((any::<String>(), any_text(), any::<String>())),
            ends in (any_text(), any_text()),
        ) -> Record {
            Record {
                ts: Some(unix_seconds(nanos)),
                pid,
                tid: numbers[0],
                op,
                path: paths.0,
                path2: paths.1,
                flags,
                ret: numbers[1],
                bytes: numbers[2],
                want: numbers[3],
                fs: fs.map(|(name, mount, root)| Arc::new(FileSystem {
                    name: name.into(), mount, root: root.into()
                })),
                local: ends.0,
                peer: ends.1,
                peer_pid: numbers[4],
            }
        }
    }

    proptest! {
        #[test]
        fn a_record_survives_its_line(record in any_record()) {
            let mut line = Vec::new();
            record.write_json(&mut line);
            prop_assert_eq!(Record::parse(&line), Ok(record), "{}", String::from_utf8_lossy(&line));
            prop_assert!(!line.contains(&b'\n'));
        }
    }
}
