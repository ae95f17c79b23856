//! Several API servers on one etcd: what one writes, all have.
//!
//! The servers share the data directory, which has the certificates and keys.

mod policy;

use std::collections::BTreeSet;
use std::fs;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, AtomicUsize, Ordering};
use std::time::Duration;

use mizzen_apiserver::Server;
use mizzen_apiserver::clock::SystemRandom;
use mizzen_etcd::EngineOptions;
use mizzen_metrics::Families;
use mizzen_registry::{Draft, Expect, Registry, StorageCodec, Store, Write};
use mizzen_value::clock::{Clock, Random};
use serde_json::{Value, json};
use tokio::task::JoinSet;

use crate::client::{Client, Credentials};
use crate::etcd_server::{Cluster, Etcd, Options, WallClock, installed};
use crate::process::{Home, Process, STEP_TIMEOUT};
use crate::progress_proxy::ProgressProxy;

const CONFIG_MAPS: &str = "/api/v1/namespaces/default/configmaps";
const SERVICES: &str = "/api/v1/namespaces/default/services";
const ADDRESSES: &str = "/apis/networking.k8s.io/v1/ipaddresses";
const EVENTS: &str = "/apis/events.k8s.io/v1/namespaces/default/events";
const N_SERVICES: usize = 40;
/// How many random bytes the suffix of a generated name has.
const SUFFIX_BYTES: usize = 5;

/// Two servers on one etcd.
struct Servers {
    first: Process,
    second: Process,
    /// They end before it.
    _etcd: Cluster,
    home: Home,
}

impl Servers {
    /// On each etcd that is installed.
    async fn start_all() -> Vec<Servers> {
        let mut all = Vec::new();
        for etcd in installed() {
            all.push(Servers::start(&etcd).await);
        }
        all
    }

    /// On one of them, for what does not depend on the version of etcd.
    async fn start_one() -> Option<Servers> {
        let etcd = installed().into_iter().next()?;
        Some(Servers::start(&etcd).await)
    }

    async fn start(etcd: &Etcd) -> Servers {
        let etcd = etcd.start(Options::default()).await;
        let home = Home::on_disk()
            .with("--etcd-servers")
            .with(etcd.endpoint(0));
        Servers {
            first: home.start().await,
            second: home.start().await,
            _etcd: etcd,
            home,
        }
    }

    async fn clients(&self) -> (Client, Client) {
        (self.first.admin().await, self.second.admin().await)
    }
}

fn config_map(name: &str) -> String {
    json!({ "metadata": { "name": name } }).to_string()
}

/// Asks until the answer is as expected.
async fn wait_until(client: &Client, path: &str, is_expected: impl Fn(u16, &Value) -> bool) {
    let asked = async {
        loop {
            let answer = client.get(path).await;
            let body = serde_json::from_slice(&answer.body).unwrap_or_default();
            if is_expected(answer.status, &body) {
                return;
            }
            tokio::task::yield_now().await;
        }
    };
    let waited = tokio::time::timeout(STEP_TIMEOUT, asked).await;
    waited.unwrap_or_else(|_| panic!("{path} is not as expected"));
}

#[tokio::test]
async fn a_write_through_one_server_is_read_at_once_through_the_other() {
    for servers in Servers::start_all().await {
        let (first, second) = servers.clients().await;
        let empty = second.get(CONFIG_MAPS).await.expect(200).json();
        let version = empty["metadata"]["resourceVersion"].as_str().unwrap();
        let path = format!("{CONFIG_MAPS}?watch=true&resourceVersion={version}");
        let mut events = second.watch(&path).await;
        for n in 0..20 {
            let name = format!("m{n:02}");
            let created = first.post(CONFIG_MAPS, config_map(&name)).await.expect(201);
            let created = created.json();
            let own = format!("{CONFIG_MAPS}/{name}");
            assert_eq!(second.get(&own).await.expect(200).json(), created);
            let list = second.get(CONFIG_MAPS).await.expect(200).json();
            assert_eq!(list["items"].as_array().unwrap().len(), n + 1);
            // From the watch cache, which waits for the version.
            let version = created["metadata"]["resourceVersion"].as_str().unwrap();
            let path = format!("{own}?resourceVersion={version}");
            assert_eq!(second.get(&path).await.expect(200).json(), created);
            assert_eq!(events.next_name().await, format!("ADDED {name}"));
            // An update starts from the cache, and is not rejected because that lags behind.
            let body = json!({ "data": { "n": name } }).to_string();
            second.call("PATCH", &own, body).await.expect(200);
            assert_eq!(events.next_name().await, format!("MODIFIED {name}"));
        }
        for n in 0..20 {
            let own = format!("{CONFIG_MAPS}/m{n:02}");
            second.call("DELETE", &own, "").await.expect(200);
            first.get(&own).await.expect(404);
            assert_eq!(events.next_name().await, format!("DELETED m{n:02}"));
        }
    }
}

