//! Observation ⇄ stored bytes, loss-free and canonical.
//!
//! Invariant: the bytes are a function of what the observation says and not of which attributes this version knows:
//! known and unknown attributes are written in one list, sorted by name. They begin with the wall time in an order
//! that sorts like the time, so that of two contents under one id the later dated one is the greater. The id is the
//! key under which the bytes stand and not part of them.
//!
//! Compact beside OTLP: no tags, no `kvprov.` prefixes, no scope; a record of 400 bytes takes about 250.

use super::LedgerError;
use kvprov_model::clock::{MonotonicTime, WallTime};
use kvprov_model::id::{NodeId, ObservationId, WorkerId};
use kvprov_model::observation::{Body, Envelope, Observation, SourceKind};
use kvprov_model::value::Value;
use std::borrow::Cow;
use std::collections::BTreeMap;

const PREFIX: &str = "kvprov.";
/// Version of the layout below; a reader refuses what it does not know.
const LAYOUT: u8 = 1;
/// Values nested deeper are written as empty, as the OTLP reader does.
const MAX_DEPTH: usize = 17;

const HAS_BOOT: u8 = 1;
const HAS_WORKER: u8 = 2;
const HAS_MONOTONIC: u8 = 4;
const HAS_SAYS: u8 = 8;

/// Writes an observation behind what `out` holds.
pub(super) fn encode(observation: &Observation, out: &mut Vec<u8>) {
    let envelope = &observation.envelope;
    put_order(envelope.wall, out);
    out.push(LAYOUT);
    let flag = |present: bool, bit: u8| if present { bit } else { 0 };
    out.push(
        flag(envelope.boot_id.is_some(), HAS_BOOT)
            | flag(envelope.worker.is_some(), HAS_WORKER)
            | flag(envelope.monotonic.is_some(), HAS_MONOTONIC)
            | flag(envelope.says.is_some(), HAS_SAYS),
    );
    put_text(&envelope.node.0, out);
    if let Some(boot) = &envelope.boot_id {
        put_text(boot, out);
    }
    if let Some(worker) = &envelope.worker {
        put_text(&worker.0, out);
    }
    if let Some(time) = envelope.monotonic {
        put_number(time.0, out);
    }
    if let Some(says) = &envelope.says {
        put_text(says, out);
    }
    put_number(zigzag(envelope.schema_version), out);
    put_text(envelope.source.as_str(), out);
    put_text(&envelope.stream, out);
    put_number(zigzag(envelope.position), out);
    put_text(observation.body.kind(), out);

    let mut attributes: Vec<(bool, &str, Cow<'_, Value>)> = Vec::with_capacity(16);
    observation.body.for_each_attribute(|name, value| attributes.push((true, name, Cow::Owned(value))));
    attributes.extend(observation.extra.iter().map(|(name, value)| match name.strip_prefix(PREFIX) {
        Some(short) => (true, short, Cow::Borrowed(value)),
        None => (false, name.as_str(), Cow::Borrowed(value)),
    }));
    attributes.sort_by(|a, b| (a.0, a.1).cmp(&(b.0, b.1)));
    put_number(attributes.len() as u64, out);
    for (ours, name, value) in attributes {
        out.push(u8::from(ours));
        put_text(name, out);
        put_value(&value, 0, out);
    }
    put_number(observation.resource.len() as u64, out);
    for (name, value) in &observation.resource {
        put_text(name, out);
        put_value(value, 0, out);
    }
}

/// Reads an observation back.
pub(super) fn decode(id: ObservationId, bytes: &[u8]) -> Result<Observation, LedgerError> {
    Reader { rest: bytes }
        .observation(id)
        .map_err(|reason| LedgerError::Corrupt { what: "observation", reason: reason.to_owned() })
}

/// A wall time so that bytes sort like times, and behind the 0 that stands for none.
pub(super) fn time_order(wall: WallTime) -> [u8; 9] {
    let mut bytes = [1; 9];
    bytes[1..].copy_from_slice(&(wall.0.cast_unsigned() ^ (1 << 63)).to_be_bytes());
    bytes
}

fn put_order(wall: Option<WallTime>, out: &mut Vec<u8>) {
    match wall {
        None => out.push(0),
        Some(time) => out.extend(time_order(time)),
    }
}

pub(super) fn zigzag(number: i64) -> u64 {
    ((number << 1) ^ (number >> 63)).cast_unsigned()
}

pub(super) fn unzigzag(number: u64) -> i64 {
    (number >> 1).cast_signed() ^ -(number & 1).cast_signed()
}

pub(super) fn put_number(mut number: u64, out: &mut Vec<u8>) {
    while number >= 0x80 {
        out.push((number as u8) | 0x80);
        number >>= 7;
    }
    out.push(number as u8);
}

pub(super) fn put_text(text: &str, out: &mut Vec<u8>) {
    put_number(text.len() as u64, out);
    out.extend_from_slice(text.as_bytes());
}

fn put_value(value: &Value, depth: usize, out: &mut Vec<u8>) {
    if depth >= MAX_DEPTH {
        out.push(0);
        return;
    }
    match value {
        Value::Empty => out.push(0),
        Value::Str(text) => {
            out.push(1);
            put_text(text, out);
        }
        Value::Int(number) => {
            out.push(2);
            put_number(zigzag(*number), out);
        }
        Value::Float(number) => {
            out.push(3);
            out.extend(number.to_bits().to_le_bytes());
        }
        Value::Bool(flag) => out.push(if *flag { 5 } else { 4 }),
        Value::Bytes(bytes) => {
            out.push(6);
            put_number(bytes.len() as u64, out);
            out.extend_from_slice(bytes);
        }
        Value::List(items) => {
            out.push(7);
            put_number(items.len() as u64, out);
            for item in items {
                put_value(item, depth + 1, out);
            }
        }
        Value::Map(pairs) => {
            out.push(8);
            put_number(pairs.len() as u64, out);
            for (key, item) in pairs {
                put_text(key, out);
                put_value(item, depth + 1, out);
            }
        }
    }
}

/// A cursor over stored bytes; every read is bounded by what is left.
pub(super) struct Reader<'a> {
    pub(super) rest: &'a [u8],
}

