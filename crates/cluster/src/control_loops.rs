//! The loops that run beside the server, and how they reach it: by function calls, each under its own name.

use std::sync::Arc;

use kube::Client;
use mizzen_apiserver::{Server, Signer, User, issue_token};
use mizzen_controllers as controllers;
use mizzen_scheduler as scheduler;
use mizzen_sdk::informer::Factory;
use mizzen_value::address::Block;

use crate::election::{Candidate, Lease};
use crate::pki::Authority;
use crate::seat::{Seat, Work};

/// The loops at work, or waiting until they may.
pub(crate) struct Loops {
    controllers: Seat,
    scheduler: Seat,
    informers: Arc<Factory>,
}

/// What the loops need besides the API.
pub(crate) struct Means {
    /// Signs certificates; its own is that by which the server is known.
    pub authority: Arc<Authority>,
    /// Signs tokens.
    pub signer: Arc<dyn Signer>,
    /// The addresses of pods, of which nodes get blocks.
    pub pod_ranges: Vec<String>,
    /// The addresses of simulated load balancers.
    pub load_balancer_ranges: Vec<Block>,
    /// How pods are placed.
    pub scheduler: Arc<scheduler::Configuration>,
}

impl Loops {
    /// Lets the loops take part beside `server`. They hear of objects by `informers`.
    pub(crate) fn start(
        server: &Server,
        candidate: &Candidate,
        means: Means,
        informers: Arc<Factory>,
    ) -> Loops {
        let placing = place(server, means.scheduler.clone(), (*informers).clone());
        let keeping = keep(server, means, (*informers).clone());
        server.metrics().register(&informers);
        let scheduler = Seat::take(
            scheduler_client(server),
            candidate.clone(),
            Lease::of_scheduler(),
            placing,
        );
        let client = controller_client(server, "");
        let controllers = Seat::take(client, candidate.clone(), Lease::of_loops(), keeping);
        let components = server.control_plane();
        components.add(controllers.health("controller-manager"));
        components.add(scheduler.health("scheduler"));
        Loops {
            controllers,
            scheduler,
            informers,
        }
    }

    /// Waits until every loop knows what there is, or has to wait for another; the error is why the scheduler cannot work.
    pub(crate) async fn settled(&self) -> Result<(), String> {
        self.controllers.settled().await?;
        self.scheduler.settled().await
    }

    /// Ends them, gives their leases back, and lets nothing be followed any more.
    pub(crate) async fn leave(self) {
        tokio::join!(self.controllers.leave(), self.scheduler.leave());
        self.informers.stop();
    }
}

/// What the controllers do while they hold their lease.
fn keep(server: &Server, means: Means, informers: Factory) -> Work {
    let Means {
        authority,
        signer,
        pod_ranges,
        load_balancer_ranges,
        ..
    } = means;
    let (server, metrics) = (server.clone(), server.metrics().clone());
    let clients: controllers::Clients = Arc::new(move |name| controller_client(&server, name));
    let options = controllers::Options {
        root_ca: Some(authority.certificate.clone()),
        sign_token: Some(Arc::new(move |claims| issue_token(&*signer, claims))),
        authority: Some(authority),
        pod_ranges,
        load_balancer_ranges,
        ..controllers::Options::new(clients)
    };
    Box::new(move |settled| {
        let options = controllers::Options {
            informers: Some(informers.lend()),
            ..options.clone()
        };
        let metrics = metrics.clone();
        Box::pin(async move {
            let handle = Arc::new(controllers::start(options));
            metrics.register(&handle);
            handle.synced().await;
            settled.now();
            std::future::pending().await
        })
    })
}

/// What the scheduler does while it holds its lease.
fn place(
    server: &Server,
    configuration: Arc<scheduler::Configuration>,
    informers: Factory,
) -> Work {
    let server = server.clone();
    Box::new(move |settled| {
        let options = scheduler::Options {
            informers: informers.lend(),
            configuration: configuration.clone(),
            ..scheduler::Options::new(scheduler_client(&server))
        };
        let metrics = server.metrics().clone();
        Box::pin(async move {
            let handle = scheduler::start(options).map_err(|error| error.to_string())?;
            let handle = Arc::new(handle);
            metrics.register(&handle);
            handle.synced().await;
            settled.now();
            std::future::pending().await
        })
    })
}

/// What follows objects for all that runs beside the server: each object is kept and read once, whoever looks at it.
pub(crate) fn informers(server: &Server) -> Factory {
    Factory::new(controller_client(server, ""))
}

/// Each controller is a service account of its own, with the role that bootstrap gives it.
fn controller_client(server: &Server, name: &str) -> Client {
    let user = match name {
        "" | "events" => User::component("system:kube-controller-manager"),
        name => User::service_account("kube-system", name),
    };
    Client::new(
        server.in_process(user, "kube-controller-manager"),
        "default",
    )
}

/// The scheduler is a component with a role that bootstrap gives it.
fn scheduler_client(server: &Server) -> Client {
    Client::new(
        server.in_process(User::component("system:kube-scheduler"), "kube-scheduler"),
        "default",
    )
}