#[tokio::test]
async fn a_namespace_of_one_server_is_used_at_once_through_the_other() {
    for servers in Servers::start_all().await {
        let (first, second) = servers.clients().await;
        for n in 0..20 {
            let namespace = json!({ "metadata": { "name": format!("n{n}") } }).to_string();
            first
                .post("/api/v1/namespaces", namespace)
                .await
                .expect(201);
            let path = format!("/api/v1/namespaces/n{n}/configmaps");
            second.post(&path, config_map("a")).await.expect(201);
        }
        let path = "/api/v1/namespaces/missing/configmaps";
        second.post(path, config_map("a")).await.expect(404);
    }
}

#[tokio::test]
async fn a_server_whose_watches_lag_looks_up_what_another_has_just_created() {
    const NAMESPACE: &str = "/api/v1/namespaces/default";
    let Some(etcd) = installed().into_iter().next() else {
        return;
    };
    let etcd = etcd.start(Options::default()).await;
    let endpoint = etcd.endpoint(0);
    // This version does not tell progress, so that no read waits for a watch.
    let proxy = ProgressProxy::start(&endpoint, "3.4.23").await;
    let home = Home::on_disk();
    let prompt = home.start_with(&["--etcd-servers", &endpoint]).await;
    let late = home.start_with(&["--etcd-servers", &proxy.endpoint]).await;
    let (first, second) = (prompt.admin().await, late.admin().await);
    proxy.hold(true);

    let accounts = format!("{NAMESPACE}/serviceaccounts");
    first.post(&accounts, config_map("robot")).await.expect(201);
    let tokens = format!("{accounts}/robot/token");
    let request = r#"{"apiVersion":"authentication.k8s.io/v1","kind":"TokenRequest","spec":{}}"#;
    let token = first.post(&tokens, request).await.expect(201).json();
    let bearer = format!("Bearer {}", token["status"]["token"].as_str().unwrap());
    let robot = late.anonymous().await;
    let header = ("authorization", bearer.as_str());
    // It may not list them, but it is known.
    robot.get_with(CONFIG_MAPS, header).await.expect(403);
    second.post(&tokens, request).await.expect(201);

    let class = json!({ "metadata": { "name": "fast" }, "handler": "fast" }).to_string();
    let classes = "/apis/node.k8s.io/v1/runtimeclasses";
    first.post(classes, class).await.expect(201);
    let pod = json!({
        "metadata": { "name": "web", "labels": { "app": "web" } },
        "spec": {
            "serviceAccountName": "robot", "runtimeClassName": "fast",
            "containers": [{ "name": "c", "image": "i" }]
        }
    });
    let limits = json!({
        "metadata": { "name": "cpu" },
        "spec": { "limits": [{ "type": "Container", "default": { "cpu": "1" } }] }
    });
    let ranges = format!("{NAMESPACE}/limitranges");
    first.post(&ranges, limits.to_string()).await.expect(201);
    let (pods, pod) = (format!("{NAMESPACE}/pods"), pod.to_string());
    let tried = format!("{pods}?dryRun=All");
    let limited = second.post(&tried, pod.clone()).await.expect(201).json();
    let limits = &limited["spec"]["containers"][0]["resources"]["limits"];
    assert_eq!(limits, &json!({ "cpu": "1" }));
    first.post(&pods, pod.clone()).await.expect(201);
    second.post(&tried, pod).await.expect(409);

    second.get(&format!("{pods}/web/log")).await.expect(204);
    let status = json!({ "status": { "phase": "Running" } }).to_string();
    let own_status = format!("{pods}/web/status");
    first.call("PATCH", &own_status, status).await.expect(200);
    let budget = json!({
        "metadata": { "name": "all" },
        "spec": { "minAvailable": 1, "selector": { "matchLabels": { "app": "web" } } }
    });
    let budgets = "/apis/policy/v1/namespaces/default/poddisruptionbudgets";
    first.post(budgets, budget.to_string()).await.expect(201);
    let eviction = r#"{"apiVersion":"policy/v1","kind":"Eviction","metadata":{"name":"web"}}"#;
    let evictions = format!("{pods}/web/eviction");
    second.post(&evictions, eviction).await.expect(429);
}

