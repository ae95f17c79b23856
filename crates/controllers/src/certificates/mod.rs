//! Who gets a certificate? Nodes that ask for their own are approved, what is approved is signed, and what is old is
//! forgotten.

mod approve;
mod clean;
mod request;
mod sign;

pub use approve::start as start_approving;
pub use clean::start as start_cleaning;
pub use sign::{Order, Sign, start as start_signing};

use mizzen_object::Value;

fn has_condition(request: &Value, kind: &str) -> bool {
    request["status"]["conditions"]
        .list()
        .iter()
        .any(|condition| condition["type"].str() == kind)
}

fn is_issued(request: &Value) -> bool {
    !request["status"]["certificate"].str().is_empty()
}
