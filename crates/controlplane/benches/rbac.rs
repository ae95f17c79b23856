//! A decision by roles. Claim: among 10,000 bindings 99 of 100 decisions take less than 5 µs, whoever asks.
//!
//! `cargo bench -p mizzen-controlplane --bench rbac` makes the bindings through the API: half of them are of the cluster and
//! half of 50 namespaces, a third each for users, groups of twenty bindings, and service accounts. It asks 40,000
//! questions of each kind, in an order that is not that of the bindings, and prints how long they took, and what a
//! binding takes of memory: in the store and the index together, and in the index alone.

#![expect(
    clippy::disallowed_methods,
    reason = "a bench measures the machine's own time"
)]

use std::time::{Duration, Instant};

use bytes::Bytes;
use http::{HeaderMap, HeaderValue, Method, header};
use mizzen_apiserver::clock::{SystemRandom, WallClock};
use mizzen_apiserver::{Options, Server, User};
use mizzen_authorization::{Attributes, AttributesTarget, ResourceAttributes};
use mizzen_registry::{Registry, Store};
use std::sync::Arc;

const N_BINDINGS: usize = 10_000;
const N_NAMESPACES: usize = 50;
const N_ROLES: usize = 200;
const N_GROUPS: usize = N_BINDINGS / 3 / 20;
const N_QUESTIONS: usize = 40_000;
const GROUP: &str = "/apis/rbac.authorization.k8s.io/v1";

fn main() {
    // `cargo bench` and `cargo test --benches` say what they want in arguments that are of no interest here.
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
    prepare(&server).await;
    let before = resident();
    for n in 0..N_BINDINGS {
        let path = match namespace(n) {
            Some(namespace) => format!("{GROUP}/namespaces/{namespace}/rolebindings"),
            None => format!("{GROUP}/clusterrolebindings"),
        };
        post(&server, &path, binding(n)).await;
    }
    let stored = resident();
    // The first question reads all bindings.
    ask(&server, &user(0), "list", "default").await;
    let indexed = resident();
    let each = |more: usize| more as f64 / N_BINDINGS as f64;
    println!(
        "{N_BINDINGS} bindings: {:.1} KiB each, {:.2} of them in the index",
        each(indexed.saturating_sub(before)),
        each(indexed.saturating_sub(stored)),
    );
    let mut all = Vec::new();
    for (name, verb) in [("allowed", "list"), ("refused", "delete")] {
        let mut times = Vec::with_capacity(N_QUESTIONS);
        for turn in 0..N_QUESTIONS {
            let n = turn * 7919 % N_BINDINGS;
            let (user, namespace) = (user(n), namespace(n).unwrap_or_else(|| "ns-0".into()));
            let started = Instant::now();
            let allowed = ask(&server, &user, verb, &namespace).await;
            times.push(started.elapsed());
            assert_eq!(allowed, verb == "list", "{n}");
        }
        show(name, &mut times);
        all.extend(times);
    }
    show("all", &mut all);
}

