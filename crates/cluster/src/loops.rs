//! The loops that run beside the server, and how they reach it: by function calls, each under its own name.

use std::sync::Arc;

use kube::Client;
use mizzen_apiserver::{Server, User};
use mizzen_controllers as controllers;

use crate::pki::Authority;

/// The loops at work. They stop when this is dropped.
pub struct Loops {
    controllers: controllers::Handle,
}

impl Loops {
    /// Starts the loops beside `server`; they sign certificates by `authority`, and nodes get blocks of `pod_ranges`.
    pub fn start(server: &Server, authority: Arc<Authority>, pod_ranges: Vec<String>) -> Loops {
        let server = server.clone();
        let clients: controllers::Clients = Arc::new(move |name| controller_client(&server, name));
        let mut options = controllers::Options::new(clients);
        options.authority = Some(authority);
        options.pod_ranges = pod_ranges;
        Loops { controllers: controllers::start(options) }
    }

    /// Waits until every loop knows what there is.
    pub async fn synced(&self) {
        self.controllers.synced().await;
    }
}

/// Each controller is a service account of its own, with the role that bootstrap gives it.
fn controller_client(server: &Server, name: &str) -> Client {
    let user = match name {
        "" | "events" => User::component("system:kube-controller-manager"),
        name => User::service_account("kube-system", name),
    };
    Client::new(server.in_process(user, "kube-controller-manager"), "default")
}
