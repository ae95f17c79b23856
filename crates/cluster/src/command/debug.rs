//! `--profiling`: the endpoints below `/debug`.

use clap::{ArgAction, Args};

use crate::component_server::DebugHandler;

/// The argument of debugging.
#[derive(Args, Clone)]
pub(crate) struct DebugArgs {
    /// Serve CPU profiles at /debug/pprof/profile, and the verbosity of the log at /debug/flags/v; false serves nothing below
    /// /debug
    #[arg(long, value_name = "BOOL", num_args = 0..=1, require_equals = true, default_missing_value = "true", default_value_t = true,
        action = ArgAction::Set)]
    profiling: bool,
}

impl DebugArgs {
    /// The handler of `/debug`.
    pub(crate) fn handler(&self) -> DebugHandler {
        DebugHandler {
            is_enabled: self.profiling,
        }
    }
}