#[tokio::test]
async fn definitions_and_roles_of_one_server_apply_on_the_other() {
    for servers in Servers::start_all().await {
        let (first, second) = servers.clients().await;
        let definition = json!({
            "metadata": { "name": "pizzas.example.com" },
            "spec": {
                "group": "example.com", "scope": "Namespaced",
                "names": { "plural": "pizzas", "kind": "Pizza" },
                "versions": [{
                    "name": "v1", "served": true, "storage": true,
                    "schema": { "openAPIV3Schema": { "type": "object" } }
                }]
            }
        });
        let path = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";
        first.post(path, definition.to_string()).await.expect(201);
        let pizzas = "/apis/example.com/v1/namespaces/default/pizzas";
        wait_until(&second, pizzas, |status, _| status == 200).await;
        let pizza = json!({
            "apiVersion": "example.com/v1", "kind": "Pizza", "metadata": { "name": "napoli" }
        });
        second.post(pizzas, pizza.to_string()).await.expect(201);
        let own = format!("{pizzas}/napoli");
        wait_until(&first, &own, |status, _| status == 200).await;

        let rbac = "/apis/rbac.authorization.k8s.io/v1/namespaces/default";
        let role = json!({
            "metadata": { "name": "reader" },
            "rules": [{ "apiGroups": [""], "resources": ["configmaps"], "verbs": ["list"] }]
        });
        let binding = json!({
            "metadata": { "name": "reader" },
            "roleRef": { "apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": "reader" },
            "subjects": [
                { "apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": "system:anonymous" }
            ]
        });
        let anonymous = servers.first.anonymous().await;
        anonymous.get(CONFIG_MAPS).await.expect(403);
        let (roles, bindings) = (format!("{rbac}/roles"), format!("{rbac}/rolebindings"));
        first.post(&roles, role.to_string()).await.expect(201);
        second
            .post(&bindings, binding.to_string())
            .await
            .expect(201);
        for server in [&servers.first, &servers.second] {
            let anonymous = server.anonymous().await;
            wait_until(&anonymous, CONFIG_MAPS, |status, _| status == 200).await;
        }
    }
}

#[tokio::test]
async fn services_of_two_servers_have_distinct_addresses_and_ports() {
    for servers in Servers::start_all().await {
        let (first, second) = servers.clients().await;
        let mut creations = JoinSet::new();
        for n in 0..N_SERVICES {
            let client = if n % 2 == 0 { &first } else { &second };
            let client = client.clone();
            let service = json!({
                "metadata": { "name": format!("s{n}") },
                "spec": { "type": "NodePort", "ports": [{ "port": 80 }] }
            });
            creations.spawn(async move {
                let created = client.post(SERVICES, service.to_string()).await;
                created.expect(201).json()
            });
        }
        let created = creations.join_all().await;
        let distinct = |pointer: &str| -> BTreeSet<String> {
            let fields = created
                .iter()
                .filter_map(|service| service.pointer(pointer));
            fields.map(Value::to_string).collect()
        };
        assert_eq!(distinct("/spec/clusterIP").len(), N_SERVICES);
        assert_eq!(distinct("/spec/ports/0/nodePort").len(), N_SERVICES);
        // One IPAddress for each, and for the Service `kubernetes`.
        let addresses = second.get(ADDRESSES).await.expect(200).json();
        let addresses = addresses["items"].as_array().unwrap();
        assert_eq!(addresses.len(), N_SERVICES + 1);

        // What one server has given, the other refuses.
        let (address, port) = (
            &created[0]["spec"]["clusterIP"],
            &created[0]["spec"]["ports"][0]["nodePort"],
        );
        for spec in [
            json!({ "clusterIP": address, "ports": [{ "port": 80 }] }),
            json!({ "type": "NodePort", "ports": [{ "port": 80, "nodePort": port }] }),
        ] {
            for client in [&first, &second] {
                let service = json!({ "metadata": { "name": "late" }, "spec": spec });
                let refused = client.post(SERVICES, service.to_string()).await.expect(422);
                assert!(
                    refused.text().contains("is already allocated"),
                    "{}",
                    refused.text()
                );
            }
        }
        // A rejected write leaves no IPAddress.
        let unchanged = first.get(ADDRESSES).await.expect(200).json();
        assert_eq!(unchanged["items"].as_array().unwrap().len(), N_SERVICES + 1);

        // So does one whose name is taken, and it leaves no port either.
        let name = created[0]["metadata"]["name"].as_str().unwrap();
        let ports = distinct("/spec/ports/0/nodePort");
        let free = (30_000..32_767).find(|port| !ports.contains(&port.to_string()));
        for (name, status) in [(name, 409), ("free", 201)] {
            let service = json!({
                "metadata": { "name": name },
                "spec": {
                    "type": "NodePort", "clusterIP": "10.0.0.9",
                    "ports": [{ "port": 80, "nodePort": free }]
                }
            });
            let answer = first.post(SERVICES, service.to_string()).await;
            answer.expect(status);
        }

        // A deleted Service gives both back, to any server.
        let own = format!("{SERVICES}/{name}");
        first.call("DELETE", &own, "").await.expect(200);
        let service = json!({
            "metadata": { "name": "next" },
            "spec": {
                "type": "NodePort", "clusterIP": address,
                "ports": [{ "port": 80, "nodePort": port }]
            }
        });
        second.post(SERVICES, service.to_string()).await.expect(201);
    }
}

