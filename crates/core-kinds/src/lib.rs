//! The kinds of the core group: their defaults, validation and warnings.
//!
//! [`pod`] has pods and the templates of pods, which workloads of other groups use; every other kind is a file. What they share
//! with other groups comes last: [`fields`] and [`resources`].
//!
//! ```
//! use mizzen_object::{Path, Violations};
//! use mizzen_value::value;
//!
//! let mut template = value!({"metadata": {"labels": {"app": "web"}}, "spec": {"containers": [{"name": "web", "image": "nginx"}]}});
//! mizzen_core_kinds::pod::default_template(&mut template);
//! assert_eq!(template["spec"]["containers"][0]["imagePullPolicy"].str(), "Always");
//! let mut violations = Violations::default();
//! mizzen_core_kinds::pod::validate_template(&template, None, &Path::new("template"), &mut violations);
//! assert!(violations.is_empty());
//! ```

mod binding;
mod config_map;
mod endpoints;
mod event;
pub mod events;
mod limit_range;
mod namespace;
mod node;
mod persistent_volume;
mod persistent_volume_claim;
pub mod pod;
mod pod_template;
mod replication_controller;
mod resource_quota;
mod secret;
mod service;
mod service_account;

mod bytes;
#[cfg(test)]
mod check;
pub mod fields;
mod pem;
pub mod resources;

pub use mizzen_apiextensions::Behaviour;
pub use persistent_volume::default_volume_spec;
pub use service::allocate;

/// The behaviour of a kind. A subresource with rules of its own is written `Kind/subresource`.
pub fn behaviour(kind: &str) -> Behaviour {
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
        "Pod" => pod::BEHAVIOUR,
        "Pod/ephemeralcontainers" => pod::EPHEMERAL_CONTAINERS,
        "Pod/resize" => pod::RESIZE,
        "PodTemplate" => pod_template::BEHAVIOUR,
        "ReplicationController" => replication_controller::BEHAVIOUR,
        "ResourceQuota" => resource_quota::BEHAVIOUR,
        "Secret" => secret::BEHAVIOUR,
        "Service" => service::BEHAVIOUR,
        "ServiceAccount" => service_account::BEHAVIOUR,
        _ => Behaviour::NONE,
    }
}
