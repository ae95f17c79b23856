//! Kinds of apps: what runs pods for a long time.

mod controller_revision;
mod daemon_set;
mod deployment;
pub(crate) mod legacy;
mod replica_set;
mod stateful_set;
mod workload;

use crate::Behaviour;

pub(crate) use workload::{Selector, validate_counts, validate_selected};

pub(crate) fn behaviour(version: &str, kind: &str) -> Behaviour {
    match (version, kind) {
        ("v1beta1", "Deployment") => legacy::deployment_v1beta1(),
        ("v1beta1", "StatefulSet") => legacy::stateful_set_v1beta1(),
        (_, "Deployment") => deployment::behaviour(),
        (_, "ReplicaSet") => replica_set::behaviour(),
        (_, "StatefulSet") => stateful_set::behaviour(),
        (_, "DaemonSet") => daemon_set::behaviour(),
        (_, "ControllerRevision") => controller_revision::behaviour(),
        _ => Behaviour::NONE,
    }
}
