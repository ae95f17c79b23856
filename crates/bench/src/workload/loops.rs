//! Controllers: a rollout, a garbage collection, the deletion of a namespace.
//!
//! Each is measured from the first write until the last object has its final state, by polling.

use std::sync::Arc;
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use tokio::time::sleep;

use crate::chain;
use crate::client::{ApiCall, ApiCallError};
use crate::load::WorkloadError;
use crate::meter::{ServerMeter, settle};
use crate::report::{BenchReport, WorkloadOutcome};
use crate::session::Session;

/// The polling interval.
const POLL: Duration = Duration::from_millis(100);
/// The timeout of each.
const TIMEOUT: Duration = Duration::from_secs(300);
/// The replicas of a Deployment.
const REPLICAS: u64 = 100;
/// The number of objects in the namespace that is deleted.
const N_IN_NAMESPACE: u64 = 1000;

/// Work of controllers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum ControlLoop {
    /// Deployments of 100 replicas each, until all pods are ready; needs nodes.
    Rollout,
    /// Objects whose only owner is deleted, until they are deleted.
    Garbage,
    /// A namespace with 1000 objects of 20 kinds, until it is deleted.
    Namespace,
}

/// Runs the selected ones. A failure is reported.
pub(super) async fn run(session: &Arc<Session>, report: &mut BenchReport) {
    for &one in &session.options.loops {
        let outcome = match one {
            ControlLoop::Rollout => rollout(session).await,
            ControlLoop::Garbage => garbage(session).await,
            ControlLoop::Namespace => namespace(session).await,
        };
        match outcome {
            Ok(outcome) => report.add(outcome),
            Err(error) => report.fail(format!("{one:?}").to_lowercase(), chain(&error)),
        }
    }
}

async fn rollout(session: &Session) -> Result<WorkloadOutcome, WorkloadError> {
    let path = format!("/apis/apps/v1/namespaces/{}/deployments", session.namespace);
    let n_deployments = (session.options.objects / REPLICAS).max(1);
    settle(&session.servers).await?;
    let meter = ServerMeter::start(&session.servers)?;
    for n in 0..n_deployments {
        let labels = json!({"app": format!("web-{n}")});
        let container =
            json!({"name": "web", "image": "web:1", "resources": {"requests": {"cpu": "1m"}}});
        let template = json!({"metadata": {"labels": labels}, "spec": {"containers": [container]}});
        let deployment = json!({
            "metadata": {"name": format!("web-{n}")},
            "spec": {"replicas": REPLICAS, "selector": {"matchLabels": labels}, "template": template},
        });
        post(session, &path, &deployment).await?;
    }
    let is_ready = |one: &Value| one["status"]["readyReplicas"].as_u64() == Some(REPLICAS);
    poll_until(session, &path, |list| {
        items(list).filter(|one| is_ready(one)).count() as u64 == n_deployments
    })
    .await?;
    let outcome = WorkloadOutcome::from_total(
        "rollout (pods ready)",
        &meter.stop()?,
        n_deployments * REPLICAS,
    );
    session.call(&ApiCall::delete(&path)).await?;
    Ok(outcome)
}

async fn garbage(session: &Session) -> Result<WorkloadOutcome, WorkloadError> {
    let path = format!("/api/v1/namespaces/{}/configmaps", session.namespace);
    let secrets = format!("/api/v1/namespaces/{}/secrets", session.namespace);
    let owner = post(session, &path, &json!({"metadata": {"name": "owner"}})).await?;
    let n_objects = session.options.objects;
    for n in 0..n_objects {
        let owner = json!({"apiVersion": "v1", "kind": "ConfigMap", "name": "owner", "uid": owner["metadata"]["uid"]});
        let metadata = json!({"name": format!("owned-{n}"), "ownerReferences": [owner]});
        post(session, &secrets, &json!({"metadata": metadata})).await?;
    }
    settle(&session.servers).await?;
    let meter = ServerMeter::start(&session.servers)?;
    session
        .call(&ApiCall::delete(format!("{path}/owner")))
        .await?;
    let page = format!("{secrets}?limit=1");
    poll_until(session, &page, |list| items(list).next().is_none()).await?;
    Ok(WorkloadOutcome::from_total(
        "garbage (dependents)",
        &meter.stop()?,
        n_objects,
    ))
}

async fn namespace(session: &Session) -> Result<WorkloadOutcome, WorkloadError> {
    let name = format!("{}-full", session.namespace);
    post(
        session,
        "/api/v1/namespaces",
        &json!({"metadata": {"name": name}}),
    )
    .await?;
    for n in 0..N_IN_NAMESPACE {
        let (path, body) = sample_object(n, &name);
        post(session, &path, &body).await?;
    }
    settle(&session.servers).await?;
    let meter = ServerMeter::start(&session.servers)?;
    let path = format!("/api/v1/namespaces/{name}");
    session.call(&ApiCall::delete(&path)).await?;
    let fields = format!("/api/v1/namespaces?fieldSelector=metadata.name%3D{name}");
    poll_until(session, &fields, |list| items(list).next().is_none()).await?;
    Ok(WorkloadOutcome::from_total(
        "namespace (objects)",
        &meter.stop()?,
        N_IN_NAMESPACE,
    ))
}

