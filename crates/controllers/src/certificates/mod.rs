//! Who gets a certificate? Nodes that ask for their own are approved, what is approved is signed, and what is old is
//! forgotten.

mod approve;
mod clean;
mod request;
mod sign;

pub(crate) use approve::start as start_approving;
pub(crate) use clean::start as start_cleaning;
pub(crate) use sign::start as start_signing;
pub use sign::{Order, Sign};

use mizzen_object::condition;
use mizzen_value::Value;

fn has_condition(request: &Value, kind: &str) -> bool {
    condition::find(&request["status"]["conditions"], kind).is_some()
}

fn is_issued(request: &Value) -> bool {
    !request["status"]["certificate"].str().is_empty()
}
