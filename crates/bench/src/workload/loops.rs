//! What the control loops take for something whole: a roll-out, a garbage collection, the end of a namespace.
//!
//! Each is measured from its first write until the last object is as it should be, by asking now and then.

use std::sync::Arc;
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use tokio::time::sleep;

use crate::chain;
use crate::client::{Call, CallError};
use crate::load::WorkloadError;
use crate::meter::{Meter, settle};
use crate::report::{Outcome, Report};
use crate::session::Session;

/// How often the server is asked whether it is done.
const LOOK: Duration = Duration::from_millis(100);
/// How long a loop may take.
const PATIENCE: Duration = Duration::from_secs(300);
/// How many replicas a deployment has.
const REPLICAS: u64 = 100;
/// How many objects the namespace has that is deleted.
const IN_NAMESPACE: u64 = 1000;

/// Something that loops do.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum Loop {
    /// Deployments of 100 replicas each, until all pods are ready; needs nodes that run them.
    Rollout,
    /// Many objects whose only owner is deleted.
    Garbage,
    /// A namespace with 1000 objects of 20 kinds.
    Namespace,
}

/// Runs those that are asked for. One that fails is reported.
pub(super) async fn run(session: &Arc<Session>, report: &mut Report) {
    for &one in &session.options.loops {
        let outcome = match one {
            Loop::Rollout => rollout(session).await,
            Loop::Garbage => garbage(session).await,
            Loop::Namespace => namespace(session).await,
        };
        match outcome {
            Ok(outcome) => report.add(outcome),
            Err(error) => report.fail(format!("{one:?}").to_lowercase(), chain(&error)),
        }
    }
}

async fn rollout(session: &Session) -> Result<Outcome, WorkloadError> {
    let path = format!("/apis/apps/v1/namespaces/{}/deployments", session.namespace);
    let n_deployments = (session.options.objects / REPLICAS).max(1);
    settle(&session.servers).await?;
    let meter = Meter::start(&session.servers)?;
    for n in 0..n_deployments {
        post(session, &path, &deployment(n)).await?;
    }
    let is_ready = |one: &Value| one["status"]["readyReplicas"].as_u64() == Some(REPLICAS);
    until(session, &path, |list| {
        items(list).filter(|one| is_ready(one)).count() as u64 == n_deployments
    })
    .await?;
    let outcome = Outcome::whole(
        "rollout (pods ready)",
        &meter.stop()?,
        n_deployments * REPLICAS,
    );
    session.call(&Call::delete(&path)).await?;
    Ok(outcome)
}

async fn garbage(session: &Session) -> Result<Outcome, WorkloadError> {
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
    let meter = Meter::start(&session.servers)?;
    session.call(&Call::delete(format!("{path}/owner"))).await?;
    let page = format!("{secrets}?limit=1");
    until(session, &page, |list| items(list).next().is_none()).await?;
    Ok(Outcome::whole(
        "garbage (dependents)",
        &meter.stop()?,
        n_objects,
    ))
}

async fn namespace(session: &Session) -> Result<Outcome, WorkloadError> {
    let name = format!("{}-full", session.namespace);
    post(
        session,
        "/api/v1/namespaces",
        &json!({"metadata": {"name": name}}),
    )
    .await?;
    for n in 0..IN_NAMESPACE {
        let (path, body) = furniture(n, &name);
        post(session, &path, &body).await?;
    }
    settle(&session.servers).await?;
    let meter = Meter::start(&session.servers)?;
    let path = format!("/api/v1/namespaces/{name}");
    session.call(&Call::delete(&path)).await?;
    let fields = format!("/api/v1/namespaces?fieldSelector=metadata.name%3D{name}");
    until(session, &fields, |list| items(list).next().is_none()).await?;
    Ok(Outcome::whole(
        "namespace (objects)",
        &meter.stop()?,
        IN_NAMESPACE,
    ))
}

async fn post(session: &Session, path: &str, body: &Value) -> Result<Value, CallError> {
    let answer = session.call(&Call::post(path, body.to_string())).await?;
    Ok(serde_json::from_slice(&answer).unwrap_or_default())
}

fn items(list: &Value) -> impl Iterator<Item = &Value> {
    list["items"].as_array().into_iter().flatten()
}

/// Asks until the answer is the right one.
async fn until(
    session: &Session,
    path: &str,
    is_done: impl Fn(&Value) -> bool,
) -> Result<(), WorkloadError> {
    let begin = Instant::now();
    while begin.elapsed() < PATIENCE {
        let answer = session.call(&Call::get(path)).await?;
        if is_done(&serde_json::from_slice(&answer).unwrap_or_default()) {
            return Ok(());
        }
        sleep(LOOK).await;
    }
    Err(WorkloadError::Wrong(format!(
        "not done after {} s; do the loops run?",
        PATIENCE.as_secs()
    )))
}

fn deployment(n: u64) -> Value {
    let labels = json!({"app": format!("web-{n}")});
    json!({
        "metadata": {"name": format!("web-{n}")},
        "spec": {
            "replicas": REPLICAS, "selector": {"matchLabels": labels},
            "template": {
                "metadata": {"labels": labels},
                "spec": {"containers": [{"name": "web", "image": "web:1", "resources": {"requests": {"cpu": "1m"}}}]},
            },
        },
    })
}

/// The `n`th object of a namespace that has some of everything.
fn furniture(n: u64, namespace: &str) -> (String, Value) {
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
    fn a_furnished_namespace_has_twenty_kinds_and_no_name_twice() {
        let all: Vec<(String, Value)> = (0..IN_NAMESPACE).map(|n| furniture(n, "a")).collect();
        let paths: BTreeSet<&String> = all.iter().map(|(path, _)| path).collect();
        let names: BTreeSet<String> = all
            .iter()
            .map(|(_, body)| body["metadata"]["name"].to_string())
            .collect();
        assert_eq!((paths.len(), names.len() as u64), (20, IN_NAMESPACE));
    }
}
