//! resource.k8s.io: dynamic resource allocation.
//!
//! Validation only limits the length of expressions; the components that evaluate them compile them. Admin access is
//! authorized by admission.

mod capacity;
mod claim;
mod class;
mod device;
mod expression;
mod parts;
mod slice;
mod status;

use crate::Behaviour;

pub(super) fn behaviour(kind: &str) -> Behaviour {
    match kind {
        "DeviceClass" => class::CLASS,
        "ResourceClaim" => claim::CLAIM,
        "ResourceClaimTemplate" => claim::TEMPLATE,
        "ResourceSlice" => slice::SLICE,
        _ => Behaviour::NONE,
    }
}
