//! Batches of KV events as they cross the wire: MessagePack.
//!
//! A batch is an array `[ts, events, data_parallel_rank?]`. Events are arrays that begin with their type (vLLM up to
//! 0.23) or maps with `type` (vLLM from 0.24, SGLang); hashes are integers or bytes. Unknown fields are passed over.
//! Nothing is built but the event at hand, so that memory stays below a few times the size of one event. Invariant: token
//! ids go straight into [`Tokens`].

use super::blocks::MAX_BLOCKS;
use super::event::{Event, Head, MAX_HASH, MAX_TEXT, Tokens};
use rmp::Marker;
use rmp::decode::RmpRead;

/// Deeper nesting is no batch: extra keys are lists of tuples, two below the event.
const DEPTH: u32 = 12;
/// Events of one batch.
const MAX_EVENTS: u32 = 64 * 1024;
/// Token ids of one event.
const MAX_TOKENS: u32 = 4 << 20;

/// Bytes that are no batch, or more of something than is read. The text is the reason to count by.
type Malformed = &'static str;

const CUT: Malformed = "KV events that end early";
const SHAPE: Malformed = "no KV event";
const DEEP: Malformed = "KV events nested too deep";

/// Reads a batch and hands on its events one by one. What is not readable inside it is counted by `bad`.
///
/// # Errors
/// With a reason when the bytes are no batch; then no event was handed on.
pub fn read_batch(
    payload: &[u8],
    mut bad: impl FnMut(&'static str),
    mut take: impl FnMut(&Head, Event),
) -> Result<Head, Malformed> {
    let mut reader = Reader { rest: payload };
    let parts = reader.array()?;
    if parts < 2 {
        return Err(SHAPE);
    }
    let ts = match reader.value()? {
        Value::Float(ts) => Some(ts),
        Value::Unsigned(ts) => Some(ts as f64),
        _ => return Err(SHAPE),
    };
    let mut events = reader.clone();
    // The rank stands behind the events, so these are passed over first; what is cut shows here.
    reader.skip(DEPTH)?;
    let rank = if parts > 2 { reader.value()?.unsigned() } else { None };
    let head = Head { ts, seq: None, publisher: Head::publisher("", rank) };
    let count = events.array()?;
    for index in 0..count {
        if index >= MAX_EVENTS {
            bad("too many KV events in one batch");
            break;
        }
        let mut one = events.clone();
        match one.event() {
            Ok(event) => {
                events = one;
                take(&head, event);
            }
            Err(reason) => {
                events.skip(DEPTH)?;
                bad(reason);
            }
        }
    }
    Ok(head)
}

/// The time that the engine wrote into a batch: unix seconds.
pub fn time_of(payload: &[u8]) -> Option<f64> {
    let mut reader = Reader { rest: payload };
    reader.array().ok()?;
    match reader.value().ok()? {
        Value::Float(time) => Some(time),
        Value::Unsigned(time) => Some(time as f64),
        _ => None,
    }
}

/// A value without what is in it.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Value<'b> {
    Nil,
    Bool(bool),
    Unsigned(u64),
    Negative(i64),
    Float(f64),
    Text(&'b [u8]),
    Bytes(&'b [u8]),
    /// Its values follow.
    Array(u32),
    /// Its keys and values follow.
    Map(u32),
    Extension,
}

/// Reads from the front.
#[derive(Debug, Clone)]
struct Reader<'b> {
    rest: &'b [u8],
}

// === impl Value ===

impl<'b> Value<'b> {
    fn unsigned(self) -> Option<u64> {
        match self {
            Self::Unsigned(number) => Some(number),
            _ => None,
        }
    }

    /// A text that is not empty and not longer than what is kept.
    fn text(self) -> Option<String> {
        match self {
            Self::Text(text) if !text.is_empty() && text.len() <= MAX_TEXT => {
                std::str::from_utf8(text).ok().map(str::to_owned)
            }
            _ => None,
        }
    }

    /// A hash as text: a number in decimal, text as it is, raw bytes in hex.
    fn hash(self) -> Option<String> {
        match self {
            Self::Unsigned(number) => Some(number.to_string()),
            Self::Negative(number) => Some(number.to_string()),
            Self::Bytes(bytes) if !bytes.is_empty() && bytes.len() <= MAX_HASH => {
                Some(kvprov_model::id::hex(bytes))
            }
            text => text.text(),
        }
    }

    /// A number as text.
    fn number(self) -> Option<String> {
        match self {
            Self::Unsigned(number) => Some(number.to_string()),
            Self::Negative(number) => Some(number.to_string()),
            _ => None,
        }
    }
}

fn cut<E>(_: E) -> Malformed {
    CUT
}

// === impl Reader ===

impl<'b> Reader<'b> {
    fn value(&mut self) -> Result<Value<'b>, Malformed> {
        let marker = rmp::decode::read_marker(&mut self.rest).map_err(cut)?;
        let rest = &mut self.rest;
        let signed = |number: i64| match u64::try_from(number) {
            Ok(number) => Value::Unsigned(number),
            Err(_) => Value::Negative(number),
        };
        Ok(match marker {
            Marker::Null => Value::Nil,
            Marker::True => Value::Bool(true),
            Marker::False => Value::Bool(false),
            Marker::FixPos(number) => Value::Unsigned(number.into()),
            Marker::FixNeg(number) => Value::Negative(number.into()),
            Marker::U8 => Value::Unsigned(rest.read_data_u8().map_err(cut)?.into()),
            Marker::U16 => Value::Unsigned(rest.read_data_u16().map_err(cut)?.into()),
            Marker::U32 => Value::Unsigned(rest.read_data_u32().map_err(cut)?.into()),
            Marker::U64 => Value::Unsigned(rest.read_data_u64().map_err(cut)?),
            Marker::I8 => signed(rest.read_data_i8().map_err(cut)?.into()),
            Marker::I16 => signed(rest.read_data_i16().map_err(cut)?.into()),
            Marker::I32 => signed(rest.read_data_i32().map_err(cut)?.into()),
            Marker::I64 => signed(rest.read_data_i64().map_err(cut)?),
            Marker::F32 => Value::Float(rest.read_data_f32().map_err(cut)?.into()),
            Marker::F64 => Value::Float(rest.read_data_f64().map_err(cut)?),
            Marker::FixStr(length) => Value::Text(self.bytes(length.into())?),
            Marker::Str8 | Marker::Str16 | Marker::Str32 => {
                let length = self.length(marker)?;
                Value::Text(self.bytes(length)?)
            }
            Marker::Bin8 | Marker::Bin16 | Marker::Bin32 => {
                let length = self.length(marker)?;
                Value::Bytes(self.bytes(length)?)
            }
            Marker::FixArray(count) => Value::Array(count.into()),
            Marker::Array16 | Marker::Array32 => Value::Array(self.length(marker)?),
            Marker::FixMap(count) => Value::Map(count.into()),
            Marker::Map16 | Marker::Map32 => Value::Map(self.length(marker)?),
            Marker::FixExt1 => self.extension(1)?,
            Marker::FixExt2 => self.extension(2)?,
            Marker::FixExt4 => self.extension(4)?,
            Marker::FixExt8 => self.extension(8)?,
            Marker::FixExt16 => self.extension(16)?,
            Marker::Ext8 | Marker::Ext16 | Marker::Ext32 => {
                let length = self.length(marker)?;
                self.extension(length)?
            }
            Marker::Reserved => return Err(SHAPE),
        })
    }

    /// The length or count behind a marker that has one of one, two or four bytes.
    fn length(&mut self, marker: Marker) -> Result<u32, Malformed> {
        let rest = &mut self.rest;
        Ok(match marker {
            Marker::Str8 | Marker::Bin8 | Marker::Ext8 => rest.read_data_u8().map_err(cut)?.into(),
            Marker::Str16 | Marker::Bin16 | Marker::Ext16 | Marker::Array16 | Marker::Map16 => {
                rest.read_data_u16().map_err(cut)?.into()
            }
            _ => rest.read_data_u32().map_err(cut)?,
        })
    }

    fn bytes(&mut self, length: u32) -> Result<&'b [u8], Malformed> {
        let (bytes, rest) = self.rest.split_at_checked(length as usize).ok_or(CUT)?;
        self.rest = rest;
        Ok(bytes)
    }

    /// An extension: one byte of a type, then data.
    fn extension(&mut self, length: u32) -> Result<Value<'b>, Malformed> {
        self.bytes(1)?;
        self.bytes(length)?;
        Ok(Value::Extension)
    }

    /// The length of an array. One whose values cannot all be there is cut.
    fn array(&mut self) -> Result<u32, Malformed> {
        match self.value()? {
            Value::Array(count) if count as usize <= self.rest.len() => Ok(count),
            Value::Array(_) => Err(CUT),
            _ => Err(SHAPE),
        }
    }

    /// Passes over a value with all that is in it.
    fn skip(&mut self, depth: u32) -> Result<(), Malformed> {
        let value = self.value()?;
        self.skip_rest(value, depth)
    }

    /// Passes over what is in a value that was read.
    fn skip_rest(&mut self, value: Value<'b>, depth: u32) -> Result<(), Malformed> {
        let count = match value {
            Value::Array(count) => u64::from(count),
            Value::Map(count) => u64::from(count) * 2,
            _ => return Ok(()),
        };
        let depth = depth.checked_sub(1).ok_or(DEEP)?;
        for _ in 0..count {
            self.skip(depth)?;
        }
        Ok(())
    }

    /// A value that has nothing in it; what is in others is passed over.
    fn scalar(&mut self) -> Result<Value<'b>, Malformed> {
        let value = self.value()?;
        self.skip_rest(value, DEPTH)?;
        Ok(value)
    }

    fn event(&mut self) -> Result<Event, Malformed> {
        match self.value()? {
            Value::Map(count) => self.event_of_map(count),
            Value::Array(count) => self.event_of_array(count),
            _ => Err(SHAPE),
        }
    }

    fn event_of_map(&mut self, count: u32) -> Result<Event, Malformed> {
        let mut event = Event::default();
        let mut number = None;
        for _ in 0..count {
            let Value::Text(name) = self.value()? else { return Err(SHAPE) };
            match name {
                b"type" => event.kind = self.scalar()?.text().unwrap_or_default(),
                b"block_hashes" => event.hashes = self.hashes()?,
                b"parent_block_hash" => event.parent = self.scalar()?.hash(),
                b"token_ids" => event.tokens = self.tokens()?,
                b"block_size" => event.block_size = self.scalar()?.unsigned(),
                b"lora_id" => number = self.scalar()?.number(),
                b"lora_name" => event.adapter = self.scalar()?.text(),
                b"medium" => event.medium = self.scalar()?.text(),
                b"extra_keys" | b"cache_salt" => event.extra_keys |= self.is_something(DEPTH)?,
                _ => self.skip(DEPTH)?,
            }
        }
        if event.kind.is_empty() {
            return Err("KV event without a type");
        }
        event.adapter = event.adapter.or(number);
        event.extra_keys |= event.adapter.is_some();
        Ok(event)
    }

    /// Fields in the order of vLLM up to 0.23; those at the end came later and may be absent.
    fn event_of_array(&mut self, count: u32) -> Result<Event, Malformed> {
        let mut event = Event::default();
        let mut number = None;
        for index in 0..count {
            if index == 0 {
                event.kind = self.scalar()?.text().ok_or("KV event without a type")?;
                continue;
            }
            match (event.kind.as_str(), index) {
                ("BlockStored" | "BlockRemoved", 1) => event.hashes = self.hashes()?,
                ("BlockRemoved", 2) | ("BlockStored", 6) => event.medium = self.scalar()?.text(),
                ("BlockStored", 2) => event.parent = self.scalar()?.hash(),
                ("BlockStored", 3) => event.tokens = self.tokens()?,
                ("BlockStored", 4) => event.block_size = self.scalar()?.unsigned(),
                ("BlockStored", 5) => number = self.scalar()?.number(),
                ("BlockStored", 7) => event.adapter = self.scalar()?.text(),
                ("BlockStored", 8) => event.extra_keys |= self.is_something(DEPTH)?,
                _ => self.skip(DEPTH)?,
            }
        }
        if event.kind.is_empty() {
            return Err("KV event without a type");
        }
        event.adapter = event.adapter.or(number);
        event.extra_keys |= event.adapter.is_some();
        Ok(event)
    }

    fn hashes(&mut self) -> Result<Vec<String>, Malformed> {
        let value = self.value()?;
        let Value::Array(count) = value else {
            self.skip_rest(value, DEPTH)?;
            return Ok(value.hash().into_iter().collect());
        };
        // One more than is believed, so that the cut is seen and counted.
        let most = MAX_BLOCKS + 1;
        let mut found = Vec::with_capacity((count as usize).min(self.rest.len()).min(most));
        for _ in 0..count {
            let hash = self.scalar()?.hash();
            if found.len() < most {
                found.extend(hash);
            }
        }
        Ok(found)
    }

    fn tokens(&mut self) -> Result<Option<Tokens>, Malformed> {
        let value = self.value()?;
        let Value::Array(count) = value else {
            self.skip_rest(value, DEPTH)?;
            return Ok(None);
        };
        if count > MAX_TOKENS {
            return Err("too many tokens in one KV event");
        }
        let mut tokens = Tokens::with_capacity((count as usize).min(self.rest.len()));
        for _ in 0..count {
            let id = self.scalar()?;
            tokens.push(id.unsigned().and_then(|id| u32::try_from(id).ok()));
        }
        Ok((count > 0).then_some(tokens))
    }

    /// Whether there is anything in a value: lists of nothing are nothing.
    fn is_something(&mut self, depth: u32) -> Result<bool, Malformed> {
        let depth = depth.checked_sub(1).ok_or(DEEP)?;
        Ok(match self.value()? {
            Value::Nil | Value::Bool(false) => false,
            Value::Text(text) => !text.is_empty(),
            Value::Bytes(bytes) => !bytes.is_empty(),
            Value::Array(count) => {
                let mut any = false;
                for _ in 0..count {
                    any |= self.is_something(depth)?;
                }
                any
            }
            Value::Map(count) => {
                let mut any = false;
                for _ in 0..count {
                    self.skip(depth)?;
                    any |= self.is_something(depth)?;
                }
                any
            }
            Value::Bool(true)
            | Value::Unsigned(_)
            | Value::Negative(_)
            | Value::Float(_)
            | Value::Extension => true,
        })
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test fails by panicking")]
    use super::*;
    use proptest::prelude::*;

    /// The same three events as vLLM up to 0.23 and from 0.24 on encodes them.
    const ARRAYS: &str = "93cb3ff8000000000000939aab426c6f636b53746f72656491c40401010101c092010202c0a3475055c0c0c093ac426c6f636b52656d6f76656491cf8000000000000005a347505591b0416c6c426c6f636b73436c656172656400";
    const MAPS: &str = "93cb3ff80000000000009388a474797065ab426c6f636b53746f726564ac626c6f636b5f68617368657391c40401010101b1706172656e745f626c6f636b5f68617368c0a9746f6b656e5f696473920102aa626c6f636b5f73697a6502a76c6f72615f6964c0a66d656469756da3475055a96c6f72615f6e616d65c083a474797065ac426c6f636b52656d6f766564ac626c6f636b5f68617368657391cf8000000000000005a66d656469756da347505581a474797065b0416c6c426c6f636b73436c656172656400";

    fn bytes(hex: &str) -> Vec<u8> {
        (0..hex.len()).step_by(2).map(|at| u8::from_str_radix(&hex[at..at + 2], 16).unwrap()).collect()
    }

    fn read(payload: &[u8]) -> (Result<Head, &'static str>, Vec<Event>, Vec<&'static str>) {
        let (mut events, mut bad) = (Vec::new(), Vec::new());
        let head = read_batch(payload, |reason| bad.push(reason), |_, event| events.push(event));
        (head, events, bad)
    }

    #[test]
    fn both_encodings_of_the_engine_say_the_same() {
        for golden in [ARRAYS, MAPS] {
            let (head, events, bad) = read(&bytes(golden));
            let head = head.unwrap();
            assert_eq!((head.ts, head.publisher.as_str()), (Some(1.5), "#0"));
            assert!(bad.is_empty(), "{bad:?}");
            assert_eq!(events.len(), 3);
            assert_eq!(events[0].kind, "BlockStored");
            assert_eq!(events[0].hashes, ["01010101"]);
            assert_eq!(events[0].tokens.as_ref().unwrap().ids(), [1, 2]);
            assert_eq!((events[0].block_size, events[0].medium.as_deref()), (Some(2), Some("GPU")));
            assert!(!events[0].extra_keys);
            assert_eq!(events[1].hashes, ["9223372036854775813"]);
            assert_eq!(events[2].kind, "AllBlocksCleared");
            assert_eq!(time_of(&bytes(golden)), Some(1.5));
        }
    }

    #[test]
    fn a_batch_that_is_cut_anywhere_is_none_and_says_nothing() {
        for golden in [ARRAYS, MAPS] {
            let whole = bytes(golden);
            for end in 0..whole.len() {
                let (head, events, _) = read(&whole[..end]);
                assert!(head.is_err() && events.is_empty(), "cut at {end}");
            }
        }
    }

    #[test]
    fn an_event_that_is_none_does_not_hide_the_next() {
        // [1.5, [7, ["AllBlocksCleared"], {}, [[]]]]
        let payload =
            [&b"\x92\xcb\x3f\xf8\0\0\0\0\0\0\x94\x07\x91\xb0AllBlocksCleared\x80\x91\x90"[..]].concat();
        let (head, events, bad) = read(&payload);
        assert!(head.is_ok());
        assert_eq!(events.len(), 1);
        assert_eq!(bad.len(), 3);
    }

    #[test]
    fn nesting_without_end_is_refused() {
        let payload = [&b"\x92\xcb\x3f\xf8\0\0\0\0\0\0"[..], &[0x91; 100_000], b"\xc0"].concat();
        assert_eq!(read(&payload).0, Err(DEEP));
    }

    #[test]
    fn lengths_that_nothing_stands_behind_take_no_memory() {
        // [1.5, [["BlockStored", [hashes: 4294967295 …
        let payload =
            [&b"\x92\xcb\x3f\xf8\0\0\0\0\0\0\x91\x94\xabBlockStored\xdd\xff\xff\xff\xff"[..], &[1; 100]]
                .concat();
        assert_eq!(read(&payload).0, Err(CUT));
    }

    #[test]
    fn a_salt_and_pairs_of_tokens_are_seen() {
        // [1.5, [{type: BlockStored, token_ids: [[1, 2]], cache_salt: "s"}]]
        let payload = [
            &b"\x92\xcb\x3f\xf8\0\0\0\0\0\0\x91\x83\xa4type\xabBlockStored"[..],
            b"\xa9token_ids\x91\x92\x01\x02",
            b"\xaacache_salt\xa1s",
        ]
        .concat();
        let (_, events, bad) = read(&payload);
        assert!(bad.is_empty(), "{bad:?}");
        assert!(events[0].extra_keys);
        assert!(events[0].tokens.as_ref().unwrap().incomparable);
    }

    proptest! {
        #[test]
        fn no_bytes_make_it_panic(payload in proptest::collection::vec(any::<u8>(), 0..200)) {
            let _ = read(&payload);
            let _ = time_of(&payload);
        }

        #[test]
        fn no_damage_makes_it_panic(at in 0usize..200, byte in any::<u8>()) {
            for golden in [ARRAYS, MAPS] {
                let mut payload = bytes(golden);
                let at = at % payload.len();
                payload[at] = byte;
                let _ = read(&payload);
            }
        }
    }
}
