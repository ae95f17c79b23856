//! The typed client: create, update, scale, list and delete a Deployment.

use std::io::Write;

use clients::Error;
use k8s_openapi::api::apps::v1::Deployment;
use kube::api::{Api, DeleteParams, ListParams, Patch, PatchParams, PostParams};
use kube::{Client, Config, ResourceExt as _};
use mizzen_sdk::{write, yaml};
use serde_json::json;

const DEPLOYMENT: &[u8] = b"
apiVersion: apps/v1
kind: Deployment
metadata:
  name: typed
  labels: {app: typed}
spec:
  replicas: 0
  selector: {matchLabels: {app: typed}}
  template:
    metadata: {labels: {app: typed}}
    spec: {containers: [{name: web, image: nginx}]}
";

#[tokio::main]
async fn main() -> Result<(), Error> {
    // Outside of a cluster from the kubeconfig, inside from the service account of the pod.
    let config = Config::infer().await?;
    run(Client::try_from(config)?, &mut std::io::stdout()).await
}

/// Calls each verb once.
pub(crate) async fn run(client: Client, out: &mut impl Write) -> Result<(), Error> {
    let deployments: Api<Deployment> = Api::default_namespaced(client);
    let wanted: Deployment = yaml::read(DEPLOYMENT)?;
    let created = deployments.create(&PostParams::default(), &wanted).await?;
    writeln!(out, "created {}", created.name_any())?;

    // Reads, changes and writes; starts again if another client wrote in between.
    write::update(&deployments, "typed", |deployment| {
        deployment.labels_mut().insert("tier".into(), "web".into());
    })
    .await?;
    writeln!(out, "labelled typed")?;

    let replicas = Patch::Merge(json!({"spec": {"replicas": 1}}));
    let options = PatchParams::default();
    let scale = deployments
        .patch_scale("typed", &options, &replicas)
        .await?;
    let replicas = scale.spec.and_then(|spec| spec.replicas);
    writeln!(out, "scaled typed to {}", replicas.unwrap_or_default())?;

    let web = ListParams::default().labels("app=typed,tier=web");
    for deployment in deployments.list(&web).await? {
        let image = deployment.spec.and_then(|spec| {
            let container = spec.template.spec?.containers.into_iter().next()?;
            container.image
        });
        writeln!(out, "listed typed with image {}", image.unwrap_or_default())?;
    }

    // Background: the Deployment is deleted now, its pods by the garbage collector.
    deployments
        .delete("typed", &DeleteParams::background())
        .await?;
    let found = deployments.get_opt("typed").await?;
    writeln!(out, "deleted typed: {}", found.is_none())?;
    Ok(())
}
