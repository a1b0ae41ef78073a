//! Where spans go, and in which protocol.

use std::fmt;
use std::net::SocketAddr;

/// How requests travel.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Protocol {
    /// OTLP over gRPC.
    Grpc,
    /// OTLP over HTTP with protobuf bodies.
    Http,
}

/// An OTLP endpoint for traces.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Endpoint {
    /// The whole address; of HTTP with its path.
    pub url: String,
    /// How requests travel.
    pub protocol: Protocol,
}

/// It is no endpoint.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "cannot send traces to {endpoint:?}: {reason}; give it as http://host:4317 (gRPC) or http://host:4318/v1/traces (HTTP)"
)]
pub struct EndpointError {
    /// What was given.
    pub endpoint: String,
    /// What is wrong with it.
    pub reason: String,
}

// === impl Endpoint ===

impl Endpoint {
    /// Reads an address. HTTP where it has a path or the port 4318, whose path is then the one of the specification;
    /// else gRPC.
    pub fn parse(text: &str) -> Result<Self, EndpointError> {
        let text = text.trim();
        let invalid = |reason: &str| EndpointError { endpoint: text.to_owned(), reason: reason.to_owned() };
        let rest = text
            .strip_prefix("http://")
            .ok_or_else(|| invalid("only http:// is spoken; let a proxy on this machine do TLS"))?;
        let (authority, path) = rest.split_once('/').map_or((rest, ""), |(host, path)| (host, path));
        let host = authority.rsplit_once(':').map_or(authority, |(host, _)| host);
        let is_plain =
            |text: &str| text.bytes().all(|b| b.is_ascii_graphic() && !b"<>\"\\^`{|}@".contains(&b));
        if host.is_empty() || !is_plain(rest) {
            return Err(invalid("it names no host, or holds what no address does"));
        }
        if !path.is_empty() {
            return Ok(Self { url: text.to_owned(), protocol: Protocol::Http });
        }
        if authority.ends_with(":4318") {
            return Ok(Self { url: format!("http://{authority}/v1/traces"), protocol: Protocol::Http });
        }
        Ok(Self { url: format!("http://{authority}"), protocol: Protocol::Grpc })
    }

    /// Whether one of these addresses is meant: the same port on this machine.
    pub fn is_one_of(&self, addresses: &[SocketAddr]) -> bool {
        let authority = self.url.trim_start_matches("http://").split('/').next().unwrap_or_default();
        let (host, port) = authority.rsplit_once(':').unwrap_or((authority, "80"));
        let host = host.trim_matches(['[', ']']);
        let ip = host.parse::<std::net::IpAddr>().ok();
        addresses.iter().any(|address| {
            let is_here = host == "localhost"
                || ip.is_some_and(|ip| {
                    ip == address.ip()
                        || ip.is_loopback() && (address.ip().is_unspecified() || address.ip().is_loopback())
                });
            is_here && port.parse() == Ok(address.port())
        })
    }
}

impl fmt::Display for Endpoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.url)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn scheme_path_and_port_tell_the_protocol() {
        for (given, url, protocol) in [
            ("http://tempo:4317", "http://tempo:4317", Protocol::Grpc),
            ("http://tempo:4317/", "http://tempo:4317", Protocol::Grpc),
            ("http://tempo:4318", "http://tempo:4318/v1/traces", Protocol::Http),
            ("http://tempo/otlp/v1/traces", "http://tempo/otlp/v1/traces", Protocol::Http),
            (" http://[::1]:9999 ", "http://[::1]:9999", Protocol::Grpc),
        ] {
            assert_eq!(Endpoint::parse(given), Ok(Endpoint { url: url.to_owned(), protocol }), "{given}");
        }
    }

    #[test]
    fn what_is_no_address_is_refused_with_what_to_do() {
        for given in ["", "tempo:4317", "https://tempo:4317", "http://", "http://a b:4317", "http://u@h:1"] {
            assert!(Endpoint::parse(given).unwrap_err().to_string().contains("http://host:4317"), "{given}");
        }
    }

    #[test]
    fn this_collector_is_recognised() {
        let here = [SocketAddr::from(([127, 0, 0, 1], 4317)), SocketAddr::from(([0, 0, 0, 0], 4318))];
        for (given, is_here) in [
            ("http://127.0.0.1:4317", true),
            ("http://localhost:4318", true),
            ("http://127.0.0.1:4319", false),
            ("http://tempo:4317", false),
        ] {
            assert_eq!(Endpoint::parse(given).unwrap().is_one_of(&here), is_here, "{given}");
        }
    }
}
