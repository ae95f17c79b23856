//! The validating webhook of ovens.

use mizzen_sdk::webhook::{AdmissionRequest, Denied, Violations};

use crate::api::oven::Oven;

/// Rejects what the schema cannot, with all violations at once.
pub async fn validate(request: AdmissionRequest<Oven>) -> Result<(), Denied> {
    let spec = &request.object()?.spec;
    let mut violations = Violations::default();
    if let Some(message) = &spec.message
        && message.trim().is_empty()
    {
        violations.invalid("spec.message", message.as_str(), "must not be blank");
    }
    request.reject_invalid(&violations)
}
