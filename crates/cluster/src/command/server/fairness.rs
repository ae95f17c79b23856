//! The limits of concurrent requests.

use clap::{ArgAction, Args};
use mizzen_apiserver::Concurrency;

use crate::compose::ComposeError;

/// The arguments of API priority and fairness.
#[derive(Args, Clone)]
pub(crate) struct FairnessArgs {
    /// Serve at most this many read-only requests at a time; with priority and fairness, the sum with
    /// --max-mutating-requests-inflight is the limit of all requests
    #[arg(long, value_name = "N", default_value_t = 400)]
    max_requests_inflight: usize,
    /// Serve at most this many mutating requests at a time
    #[arg(long, value_name = "N", default_value_t = 200)]
    max_mutating_requests_inflight: usize,
    /// Queue requests by API priority and fairness; false only limits their number
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
