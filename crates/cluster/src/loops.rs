//! The loops that run beside the server, and how they reach it: by function calls, each under its own name.

use std::sync::Arc;

use kube::Client;
use mizzen_apiserver::{Server, User};
use mizzen_controllers as controllers;

/// The loops at work. They stop when this is dropped.
pub struct Loops {
    controllers: controllers::Handle,
}

impl Loops {
    /// Starts the loops beside `server`.
    pub fn start(server: &Server) -> Loops {
        let server = server.clone();
        let clients: controllers::Clients = Arc::new(move |name| controller_client(&server, name));
        Loops { controllers: controllers::start(controllers::Options::new(clients)) }
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