/// Roles, and what every cluster gives to everybody.
async fn prepare(server: &Server) {
    for n in 0..N_NAMESPACES {
        post(
            server,
            "/api/v1/namespaces",
            format!(r#"{{"metadata":{{"name":"ns-{n}"}}}}"#),
        )
        .await;
    }
    for n in 0..N_ROLES {
        let rule = |resources: &str| {
            format!(
                r#"{{"verbs":["get","list","watch"],"apiGroups":["","apps"],"resources":[{resources}]}}"#
            )
        };
        let rules = [
            r#""pods/log""#,
            r#""services","endpoints""#,
            r#""deployments","daemonsets""#,
            r#""pods","configmaps""#,
        ];
        let rules = rules.map(rule).join(",");
        let role = format!(r#"{{"metadata":{{"name":"role-{n}"}},"rules":[{rules}]}}"#);
        post(server, &format!("{GROUP}/clusterroles"), role).await;
    }
    let urls: Vec<String> = (0..20).map(|n| format!(r#""/apis/{n}/*""#)).collect();
    let role = format!(
        r#"{{"metadata":{{"name":"discovery"}},"rules":[{{"verbs":["get"],"nonResourceURLs":[{}]}}]}}"#,
        urls.join(",")
    );
    post(server, &format!("{GROUP}/clusterroles"), role).await;
    let subject =
        r#"{"kind":"Group","apiGroup":"rbac.authorization.k8s.io","name":"system:authenticated"}"#;
    post(
        server,
        &format!("{GROUP}/clusterrolebindings"),
        bound("discovery", "discovery", subject),
    )
    .await;
}

fn namespace(n: usize) -> Option<String> {
    n.is_multiple_of(2)
        .then(|| format!("ns-{}", n / 2 % N_NAMESPACES))
}

/// Whom a binding is for.
fn user(n: usize) -> User {
    let everybody = "system:authenticated".into();
    match n % 3 {
        0 => User {
            name: format!("user-{n}").into(),
            groups: vec![everybody],
            ..User::default()
        },
        1 => {
            let groups = vec![format!("group-{}", n / 3 % N_GROUPS).into(), everybody];
            User {
                name: "somebody".into(),
                groups,
                ..User::default()
            }
        }
        _ => User::service_account("ns-0", &format!("account-{n}")),
    }
}

fn binding(n: usize) -> String {
    let kind = |kind: &str, name: String| {
        format!(r#"{{"kind":"{kind}","apiGroup":"rbac.authorization.k8s.io","name":"{name}"}}"#)
    };
    let subject = match n % 3 {
        0 => kind("User", format!("user-{n}")),
        1 => kind("Group", format!("group-{}", n / 3 % N_GROUPS)),
        _ => format!(r#"{{"kind":"ServiceAccount","namespace":"ns-0","name":"account-{n}"}}"#),
    };
    bound(
        &format!("b-{n}"),
        &format!("role-{}", n % N_ROLES),
        &subject,
    )
}

fn bound(name: &str, role: &str, subject: &str) -> String {
    format!(
        r#"{{"metadata":{{"name":"{name}"}},"roleRef":{{"apiGroup":"rbac.authorization.k8s.io","kind":"ClusterRole","name":"{role}"}},"subjects":[{subject}]}}"#
    )
}

async fn post(server: &Server, path: &str, body: String) {
    let mut headers = HeaderMap::new();
    headers.insert(
        header::CONTENT_TYPE,
        HeaderValue::from_static("application/json"),
    );
    let uri = path.parse().expect("a path");
    let answer = server
        .call(
            Some(User::master("admin")),
            Method::POST,
            uri,
            headers,
            Bytes::from(body),
        )
        .await;
    assert_eq!(answer.status(), 201, "{path}");
}

async fn ask(server: &Server, user: &User, verb: &str, namespace: &str) -> bool {
    let resource = ResourceAttributes {
        version: "v1",
        resource: "configmaps",
        namespace,
        ..ResourceAttributes::default()
    };
    let attributes = Attributes {
        user,
        verb,
        target: AttributesTarget::Resource(resource),
    };
    server.authorize(&attributes).await.is_allowed()
}

fn show(name: &str, times: &mut [Duration]) {
    times.sort_unstable();
    let at = |share: f64| times[((times.len() - 1) as f64 * share) as usize];
    let mean = times.iter().sum::<Duration>() / times.len() as u32;
    println!(
        "{name:>8}: mean {mean:?}, p50 {:?}, p99 {:?}, p99.9 {:?}",
        at(0.5),
        at(0.99),
        at(0.999)
    );
}

/// Resident memory in KiB.
fn resident() -> usize {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
    line.and_then(|line| line.split_whitespace().next()?.parse().ok())
        .unwrap_or_default()
}
