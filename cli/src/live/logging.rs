//! Messages of the running halves: to standard error, at INFO for a service. Beside a person, who is told of findings in
//! words, at WARN and without the findings.

use tracing_subscriber::EnvFilter;

/// The level of a service.
pub(crate) const SERVICE: &str = "info";
/// The level beside a person.
pub(crate) const PERSON: &str = "warn,kvprov_collector::run=error";

/// Begins. `KVPROV_LOG` sets another level, as `RUST_LOG` does elsewhere.
pub(crate) fn begin(default: &str) {
    let filter = EnvFilter::try_from_env("KVPROV_LOG").unwrap_or_else(|_| EnvFilter::new(default));
    // A second call changes nothing.
    let _ = tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_writer(std::io::stderr)
        .with_ansi(false)
        .try_init();
}
