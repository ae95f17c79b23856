//! Tests of the controller runtime, per part and together.

mod adoption;
mod controller;
mod convert;
mod documented;
mod election;
mod event;
mod fifo;
mod informer;
mod injection;
mod manager;
mod manifests;
mod model;
mod parts;
mod protobuf;
mod queue;
mod rate_limit;
mod rbac;
mod shared;
mod signals;
mod webhook;
mod wire;

use http::Request;
use mizzen_testing::Cluster;
use serde_json::Value;

/// Starts an API server alone.
async fn start() -> Cluster {
    let server = Cluster::builder().server_only().without_bootstrap();
    server.start().await
}

/// Sends a request with all permissions. Panics if it fails.
async fn send(cluster: &Cluster, method: &str, path: &str, body: Value) -> Value {
    let content_type = match method {
        "PATCH" => "application/merge-patch+json",
        _ => "application/json",
    };
    let body = match body {
        Value::Null => Vec::new(),
        body => body.to_string().into_bytes(),
    };
    let request = Request::builder()
        .method(method)
        .uri(path)
        .header("content-type", content_type)
        .body(body)
        .unwrap();
    let client = cluster.dynamic_client().client();
    let answer = client.request(request).await;
    answer.unwrap_or_else(|error| panic!("{method} {path}: {error}"))
}

async fn create_namespace(cluster: &Cluster, name: &str) {
    let namespace = format!("{{apiVersion: v1, kind: Namespace, metadata: {{name: {name}}}}}");
    cluster.create(&namespace).await;
}

/// Defines the kind Shirt in `example.com`.
async fn define_shirts(cluster: &Cluster) {
    let schema = "{openAPIV3Schema: {type: object, x-kubernetes-preserve-unknown-fields: true}}";
    let version = format!("{{name: v1, served: true, storage: true, schema: {schema}}}");
    let definition = format!(
        "{{apiVersion: apiextensions.k8s.io/v1, kind: CustomResourceDefinition, metadata: {{name: shirts.example.com}}, \
         spec: {{group: example.com, scope: Namespaced, names: {{plural: shirts, kind: Shirt}}, versions: [{version}]}}}}"
    );
    cluster.apply(&definition).await;
}
