//! What the process says of itself, on standard error. `MIZZEN_LOG` says how much: error, warn, info, debug or trace; a
//! verbosity (`-v`) comes before it.
//!
//! Invariant: libraries have no more than a warning to say, whatever is asked for: nobody has read all of what they would
//! write down of a request.
//! Invariant: nothing ends because nobody listens: what cannot be said is lost.

use std::fmt::Arguments;
use std::io::{self, Write as _};
use std::sync::OnceLock;

use tracing::level_filters::LevelFilter;
use tracing::{Level, Metadata};
use tracing_subscriber::filter::filter_fn;
use tracing_subscriber::layer::SubscriberExt as _;
use tracing_subscriber::util::SubscriberInitExt as _;
use tracing_subscriber::{Registry, registry, reload};

/// The level of the log, which can be changed.
static LEVEL: OnceLock<reload::Handle<LevelFilter, Registry>> = OnceLock::new();

/// Begins to log, at klog's verbosity if there is one.
pub(crate) fn init(verbosity: Option<u32>) {
    let wanted = std::env::var("MIZZEN_LOG").unwrap_or_default();
    let (level, handle) = reload::Layer::new(LevelFilter::from_level(level(verbosity, &wanted)));
    let lines = tracing_subscriber::fmt::layer()
        .with_writer(io::stderr)
        .log_internal_errors(false)
        .with_target(false)
        .compact();
    registry()
        .with(level)
        .with(filter_fn(is_said))
        .with(lines)
        .init();
    let _ = LEVEL.set(handle);
}

/// Changes how much is logged, to klog's verbosity, while the process runs.
pub(crate) fn set_verbosity(verbosity: u32) -> Result<(), String> {
    let level = LevelFilter::from_level(level(Some(verbosity), ""));
    let handle = LEVEL.get().ok_or("the process does not log")?;
    handle.reload(level).map_err(|error| error.to_string())
}

/// The level of klog's verbosity, or else the one that is named; info without either.
fn level(verbosity: Option<u32>, named: &str) -> Level {
    match verbosity {
        None => named.parse().unwrap_or(Level::INFO),
        Some(0..=3) => Level::INFO,
        Some(4..=5) => Level::DEBUG,
        Some(_) => Level::TRACE,
    }
}

/// Whether something is written down, if as much is asked for. What goes wrong on the way to a server is said in `connect`,
/// in words that help; the client's own would double them.
fn is_said(metadata: &Metadata) -> bool {
    let target = metadata.target();
    target.starts_with("mizzen") || *metadata.level() <= Level::WARN && !target.starts_with("kube")
}

/// Says a line to people, on standard error.
macro_rules! say {
    ($($text:tt)*) => { $crate::log::line(format_args!($($text)*)) };
}
pub(crate) use say;

/// A line on standard error.
pub(crate) fn line(text: Arguments) {
    let _ = writeln!(io::stderr(), "{text}");
}

/// A line on standard output.
pub(crate) fn announce(text: Arguments) {
    let _ = writeln!(io::stdout(), "{text}");
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn verbosity_comes_before_the_level_that_is_named() {
        assert_eq!(level(None, ""), Level::INFO);
        assert_eq!(level(None, "debug"), Level::DEBUG);
        assert_eq!(level(Some(2), "trace"), Level::INFO);
        assert_eq!(level(Some(4), "error"), Level::DEBUG);
        assert_eq!(level(Some(10), ""), Level::TRACE);
    }
}
