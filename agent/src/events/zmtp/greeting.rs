//! The first 64 bytes of a connection (RFC 23, "greeting").

use super::ZmtpError;

/// Bytes of a greeting.
pub const GREETING: usize = 64;
/// The only mechanism that is spoken.
const NULL: &[u8] = b"NULL";
const MECHANISM: std::ops::Range<usize> = 12..32;

/// What a peer says of itself first.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Greeting {
    /// Minor version; 3.1 knows heartbeats and subscribes by command.
    pub minor: u8,
}

// === impl Greeting ===

impl Greeting {
    /// Our own: 3.1, NULL.
    pub fn own() -> [u8; GREETING] {
        let mut bytes = [0; GREETING];
        bytes[0] = 0xff;
        bytes[9] = 0x7f;
        bytes[10] = 3;
        bytes[11] = 1;
        bytes[MECHANISM][..NULL.len()].copy_from_slice(NULL);
        bytes
    }

    /// Reads a peer's.
    ///
    /// # Errors
    /// For another protocol, a version before 3, another mechanism than NULL.
    pub fn read(bytes: &[u8; GREETING]) -> Result<Self, ZmtpError> {
        if bytes[0] != 0xff || bytes[9] & 1 == 0 {
            return Err(ZmtpError::NotZmtp("no signature"));
        }
        if bytes[10] < 3 {
            return Err(ZmtpError::NotZmtp("an older version"));
        }
        let mechanism = &bytes[MECHANISM];
        let end = mechanism.iter().position(|byte| *byte == 0).unwrap_or(mechanism.len());
        let mechanism = &mechanism[..end];
        if mechanism != NULL {
            let is_word = !mechanism.is_empty() && mechanism.iter().all(u8::is_ascii_uppercase);
            let named =
                if is_word { String::from_utf8_lossy(mechanism).into_owned() } else { "?".to_owned() };
            return Err(ZmtpError::Mechanism(named));
        }
        // A later major version speaks 3.x with who greets with 3.
        Ok(Self { minor: if bytes[10] == 3 { bytes[11] } else { 1 } })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn our_own_is_read() {
        assert_eq!(Greeting::read(&Greeting::own()).unwrap(), Greeting { minor: 1 });
    }

    #[test]
    fn a_publisher_with_a_key_is_refused_by_the_name_of_what_it_asks() {
        let mut bytes = Greeting::own();
        bytes[MECHANISM][..5].copy_from_slice(b"CURVE");
        let error = Greeting::read(&bytes).unwrap_err();
        assert!(error.to_string().contains("CURVE"), "{error}");
    }

    #[test]
    fn another_protocol_is_refused() {
        let mut http = [b' '; GREETING];
        http[..8].copy_from_slice(b"HTTP/1.1");
        assert!(matches!(Greeting::read(&http), Err(ZmtpError::NotZmtp(_))));
        let mut old = Greeting::own();
        old[10] = 1;
        assert!(matches!(Greeting::read(&old), Err(ZmtpError::NotZmtp(_))));
    }
}
