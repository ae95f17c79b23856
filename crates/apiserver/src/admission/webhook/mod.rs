//! Admission webhooks.
//!
//! [`Webhooks`] keeps the stored configurations, indexed by the requests that they match (`configuration`, `matching`).
//! Mutating webhooks are called in order, each with the result of the previous one (`mutate`); validating ones are called
//! concurrently (`validate`). `review` is the AdmissionReview, `call` sends it.
//!
//! Invariant: webhooks do not apply to admission configuration, so that an administrator cannot be locked out.
//! Invariant: all calls of one request share its deadline; the timeouts of webhooks that hang do not add up.

mod annotations;
mod attributes;
mod call;
mod configuration;
mod failing_open;
pub(super) mod matching;
mod mutate;
mod rejection;
mod review;
mod validate;

pub(crate) use attributes::{AdmissionOperation, VersionedAttributes};
pub(crate) use configuration::Webhooks;
pub(crate) use mutate::WebhookRounds;
pub(crate) use validate::validate;
