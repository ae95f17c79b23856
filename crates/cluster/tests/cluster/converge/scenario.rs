//! Scenarios: the actions of users, and when they happen.

use std::time::Duration;

use k8s_openapi::api::core::v1::Pod;
use kube::Api;
use kube::api::{EvictParams, ListParams};
use mizzen_testing::Cluster;
use mizzen_value::value;

/// The actions of a scenario, in order.
pub(super) struct Scenario(pub(super) &'static [Step]);

/// An action of the user, and the pause after it.
pub(super) struct Step {
    action: Action,
    pub(super) seconds: u64,
}

enum Action {
    /// Objects in YAML.
    Apply(&'static str),
    /// Waits until there are this many objects at a path.
    Await { path: &'static str, n: usize },
    /// Deletes an object, with its dependents or without.
    Delete {
        path: &'static str,
        propagation: &'static str,
    },
    /// Evicts the pods with a label, one after the other, each until it is allowed.
    Evict(&'static str),
}

impl Step {
    pub(super) async fn perform(&self, cluster: &Cluster) {
        match self.action {
            Action::Apply(text) => cluster.apply(text).await,
            Action::Await { path, n } => {
                let what = format!("there are {n} objects at {path}");
                let condition = async || {
                    let (_, list) = cluster.server().ask("GET", path, None).await;
                    list["items"].list().len() == n
                };
                cluster.until(&what, condition).await;
            }
            Action::Evict(labels) => evict_all(cluster, labels).await,
            Action::Delete { path, propagation } => {
                let options = value!({
                    "kind": "DeleteOptions", "apiVersion": "v1", "propagationPolicy": propagation
                });
                let (code, status) = cluster.server().ask("DELETE", path, Some(&options)).await;
                assert!(code < 300, "{path}: {}", status["message"].str());
            }
        }
    }
}

/// Evicts pods, as `kubectl drain` does.
async fn evict_all(cluster: &Cluster, labels: &str) {
    let pods: Api<Pod> = Api::default_namespaced(cluster.client());
    let selected = pods.list(&ListParams::default().labels(labels)).await;
    for pod in selected.unwrap() {
        let name = pod.metadata.name.unwrap_or_default();
        let mut n_tries = 0;
        while let Err(error) = pods.evict(&name, &EvictParams::default()).await {
            if matches!(&error, kube::Error::Api(status) if status.code == 404) {
                break;
            }
            n_tries += 1;
            assert!(
                n_tries < 600,
                "{name} is not evicted after ten minutes: {error}"
            );
            cluster.advance(Duration::from_secs(1)).await;
        }
    }
}

const fn apply(text: &'static str, seconds: u64) -> Step {
    Step {
        action: Action::Apply(text),
        seconds,
    }
}

const fn delete(path: &'static str, propagation: &'static str, seconds: u64) -> Step {
    Step {
        action: Action::Delete { path, propagation },
        seconds,
    }
}

const fn wait(path: &'static str, n: usize) -> Step {
    Step {
        action: Action::Await { path, n },
        seconds: 0,
    }
}

const fn evict(labels: &'static str, seconds: u64) -> Step {
    Step {
        action: Action::Evict(labels),
        seconds,
    }
}

pub(super) const DEPLOYMENT: Scenario = Scenario(&[
    apply(include_str!("web.yaml"), 15),
    apply(include_str!("web-v2.yaml"), 15),
    apply(
        "{apiVersion: apps/v1, kind: Deployment, metadata: {name: web, namespace: default}, spec: {replicas: 2, \
                 selector: {matchLabels: {app: web}}, template: {metadata: {labels: {app: web}}, spec: {containers: \
                 [{name: web, image: 'web:2'}]}}}}",
        10,
    ),
]);

pub(super) const STATEFUL_SET: Scenario = Scenario(&[
    apply(include_str!("store.yaml"), 20),
    apply(include_str!("store-v2.yaml"), 20),
]);

pub(super) const DAEMON_SET: Scenario = Scenario(&[
    apply(include_str!("agent.yaml"), 15),
    apply(include_str!("agent-v2.yaml"), 15),
]);

pub(super) const JOB: Scenario = Scenario(&[apply(include_str!("count.yaml"), 40)]);

pub(super) const OWNERS: Scenario = Scenario(&[
    apply(include_str!("web.yaml"), 10),
    delete(
        "/apis/apps/v1/namespaces/default/deployments/web",
        "Foreground",
        10,
    ),
    apply(include_str!("store.yaml"), 10),
    delete(
        "/apis/apps/v1/namespaces/default/statefulsets/store",
        "Background",
        5,
    ),
    apply(include_str!("agent.yaml"), 10),
    wait(
        "/api/v1/namespaces/default/pods?labelSelector=app%3Dagent&fieldSelector=status.phase%3DRunning",
        2,
    ),
    delete(
        "/apis/apps/v1/namespaces/default/daemonsets/agent",
        "Orphan",
        10,
    ),
]);

pub(super) const NAMESPACE: Scenario = Scenario(&[
    apply(include_str!("shop.yaml"), 15),
    delete("/api/v1/namespaces/shop", "Background", 15),
]);

pub(super) const QUOTA: Scenario = Scenario(&[
    apply(include_str!("quota.yaml"), 5),
    apply(include_str!("many.yaml"), 20),
]);

pub(super) const VOLUMES: Scenario = Scenario(&[
    apply(include_str!("disks.yaml"), 30),
    apply(
        "{apiVersion: v1, kind: Pod, metadata: {name: reader, namespace: default}, spec: {containers: [{name: \
                 reader, image: 'reader:1'}], volumes: [{name: data, persistentVolumeClaim: {claimName: data-ledger-0}}]}}",
        15,
    ),
]);

pub(super) const CRON_JOB: Scenario = Scenario(&[
    apply(include_str!("often.yaml"), 205),
    apply(include_str!("often-resting.yaml"), 10),
]);

pub(super) const AUTOSCALER: Scenario = Scenario(&[
    apply(include_str!("load.yaml"), 20),
    apply(include_str!("metrics.yaml"), 60),
]);

pub(super) const SERVICE: Scenario = Scenario(&[
    apply(include_str!("doors.yaml"), 15),
    apply(
        "{apiVersion: v1, kind: Service, metadata: {name: door, namespace: default}, spec: {selector: {colour: \
                 blue}, ports: [{port: 80}]}}",
        10,
    ),
]);

pub(super) const BUDGET: Scenario = Scenario(&[
    apply(include_str!("guarded.yaml"), 15),
    wait(
        "/api/v1/namespaces/default/pods?labelSelector=app%3Dguarded&fieldSelector=status.phase%3DRunning",
        3,
    ),
    evict("app=guarded", 15),
]);
