//! `mizzen scheduler`: only the scheduler, against any API server.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use clap::Args;
use mizzen_apiserver::{ComponentHealth, HealthCheck, HealthEndpoint};
use mizzen_scheduler::{self as scheduler, Configuration};
use mizzen_value::value;

use super::client_limit::ClientLimitArgs;
use super::component::ComponentArgs;
use super::lead::{self, LeadError};
use super::leader_election::LeaderElectionArgs;
use super::secure_serving::{SecureServingArgs, ServedComponent};
use super::server::document;
use super::unsupported::{KubeScheduler, Unsupported};
use crate::component_server::{ComponentStatus, LeaderElectionCheck, ShutdownCheck, SyncedCheck};
use crate::connect::connect;
use crate::election::ComponentLease;
use crate::log::print_error;

/// Run only the scheduler, against any Kubernetes API server; of several replicas one leads
#[derive(Args)]
#[command(
    after_help = "Example:\n  mizzen scheduler --kubeconfig ./data/admin.kubeconfig\n  \
                        mizzen scheduler --kubeconfig ./kubeconfig --config ./scheduler.yaml"
)]
pub(crate) struct SchedulerCommand {
    /// Connect to the API server with this kubeconfig file
    #[arg(long, value_name = "FILE")]
    kubeconfig: PathBuf,
    /// Configure profiles, plugins and extenders by this KubeSchedulerConfiguration in YAML or JSON
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
    #[command(flatten)]
    client_limit: ClientLimitArgs,
    #[command(flatten)]
    leader_election: LeaderElectionArgs,
    #[command(flatten)]
    serving: SecureServingArgs,
    #[command(flatten)]
    component: ComponentArgs,
    #[command(flatten)]
    _unsupported: Unsupported<KubeScheduler>,
}

impl SchedulerCommand {
    /// Runs until it is stopped.
    pub(crate) fn run(self) -> Result<(), LeadError> {
        self.component.init_log();
        lead::run(async {
            let file = self.config.clone().unwrap_or_default();
            let invalid = |why: String| LeadError::Configuration { file, why };
            let configuration = match &self.config {
                Some(file) => read_configuration(file).map_err(invalid.clone())?,
                None => Configuration::default(),
            };
            let lease = self
                .leader_election
                .lease(ComponentLease::for_scheduler())?;
            let client = connect(&self.kubeconfig, "kube-scheduler").await?;
            let status = ComponentStatus::default();
            self.serving
                .serve(self.served_component(&status, lease.as_ref())?, &status)
                .await?;
            let mut options = scheduler::Options::new(self.client_limit.limit(client.clone()));
            options.configuration = Arc::new(configuration);
            lead::lead(client, lease, &status, async {
                let handle =
                    scheduler::start(options).map_err(|error| invalid(error.to_string()))?;
                let handle = Arc::new(handle);
                status.metrics().register(&handle);
                let pod_resources = Arc::new(handle.pod_resources());
                status.resource_metrics().register(&pod_resources);
                handle.synced().await;
                status.set_synced();
                print_error!("the scheduler is running");
                std::future::pending().await
            })
            .await
        })
    }

    /// Health checks and configuration of the secure port. Kubernetes: cmd/kube-scheduler/app/server.go.
    fn served_component(
        &self,
        status: &ComponentStatus,
        lease: Option<&ComponentLease>,
    ) -> Result<ServedComponent, LeadError> {
        let election = lease.map(|lease| -> Arc<dyn HealthCheck> {
            Arc::new(LeaderElectionCheck {
                status: status.clone(),
                lease: lease.name.clone(),
            })
        });
        let health = ComponentHealth::default();
        health.add(
            HealthEndpoint::Healthz,
            election.clone().into_iter().collect(),
        );
        health.add(HealthEndpoint::Livez, Vec::new());
        let own: [Arc<dyn HealthCheck>; 2] = [
            Arc::new(ShutdownCheck(status.clone())),
            Arc::new(SyncedCheck(status.clone())),
        ];
        health.add(
            HealthEndpoint::Readyz,
            election.into_iter().chain(own).collect(),
        );
        let mut configuration = match &self.config {
            Some(file) => document(file)?,
            None => {
                value!({"apiVersion": "kubescheduler.config.k8s.io/v1", "kind": "KubeSchedulerConfiguration"})
            }
        };
        configuration.set("leaderElection", self.leader_election.configuration(lease));
        Ok(ServedComponent {
            name: "kube-scheduler",
            port: 10259,
            tolerates_lookup_failure: true,
            health,
            configuration: value!({"componentconfig": configuration}),
        })
    }
}

/// Reads a configuration file. The error is what is wrong with it.
pub(super) fn read_configuration(file: &Path) -> Result<Configuration, String> {
    let text = std::fs::read(file).map_err(|error| error.to_string())?;
    Configuration::parse(&text).map_err(|error| error.to_string())
}
