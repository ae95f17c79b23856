//! extensions: kinds that moved to apps and networking.k8s.io, and are stored there.

use crate::apps::legacy;
use crate::{Behaviour, groups};

pub(crate) fn behaviour(kind: &str) -> Behaviour {
    match kind {
        "DaemonSet" => legacy::daemon_set_extensions(),
        "Deployment" => legacy::deployment_extensions(),
        "ReplicaSet" => legacy::replica_set_extensions(),
        // Their fields and defaults are those of networking.k8s.io/v1beta1, which has no NetworkPolicy of its own.
        "Ingress" | "NetworkPolicy" => groups::behaviour("networking.k8s.io", "v1beta1", kind),
        _ => Behaviour::NONE,
    }
}
