//! The checks that many kinds share, in upstream's words.
//!
//! A function named `is_…` looks at one value and answers what is wrong with it, nothing if it is fine. The
//! other functions look at a part of an object and add to [`Violations`](crate::Violations).

pub mod condition;
pub mod field;
pub mod meta;
pub mod names;
mod repeats;
pub mod selector;

pub use mizzen_value::validation::ip;
pub use repeats::repeats;
