//! `mizzen controllers`: only the controllers, against any API server.

use std::path::PathBuf;
use std::sync::Arc;

use clap::{ArgAction, Args};
use kube::Client;
use mizzen_apiserver::{ComponentHealth, HealthCheck, HealthEndpoint};
use mizzen_authentication::issue_token;
use mizzen_bootstrap::pki;
use mizzen_bootstrap::token_key::TokenKey;
use mizzen_controllers::{self as controllers, Clients, SignToken};
use mizzen_value::{Value, value};

use super::client_limit::ClientLimitArgs;
use super::component::ComponentArgs;
use super::concurrency::ConcurrencyArgs;
use super::lead::{self, LeadError};
use super::leader_election::LeaderElectionArgs;
use super::load_balancers::LoadBalancerArgs;
use super::node_ipam::NodeIpamArgs;
use super::periods::PeriodArgs;
use super::secure_serving::{SecureServingArgs, ServedComponent};
use super::signing::Signing;
use super::unsupported::{KubeControllerManager, Unsupported};
use crate::component_server::{ComponentStatus, LeaderElectionCheck, Ping, ShutdownCheck};
use crate::connect::connect;
use crate::election::ComponentLease;
use crate::log::print_error;
use crate::service_account_client::ServiceAccountClients;

/// The user agent.
const AGENT: &str = "kube-controller-manager";

/// Upstream's older names of controllers. Kubernetes: cmd/kube-controller-manager/app, `aliases`.
const ALIASES: &[(&str, &str)] = &[
    ("attachdetach", "persistentvolume-attach-detach-controller"),
    ("bootstrapsigner", "bootstrap-signer-controller"),
    ("cloud-node-lifecycle", "cloud-node-lifecycle-controller"),
    (
        "clusterrole-aggregation",
        "clusterrole-aggregation-controller",
    ),
    ("cronjob", "cronjob-controller"),
    (
        "csrapproving",
        "certificatesigningrequest-approving-controller",
    ),
    ("csrcleaner", "certificatesigningrequest-cleaner-controller"),
    ("csrsigning", "certificatesigningrequest-signing-controller"),
    ("daemonset", "daemonset-controller"),
    ("deployment", "deployment-controller"),
    ("disruption", "disruption-controller"),
    ("endpoint", "endpoints-controller"),
    ("endpointslice", "endpointslice-controller"),
    (
        "endpointslicemirroring",
        "endpointslice-mirroring-controller",
    ),
    ("ephemeral-volume", "ephemeral-volume-controller"),
    ("garbagecollector", "garbage-collector-controller"),
    (
        "horizontalpodautoscaling",
        "horizontal-pod-autoscaler-controller",
    ),
    ("job", "job-controller"),
    (
        "legacy-service-account-token-cleaner",
        "legacy-serviceaccount-token-cleaner-controller",
    ),
    ("namespace", "namespace-controller"),
    ("nodeipam", "node-ipam-controller"),
    ("nodelifecycle", "node-lifecycle-controller"),
    (
        "persistentvolume-binder",
        "persistentvolume-binder-controller",
    ),
    (
        "persistentvolume-expander",
        "persistentvolume-expander-controller",
    ),
    ("podgc", "pod-garbage-collector-controller"),
    ("pv-protection", "persistentvolume-protection-controller"),
    (
        "pvc-protection",
        "persistentvolumeclaim-protection-controller",
    ),
    ("replicaset", "replicaset-controller"),
    ("replicationcontroller", "replicationcontroller-controller"),
    ("resource-claim-controller", "resourceclaim-controller"),
    ("resourcequota", "resourcequota-controller"),
    (
        "root-ca-cert-publisher",
        "root-ca-certificate-publisher-controller",
    ),
    ("route", "node-route-controller"),
    ("service", "service-lb-controller"),
    ("serviceaccount", "serviceaccount-controller"),
    ("serviceaccount-token", "serviceaccount-token-controller"),
    ("statefulset", "statefulset-controller"),
    (
        "storage-version-gc",
        "storageversion-garbage-collector-controller",
    ),
    ("svm", "storage-version-migrator-controller"),
    ("tokencleaner", "token-cleaner-controller"),
    ("ttl", "ttl-controller"),
    ("ttl-after-finished", "ttl-after-finished-controller"),
];

/// Controllers of upstream that are not implemented, and so may only be disabled.
const ABSENT: &[&str] = &[
    "cloud-node-lifecycle-controller",
    "node-route-controller",
    "persistentvolume-attach-detach-controller",
    "storageversion-garbage-collector-controller",
];

