//! A GET in process, with fairness and without. Claim: having one's turn costs less than 2 µs, whoever asks.
//!
//! The flow schemas are those that every cluster has. The least of many rounds counts: on a busy machine that is what
//! the work costs, and the rest is waiting.

#![expect(
    clippy::disallowed_methods,
    reason = "a bench measures the machine's own time"
)]

use std::sync::Arc;
use std::time::Instant;

use bytes::Bytes;
use http::{HeaderMap, Method, Uri};
use mizzen_apiserver::clock::{SystemRandom, WallClock};
use mizzen_apiserver::{Concurrency, Options, Server, User};
use mizzen_authorization::{Attributes, Authorizer, Decision, DecisionReason};
use mizzen_registry::{BoxFuture, Registry, Store};
use mizzen_value::{Value, json, yaml};

const FLOW: &str = include_str!("../../bootstrap/data/flow.yaml");
const ROUNDS: usize = 3_000;
const REQUESTS: u32 = 20;

/// Allows everything at once.
#[derive(Debug)]
struct Open;

impl Authorizer for Open {
    fn authorize<'a>(&'a self, _: &'a Attributes<'a>) -> BoxFuture<'a, Decision> {
        Box::pin(async { Decision::Allow(DecisionReason::default()) })
    }
}

fn main() {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .expect("a runtime");
    runtime.block_on(async {
        let without = server(Concurrency {
            reads: 0,
            writes: 0,
            is_fair: false,
        })
        .await;
        let with = server(Concurrency::default()).await;
        let users = [
            User::master("admin"),
            User::component("ann"),
            User::service_account("default", "robot"),
        ];
        for user in users {
            let (before, after) = beside(&without, &with, &user).await;
            println!(
                "{:<40} {before:>6} ns without, {after:>6} ns with, {:>5} more",
                user.name,
                after - before
            );
        }
    });
}

async fn server(concurrency: Concurrency) -> Server {
    let registry = Registry::new(
        Store::in_memory(Default::default()),
        Arc::new(WallClock),
        Arc::new(SystemRandom),
    );
    let authorizers: Vec<Arc<dyn Authorizer>> = vec![Arc::new(Open)];
    let server = mizzen_controlplane::server(
        registry,
        Options {
            concurrency,
            authorizers,
            ..Options::default()
        },
    );
    server.start().await;
    let data = yaml::read(FLOW.as_bytes()).expect("sound YAML").value;
    for plural in ["prioritylevelconfigurations", "flowschemas"] {
        for (name, spec) in data[plural].entries() {
            let mut object = Value::object();
            object.entry("metadata").set("name", name);
            object.set("spec", spec.clone());
            post(
                &server,
                &format!("/apis/flowcontrol.apiserver.k8s.io/v1/{plural}"),
                &object,
            )
            .await;
        }
    }
    let named = |name: &str| {
        json::parse(format!(r#"{{"metadata":{{"name":"{name}"}}}}"#).as_bytes()).expect("JSON")
    };
    post(&server, "/api/v1/namespaces", &named("default")).await;
    post(
        &server,
        "/api/v1/namespaces/default/configmaps",
        &named("x"),
    )
    .await;
    server
}

async fn post(server: &Server, path: &str, object: &Value) {
    let (uri, body) = (
        path.parse().expect("a path"),
        Bytes::from(json::to_string(object)),
    );
    let answer = server
        .call(
            Some(User::master("admin")),
            Method::POST,
            uri,
            HeaderMap::new(),
            body,
        )
        .await;
    assert_eq!(answer.status(), 201, "{path}");
}

/// What a request costs on both servers, in nanoseconds.
async fn beside(one: &Server, other: &Server, user: &User) -> (u64, u64) {
    let (mut least, mut other_least) = (u64::MAX, u64::MAX);
    for _ in 0..ROUNDS {
        least = least.min(round(one, user).await);
        other_least = other_least.min(round(other, user).await);
    }
    (least, other_least)
}

async fn round(server: &Server, user: &User) -> u64 {
    let uri = Uri::from_static("/api/v1/namespaces/default/configmaps/x");
    let began = Instant::now();
    for _ in 0..REQUESTS {
        let answer = server
            .call(
                Some(user.clone()),
                Method::GET,
                uri.clone(),
                HeaderMap::new(),
                Bytes::new(),
            )
            .await;
        assert_eq!(answer.status(), 200);
    }
    u64::try_from((began.elapsed() / REQUESTS).as_nanos()).expect("a short time")
}