#[tokio::test]
async fn one_of_two_servers_gets_what_both_are_asked_for() {
    for servers in Servers::start_all().await {
        let (first, second) = servers.clients().await;
        // These addresses are in the share that is not given to Services without a request.
        for n in 0..14 {
            let specs = [
                json!({ "clusterIP": format!("10.0.0.{}", 2 + n), "ports": [{ "port": 80 }] }),
                json!({ "type": "NodePort", "ports": [{ "port": 80, "nodePort": 30_100 + n }] }),
            ];
            for (kind, spec) in specs.iter().enumerate() {
                let create = async |client: &Client, name: &str| {
                    let name = format!("{name}-{kind}-{n}");
                    let service = json!({ "metadata": { "name": name }, "spec": spec });
                    let answer = client.post(SERVICES, service.to_string()).await;
                    let is_refused = answer.text().contains("is already allocated");
                    assert_eq!(answer.status == 422, is_refused, "{}", answer.text());
                    answer.status
                };
                let (one, other) = tokio::join!(create(&first, "a"), create(&second, "b"));
                assert_eq!(BTreeSet::from([one, other]), BTreeSet::from([201, 422]));
            }
        }
    }
}

/// A clock that a test sets.
#[derive(Default)]
struct TestClock(AtomicI64);

impl Clock for TestClock {
    fn now(&self) -> (i64, u32) {
        (self.0.load(Ordering::Relaxed), 0)
    }
}

/// A server in this process, and its store.
async fn serve_in_process(
    etcd: &Cluster,
    clock: Arc<dyn Clock>,
    random: Arc<dyn Random>,
) -> (Store, Server) {
    let codec = StorageCodec::new("/registry", mizzen_kinds::storage_catalog().stored_kinds())
        .with_keyspace("ranges", &mizzen_kinds::range_allocation());
    let options = EngineOptions::new(Arc::new(codec), Arc::new(WallClock));
    let store = mizzen_etcd::store(etcd.client(), options);
    let registry = Registry::new(store.clone(), clock, random);
    let options = mizzen_controlplane::Options {
        // By the clock of the engine they would expire at once.
        event_ttl: Duration::ZERO,
        ..Default::default()
    };
    let server = mizzen_controlplane::server(registry, options);
    store.filled().await;
    server.start().await;
    (store, server)
}

/// Random bytes, except that the next suffixes of generated names are equal.
#[derive(Default)]
struct EqualSuffixes(AtomicUsize);

impl Random for EqualSuffixes {
    fn fill(&self, bytes: &mut [u8]) {
        let is_suffix = bytes.len() == SUFFIX_BYTES;
        let take = |left: usize| left.checked_sub(1);
        let ordering = Ordering::Relaxed;
        match is_suffix && self.0.fetch_update(ordering, ordering, take).is_ok() {
            true => bytes.fill(0),
            false => SystemRandom.fill(bytes),
        }
    }
}