/// Run only the controllers, against any Kubernetes API server; of several replicas one leads
#[derive(Args)]
#[command(
    after_help = "Example:\n  mizzen controllers --kubeconfig ./data/admin.kubeconfig\n  \
                        mizzen controllers --kubeconfig ./kubeconfig --controllers deployment-controller,replicaset-controller"
)]
pub(crate) struct Controllers {
    /// Connect to the API server with this kubeconfig file
    #[arg(long, value_name = "FILE")]
    kubeconfig: PathBuf,
    /// Run these controllers: * enables all, NAME enables one, -NAME disables one; upstream's short names are accepted
    #[arg(long, value_name = "NAME,…", value_delimiter = ',', default_value = "*", value_parser = parse_controller)]
    controllers: Vec<String>,
    #[command(flatten)]
    node_ipam: NodeIpamArgs,
    /// Publish this certificate authority (PEM) of the API server in the ConfigMap kube-root-ca.crt of every namespace
    #[arg(long, value_name = "FILE")]
    root_ca_file: Option<PathBuf>,
    /// Sign service account tokens in secrets with this key (PEM)
    #[arg(long, value_name = "FILE")]
    service_account_private_key_file: Option<PathBuf>,
    #[command(flatten)]
    load_balancers: LoadBalancerArgs,
    #[command(flatten)]
    signing: Signing,
    /// Run each controller as a service account of its own in kube-system instead of as the user of --kubeconfig
    #[arg(long, value_name = "BOOL", num_args = 0..=1, require_equals = true, default_missing_value = "true",
        default_value_t = false, action = ArgAction::Set)]
    use_service_account_credentials: bool,
    #[command(flatten)]
    periods: PeriodArgs,
    #[command(flatten)]
    concurrency: ConcurrencyArgs,
    #[command(flatten)]
    client_limit: ClientLimitArgs,
    #[command(flatten)]
    leader_election: LeaderElectionArgs,
    #[command(flatten)]
    serving: SecureServingArgs,
    #[command(flatten)]
    component: ComponentArgs,
    #[command(flatten)]
    _unsupported: Unsupported<KubeControllerManager>,
}

/// Parses a member of `--controllers`, and expands a short name.
pub(crate) fn parse_controller(text: &str) -> Result<String, String> {
    let name = text.strip_prefix('-').unwrap_or(text);
    let name = ALIASES
        .iter()
        .find(|(alias, _)| *alias == name)
        .map_or(name, |(_, name)| name);
    let is_off = text.starts_with('-');
    match text == "*"
        || controllers::names().any(|known| known == name)
        || is_off && ABSENT.contains(&name)
    {
        true if is_off => Ok(format!("-{name}")),
        true => Ok(name.into()),
        false => Err(format!(
            "there is no such controller; there are {}",
            controllers::names().collect::<Vec<_>>().join(", ")
        )),
    }
}

/// The enabled controllers. Kubernetes: controller-manager/app/helper.go, IsControllerEnabled.
fn enabled_controllers(choice: &[String]) -> Result<Vec<String>, LeadError> {
    let decides =
        |name: &str, member: &String| member == name || member.strip_prefix('-') == Some(name);
    let is_enabled = |name: &&str| match choice.iter().find(|member| decides(name, member)) {
        Some(member) => member == name,
        None => choice.iter().any(|member| member == "*"),
    };
    let names: Vec<String> = controllers::names()
        .filter(is_enabled)
        .map(String::from)
        .collect();
    if names.is_empty() {
        let why = "no controller is enabled; add * to enable all others".into();
        return Err(LeadError::Configuration {
            file: "--controllers".into(),
            why,
        });
    }
    Ok(names)
}

