//! resource.k8s.io: which devices are there, who asks for them, and who got them?
//!
//! Expressions are only measured here; whether they compile is the business of whoever runs them. So is whether
//! a namespace may ask for administrative access.

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
