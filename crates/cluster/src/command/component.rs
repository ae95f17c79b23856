//! Flags of every component: logging and feature gates.

use clap::Args;

use super::feature_gates::{FeatureGates, feature_gates};
use crate::log::{self, LogFormat};

/// The arguments of a command that logs.
#[derive(Args, Clone)]
pub(crate) struct LogArgs {
    /// Log at this verbosity: 0 to 3 is info, 4 and 5 debug, 6 and more trace [default: the filter in MIZZEN_LOG, or info]
    #[arg(short = 'v', long = "v", value_name = "LEVEL")]
    verbosity: Option<u32>,
    /// Log lines in this format
    #[arg(long, value_name = "FORMAT", value_enum, default_value_t)]
    log_format: LogFormat,
}

impl LogArgs {
    /// Starts the log.
    pub(crate) fn init(&self) {
        log::init(self.verbosity, self.log_format);
    }
}

/// The arguments of a component.
#[derive(Args, Clone)]
pub(crate) struct ComponentArgs {
    #[command(flatten)]
    log: LogArgs,
    /// Require features of Kubernetes v1.36 to be on or off; fail to start if a feature cannot have that state. May be
    /// repeated
    #[arg(long, value_name = "NAME=BOOL,…", value_parser = feature_gates)]
    feature_gates: Vec<FeatureGates>,
}

impl ComponentArgs {
    /// Starts the log, and warns of feature gates that will be removed.
    pub(crate) fn init_log(&self) {
        self.log.init();
        self.feature_gates.iter().for_each(FeatureGates::warn);
    }
}
