//! Kinds of the groups outside the core, apps and batch.

mod admission;
mod apiregistration;
mod authentication;
mod authorization;
mod autoscaling;
mod certificates;
mod coordination;
mod discovery;
mod flowcontrol;
mod networking;
mod node;
mod policy;
mod rbac;
mod resource;
mod scheduling;
mod storage;
#[cfg(test)]
mod tests;

pub use certificates::{requested_groups, requested_name};

use mizzen_apiextensions::definition as apiextensions;

use crate::Behaviour;

/// The behaviour of a kind. A subresource with rules of its own is written `Kind/subresource`.
pub(crate) fn behaviour(group: &str, version: &str, kind: &str) -> Behaviour {
    match group {
        "admissionregistration.k8s.io" => admission::behaviour(version, kind),
        "apiextensions.k8s.io" => apiextensions::behaviour(version, kind),
        "apiregistration.k8s.io" => apiregistration::behaviour(kind),
        "authentication.k8s.io" => authentication::behaviour(kind),
        "authorization.k8s.io" => authorization::behaviour(version, kind),
        "autoscaling" => autoscaling::behaviour(version, kind),
        "certificates.k8s.io" => certificates::behaviour(version, kind),
        "coordination.k8s.io" => coordination::behaviour(kind),
        "discovery.k8s.io" => discovery::behaviour(version, kind),
        "events.k8s.io" => mizzen_core_kinds::events::behaviour(version, kind),
        "flowcontrol.apiserver.k8s.io" => flowcontrol::behaviour(version, kind),
        "networking.k8s.io" => networking::behaviour(version, kind),
        "node.k8s.io" => node::behaviour(version, kind),
        "policy" => policy::behaviour(version, kind),
        "rbac.authorization.k8s.io" => rbac::behaviour(version, kind),
        "resource.k8s.io" => resource::behaviour(version, kind),
        "scheduling.k8s.io" => scheduling::behaviour(kind),
        "storage.k8s.io" => storage::behaviour(kind),
        _ => Behaviour::NONE,
    }
}
