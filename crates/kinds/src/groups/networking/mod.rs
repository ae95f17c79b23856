//! networking.k8s.io: Ingresses, NetworkPolicies, IPAddresses and ServiceCIDRs.

mod address;
mod ingress;
mod ingress_v1beta1;
mod policy;

use crate::Behaviour;

pub(super) fn behaviour(version: &str, kind: &str) -> Behaviour {
    match (version, kind) {
        ("v1beta1", "Ingress") => ingress_v1beta1::INGRESS,
        (_, "Ingress") => ingress::INGRESS,
        (_, "IngressClass") => ingress::CLASS,
        (_, "NetworkPolicy") => policy::POLICY,
        (_, "IPAddress") => address::ADDRESS,
        (_, "ServiceCIDR") => address::RANGE,
        _ => Behaviour::NONE,
    }
}