#[tokio::test]
async fn a_generated_name_that_the_other_server_has_used_is_replaced_by_another() {
    for etcd in installed() {
        let etcd = etcd.start(Options::default()).await;
        let randoms = [(); 2].map(|()| Arc::new(EqualSuffixes::default()));
        let (_, first) =
            serve_in_process(&etcd, Arc::new(TestClock::default()), randoms[0].clone()).await;
        let (_, second) =
            serve_in_process(&etcd, Arc::new(TestClock::default()), randoms[1].clone()).await;
        let create = async |server: &Server, path: &str, metadata: Value| {
            let object = json!({ "metadata": metadata }).to_string();
            let object = mizzen_value::json::parse(object.as_bytes()).unwrap();
            let (code, answer) = server.ask("POST", path, Some(&object)).await;
            (code, answer["metadata"]["name"].str().to_owned())
        };
        create(&first, "/api/v1/namespaces", json!({ "name": "default" })).await;
        let prefix = json!({ "generateName": "a-" });
        // The eighth attempt has a name of its own; one attempt more is not made.
        for (n_equal, n_left, code) in [(7, 0, 201), (9, 1, 409)] {
            randoms[0].0.store(1, Ordering::Relaxed);
            let taken = create(&first, CONFIG_MAPS, prefix.clone()).await;
            if n_equal == 7 {
                assert_eq!(taken, (201, "a-bbbbb".to_owned()));
            }
            randoms[1].0.store(n_equal, Ordering::Relaxed);
            let (found, name) = create(&second, CONFIG_MAPS, prefix.clone()).await;
            assert_eq!(found, code, "{name}");
            assert_ne!(name, "a-bbbbb");
            assert_eq!(randoms[1].0.load(Ordering::Relaxed), n_left);
        }
    }
}

#[tokio::test]
async fn repairs_release_what_a_stopped_server_has_left() {
    for etcd in installed() {
        let etcd = etcd.start(Options::default()).await;
        let clock = Arc::new(TestClock::default());
        let (store, server) = serve_in_process(&etcd, clock.clone(), Arc::new(SystemRandom)).await;
        let create = async |path: &str, object: Value| {
            let object = mizzen_value::json::parse(object.to_string().as_bytes()).unwrap();
            let (code, answer) = server.ask("POST", path, Some(&object)).await;
            assert_eq!(code, 201, "{answer:?}");
        };

        // Ports 30000 and 30001, and an address, without Services.
        let ranges = store.keyspace("ranges");
        let bitmap = r#"{"kind":"RangeAllocation","apiVersion":"v1","metadata":{},"range":"30000-32767","data":"Aw=="}"#;
        let draft = Draft {
            value: bitmap.into(),
            ..Draft::default()
        };
        let write = Write::put(&ranges, "servicenodeports", Expect::Absent, draft);
        store.commit_one(write).await.unwrap();
        let address = json!({
            "metadata": {
                "name": "10.0.0.5",
                "labels": {
                    "ipaddress.kubernetes.io/ip-family": "IPv4",
                    "ipaddress.kubernetes.io/managed-by": "ipallocator.k8s.io"
                }
            },
            "spec": { "parentRef": { "resource": "services", "namespace": "default", "name": "gone" } }
        });
        create(ADDRESSES, address).await;
        // Port 30002 of a Service.
        let namespace = json!({ "metadata": { "name": "default" } });
        create("/api/v1/namespaces", namespace).await;
        let ports = json!([{ "port": 80, "nodePort": 30_002 }]);
        let service = json!({
            "metadata": { "name": "s" },
            "spec": { "type": "NodePort", "clusterIP": "10.0.0.6", "ports": ports }
        });
        create(SERVICES, service).await;

        let data = async || {
            let record = store.get(&ranges, "servicenodeports").await.unwrap();
            let object: Value = serde_json::from_slice(&record.unwrap().value).unwrap();
            object["data"].as_str().unwrap().to_owned()
        };
        let has_address = async |address: &str| {
            let (code, _) = server
                .ask("GET", &format!("{ADDRESSES}/{address}"), None)
                .await;
            code == 200
        };
        for (seconds, expected, is_left) in [
            (0, "Bw==", true),
            (59, "Bw==", true),
            (60, "BA==", false),
            (61, "BA==", false),
        ] {
            clock.0.store(seconds, Ordering::Relaxed);
            mizzen_controlplane::repair(&server).await.unwrap();
            assert_eq!(data().await, expected, "after {seconds} s");
            assert_eq!(has_address("10.0.0.5").await, is_left, "after {seconds} s");
            assert!(has_address("10.0.0.6").await);
        }

        // A port of a Service that the bitmap lacks.
        let draft = Draft {
            value: bitmap.replace("Aw==", "").into(),
            ..Draft::default()
        };
        let write = Write::put(&ranges, "servicenodeports", Expect::Any, draft);
        store.commit_one(write).await.unwrap();
        mizzen_controlplane::repair(&server).await.unwrap();
        assert_eq!(data().await, "BA==");
        let (_, events) = server.ask("GET", EVENTS, None).await;
        let notes = events["items"].list().iter();
        let notes: Vec<_> = notes
            .map(|event| (event["reason"].str(), event["note"].str()))
            .collect();
        let expected = [
            (
                "IPAddressNotAllocated",
                "IPAddress: 10.0.0.5 for Service default/gone appears to have leaked: cleaning up",
            ),
            ("PortNotAllocated", "Port 30002 is not allocated; repairing"),
        ];
        assert_eq!(notes, expected);
        let metrics = Families::of(&[&server.parts().options.metrics]).to_string();
        for series in [r#"{type="leak"} 2"#, r#"{type="repair"} 1"#] {
            let line = format!("apiserver_nodeport_repair_port_errors_total{series}");
            assert!(metrics.contains(&line), "{line}");
        }
    }
}

