//! Numbers and byte strings of a message.

use super::TEXT_MAX;

/// Bytes that are no message.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("malformed message: {0}")]
pub struct Malformed(pub(crate) &'static str);

/// Writes a message.
#[derive(Debug, Default)]
pub(super) struct Encoder {
    bytes: Vec<u8>,
}

/// Reads a message.
#[derive(Debug)]
pub(super) struct Decoder<'m> {
    rest: &'m [u8],
}

// === impl Encoder ===

impl Encoder {
    pub(super) fn u8(&mut self, value: u8) -> &mut Self {
        self.bytes.push(value);
        self
    }

    pub(super) fn u16(&mut self, value: u16) -> &mut Self {
        self.bytes.extend_from_slice(&value.to_le_bytes());
        self
    }

    pub(super) fn u32(&mut self, value: u32) -> &mut Self {
        self.bytes.extend_from_slice(&value.to_le_bytes());
        self
    }

    pub(super) fn u64(&mut self, value: u64) -> &mut Self {
        self.bytes.extend_from_slice(&value.to_le_bytes());
        self
    }

    /// A byte string, cut at `limit`.
    pub(super) fn bytes(&mut self, value: &[u8], limit: usize) -> &mut Self {
        let value = &value[..value.len().min(limit).min(usize::from(u16::MAX))];
        self.u16(value.len() as u16);
        self.bytes.extend_from_slice(value);
        self
    }

    /// A text, cut at [`TEXT_MAX`] between characters.
    pub(super) fn text(&mut self, value: &str) -> &mut Self {
        self.bytes(&value.as_bytes()[..value.floor_char_boundary(TEXT_MAX)], TEXT_MAX)
    }

    pub(super) fn optional(&mut self, value: Option<u64>) -> &mut Self {
        match value {
            None => self.u8(0),
            Some(value) => self.u8(1).u64(value),
        }
    }

    /// A text that may be missing.
    pub(super) fn optional_text(&mut self, value: Option<&str>) -> &mut Self {
        match value {
            None => self.u8(0),
            Some(value) => self.u8(1).text(value),
        }
    }

    pub(super) fn finish(self) -> Vec<u8> {
        self.bytes
    }
}

// === impl Decoder ===

impl<'m> Decoder<'m> {
    pub(super) fn new(message: &'m [u8]) -> Self {
        Self { rest: message }
    }

    fn take<const N: usize>(&mut self) -> Result<[u8; N], Malformed> {
        let (head, rest) = self.rest.split_first_chunk::<N>().ok_or(Malformed("ends within a number"))?;
        self.rest = rest;
        Ok(*head)
    }

    pub(super) fn u8(&mut self) -> Result<u8, Malformed> {
        Ok(u8::from_le_bytes(self.take()?))
    }

    pub(super) fn u16(&mut self) -> Result<u16, Malformed> {
        Ok(u16::from_le_bytes(self.take()?))
    }

    pub(super) fn u32(&mut self) -> Result<u32, Malformed> {
        Ok(u32::from_le_bytes(self.take()?))
    }

    pub(super) fn u64(&mut self) -> Result<u64, Malformed> {
        Ok(u64::from_le_bytes(self.take()?))
    }

    pub(super) fn i64(&mut self) -> Result<i64, Malformed> {
        Ok(i64::from_le_bytes(self.take()?))
    }

    pub(super) fn flag(&mut self) -> Result<bool, Malformed> {
        match self.u8()? {
            0 => Ok(false),
            1 => Ok(true),
            _ => Err(Malformed("a flag is neither 0 nor 1")),
        }
    }

    pub(super) fn bytes(&mut self, limit: usize) -> Result<&'m [u8], Malformed> {
        let length = usize::from(self.u16()?);
        if length > limit {
            return Err(Malformed("a string is too long"));
        }
        let (head, rest) = self.rest.split_at_checked(length).ok_or(Malformed("ends within a string"))?;
        self.rest = rest;
        Ok(head)
    }

    pub(super) fn text(&mut self) -> Result<String, Malformed> {
        let bytes = self.bytes(TEXT_MAX)?;
        Ok(std::str::from_utf8(bytes).map_err(|_| Malformed("a text is not UTF-8"))?.to_owned())
    }

    pub(super) fn optional(&mut self) -> Result<Option<u64>, Malformed> {
        if self.flag()? { Ok(Some(self.u64()?)) } else { Ok(None) }
    }

    pub(super) fn optional_text(&mut self) -> Result<Option<String>, Malformed> {
        if self.flag()? { Ok(Some(self.text()?)) } else { Ok(None) }
    }

    /// A list: its length, then its items. Nothing is reserved ahead of what is there.
    pub(super) fn list<T>(
        &mut self,
        mut item: impl FnMut(&mut Self) -> Result<T, Malformed>,
    ) -> Result<Vec<T>, Malformed> {
        let count = self.u16()?;
        let mut items = Vec::new();
        for _ in 0..count {
            items.push(item(self)?);
        }
        Ok(items)
    }

    /// The message has to end here.
    pub(super) fn end(&self) -> Result<(), Malformed> {
        if self.rest.is_empty() { Ok(()) } else { Err(Malformed("goes on after its end")) }
    }
}
