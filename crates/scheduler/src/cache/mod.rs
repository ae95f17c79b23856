//! The scheduler's cache: nodes, the pods on them, and sums that are kept up to date as pods come
//! and go.
//!
//! The scheduling loop owns the cache and applies events between two pods. Nothing changes while it
//! looks for a node, so the cache is its own snapshot and nothing is copied. Scheduling a pod costs
//! nothing that grows with the number of pods.
//!
//! Invariant: every assigned or assumed pod is counted exactly once, on one node.
//! Invariant: a node's `slot` is its index in `nodes` for as long as it, or a pod on it, is cached.

mod default_selectors;
mod existing_terms;
mod image;
mod node;
mod node_rules;
mod nodes_by_zone;
mod selector_counts;
mod store;
mod taints;
mod topology;

pub(crate) use existing_terms::TermKind;
pub(crate) use node::NodeInfo;
pub(crate) use selector_counts::PodMatcher;
pub(crate) use store::{SchedulerCache, Slot};
pub(crate) use topology::NO_DOMAIN;
