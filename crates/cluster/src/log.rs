//! What the process says of itself, on standard error. `MIZZEN_LOG` says how much: error, warn, info, debug or trace.
//!
//! Invariant: libraries have no more than a warning to say, whatever is asked for: nobody has read all of what they would
//! write down of a request.

use std::io;

use tracing::level_filters::LevelFilter;
use tracing::{Level, Metadata};
use tracing_subscriber::filter::filter_fn;
use tracing_subscriber::layer::SubscriberExt as _;
use tracing_subscriber::util::SubscriberInitExt as _;

/// Begins to log.
pub fn init() {
    let wanted = std::env::var("MIZZEN_LOG").unwrap_or_default();
    let level: Level = wanted.parse().unwrap_or(Level::INFO);
    tracing_subscriber::fmt()
        .with_writer(io::stderr)
        .with_target(false)
        .with_max_level(LevelFilter::from_level(level))
        .compact()
        .finish()
        .with(filter_fn(is_said))
        .init();
}

/// Whether something is written down, if as much is asked for.
fn is_said(metadata: &Metadata) -> bool {
    metadata.target().starts_with("mizzen") || *metadata.level() <= Level::WARN
}
