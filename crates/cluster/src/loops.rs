//! The loops that run beside the server, and how they reach it: by function calls, each under its own name.

use std::sync::Arc;

use kube::Client;
use mizzen_apiserver::{Server, Signer, User, issue_token};
use mizzen_controllers as controllers;
use mizzen_scheduler as scheduler;
use mizzen_sdk::informer::Factory;

use crate::pki::Authority;

/// The loops at work. They stop when this is dropped.
pub struct Loops {
    controllers: controllers::Handle,
    scheduler: scheduler::Handle,
}

/// What the loops need besides the API.
pub struct Means {
    /// Signs certificates; its own is that by which the server is known.
    pub authority: Arc<Authority>,
    /// Signs tokens.
    pub signer: Arc<dyn Signer>,
    /// The addresses of pods, of which nodes get blocks.
    pub pod_ranges: Vec<String>,
}

impl Loops {
    /// Starts the loops beside `server`. They hear of objects by `informers`.
    pub fn start(server: &Server, means: Means, informers: &Factory) -> Loops {
        let scheduler = scheduler::start(scheduler::Options {
            informers: informers.clone(),
            ..scheduler::Options::new(scheduler_client(server))
        });
        let scheduler = scheduler.expect("without a configuration nothing can be wrong with it");
        let Means { authority, signer, pod_ranges } = means;
        let server = server.clone();
        let options = controllers::Options {
            root_ca: Some(authority.certificate.clone()),
            sign_token: Some(Arc::new(move |claims| issue_token(&*signer, claims))),
            authority: Some(authority),
            pod_ranges,
            informers: Some(informers.clone()),
            ..controllers::Options::new(Arc::new(move |name| controller_client(&server, name)))
        };
        Loops { controllers: controllers::start(options), scheduler }
    }

    /// Waits until every loop knows what there is.
    pub async fn synced(&self) {
        self.controllers.synced().await;
        self.scheduler.synced().await;
    }
}

/// What follows objects for all that runs beside the server: each object is kept and read once, whoever looks at it.
pub fn informers(server: &Server) -> Factory {
    Factory::new(controller_client(server, ""))
}

/// Each controller is a service account of its own, with the role that bootstrap gives it.
fn controller_client(server: &Server, name: &str) -> Client {
    let user = match name {
        "" | "events" => User::component("system:kube-controller-manager"),
        name => User::service_account("kube-system", name),
    };
    Client::new(server.in_process(user, "kube-controller-manager"), "default")
}

/// The scheduler is a component with a role that bootstrap gives it.
fn scheduler_client(server: &Server) -> Client {
    Client::new(server.in_process(User::component("system:kube-scheduler"), "kube-scheduler"), "default")
}
