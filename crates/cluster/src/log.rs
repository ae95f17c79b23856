//! The log of the process on standard error: its filter and format.
//!
//! `MIZZEN_LOG` has the syntax of tracing-subscriber's `EnvFilter`: a level (error, warn, info, debug, trace), levels of
//! targets (`mizzen_sdk::controller=debug`), and levels of events in spans, which may be selected by their fields
//! (`[request{user=jane}]=debug`, `[reconcile{controller=job-controller}]=debug`). A verbosity (`-v`) takes precedence.
//!
//! Invariant: libraries log at most warnings and errors, whatever the filter: their other events may contain secrets.
//! Invariant: a line that cannot be written is dropped.

use std::fmt::Arguments;
use std::io::{self, Write as _};
use std::sync::OnceLock;

use clap::ValueEnum;
use tracing::Level;
use tracing_subscriber::filter::{EnvFilter, ParseError, filter_fn};
use tracing_subscriber::layer::SubscriberExt as _;
use tracing_subscriber::util::SubscriberInitExt as _;
use tracing_subscriber::{Layer as _, Registry, registry, reload};

/// The filter, which can be changed while the process runs.
static FILTER: OnceLock<reload::Handle<EnvFilter, Registry>> = OnceLock::new();

/// The format of log lines.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, ValueEnum)]
pub(crate) enum LogFormat {
    /// Text
    #[default]
    Text,
    /// A JSON object per line
    Json,
}

/// Starts the log, with the verbosity of klog if it is set.
pub(crate) fn init(verbosity: Option<u32>, format: LogFormat) {
    let directives = std::env::var("MIZZEN_LOG").unwrap_or_default();
    let filter = filter(verbosity, &directives).unwrap_or_else(|error| {
        print_error!("MIZZEN_LOG: {error}; logging at info");
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
        .with(filter_fn(|metadata| {
            // `connection_log` logs failed requests; events of `kube` would repeat them.
            let target = metadata.target();
            target.starts_with("mizzen")
                || *metadata.level() <= Level::WARN && !target.starts_with("kube")
        }))
        .with(lines)
        .init();
    let _ = FILTER.set(handle);
}

/// Changes the verbosity (of klog) while the process runs.
pub(crate) fn set_verbosity(verbosity: u32) -> Result<(), String> {
    let filter = filter(Some(verbosity), "").map_err(|error| error.to_string())?;
    let handle = FILTER.get().ok_or("logging has not started")?;
    handle.reload(filter).map_err(|error| error.to_string())
}

/// The filter for a verbosity of klog, or else for directives on top of `info`.
fn filter(verbosity: Option<u32>, directives: &str) -> Result<EnvFilter, ParseError> {
    match verbosity {
        None => EnvFilter::try_new(format!("info,{directives}")),
        Some(0..=3) => EnvFilter::try_new("info"),
        Some(4..=5) => EnvFilter::try_new("debug"),
        Some(_) => EnvFilter::try_new("trace"),
    }
}

/// Prints a line on standard error.
macro_rules! print_error {
    ($($text:tt)*) => { $crate::log::write_error(format_args!($($text)*)) };
}
pub(crate) use print_error;

/// Prints a line on standard error. Errors are ignored.
pub(crate) fn write_error(text: Arguments) {
    let _ = writeln!(io::stderr(), "{text}");
}

/// Prints a line on standard output. Errors are ignored.
pub(crate) fn write_output(text: Arguments) {
    let _ = writeln!(io::stdout(), "{text}");
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(verbosity: Option<u32>, directives: &str) -> String {
        filter(verbosity, directives).unwrap().to_string()
    }

    #[test]
    fn verbosity_takes_precedence_over_directives() {
        assert_eq!(text(None, ""), "info");
        assert_eq!(text(None, "debug"), "debug");
        assert_eq!(text(Some(2), "trace"), "info");
        assert_eq!(text(Some(4), "error"), "debug");
        assert_eq!(text(Some(10), ""), "trace");
    }

    #[test]
    fn directives_select_targets_and_spans_by_their_fields() {
        let directives = "mizzen_sdk=debug,[request{user=jane}]=debug";
        let text = text(None, directives);
        for part in ["mizzen_sdk=debug", "[request{user=jane}]=debug", "info"] {
            assert!(text.contains(part), "{part} is not in {text}");
        }
        assert!(filter(None, "mizzen=loud").is_err());
    }
}
