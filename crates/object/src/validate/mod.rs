//! Validation that many kinds share, with upstream's messages.
//!
//! A function named `is_…` validates one value and returns messages. The other functions validate a
//! part of an object and add to [`Violations`](crate::Violations).

pub mod condition;
pub mod field;
pub mod meta;
pub mod names;
mod repeats;
pub mod selector;

pub use mizzen_value::validation::ip;
pub use repeats::repeats;
