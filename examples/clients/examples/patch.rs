//! The four kinds of patches: JSON patch, merge patch, strategic merge patch, server-side apply.

use std::io::Write;

use clients::Error;
use k8s_openapi::api::apps::v1::Deployment;
use kube::api::{Api, DeleteParams, Patch, PatchParams};
use kube::{Client, Config};
use mizzen_sdk::write::{self, Applier};
use serde_json::{Value, json};

#[tokio::main]
async fn main() -> Result<(), Error> {
    // Outside of a cluster from the kubeconfig, inside from the service account of the pod.
    let config = Config::infer().await?;
    run(Client::try_from(config)?, &mut std::io::stdout()).await
}

/// Patches a Deployment in every way.
pub(crate) async fn run(client: Client, out: &mut impl Write) -> Result<(), Error> {
    let deployments: Api<Deployment> = Api::default_namespaced(client);
    // Apply creates what does not exist.
    let wanted = json!({
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": "patch"},
        "spec": {
            "replicas": 0,
            "selector": {"matchLabels": {"app": "patch"}},
            "template": {
                "metadata": {"labels": {"app": "patch"}},
                "spec": {"containers": [{"name": "web", "image": "nginx"}]},
            },
        },
    });
    let applier = Applier::without_force("clients");
    applier.apply(&deployments, "patch", &wanted).await?;
    writeln!(out, "applied")?;

    let options = PatchParams::default();
    let json: Patch<Value> = Patch::Json(serde_json::from_value(
        json!([{"op": "replace", "path": "/spec/minReadySeconds", "value": 5}]),
    )?);
    let patched = deployments.patch("patch", &options, &json).await?;
    let seconds = patched.spec.and_then(|spec| spec.min_ready_seconds);
    writeln!(out, "JSON patch: minReadySeconds {seconds:?}")?;

    // A merge patch replaces lists, a strategic merge patch merges them by their keys.
    let side = json!({"spec": {"template": {"spec": {"containers": [{"name": "side", "image": "busybox"}]}}}});
    for (name, patch) in [
        ("strategic merge patch", Patch::Strategic(side.clone())),
        ("merge patch", Patch::Merge(side)),
    ] {
        let patched = deployments.patch("patch", &options, &patch).await?;
        let pod = patched.spec.and_then(|spec| spec.template.spec);
        let containers = pod.map(|pod| pod.containers).unwrap_or_default();
        let names: Vec<&str> = containers
            .iter()
            .map(|container| container.name.as_str())
            .collect();
        writeln!(out, "{name}: containers {}", names.join(", "))?;
    }

    // Another manager may not change what `clients` has applied, unless it forces it.
    let other = json!({"apiVersion": "apps/v1", "kind": "Deployment", "spec": {"replicas": 1}});
    let applier = Applier::without_force("another");
    match applier.apply(&deployments, "patch", &other).await {
        Err(error) if write::is_conflict(&error) => writeln!(out, "apply by another: conflict")?,
        outcome => drop(outcome?),
    }
    Applier::new("another")
        .apply(&deployments, "patch", &other)
        .await?;
    writeln!(out, "apply by another with force: done")?;

    deployments
        .delete("patch", &DeleteParams::background())
        .await?;
    Ok(())
}
