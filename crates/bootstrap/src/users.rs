//! The users of the components of a control plane. Their roles are bootstrap objects.

use mizzen_apiserver::User;

/// The user of a controller: a service account of its own. The shared informers (`""`) and events belong to the
/// controller manager.
pub fn controller(name: &str) -> User {
    match name {
        "" | "events" => User::component("system:kube-controller-manager"),
        name => User::service_account("kube-system", name),
    }
}

/// The user of the scheduler.
pub fn scheduler() -> User {
    User::component("system:kube-scheduler")
}

/// The user that watches for all simulated nodes. Its role is in `data/nodes.roles`; a node writes as [`User::node`].
pub fn node_agent() -> User {
    User::component("system:node-agent")
}