/// An IPAddress is created before its Service is written; so one that the Service does not have may be about to be used.
#[tokio::test]
async fn repairs_wait_for_services_that_are_being_written() {
    for etcd in installed().into_iter().take(1) {
        let etcd = etcd.start(Options::default()).await;
        let clock = Arc::new(TestClock::default());
        let (_, server) = serve_in_process(&etcd, clock.clone(), Arc::new(SystemRandom)).await;
        let create = async |path: &str, object: Value| {
            let object = mizzen_value::json::parse(object.to_string().as_bytes()).unwrap();
            let (code, answer) = server.ask("POST", path, Some(&object)).await;
            assert_eq!(code, 201, "{answer:?}");
        };
        let namespace = json!({ "metadata": { "name": "default" } });
        create("/api/v1/namespaces", namespace).await;
        let external = json!({ "type": "ExternalName", "externalName": "example.com" });
        let internal = json!({ "clusterIP": "10.0.0.6", "ports": [{ "port": 80 }] });
        for (name, spec) in [("external", external), ("internal", internal)] {
            let service = json!({ "metadata": { "name": name }, "spec": spec });
            create(SERVICES, service).await;
        }
        clock.0.store(100, Ordering::Relaxed);
        for (address, service) in [("10.0.0.7", "internal"), ("10.0.0.8", "external")] {
            let labels = json!({
                "ipaddress.kubernetes.io/ip-family": "IPv4",
                "ipaddress.kubernetes.io/managed-by": "ipallocator.k8s.io"
            });
            let parent = json!({ "resource": "services", "namespace": "default", "name": service });
            let address = json!({
                "metadata": { "name": address, "labels": labels }, "spec": { "parentRef": parent }
            });
            create(ADDRESSES, address).await;
        }
        for (seconds, expected) in [
            (104, &["10.0.0.6", "10.0.0.7", "10.0.0.8"][..]),
            (105, &["10.0.0.6", "10.0.0.8"][..]),
            (159, &["10.0.0.6", "10.0.0.8"][..]),
            (160, &["10.0.0.6"][..]),
        ] {
            clock.0.store(seconds, Ordering::Relaxed);
            mizzen_controlplane::repair(&server).await.unwrap();
            let (_, list) = server.ask("GET", ADDRESSES, None).await;
            let names: Vec<_> = list["items"].list().iter().collect();
            let names: Vec<_> = names
                .iter()
                .map(|it| it["metadata"]["name"].str())
                .collect();
            assert_eq!(names, expected, "after {seconds} s");
        }
    }
}

