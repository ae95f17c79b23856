//! Which other servers have a say in a write? Those that webhook configurations name.
//!
//! [`Webhooks`] keeps the configurations as they are stored, ready to be asked which hooks a request concerns
//! (`configuration`, `matching`). A mutating hook is called after another, each sees what the one before has made of
//! the object (`mutate`); validating hooks are called together (`validate`). `review` is what is sent and what comes
//! back, `call` sends it.
//!
//! Invariant: nothing that configures admission is shown to a webhook, so that nobody can lock an administrator out.
//! Invariant: all calls for one request share its time; hooks that hang do not add up beyond it.

mod attributes;
mod call;
mod configuration;
mod failing_open;
pub(super) mod matching;
mod mutate;
mod rejection;
mod remember;
mod review;
mod validate;

pub(crate) use attributes::Attributes;
pub(crate) use configuration::Webhooks;
pub(crate) use mutate::Rounds;
pub(crate) use validate::validate;
