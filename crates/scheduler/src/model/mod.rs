//! Objects in the form in which plugins compare them. Each object is parsed once, when it arrives;
//! from then on numbers and parsed selectors are compared, never JSON.

mod affinity;
mod labels;
mod node;
mod node_rule;
mod pod;
mod requests;
mod resources;
mod spread;
mod volume;

pub(crate) use affinity::{AffinityTerm, TermNamespaces};
pub(crate) use labels::Labels;
pub(crate) use node::NodeFacts;
pub(crate) use node_rule::NodeRule;
pub(crate) use pod::PodInfo;
pub(crate) use resources::{ResourceAmounts, is_scalar};
pub(crate) use spread::SpreadConstraint;
pub(crate) use volume::RestrictedDisk;

#[cfg(test)]
pub(crate) mod samples;
