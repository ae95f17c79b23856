//! What is where? Nodes, the pods on them, and sums that are kept as pods come and go, so that placing a pod costs nothing
//! that grows with the number of pods.
//!
//! The loop that schedules owns the cache and takes in what happened between two pods. While it looks for a node nothing
//! changes, so the cache is its own snapshot and nothing is ever copied.
//!
//! Invariant: every pod that is placed or assumed is counted exactly once, on one node.
//! Invariant: `slot` of a node is its place in `nodes` for as long as it, or a pod on it, is known.

mod carried;
mod counted;
mod domain;
mod image;
mod node;
mod order;
mod owners;
mod rules;
mod store;
mod taints;

pub(crate) use carried::Sort;
pub(crate) use counted::Matcher;
pub(crate) use domain::NOWHERE;
pub(crate) use node::Node;
pub(crate) use store::{Cache, Slot};
