//! networking.k8s.io: what may get into the cluster, and what may talk to what?

mod address;
mod ingress;
mod policy;

use crate::Behaviour;

pub(super) fn behaviour(kind: &str) -> Behaviour {
    match kind {
        "Ingress" => ingress::INGRESS,
        "IngressClass" => ingress::CLASS,
        "NetworkPolicy" => policy::POLICY,
        "IPAddress" => address::ADDRESS,
        "ServiceCIDR" => address::RANGE,
        _ => Behaviour::NONE,
    }
}
