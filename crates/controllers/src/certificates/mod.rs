//! The controllers of CertificateSigningRequests: approver, signer and cleaner.

mod approve;
mod clean;
mod request;
mod sign;

pub(crate) use approve::start as start_approving;
pub(crate) use clean::start as start_cleaning;
pub(crate) use sign::start as start_signing;
pub use sign::{CertificateSigner, SigningRequest};

use mizzen_object::condition;
use mizzen_value::Value;

fn has_condition(request: &Value, kind: &str) -> bool {
    condition::find(&request["status"]["conditions"], kind).is_some()
}

fn is_issued(request: &Value) -> bool {
    !request["status"]["certificate"].str().is_empty()
}
