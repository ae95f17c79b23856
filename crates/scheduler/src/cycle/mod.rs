//! The scheduling cycle of one pod: filter, score, select a node, or explain why there is none.

mod diagnosis;
mod filter;
mod score;
mod select_host;

pub(crate) use diagnosis::Diagnosis;
pub(crate) use filter::{CycleState, FilterRun, num_feasible_nodes_to_find, run_pre_filters};
pub(crate) use score::prioritize_nodes;
pub(crate) use select_host::select_host;
