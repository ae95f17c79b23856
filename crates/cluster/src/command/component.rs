//! Flags that every component of the control plane has: how much it logs, and which feature gates are on.

use clap::Args;

use super::feature_gates::{FeatureGates, feature_gates};
use crate::log::{self, LogFormat};

/// The arguments of a command that logs.
#[derive(Args, Clone)]
pub(crate) struct LogArgs {
    /// Log at this verbosity: 0 to 3 is info, 4 and 5 debug, 6 and more trace [default: the filter in MIZZEN_LOG, or info]
    #[arg(short = 'v', long = "v", value_name = "LEVEL")]
    verbosity: Option<u32>,
    /// The form of log lines
    #[arg(long, value_name = "FORMAT", value_enum, default_value_t)]
    log_format: LogFormat,
}

impl LogArgs {
    /// Begins to log.
    pub(crate) fn init(&self) {
        log::init(self.verbosity, self.log_format);
    }
}

/// The arguments of a component.
#[derive(Args, Clone)]
pub(crate) struct ComponentArgs {
    #[command(flatten)]
    log: LogArgs,
    /// Require features of Kubernetes v1.36 to be on or off; refuse to start where a feature cannot be in that state.
    /// May be given more than once
    #[arg(long, value_name = "NAME=BOOL,…", value_parser = feature_gates)]
    feature_gates: Vec<FeatureGates>,
}

impl ComponentArgs {
    /// Begins to log.
    pub(crate) fn init_log(&self) {
        self.log.init();
        self.feature_gates.iter().for_each(FeatureGates::warn);
    }
}
