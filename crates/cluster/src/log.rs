//! What the process says of itself, on standard error. `MIZZEN_LOG` says how much: error, warn, info, debug or trace.

use std::io;

use tracing::Level;

/// Begins to log.
pub fn init() {
    let wanted = std::env::var("MIZZEN_LOG").unwrap_or_default();
    let level = wanted.parse().unwrap_or(Level::INFO);
    tracing_subscriber::fmt()
        .with_writer(io::stderr)
        .with_target(false)
        .with_max_level(level)
        .compact()
        .init();
}
