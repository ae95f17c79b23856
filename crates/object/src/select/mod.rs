//! Label and field selectors.

mod field;
mod label;
mod text;

pub use field::FieldSelector;
pub use label::{LabelSelector, Requirement, SelectorOperator};
pub use text::{go_selector_text, selector_text};
