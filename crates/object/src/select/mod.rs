//! Selectors: which objects a list or watch is about.

mod field;
mod label;
mod text;

pub use field::FieldSelector;
pub use label::{LabelSelector, Operator, Requirement};
pub use text::{go_selector_text, selector_text};
