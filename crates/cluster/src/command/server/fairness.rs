//! How many requests are answered at a time.

use clap::{ArgAction, Args};
use mizzen_apiserver::Concurrency;

use crate::compose::ComposeError;

/// The arguments of fairness.
#[derive(Args, Clone)]
pub(crate) struct FairnessArgs {
    /// Answer so many reads at a time; with priority and fairness, so many requests together with the writes
    #[arg(long, value_name = "N", default_value_t = 400)]
    max_requests_inflight: usize,
    /// Answer so many writes at a time
    #[arg(long, value_name = "N", default_value_t = 200)]
    max_mutating_requests_inflight: usize,
    /// Let requests share the server by priority and fairness; false: first come, first served
    #[arg(long, value_name = "BOOL", default_value_t = true, action = ArgAction::Set)]
    enable_priority_and_fairness: bool,
}

impl FairnessArgs {
    /// The limits.
    pub(crate) fn concurrency(&self) -> Result<Concurrency, ComposeError> {
        let (reads, writes) = (
            self.max_requests_inflight,
            self.max_mutating_requests_inflight,
        );
        let is_fair = self.enable_priority_and_fairness;
        if is_fair && (reads, writes) == (0, 0) {
            return Err(ComposeError::Configuration {
                file: "--max-requests-inflight and --max-mutating-requests-inflight".into(),
                why: "they must add up to something positive".into(),
            });
        }
        Ok(Concurrency {
            reads,
            writes,
            is_fair,
        })
    }
}