impl Controllers {
    /// Runs until it is stopped.
    pub(crate) fn run(self) -> Result<(), LeadError> {
        self.component.init_log();
        let names = enabled_controllers(&self.controllers)?;
        lead::run(async {
            let lease = self
                .leader_election
                .lease(ComponentLease::for_controllers())?;
            let client = connect(&self.kubeconfig, AGENT).await?;
            let (status, health) = (ComponentStatus::default(), ComponentHealth::default());
            let component = self.served_component(&status, &health, lease.as_ref(), &names);
            self.serving.serve(component, &status).await?;
            let mut options = controllers::Options::new(
                self.clients(self.client_limit.limit(client.clone()))
                    .await?,
            );
            options.controllers = names.clone();
            options.n_workers.clone_from(&self.concurrency.0);
            self.node_ipam.apply_to(&mut options)?;
            self.periods.apply_to(&mut options);
            options.load_balancer_ranges = self.load_balancers.ranges();
            options.root_ca = self
                .root_ca_file
                .as_deref()
                .map(pki::read_certificates)
                .transpose()?;
            options.authority = self.signing.authority()?;
            options.sign_token = self
                .service_account_private_key_file
                .as_deref()
                .map(TokenKey::read)
                .transpose()?
                .map(|key| -> SignToken { Arc::new(move |claims| issue_token(&key, claims)) });
            lead::lead(client, lease, &status, async {
                let handle = Arc::new(controllers::start(options));
                status.metrics().register(&handle);
                let pings = names
                    .into_iter()
                    .map(|name| Arc::new(Ping(name)) as Arc<dyn HealthCheck>);
                health.add(HealthEndpoint::Healthz, pings.collect());
                handle.synced().await;
                print_error!("the controllers are running");
                std::future::pending().await
            })
            .await
        })
    }

    /// The client of each controller. Shared informers and events use the user of --kubeconfig.
    async fn clients(&self, root: Client) -> Result<Clients, LeadError> {
        if !self.use_service_account_credentials {
            return Ok(Arc::new(move |_| root.clone()));
        }
        let accounts = ServiceAccountClients::new(&self.kubeconfig, AGENT, root.clone()).await?;
        let limit = self.client_limit.layer();
        Ok(Arc::new(move |name| match name {
            "" | "events" => root.clone(),
            // The kubeconfig is valid, because `root` was built from it.
            name => limit(accounts.client(name).unwrap_or_else(|_| root.clone())),
        }))
    }

    /// Health checks and configuration of the secure port. Kubernetes: cmd/kube-controller-manager/app/controllermanager.go,
    /// which has no `/livez` and no `/readyz`; here they are as those of the scheduler.
    fn served_component(
        &self,
        status: &ComponentStatus,
        health: &ComponentHealth,
        lease: Option<&ComponentLease>,
        names: &[String],
    ) -> ServedComponent {
        let election = lease.map(|lease| -> Arc<dyn HealthCheck> {
            Arc::new(LeaderElectionCheck {
                status: status.clone(),
                lease: lease.name.clone(),
            })
        });
        health.add(
            HealthEndpoint::Healthz,
            election.clone().into_iter().collect(),
        );
        health.add(HealthEndpoint::Livez, Vec::new());
        let shutdown: Arc<dyn HealthCheck> = Arc::new(ShutdownCheck(status.clone()));
        health.add(
            HealthEndpoint::Readyz,
            election.into_iter().chain([shutdown]).collect(),
        );
        let configuration = value!({
            "apiVersion": "kubecontrollermanager.config.k8s.io/v1alpha1",
            "kind": "KubeControllerManagerConfiguration",
            "Generic": {
                "Controllers": (names.iter().cloned().map(Value::from).collect::<Vec<_>>()),
                "LeaderElection": (self.leader_election.configuration(lease)),
            },
            "KubeCloudShared": {
                "ClusterCIDR": (self.node_ipam.cluster_cidr()),
                "UseServiceAccountCredentials": (self.use_service_account_credentials),
            },
        });
        ServedComponent {
            name: "kube-controller-manager",
            port: 10257,
            tolerates_lookup_failure: false,
            health: health.clone(),
            configuration: value!({"kubecontrollermanager.config.k8s.io": configuration}),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn n_enabled(text: &str) -> usize {
        let choice: Vec<String> = text
            .split(',')
            .map(|member| parse_controller(member).unwrap())
            .collect();
        enabled_controllers(&choice).map_or(0, |names| names.len())
    }

    #[test]
    fn controllers_are_enabled_as_upstream_does() {
        let all = controllers::names().count();
        assert_eq!(n_enabled("*"), all);
        assert_eq!(n_enabled("*,bootstrapsigner,tokencleaner"), all);
        assert_eq!(
            n_enabled("*,-nodelifecycle,-ttl-controller,-attachdetach"),
            all - 2
        );
        assert_eq!(n_enabled("deployment,replicaset-controller"), 2);
        assert_eq!(n_enabled("-deployment"), 0);
        assert!(
            parse_controller("attachdetach")
                .unwrap_err()
                .contains("there is no such controller")
        );
        assert!(parse_controller("-nonsense").is_err());
    }

    #[test]
    fn every_alias_names_a_controller() {
        for (alias, name) in ALIASES {
            assert!(
                ABSENT.contains(name) || controllers::names().any(|known| known == *name),
                "{alias}"
            );
        }
    }
}