/// Kubernetes: the storage of a definition that is gone is torn down
/// (apiextensions-apiserver/pkg/apiserver/customresource_handler.go).
#[tokio::test]
async fn definitions_that_came_and_went_leave_no_keyspace() {
    const DEFINITIONS: &str = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";
    const N_DEFINITIONS: usize = 50;
    for etcd in installed().into_iter().take(1) {
        let etcd = etcd.start(Options::default()).await;
        let clock = Arc::new(WallClock);
        let (store, server) = serve_in_process(&etcd, clock, Arc::new(SystemRandom)).await;
        let n_before = store.stats().len();
        let create = async |path: &str, object: Value| {
            let object = mizzen_value::json::parse(object.to_string().as_bytes()).unwrap();
            let (code, answer) = server.ask("POST", path, Some(&object)).await;
            assert_eq!(code, 201, "{answer:?}");
        };
        let create_both = async |n: usize| {
            let (plural, kind) = (format!("things{n}"), format!("Thing{n}"));
            let schema = json!({ "type": "object" });
            let version = json!({
                "name": "v1", "served": true, "storage": true,
                "schema": { "openAPIV3Schema": schema }
            });
            let definition = json!({
                "metadata": { "name": format!("{plural}.example.com") },
                "spec": {
                    "group": "example.com",
                    "scope": "Cluster",
                    "names": { "plural": plural, "kind": kind },
                    "versions": [version]
                }
            });
            create(DEFINITIONS, definition).await;
            let object = json!({
                "apiVersion": "example.com/v1", "kind": kind, "metadata": { "name": "a" }
            });
            create(&format!("/apis/example.com/v1/{plural}"), object).await;
        };
        for n in 0..N_DEFINITIONS {
            create_both(n).await;
        }
        assert_eq!(store.stats().len(), n_before + N_DEFINITIONS);
        for n in 0..N_DEFINITIONS {
            let path = format!("{DEFINITIONS}/things{n}.example.com");
            let (code, _) = server.ask("DELETE", &path, None).await;
            assert_eq!(code, 200);
        }
        let closed = async {
            while store.stats().len() > n_before {
                store.expire(0).await.unwrap();
                tokio::task::yield_now().await;
            }
        };
        let closed = tokio::time::timeout(STEP_TIMEOUT, closed).await;
        assert!(
            closed.is_ok(),
            "{} are left",
            store.stats().len() - n_before
        );
        // One that is created again has only its new object.
        create_both(0).await;
        let (_, list) = server
            .ask("GET", "/apis/example.com/v1/things0", None)
            .await;
        assert_eq!(list["items"].list().len(), 1);
        assert_eq!(store.stats().len(), n_before + 1);
    }
}

#[tokio::test]
async fn the_kubernetes_service_has_the_endpoints_of_servers_that_live() {
    for etcd in installed().into_iter().take(1) {
        let etcd = etcd.start(Options::default()).await;
        let home = Home::on_disk()
            .with("--etcd-servers")
            .with(etcd.endpoint(0));
        let start = async |address: &str| {
            let address = format!("--advertise-address={address}");
            home.start_with(&[&address]).await
        };
        let first = start("192.0.2.1").await;
        let client = first.admin().await;
        let path = "/api/v1/namespaces/default/endpoints?watch=true&fieldSelector=metadata.name%3Dkubernetes";
        let mut events = client.watch(path).await;
        let mut wait_for = async |expected: &[&str]| {
            loop {
                let event = events.next().await.expect("an event");
                let addresses = &event["object"]["subsets"][0]["addresses"];
                let addresses = addresses.as_array().into_iter().flatten();
                let addresses: Vec<_> = addresses.map(|one| one["ip"].as_str().unwrap()).collect();
                if addresses == expected {
                    return;
                }
            }
        };
        wait_for(&["192.0.2.1"]).await;
        let second = start("192.0.2.2").await;
        wait_for(&["192.0.2.1", "192.0.2.2"]).await;
        let slice = "/apis/discovery.k8s.io/v1/namespaces/default/endpointslices/kubernetes";
        wait_until(&client, slice, |_, slice| {
            slice["endpoints"]
                .as_array()
                .is_some_and(|all| all.len() == 2)
        })
        .await;

        // One that stops goes at once, and one that is killed when its lease has expired.
        second.stop().await;
        let path = "/api/v1/namespaces/default/endpoints/kubernetes";
        let endpoints = client.get(path).await.expect(200).json();
        let addresses = &endpoints["subsets"][0]["addresses"];
        assert_eq!(*addresses, json!([{ "ip": "192.0.2.1" }]));
        wait_for(&["192.0.2.1"]).await;
        let second = start("192.0.2.2").await;
        wait_for(&["192.0.2.1", "192.0.2.2"]).await;
        second.kill().await;
        wait_for(&["192.0.2.1"]).await;
    }
}

#[tokio::test]
async fn a_server_goes_on_when_the_other_is_killed() {
    for servers in Servers::start_all().await {
        let (first, second) = servers.clients().await;
        let mut events = second.watch(&format!("{CONFIG_MAPS}?watch=true")).await;
        first
            .post(CONFIG_MAPS, config_map("before"))
            .await
            .expect(201);
        servers.first.kill().await;
        second
            .get(&format!("{CONFIG_MAPS}/before"))
            .await
            .expect(200);
        second
            .post(CONFIG_MAPS, config_map("after"))
            .await
            .expect(201);
        while events.next_name().await != "ADDED after" {}
        // A server that starts again has both.
        let again = servers.home.start().await;
        let client = again.admin().await;
        for name in ["before", "after"] {
            client
                .get(&format!("{CONFIG_MAPS}/{name}"))
                .await
                .expect(200);
        }
    }
}

