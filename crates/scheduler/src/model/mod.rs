//! What must be known of an object to place a pod? Each object is read once, when it is heard of; from then on numbers and
//! parsed selectors are compared, never JSON.

mod affinity;
mod labels;
mod node;
mod node_rule;
mod pod;
mod requests;
mod resources;
mod spread;
mod volume;

pub(crate) use affinity::{Namespaces, Term};
pub(crate) use labels::Labels;
pub(crate) use node::NodeFacts;
pub(crate) use node_rule::NodeRule;
pub(crate) use pod::Pod;
pub(crate) use resources::{Resources, is_scalar};
pub(crate) use spread::Constraint;
pub(crate) use volume::Disk;

#[cfg(test)]
pub(crate) mod samples;
