//! Starting a control plane in a test. Claims: all loops and a node in under 10 ms; from nothing to the status of a custom
//! object that a controller has written in under 30 ms.

use divan::Bencher;
use kube::api::{DynamicObject, GroupVersionKind, Patch, PatchParams};
use kube::core::ApiResource;
use kube::{Api, Client};
use mizzen_testing::{Builder, Cluster};
use tokio::runtime::Runtime;

fn main() {
    divan::main();
}

fn runtime() -> Runtime {
    let mut builder = tokio::runtime::Builder::new_current_thread();
    builder.enable_all().build().unwrap()
}

fn bare() -> Builder {
    Cluster::builder()
        .controllers([""; 0])
        .scheduler(false)
        .nodes(0)
}

/// What is measured is dropped afterwards, the cluster before its runtime.
#[divan::bench]
fn api_server_alone(bencher: Bencher) {
    bencher
        .with_inputs(runtime)
        .bench_local_values(|runtime| (runtime.block_on(bare().start()), runtime));
}

#[divan::bench]
fn all_loops_and_a_node(bencher: Bencher) {
    bencher
        .with_inputs(runtime)
        .bench_local_values(|runtime| (runtime.block_on(Cluster::start()), runtime));
}

#[divan::bench]
fn fork(bencher: Bencher) {
    let runtime = runtime();
    let cluster = runtime.block_on(Cluster::start());
    bencher.bench_local(|| runtime.block_on(cluster.fork()));
}

const DEFINITION: &str = "
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: greetings.example.com}
spec:
  group: example.com
  scope: Namespaced
  names: {plural: greetings, singular: greeting, kind: Greeting}
  versions:
  - name: v1
    served: true
    storage: true
    subresources: {status: {}}
    schema:
      openAPIV3Schema:
        type: object
        properties:
          status: {type: object, properties: {text: {type: string}}}
---
apiVersion: example.com/v1
kind: Greeting
metadata: {name: hello}
";

/// Writes the status of every greeting once.
async fn greeter(client: Client) -> Result<(), kube::Error> {
    let kind = ApiResource::from_gvk(&GroupVersionKind::gvk("example.com", "v1", "Greeting"));
    let greetings: Api<DynamicObject> = Api::default_namespaced_with(client, &kind);
    for greeting in greetings.list(&Default::default()).await? {
        let name = greeting.metadata.name.unwrap_or_default();
        let status = serde_json::json!({"status": {"text": "hello"}});
        let (params, patch) = (PatchParams::default(), Patch::Merge(status));
        greetings.patch_status(&name, &params, &patch).await?;
    }
    Ok(())
}

#[divan::bench]
fn start_define_create_reconcile_and_see_the_status(bencher: Bencher) {
    let path = "/apis/example.com/v1/namespaces/default/greetings/hello";
    bencher.with_inputs(runtime).bench_local_values(|runtime| {
        let cluster = runtime.block_on(async {
            let cluster = Cluster::start().await;
            cluster.apply(DEFINITION).await;
            cluster.run("greeter", greeter);
            let greeted = async || {
                let (_, greeting) = cluster.server().ask("GET", path, None).await;
                greeting["status"]["text"].str() == "hello"
            };
            cluster.until("it is greeted", greeted).await;
            cluster
        });
        (cluster, runtime)
    });
}
