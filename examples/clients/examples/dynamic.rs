//! The dynamic client: objects of a resource that is named at run time.

use std::io::Write;

use clients::Error;
use kube::{Client, Config};
use mizzen_sdk::dynamic::{DeleteOptions, DynamicClient, ListOptions, PatchType};
use mizzen_sdk::{Key, Object, ResourceType, yaml};

/// A GroupVersionResource, with its kind and scope. Custom resources are named in the same way.
const DEPLOYMENTS: ResourceType =
    ResourceType::namespaced("apps", "v1", "deployments", "Deployment");

#[tokio::main]
async fn main() -> Result<(), Error> {
    // Outside of a cluster from the kubeconfig, inside from the service account of the pod.
    let config = Config::infer().await?;
    run(Client::try_from(config)?, &mut std::io::stdout()).await
}

/// Creates, patches, lists and deletes untyped objects.
pub(crate) async fn run(client: Client, out: &mut impl Write) -> Result<(), Error> {
    let namespace = client.default_namespace().to_owned();
    let key = Key::new(&*namespace, "dynamic");
    let api = DynamicClient::new(client);

    let manifest = format!(
        "
metadata: {{name: dynamic, namespace: {namespace}, labels: {{app: dynamic}}}}
spec:
  replicas: 0
  selector: {{matchLabels: {{app: dynamic}}}}
  template:
    metadata: {{labels: {{app: dynamic}}}}
    spec: {{containers: [{{name: web, image: 'nginx:1.26'}}]}}
"
    );
    let wanted: Object = yaml::read(manifest.as_bytes())?;
    let created = api.create(&DEPLOYMENTS, &wanted).await?;
    writeln!(out, "created {}", created.key())?;

    let change: Object =
        yaml::read(b"spec: {template: {spec: {containers: [{name: web, image: 'nginx:1.27'}]}}}")?;
    let strategic = PatchType::Strategic;
    let patched = api
        .patch(&DEPLOYMENTS, &key, "", strategic, &change)
        .await?;
    // NestedString and its like: a path that does not exist reads as empty.
    let containers = patched["spec"]["template"]["spec"]["containers"].list();
    writeln!(out, "patched its image to {}", containers[0]["image"].str())?;

    let selected = ListOptions {
        labels: "app=dynamic".into(),
        ..ListOptions::default()
    };
    for object in api.list(&DEPLOYMENTS, &namespace, &selected).await? {
        let replicas = object["spec"]["replicas"].int();
        writeln!(out, "listed {} with {replicas} replicas", object.name())?;
    }

    let options = DeleteOptions {
        propagation: Some("Background"),
        ..DeleteOptions::default()
    };
    api.delete(&DEPLOYMENTS, &key, &options).await?;
    writeln!(out, "deleted {key}")?;
    Ok(())
}