pub(super) type Read<T> = Result<T, &'static str>;

// === impl Reader ===

impl<'a> Reader<'a> {
    fn observation(mut self, id: ObservationId) -> Read<Observation> {
        let wall = match self.byte()? {
            0 => None,
            _ => Some(WallTime((u64::from_be_bytes(self.array()?) ^ (1 << 63)).cast_signed())),
        };
        if self.byte()? != LAYOUT {
            return Err("its layout is unknown");
        }
        let flags = self.byte()?;
        let node = NodeId(self.text()?);
        let boot_id = self.when(flags & HAS_BOOT != 0, Self::text)?;
        let worker = self.when(flags & HAS_WORKER != 0, Self::text)?.map(WorkerId);
        let monotonic = self.when(flags & HAS_MONOTONIC != 0, Self::number)?.map(MonotonicTime);
        let says = self.when(flags & HAS_SAYS != 0, Self::text)?;
        let schema_version = unzigzag(self.number()?);
        let source = SourceKind::from(self.str()?);
        let stream = self.text()?;
        let position = unzigzag(self.number()?);
        let mut body = Body::empty(self.str()?);
        let mut extra = BTreeMap::new();
        for _ in 0..self.number()? {
            let ours = self.byte()? != 0;
            let name = self.str()?;
            let value = self.value(0)?;
            if !ours {
                extra.insert(name.to_owned(), value);
            } else if let Err(untaken) = body.set(name, value) {
                extra.insert(format!("{PREFIX}{name}"), untaken);
            }
        }
        let mut resource = BTreeMap::new();
        for _ in 0..self.number()? {
            let name = self.text()?;
            resource.insert(name, self.value(0)?);
        }
        if !self.rest.is_empty() {
            return Err("it has a tail");
        }
        let envelope = Envelope {
            schema_version,
            id,
            node,
            boot_id,
            worker,
            source,
            stream,
            position,
            monotonic,
            wall,
            says,
        };
        Ok(Observation { envelope, body, extra, resource })
    }

