//! One frame: a byte of flags, a length of one or eight bytes, and the body (RFC 23, "framing").

use super::{Limits, ZmtpError};

/// Another frame of the message follows.
const MORE: u8 = 1;
/// The length has eight bytes.
const LONG: u8 = 2;
/// A command, not part of a message.
const COMMAND: u8 = 4;
const RESERVED: u8 = !(MORE | LONG | COMMAND);

/// The head of a frame.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Frame {
    /// Bytes of the head.
    pub head: usize,
    /// Bytes of the body.
    pub body: usize,
    /// Another frame of the same message follows.
    pub more: bool,
    /// A command.
    pub command: bool,
}

// === impl Frame ===

impl Frame {
    /// Reads a head; `None` while it is not there as a whole.
    ///
    /// # Errors
    /// For flags that the protocol reserves, and bodies beyond the limits.
    pub fn read(bytes: &[u8], limits: &Limits) -> Result<Option<Self>, ZmtpError> {
        let Some((&flags, rest)) = bytes.split_first() else { return Ok(None) };
        if flags & RESERVED != 0 {
            return Err(ZmtpError::Malformed("reserved flags of a frame"));
        }
        let (head, body) = if flags & LONG == 0 {
            match rest.first() {
                Some(&length) => (2, u64::from(length)),
                None => return Ok(None),
            }
        } else {
            match rest.first_chunk() {
                Some(length) => (9, u64::from_be_bytes(*length)),
                None => return Ok(None),
            }
        };
        let command = flags & COMMAND != 0;
        let more = flags & MORE != 0;
        if command && more {
            return Err(ZmtpError::Malformed("a command of several frames"));
        }
        let (most, what) =
            if command { (limits.command, "a command") } else { (limits.message, "a message") };
        match usize::try_from(body).ok().filter(|body| *body <= most) {
            Some(body) => Ok(Some(Self { head, body, more, command })),
            None => Err(ZmtpError::TooLarge(what)),
        }
    }
}

/// Appends a frame.
pub fn write_frame(to: &mut Vec<u8>, body: &[u8], more: bool, command: bool) {
    let flags = if more { MORE } else { 0 } | if command { COMMAND } else { 0 };
    match u8::try_from(body.len()) {
        Ok(length) => to.extend_from_slice(&[flags, length]),
        Err(_) => {
            to.push(flags | LONG);
            to.extend_from_slice(&(body.len() as u64).to_be_bytes());
        }
    }
    to.extend_from_slice(body);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_is_read_again() {
        for (length, head) in [(0, 2), (255, 2), (256, 9), (70_000, 9)] {
            let mut bytes = Vec::new();
            write_frame(&mut bytes, &vec![7; length], true, false);
            let frame = Frame::read(&bytes, &Limits::default()).unwrap().unwrap();
            assert_eq!(frame, Frame { head, body: length, more: true, command: false });
        }
    }

    #[test]
    fn half_a_head_is_none_yet() {
        for bytes in [&b""[..], b"\x00", b"\x02\0\0\0\0\0\0\0"] {
            assert!(Frame::read(bytes, &Limits::default()).unwrap().is_none());
        }
    }

    #[test]
    fn a_length_beyond_the_limit_is_refused_at_its_head() {
        let mut bytes = vec![LONG];
        bytes.extend_from_slice(&u64::MAX.to_be_bytes());
        assert!(matches!(Frame::read(&bytes, &Limits::default()), Err(ZmtpError::TooLarge(_))));
    }

    #[test]
    fn reserved_flags_and_commands_of_several_frames_are_refused() {
        for flags in [0x08, 0x80, COMMAND | MORE] {
            assert!(matches!(Frame::read(&[flags, 0], &Limits::default()), Err(ZmtpError::Malformed(_))));
        }
    }
}
