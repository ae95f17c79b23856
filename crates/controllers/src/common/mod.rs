//! Code that several controllers share.

pub(crate) mod api_errors;
pub(crate) mod batch;
pub(crate) mod cache_wait;
pub(crate) mod controller_index;
pub(crate) mod controller_ref_manager;
pub(crate) mod eviction;
pub(crate) mod hash;
pub(crate) mod int_or_percent;
pub(crate) mod owner_events;
pub(crate) mod pod;
pub(crate) mod pod_control;
pub(crate) mod pod_rank;
pub(crate) mod read_your_writes;
pub(crate) mod template;
