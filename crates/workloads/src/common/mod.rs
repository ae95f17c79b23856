//! Code that several controllers share.

pub(crate) mod hash;
pub(crate) mod int_or_percent;
pub mod pod;
pub(crate) mod pod_control;
pub(crate) mod pod_rank;
pub mod template;
