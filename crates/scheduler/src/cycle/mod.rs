//! One pod: which nodes may it be on, which is the best, and what if there is none?

mod diagnosis;
mod filter;
mod pick;
mod rank;

pub(crate) use diagnosis::Diagnosis;
pub(crate) use filter::{Prepared, check_with_nominated, filter, how_many, prepare};
pub(crate) use pick::pick;
pub(crate) use rank::rank;
