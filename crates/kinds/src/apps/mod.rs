//! Kinds of apps: long-running workloads.

mod controller_revision;
mod daemon_set;
mod deployment;
pub(crate) mod legacy;
mod replica_set;
mod stateful_set;
mod workload;

use crate::Behaviour;

pub(crate) use workload::{WorkloadSelector, validate_counts, validate_selected};

pub(crate) fn behaviour(version: &str, kind: &str) -> Behaviour {
    match (version, kind) {
        ("v1beta1", "Deployment") => legacy::deployment_v1beta1(),
        ("v1beta1", "StatefulSet") => legacy::stateful_set_v1beta1(),
        (_, "Deployment") => deployment::BEHAVIOUR,
        (_, "ReplicaSet") => replica_set::BEHAVIOUR,
        (_, "StatefulSet") => stateful_set::BEHAVIOUR,
        (_, "DaemonSet") => daemon_set::BEHAVIOUR,
        (_, "ControllerRevision") => controller_revision::BEHAVIOUR,
        _ => Behaviour::NONE,
    }
}
