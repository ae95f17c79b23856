//! Installing CustomResourceDefinitions. Claim: the thousandth costs about what the first one does.
//!
//! `cargo bench -p mizzen-controlplane --bench definitions` creates 1,000 definitions in one group, one after the other, and
//! prints how long a definition of each hundred took, its status included.

#![expect(
    clippy::disallowed_methods,
    reason = "a bench measures the machine's own time"
)]

use std::sync::Arc;
use std::time::Instant;

use http::{HeaderMap, HeaderValue, Method, header};
use mizzen_apiserver::clock::{SystemRandom, WallClock};
use mizzen_apiserver::{Options, Server, User};
use mizzen_registry::{Registry, Store};

const N_DEFINITIONS: usize = 1_000;
const N_AT_ONCE: usize = 100;

fn main() {
    // `cargo bench` and `cargo test --benches` pass arguments that are not needed here.
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .expect("a runtime");
    runtime.block_on(run());
}

async fn run() {
    let registry = Registry::new(
        Store::in_memory(Default::default()),
        Arc::new(WallClock),
        Arc::new(SystemRandom),
    );
    let server = mizzen_controlplane::server(registry, Options::default());
    server.start().await;
    server.aggregate().await.expect("APIServices");
    for start in (0..N_DEFINITIONS).step_by(N_AT_ONCE) {
        let began = Instant::now();
        for n in start..start + N_AT_ONCE {
            define(&server, n).await;
        }
        let each = began.elapsed() / N_AT_ONCE as u32;
        println!(
            "definitions {start} to {}: {each:?} each",
            start + N_AT_ONCE
        );
    }
}

async fn define(server: &Server, n: usize) {
    let body = format!(
        r#"{{"apiVersion":"apiextensions.k8s.io/v1","kind":"CustomResourceDefinition","metadata":{{"name":"foo{n}s.example.com"}},
        "spec":{{"group":"example.com","scope":"Namespaced",
        "names":{{"plural":"foo{n}s","singular":"foo{n}","kind":"Foo{n}","listKind":"Foo{n}List"}},
        "versions":[{{"name":"v1","served":true,"storage":true,"schema":{{"openAPIV3Schema":{{"type":"object",
        "properties":{{"spec":{{"type":"object","properties":{{"a":{{"type":"string"}}}}}}}}}}}}}}]}}}}"#
    );
    let mut headers = HeaderMap::new();
    let json = HeaderValue::from_static("application/json");
    headers.insert(header::CONTENT_TYPE, json);
    let path = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";
    let answer = server
        .call(
            Some(User::master("admin")),
            Method::POST,
            path.parse().expect("a path"),
            headers,
            body.into(),
        )
        .await;
    assert_eq!(answer.status(), 201);
}