async fn post(session: &Session, path: &str, body: &Value) -> Result<Value, ApiCallError> {
    let response = session.call(&ApiCall::post(path, body.to_string())).await?;
    Ok(serde_json::from_slice(&response).unwrap_or_default())
}

fn items(list: &Value) -> impl Iterator<Item = &Value> {
    list["items"].as_array().into_iter().flatten()
}

/// Polls `path` until `is_done`.
async fn poll_until(
    session: &Session,
    path: &str,
    is_done: impl Fn(&Value) -> bool,
) -> Result<(), WorkloadError> {
    let begin = Instant::now();
    while begin.elapsed() < TIMEOUT {
        let response = session.call(&ApiCall::get(path)).await?;
        if is_done(&serde_json::from_slice(&response).unwrap_or_default()) {
            return Ok(());
        }
        sleep(POLL).await;
    }
    Err(WorkloadError::Wrong(format!(
        "not done after {} s; are the controllers running?",
        TIMEOUT.as_secs()
    )))
}

/// The path and body of the `n`th object of the namespace, of one of 20 kinds.
fn sample_object(n: u64, namespace: &str) -> (String, Value) {
    let template = json!({"metadata": {"labels": {"a": "b"}}, "spec": {"containers": [{"name": "a", "image": "a"}]}});
    let once =
        json!({"spec": {"restartPolicy": "Never", "containers": [{"name": "a", "image": "a"}]}});
    let selector = json!({"matchLabels": {"a": "b"}});
    let kinds: [(&str, &str, Value); 20] = [
        ("v1", "configmaps", json!({})),
        ("v1", "secrets", json!({})),
        ("v1", "serviceaccounts", json!({})),
        ("v1", "services", json!({"spec": {"clusterIP": "None"}})),
        ("v1", "podtemplates", json!({"template": template})),
        ("v1", "limitranges", json!({"spec": {"limits": []}})),
        ("v1", "resourcequotas", json!({"spec": {}})),
        (
            "v1",
            "replicationcontrollers",
            json!({"spec": {"replicas": 0, "selector": {"a": "b"}, "template": template}}),
        ),
        (
            "v1",
            "persistentvolumeclaims",
            json!({"spec": {"accessModes": ["ReadWriteOnce"], "storageClassName": "none", "resources": {"requests": {"storage": "1Gi"}}}}),
        ),
        (
            "apps/v1",
            "deployments",
            json!({"spec": {"replicas": 0, "selector": selector, "template": template}}),
        ),
        (
            "apps/v1",
            "replicasets",
            json!({"spec": {"replicas": 0, "selector": selector, "template": template}}),
        ),
        (
            "apps/v1",
            "statefulsets",
            json!({"spec": {"replicas": 0, "serviceName": "a", "selector": selector, "template": template}}),
        ),
        (
            "batch/v1",
            "jobs",
            json!({"spec": {"suspend": true, "template": once}}),
        ),
        (
            "batch/v1",
            "cronjobs",
            json!({"spec": {"suspend": true, "schedule": "0 0 * * *", "jobTemplate": {"spec": {"template": once}}}}),
        ),
        ("coordination.k8s.io/v1", "leases", json!({})),
        (
            "policy/v1",
            "poddisruptionbudgets",
            json!({"spec": {"minAvailable": 1, "selector": selector}}),
        ),
        (
            "networking.k8s.io/v1",
            "networkpolicies",
            json!({"spec": {"podSelector": {}}}),
        ),
        (
            "networking.k8s.io/v1",
            "ingresses",
            json!({"spec": {"defaultBackend": {"service": {"name": "a", "port": {"number": 80}}}}}),
        ),
        (
            "rbac.authorization.k8s.io/v1",
            "roles",
            json!({"rules": []}),
        ),
        (
            "discovery.k8s.io/v1",
            "endpointslices",
            json!({"addressType": "IPv4", "endpoints": []}),
        ),
    ];
    let (version, plural, mut body) = kinds[n as usize % kinds.len()].clone();
    body["metadata"] = json!({"name": format!("object-{n}")});
    let root = if version == "v1" { "api" } else { "apis" };
    (
        format!("/{root}/{version}/namespaces/{namespace}/{plural}"),
        body,
    )
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn a_namespace_gets_twenty_kinds_and_unique_names() {
        let all: Vec<(String, Value)> =
            (0..N_IN_NAMESPACE).map(|n| sample_object(n, "a")).collect();
        let paths: BTreeSet<&String> = all.iter().map(|(path, _)| path).collect();
        let names: BTreeSet<String> = all
            .iter()
            .map(|(_, body)| body["metadata"]["name"].to_string())
            .collect();
        assert_eq!((paths.len(), names.len() as u64), (20, N_IN_NAMESPACE));
    }
}
