//! Flags that every component of the control plane has: how much it logs, and which feature gates are on.

use clap::Args;

use super::feature_gates::{FeatureGates, feature_gates};
use crate::log;

/// The arguments of a component.
#[derive(Args, Clone)]
pub(crate) struct ComponentArgs {
    /// Log at this verbosity: 0 to 3 is info, 4 and 5 debug, 6 and more trace [default: the level in MIZZEN_LOG, or info]
    #[arg(short = 'v', long = "v", value_name = "LEVEL")]
    verbosity: Option<u32>,
    /// Require features of Kubernetes v1.36 to be on or off; refuse to start where a feature cannot be in that state.
    /// May be given more than once
    #[arg(long, value_name = "NAME=BOOL,…", value_parser = feature_gates)]
    feature_gates: Vec<FeatureGates>,
}

impl ComponentArgs {
    /// Begins to log.
    pub(crate) fn init_log(&self) {
        log::init(self.verbosity);
        self.feature_gates.iter().for_each(FeatureGates::warn);
    }
}