#[tokio::test]
async fn a_server_with_other_keys_than_those_on_its_etcd_does_not_start() {
    for etcd in installed().into_iter().take(1) {
        let etcd = etcd.start(Options::default()).await;
        let home = || {
            Home::on_disk()
                .with("--etcd-servers")
                .with(etcd.endpoint(0))
        };
        let first = home();
        let process = first.start().await;
        let key = |name: &str| first.data_dir().join(name).display().to_string();
        let authority = format!("--client-ca-file={}", key("ca.crt"));
        let token_key = format!("--service-account-key-file={}", key("sa.key"));

        // Without keys, or with some of them, it generates none.
        let second = home();
        for (arguments, expected) in [
            (vec![], "ca.crt is missing, and "),
            (vec![&*authority], "sa.key is missing; copy"),
            (vec![&*token_key], "front-proxy-ca.crt is missing; copy"),
        ] {
            let arguments = [&["--port", "0"], &*arguments].concat();
            let failed = second.fail_with(&arguments).await;
            assert_eq!(failed.status.code(), Some(1));
            let said = String::from_utf8_lossy(&failed.stderr);
            assert!(said.contains(expected), "{arguments:?}: {said}");
            assert!(!second.data_dir().join("ca.key").exists());
            assert!(!second.data_dir().join("sa.key").exists());
        }
        // With both named it has an authority of its own, and accepts the clients of the first server.
        let beside = second.start_with(&[&authority, &token_key]).await;
        let credentials = Credentials {
            user: process.credentials.user.clone(),
            ..beside.credentials.clone()
        };
        let client = Client::connect(&beside.address, &credentials, &["h2"]).await;
        client.post(CONFIG_MAPS, config_map("a")).await.expect(201);
        beside.stop().await;

        // A copy of the directory starts, and that of another cluster does not.
        let third = home();
        third.copy_keys(&first.data_dir());
        third.start().await.stop().await;
        let other = Home::on_disk();
        other.start().await.stop().await;
        let fourth = home();
        fourth.copy_keys(&other.data_dir());
        let refused = async |expected: &str| {
            let failed = fourth.fail_to_start(0).await;
            let said = String::from_utf8_lossy(&failed.stderr).into_owned();
            assert!(said.contains(expected), "{said}");
        };
        refused("ca.crt is not among their authorities, and ").await;
        // Nor does one that has some of the keys.
        for name in [
            "ca.crt",
            "ca.key",
            "front-proxy-ca.crt",
            "front-proxy-ca.key",
        ] {
            let [from, to] = [&first, &fourth].map(|home| home.data_dir().join(name));
            fs::copy(from, to).unwrap();
        }
        refused("sa.key is not among their keys; copy").await;
        process.stop().await;

        // A key is replaced: with the old one it is new, and alone later.
        let fifth = home();
        fifth.copy_keys(&fourth.data_dir());
        fifth.start_with(&[&token_key]).await.stop().await;
        fourth.start().await.stop().await;
    }
}

#[tokio::test]
async fn of_servers_that_start_together_on_a_new_etcd_one_has_the_keys_of_all() {
    for etcd in installed().into_iter().take(1) {
        let etcd = etcd.start(Options::default()).await;
        let home = || {
            let home = Home::on_disk().with("--etcd-servers");
            home.with(etcd.endpoint(0)).filtered("error")
        };
        let (one, other) = (home(), home());
        let started = tokio::join!(one.try_start(), other.try_start());
        let (winner, loser, process) = match started {
            (Some(process), None) => (&one, &other, process),
            (None, Some(process)) => (&other, &one, process),
            _ => panic!("one of them starts"),
        };
        let said = loser.log();
        let expected = "servers with other certificates and keys use this etcd";
        assert!(said.contains(expected), "{said}");
        loser.copy_keys(&winner.data_dir());
        loser.start().await.stop().await;
        process.stop().await;

        // Those that share a directory make its keys together.
        let shared = home().with("--etcd-prefix").with("/shared");
        let (first, second) = tokio::join!(shared.start(), shared.start());
        first.stop().await;
        second.stop().await;
    }
}
