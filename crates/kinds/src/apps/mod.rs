//! Kinds of apps: what runs pods for a long time.

mod controller_revision;
mod daemon_set;
mod deployment;
mod replica_set;
mod stateful_set;
mod workload;

use crate::Behaviour;

pub(crate) use workload::{Selector, validate_counts, validate_selected};

pub(crate) fn behaviour(kind: &str) -> Behaviour {
    match kind {
        "Deployment" => deployment::behaviour(),
        "ReplicaSet" => replica_set::behaviour(),
        "StatefulSet" => stateful_set::behaviour(),
        "DaemonSet" => daemon_set::behaviour(),
        "ControllerRevision" => controller_revision::behaviour(),
        _ => Behaviour::NONE,
    }
}
