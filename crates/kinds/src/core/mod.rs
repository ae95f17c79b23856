//! Kinds of the core group except Pod. One file per kind; shared code comes last.

mod binding;
mod config_map;
mod endpoints;
mod event;
mod limit_range;
mod namespace;
mod node;
pub(crate) mod persistent_volume;
pub(crate) mod persistent_volume_claim;
mod pod_template;
mod replication_controller;
mod resource_quota;
mod secret;
pub(crate) mod service;
mod service_account;

mod bytes;
#[cfg(test)]
mod check;
pub(crate) mod fields;
mod pem;
pub(crate) mod resources;

use crate::Behaviour;

/// The behaviour of a kind. A subresource with rules of its own is written `Kind/subresource`.
pub(crate) fn behaviour(kind: &str) -> Behaviour {
    match kind {
        "Binding" => binding::BEHAVIOUR,
        "ConfigMap" => config_map::BEHAVIOUR,
        "Endpoints" => endpoints::BEHAVIOUR,
        "Event" => event::BEHAVIOUR,
        "LimitRange" => limit_range::BEHAVIOUR,
        "Namespace" => namespace::BEHAVIOUR,
        "Namespace/finalize" => namespace::FINALIZE,
        "Node" => node::BEHAVIOUR,
        "PersistentVolume" => persistent_volume::BEHAVIOUR,
        "PersistentVolumeClaim" => persistent_volume_claim::BEHAVIOUR,
        "PodTemplate" => pod_template::BEHAVIOUR,
        "ReplicationController" => replication_controller::BEHAVIOUR,
        "ResourceQuota" => resource_quota::BEHAVIOUR,
        "Secret" => secret::BEHAVIOUR,
        "Service" => service::BEHAVIOUR,
        "ServiceAccount" => service_account::BEHAVIOUR,
        _ => Behaviour::NONE,
    }
}
