//! Commands: a name with its length before it, then data of the command's own form (RFC 23 and 37).

use super::ZmtpError;

/// Longest context of a PING.
const CONTEXT: usize = 16;

/// A command that says something here.
#[derive(Debug, PartialEq, Eq)]
pub enum Command<'b> {
    /// The peer is ready; the kind of its socket.
    Ready(&'b [u8]),
    /// The peer refuses.
    Error,
    /// The peer asks for a sign of life; what the answer repeats.
    Ping(&'b [u8]),
    /// The answer to ours.
    Pong,
    /// Subscribes to a topic.
    Subscribe(&'b [u8]),
    /// Any other.
    Other,
}

// === impl Command ===

impl<'b> Command<'b> {
    /// Reads the body of a command frame.
    ///
    /// # Errors
    /// For a body that is none.
    pub fn read(body: &'b [u8]) -> Result<Self, ZmtpError> {
        let malformed = || ZmtpError::Malformed("a command");
        let (&length, rest) = body.split_first().ok_or_else(malformed)?;
        let (name, data) = rest.split_at_checked(usize::from(length)).ok_or_else(malformed)?;
        Ok(match name {
            b"READY" => Self::Ready(socket_type(data)?),
            b"ERROR" => Self::Error,
            b"PING" => {
                let context = data.get(2..).ok_or_else(malformed)?;
                if context.len() > CONTEXT {
                    return Err(malformed());
                }
                Self::Ping(context)
            }
            b"PONG" => Self::Pong,
            b"SUBSCRIBE" => Self::Subscribe(data),
            _ => Self::Other,
        })
    }
}

/// The `Socket-Type` among the properties of READY: length of a name, name, length of a value in four bytes, value.
fn socket_type(mut data: &[u8]) -> Result<&[u8], ZmtpError> {
    let malformed = || ZmtpError::Malformed("properties of the handshake");
    let mut found = None;
    while let Some((&length, rest)) = data.split_first() {
        let (name, rest) = rest.split_at_checked(usize::from(length)).ok_or_else(malformed)?;
        let (length, rest) = rest.split_first_chunk::<4>().ok_or_else(malformed)?;
        let length = usize::try_from(u32::from_be_bytes(*length)).map_err(|_| malformed())?;
        let (value, rest) = rest.split_at_checked(length).ok_or_else(malformed)?;
        if name.eq_ignore_ascii_case(b"Socket-Type") {
            found = Some(value);
        }
        data = rest;
    }
    found.ok_or_else(malformed)
}

/// The body of READY.
pub(super) fn ready(socket: &str) -> Vec<u8> {
    let mut body = b"\x05READY\x0bSocket-Type".to_vec();
    body.extend_from_slice(&(socket.len() as u32).to_be_bytes());
    body.extend_from_slice(socket.as_bytes());
    body
}

/// The body of SUBSCRIBE.
pub(super) fn subscribe(topic: &[u8]) -> Vec<u8> {
    [b"\x09SUBSCRIBE", topic].concat()
}

/// The body of PING: how long the peer may wait for our next sign of life, in tenths of a second; no context.
pub(super) fn ping(patience: u16) -> Vec<u8> {
    [&b"\x04PING"[..], &patience.to_be_bytes()].concat()
}

/// The body of PONG.
pub(super) fn pong(context: &[u8]) -> Vec<u8> {
    [b"\x04PONG", context].concat()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn our_own_are_read() {
        assert_eq!(Command::read(&ready("SUB")).unwrap(), Command::Ready(b"SUB"));
        assert_eq!(Command::read(&subscribe(b"kv")).unwrap(), Command::Subscribe(b"kv"));
        assert_eq!(Command::read(&ping(300)).unwrap(), Command::Ping(b""));
        assert_eq!(Command::read(&pong(b"x")).unwrap(), Command::Pong);
    }

    #[test]
    fn an_identity_before_the_kind_of_the_socket_is_passed_over() {
        let body = b"\x05READY\x08Identity\0\0\0\x02id\x0bsocket-type\0\0\0\x04XPUB";
        assert_eq!(Command::read(body).unwrap(), Command::Ready(b"XPUB"));
    }

    #[test]
    fn half_a_command_is_none() {
        for body in
            [&b""[..], b"\x05REA", b"\x05READY\x0bSocket-Type\0\0\0\x09SUB", b"\x05READY", b"\x04PING\0"]
        {
            assert!(Command::read(body).is_err(), "{body:?}");
        }
    }
}
