//! `--profiling`: what is served below `/debug`?

use clap::Args;

use crate::component_server::DebugHandler;

/// The argument of debugging.
#[derive(Args, Clone)]
pub(crate) struct DebugArgs {
    /// false serves nothing below /debug. Otherwise PUT /debug/flags/v sets the verbosity of the log; there are no Go profiles
    #[arg(long, value_name = "BOOL", num_args = 0..=1, require_equals = true, default_missing_value = "true",
        value_parser = profiling)]
    profiling: Option<bool>,
}

impl DebugArgs {
    /// What is served below `/debug`.
    pub(crate) fn handler(&self) -> DebugHandler {
        DebugHandler {
            is_enabled: self.profiling.unwrap_or(true),
        }
    }
}

fn profiling(text: &str) -> Result<bool, String> {
    match text {
        "false" => Ok(false),
        "true" => Err(
            "there are no Go profiles; profile the process with perf, and leave the flag out for \
                       /debug/flags/v"
                .into(),
        ),
        _ => Err("expected true or false".into()),
    }
}
