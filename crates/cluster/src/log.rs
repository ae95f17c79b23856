//! What the process logs, on standard error: how much, and in which form.
//!
//! `MIZZEN_LOG` has the syntax of tracing-subscriber's `EnvFilter`: a level (error, warn, info, debug, trace), levels of
//! targets (`mizzen_controllers=debug`), and levels of what happens in spans, which may be chosen by their fields
//! (`[request{user=jane}]=debug`, `[reconcile{controller=job-controller}]=debug`). A verbosity (`-v`) takes precedence.
//!
//! Invariant: libraries log warnings and errors at most, whatever is asked for: what they would log of a request may be secret.
//! Invariant: a line that cannot be written is dropped; nothing waits for it.

use std::fmt::Arguments;
use std::io::{self, Write as _};
use std::sync::OnceLock;

use clap::ValueEnum;
use tracing::{Level, Metadata};
use tracing_subscriber::filter::{EnvFilter, ParseError, filter_fn};
use tracing_subscriber::layer::SubscriberExt as _;
use tracing_subscriber::util::SubscriberInitExt as _;
use tracing_subscriber::{Layer as _, Registry, registry, reload};

/// The filter of the log, which can be changed.
static FILTER: OnceLock<reload::Handle<EnvFilter, Registry>> = OnceLock::new();

/// The form of log lines.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, ValueEnum)]
pub(crate) enum LogFormat {
    /// A line for people
    #[default]
    Text,
    /// A JSON object per line
    Json,
}

/// Begins to log, at klog's verbosity if there is one.
pub(crate) fn init(verbosity: Option<u32>, format: LogFormat) {
    let wanted = std::env::var("MIZZEN_LOG").unwrap_or_default();
    let filter = filter(verbosity, &wanted).unwrap_or_else(|error| {
        line(format_args!("MIZZEN_LOG: {error}; logging at info"));
        EnvFilter::new("info")
    });
    let (filter, handle) = reload::Layer::new(filter);
    let lines = tracing_subscriber::fmt::layer()
        .with_writer(io::stderr)
        .log_internal_errors(false);
    let lines = match format {
        LogFormat::Text => lines.with_target(false).compact().boxed(),
        LogFormat::Json => lines
            .json()
            .flatten_event(true)
            .with_span_list(false)
            .boxed(),
    };
    registry()
        .with(filter)
        .with(filter_fn(is_said))
        .with(lines)
        .init();
    let _ = FILTER.set(handle);
}

/// Changes how much is logged, to klog's verbosity, while the process runs.
pub(crate) fn set_verbosity(verbosity: u32) -> Result<(), String> {
    let filter = filter(Some(verbosity), "").map_err(|error| error.to_string())?;
    let handle = FILTER.get().ok_or("the process does not log")?;
    handle.reload(filter).map_err(|error| error.to_string())
}

/// The filter of klog's verbosity, or else the one that is named. What it does not mention is logged at info.
fn filter(verbosity: Option<u32>, named: &str) -> Result<EnvFilter, ParseError> {
    match verbosity {
        None => EnvFilter::try_new(format!("info,{named}")),
        Some(0..=3) => EnvFilter::try_new("info"),
        Some(4..=5) => EnvFilter::try_new("debug"),
        Some(_) => EnvFilter::try_new("trace"),
    }
}

/// Whether something may be logged at all. What goes wrong on the way to a server is said in `connect`,
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

    fn text(verbosity: Option<u32>, named: &str) -> String {
        filter(verbosity, named).unwrap().to_string()
    }

    #[test]
    fn verbosity_comes_before_the_filter_that_is_named() {
        assert_eq!(text(None, ""), "info");
        assert_eq!(text(None, "debug"), "debug");
        assert_eq!(text(Some(2), "trace"), "info");
        assert_eq!(text(Some(4), "error"), "debug");
        assert_eq!(text(Some(10), ""), "trace");
    }

    #[test]
    fn a_filter_names_levels_of_targets_and_of_spans_by_their_fields() {
        let named = "mizzen_sdk=debug,[request{user=jane}]=debug";
        let text = text(None, named);
        for part in ["mizzen_sdk=debug", "[request{user=jane}]=debug", "info"] {
            assert!(text.contains(part), "{part} is not in {text}");
        }
        assert!(filter(None, "mizzen=loud").is_err());
    }
}
