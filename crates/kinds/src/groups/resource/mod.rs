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
mod v1beta1;

use crate::Behaviour;

pub(super) fn behaviour(version: &str, kind: &str) -> Behaviour {
    match (version, kind) {
        ("v1beta1", "ResourceClaim") => v1beta1::CLAIM,
        ("v1beta1", "ResourceClaimTemplate") => v1beta1::TEMPLATE,
        ("v1beta1", "ResourceSlice") => v1beta1::SLICE,
        (_, "DeviceClass") => class::CLASS,
        (_, "ResourceClaim") => claim::CLAIM,
        (_, "ResourceClaimTemplate") => claim::TEMPLATE,
        (_, "ResourceSlice") => slice::SLICE,
        _ => Behaviour::NONE,
    }
}
