//! The controllers and the scheduler in the process of the API server. They call it in process, each as a user of its own.

use std::sync::Arc;

use futures_util::future::OptionFuture;
use kube::Client;
use mizzen_apiserver::Server;
use mizzen_authentication::{TokenSigner, issue_token};
use mizzen_bootstrap::pki::Authority;
use mizzen_bootstrap::users;
use mizzen_controllers as controllers;
use mizzen_scheduler as scheduler;
use mizzen_sdk::informer::Factory;
use mizzen_value::address::Cidr;

use crate::compose::EnabledControllers;
use crate::election::{ComponentLease, LeaderCandidate};
use crate::leader_elected_component::{LeaderElectedComponent, LeaderTask};

/// The controllers and the scheduler.
pub(crate) struct ControlLoops {
    controllers: Option<LeaderElectedComponent>,
    scheduler: Option<LeaderElectedComponent>,
    informers: Arc<Factory>,
}

/// What the controllers and the scheduler need besides the API.
pub(crate) struct Dependencies {
    /// Signs certificates; its certificate is published in `kube-root-ca.crt`.
    pub authority: Arc<Authority>,
    /// Signs tokens.
    pub signer: Arc<dyn TokenSigner>,
    /// The pod CIDRs, from which nodes get theirs.
    pub pod_ranges: Vec<String>,
    /// The addresses of simulated load balancers.
    pub load_balancer_ranges: Vec<Cidr>,
    /// The controllers.
    pub controllers: EnabledControllers,
    /// The configuration of the scheduler; none if it does not run.
    pub scheduler: Option<Arc<scheduler::Configuration>>,
}

impl Dependencies {
    /// Runs the scheduler, if it is configured.
    fn scheduler_task(&self, server: &Server, informers: Factory) -> Option<LeaderTask> {
        let (server, configuration) = (server.clone(), self.scheduler.clone()?);
        Some(Box::new(move |readiness| {
            let options = scheduler::Options {
                informers: informers.scoped(),
                configuration: configuration.clone(),
                ..scheduler::Options::new(scheduler_client(&server))
            };
            let metrics = server.metrics().clone();
            Box::pin(async move {
                let handle = scheduler::start(options).map_err(|error| error.to_string())?;
                let handle = Arc::new(handle);
                metrics.register(&handle);
                handle.synced().await;
                readiness.set_ready();
                std::future::pending().await
            })
        }))
    }

    /// Runs the controllers, if there are any.
    fn controllers_task(self, server: &Server, informers: Factory) -> Option<LeaderTask> {
        let Dependencies {
            authority,
            signer,
            pod_ranges,
            load_balancer_ranges,
            controllers: enabled,
            ..
        } = self;
        let names = match enabled {
            EnabledControllers::All => Vec::new(),
            EnabledControllers::Named(names) if names.is_empty() => return None,
            EnabledControllers::Named(names) => names,
        };
        let (server, metrics) = (server.clone(), server.metrics().clone());
        let clients: controllers::Clients = Arc::new(move |name| controller_client(&server, name));
        let options = controllers::Options {
            root_ca: Some(authority.certificate.clone()),
            sign_token: Some(Arc::new(move |claims| issue_token(&*signer, claims))),
            authority: Some(authority),
            controllers: names,
            pod_ranges,
            load_balancer_ranges,
            ..controllers::Options::new(clients)
        };
        Some(Box::new(move |readiness| {
            let options = controllers::Options {
                informers: Some(informers.scoped()),
                ..options.clone()
            };
            let metrics = metrics.clone();
            Box::pin(async move {
                let handle = Arc::new(controllers::start(options));
                metrics.register(&handle);
                handle.synced().await;
                readiness.set_ready();
                std::future::pending().await
            })
        }))
    }
}

impl ControlLoops {
    /// Starts them as candidates of their leases. They share `informers`.
    pub(crate) fn start(
        server: &Server,
        candidate: &LeaderCandidate,
        dependencies: Dependencies,
        informers: Arc<Factory>,
    ) -> ControlLoops {
        let run_scheduler = dependencies.scheduler_task(server, (*informers).clone());
        let run_controllers = dependencies.controllers_task(server, (*informers).clone());
        server.metrics().register(&informers);
        let scheduler = run_scheduler.map(|run| {
            let lease = ComponentLease::for_scheduler();
            LeaderElectedComponent::start(scheduler_client(server), candidate.clone(), lease, run)
        });
        let controllers = run_controllers.map(|run| {
            let (client, lease) = (
                controller_client(server, ""),
                ComponentLease::for_controllers(),
            );
            LeaderElectedComponent::start(client, candidate.clone(), lease, run)
        });
        let components = mizzen_controlplane::components(server);
        if let Some(controllers) = &controllers {
            components.add(controllers.health("controller-manager"));
        }
        if let Some(scheduler) = &scheduler {
            components.add(scheduler.health("scheduler"));
        }
        ControlLoops {
            controllers,
            scheduler,
            informers,
        }
    }

    /// Waits until each runs or waits for its lease. The error is why the scheduler cannot run.
    pub(crate) async fn wait_until_ready(&self) -> Result<(), String> {
        for component in self.controllers.iter().chain(&self.scheduler) {
            component.wait_until_ready().await?;
        }
        Ok(())
    }

    /// Stops them and their informers, and releases their leases.
    pub(crate) async fn stop(self) {
        let stop = |component: Option<LeaderElectedComponent>| {
            OptionFuture::from(component.map(LeaderElectedComponent::stop))
        };
        tokio::join!(stop(self.controllers), stop(self.scheduler));
        self.informers.stop();
    }
}

/// The shared informers of all components in the process: each object is cached and decoded once.
pub(crate) fn informers(server: &Server) -> Factory {
    Factory::new(controller_client(server, ""))
}

/// The client of a controller: a service account of its own, with a bootstrap role.
fn controller_client(server: &Server, name: &str) -> Client {
    Client::new(
        server.in_process(users::controller(name), "kube-controller-manager"),
        "default",
    )
}

/// The client of the scheduler, with a bootstrap role.
fn scheduler_client(server: &Server) -> Client {
    Client::new(
        server.in_process(users::scheduler(), "kube-scheduler"),
        "default",
    )
}
