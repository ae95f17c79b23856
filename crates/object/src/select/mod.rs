//! Selectors: which objects a list or watch is about.

mod field;
mod label;

pub use field::FieldSelector;
pub use label::{LabelSelector, Operator, Requirement};
