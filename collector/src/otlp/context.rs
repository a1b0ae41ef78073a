//! W3C trace context: the `traceparent` of a request.
//!
//! Source: <https://www.w3.org/TR/trace-context/>, version 00. Ids of zeros are none.

use kvprov_model::id::hex;
use std::fmt;

/// The id of a trace.
pub(crate) type TraceId = [u8; 16];
/// The id of a span.
pub(crate) type SpanId = [u8; 8];

/// A span of somebody else, below which others may stand.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct Context {
    /// Its trace.
    pub(crate) trace: TraceId,
    /// The span.
    pub(crate) span: SpanId,
}

// === impl Context ===

impl Context {
    /// From the ids of a span; `None` where one of them has another length or is none.
    pub(crate) fn of(trace: &[u8], span: &[u8]) -> Option<Self> {
        let context = Self { trace: trace.try_into().ok()?, span: span.try_into().ok()? };
        (context.trace != [0; 16] && context.span != [0; 8]).then_some(context)
    }

    /// Reads a `traceparent`; what later versions may add at its end is passed over.
    pub(crate) fn parse(text: &str) -> Option<Self> {
        let mut parts = text.trim().split('-');
        let (version, trace, span, flags) = (parts.next()?, parts.next()?, parts.next()?, parts.next()?);
        let is_version = version.len() == 2 && version != "ff" && bytes(version).is_some();
        if !is_version || flags.len() < 2 || (version == "00" && parts.next().is_some()) {
            return None;
        }
        Self::of(&bytes(trace)?, &bytes(span)?)
    }
}

impl fmt::Display for Context {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "00-{}-{}-01", hex(&self.trace), hex(&self.span))
    }
}

fn bytes(text: &str) -> Option<Vec<u8>> {
    if !text.len().is_multiple_of(2) || text.len() > 32 {
        return None;
    }
    let is_lower_hex = |byte: &u8| byte.is_ascii_digit() || (b'a'..=b'f').contains(byte);
    if !text.as_bytes().iter().all(is_lower_hex) {
        return None;
    }
    let pairs = text.as_bytes().chunks(2);
    pairs.map(|pair| u8::from_str_radix(std::str::from_utf8(pair).ok()?, 16).ok()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const GOOD: &str = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";

    #[test]
    fn a_traceparent_is_read_and_written() {
        assert_eq!(Context::parse(GOOD).unwrap().to_string(), GOOD);
        assert!(Context::parse(&format!("cc{}-what-comes-later", &GOOD[2..])).is_some());
    }

    #[test]
    fn what_is_none_is_refused() {
        for text in [
            "",
            "00",
            "00-00000000000000000000000000000000-b7ad6b7169203331-01",
            "00-0af7651916cd43dd8448eb211c80319c-0000000000000000-01",
            "00-0AF7651916CD43DD8448EB211C80319C-b7ad6b7169203331-01",
            "ff-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01",
            "00-0af7651916cd43dd8448eb211c80319c-b7ad6b71692033-01",
            "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01-more",
            "00-é-b7ad6b7169203331-01",
        ] {
            assert_eq!(Context::parse(text), None, "{text}");
        }
    }
}