    fn when<T>(&mut self, present: bool, read: impl FnOnce(&mut Self) -> Read<T>) -> Read<Option<T>> {
        if present { read(self).map(Some) } else { Ok(None) }
    }

    fn take(&mut self, length: usize) -> Read<&'a [u8]> {
        let (taken, rest) = self.rest.split_at_checked(length).ok_or("it is truncated")?;
        self.rest = rest;
        Ok(taken)
    }

    pub(super) fn byte(&mut self) -> Read<u8> {
        Ok(self.array::<1>()?[0])
    }

    pub(super) fn array<const N: usize>(&mut self) -> Read<[u8; N]> {
        self.take(N)?.try_into().map_err(|_| "it is truncated")
    }

    pub(super) fn number(&mut self) -> Read<u64> {
        let mut number = 0;
        for shift in (0..64).step_by(7) {
            let byte = self.byte()?;
            number |= u64::from(byte & 0x7f) << shift;
            if byte < 0x80 {
                return Ok(number);
            }
        }
        Err("a number is too long")
    }

    fn bytes(&mut self) -> Read<&'a [u8]> {
        let length = usize::try_from(self.number()?).map_err(|_| "a length is out of range")?;
        self.take(length)
    }

    pub(super) fn str(&mut self) -> Read<&'a str> {
        std::str::from_utf8(self.bytes()?).map_err(|_| "a text is not UTF-8")
    }

    fn text(&mut self) -> Read<String> {
        self.str().map(str::to_owned)
    }

    fn value(&mut self, depth: usize) -> Read<Value> {
        if depth > MAX_DEPTH {
            return Err("a value is nested too deep");
        }
        Ok(match self.byte()? {
            0 => Value::Empty,
            1 => Value::Str(self.text()?),
            2 => Value::Int(unzigzag(self.number()?)),
            3 => Value::Float(f64::from_bits(u64::from_le_bytes(self.array()?))),
            4 => Value::Bool(false),
            5 => Value::Bool(true),
            6 => Value::Bytes(self.bytes()?.to_vec()),
            7 => {
                let mut items = Vec::new();
                for _ in 0..self.number()? {
                    items.push(self.value(depth + 1)?);
                }
                Value::List(items)
            }
            8 => {
                let mut pairs = Vec::new();
                for _ in 0..self.number()? {
                    let key = self.text()?;
                    pairs.push((key, self.value(depth + 1)?));
                }
                Value::Map(pairs)
            }
            _ => return Err("a value has an unknown type"),
        })
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a failed test says enough")]
    use super::*;

    #[test]
    fn numbers_of_every_size_survive() {
        for number in [0, 1, -1, 63, -64, 64, i64::MAX, i64::MIN] {
            assert_eq!(unzigzag(zigzag(number)), number);
            let mut bytes = Vec::new();
            put_number(zigzag(number), &mut bytes);
            assert_eq!(Reader { rest: &bytes }.number(), Ok(zigzag(number)));
        }
    }

    #[test]
    fn times_sort_as_bytes() {
        let order = |wall| {
            let mut bytes = Vec::new();
            put_order(wall, &mut bytes);
            bytes
        };
        let times = [None, Some(i64::MIN), Some(-1), Some(0), Some(1), Some(i64::MAX)];
        let sorted: Vec<_> = times.into_iter().map(|time| order(time.map(WallTime))).collect();
        assert!(sorted.is_sorted());
    }

    #[test]
    fn damaged_bytes_give_an_error_and_no_panic() {
        for length in 0..40 {
            for fill in [0, 1, 8, 0x7f, 0xff] {
                let _ = decode(ObservationId::default(), &vec![fill; length]);
            }
        }
    }
}
