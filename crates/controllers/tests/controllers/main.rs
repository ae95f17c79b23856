//! The controllers against the real server, in process, with time that only passes when all tasks
//! wait.

mod autoscaler;
mod bootstrap;
mod certificates;
mod cluster_role_aggregation;
mod cronjob;
mod custom_metrics;
mod daemonset;
mod deployment;
mod device_taint_eviction;
mod disruption;
mod endpoints;
mod garbage_collector;
mod job;
mod legacy_tokens;
mod namespace;
mod node_ipam;
mod node_lifecycle;
mod pod_gc;
mod pods;
mod policy_status;
mod replicaset;
mod resource_claim;
mod resource_quota;
mod root_ca;
mod service_account_tokens;
mod service_accounts;
mod service_cidrs;
mod service_load_balancer;
mod statefulset;
mod stop;
mod storage_version_migration;
mod ttl;
mod ttl_after_finished;
mod volume;

use std::sync::Arc;
use std::time::Duration;

use mizzen_sdk::{Object, yaml};
use mizzen_testing::{Builder, Cluster};

/// A cluster of these controllers and nothing else. Jitter is constant.
fn cluster_of(controllers: &[&str]) -> Builder {
    Cluster::builder()
        .server_only()
        .without_bootstrap()
        .controllers(controllers)
        .tune_controllers(|options| options.rng = Arc::new(|| 0.5))
}

/// Starts a cluster of these controllers.
async fn start(controllers: &[&str]) -> Cluster {
    cluster_of(controllers).start().await
}

/// Waits until all controllers are idle. Less than a second passes, so that tests can count seconds.
async fn settle(cluster: &Cluster) {
    cluster.advance(Duration::from_millis(900)).await;
}

/// An object from YAML or JSON.
fn read(text: &str) -> Object {
    yaml::read(text.as_bytes()).unwrap()
}
