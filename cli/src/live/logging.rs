//! Messages of the running halves: to standard error, at INFO for a service and at WARN beside a person.

use tracing_subscriber::EnvFilter;

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
