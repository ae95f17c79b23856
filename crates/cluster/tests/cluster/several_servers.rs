//! Several API servers on one etcd: what one writes, all have.
//!
//! The servers share the data directory, which has the certificates and keys.

use std::collections::BTreeSet;

use serde_json::{Value, json};
use tokio::task::JoinSet;

use crate::client::Client;
use crate::etcd_server::{Cluster, Options, installed};
use crate::process::{Home, Process, STEP_TIMEOUT};

const CONFIG_MAPS: &str = "/api/v1/namespaces/default/configmaps";
const SERVICES: &str = "/api/v1/namespaces/default/services";
const ADDRESSES: &str = "/apis/networking.k8s.io/v1/ipaddresses";
const N_SERVICES: usize = 40;

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
            let etcd = etcd.start(Options::default()).await;
            let home = Home::on_disk()
                .with("--etcd-servers")
                .with(etcd.endpoint(0));
            all.push(Servers {
                first: home.start().await,
                second: home.start().await,
                _etcd: etcd,
                home,
            });
        }
        all
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
async fn services_of_two_servers_have_distinct_addresses() {
    for servers in Servers::start_all().await {
        let (first, second) = servers.clients().await;
        let mut creations = JoinSet::new();
        for n in 0..N_SERVICES {
            let client = if n % 2 == 0 { &first } else { &second };
            let client = client.clone();
            let service = json!({
                "metadata": { "name": format!("s{n}") },
                "spec": { "ports": [{ "port": 80 }] }
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
        // One IPAddress for each, and for the Service `kubernetes`.
        let addresses = second.get(ADDRESSES).await.expect(200).json();
        let addresses = addresses["items"].as_array().unwrap();
        assert_eq!(addresses.len(), N_SERVICES + 1);

        // What one server has given, the other refuses.
        let address = &created[0]["spec"]["clusterIP"];
        let spec = json!({ "clusterIP": address, "ports": [{ "port": 80 }] });
        for client in [&first, &second] {
            let service = json!({ "metadata": { "name": "late" }, "spec": spec });
            let refused = client.post(SERVICES, service.to_string()).await.expect(422);
            assert!(
                refused.text().contains("is already allocated"),
                "{}",
                refused.text()
            );
        }
        // A rejected write leaves no IPAddress.
        let unchanged = first.get(ADDRESSES).await.expect(200).json();
        assert_eq!(unchanged["items"].as_array().unwrap().len(), N_SERVICES + 1);

        // A deleted Service gives it back, to any server.
        let name = created[0]["metadata"]["name"].as_str().unwrap();
        let own = format!("{SERVICES}/{name}");
        first.call("DELETE", &own, "").await.expect(200);
        let service = json!({
            "metadata": { "name": "next" },
            "spec": spec
        });
        second.post(SERVICES, service.to_string()).await.expect(201);
    }
}

#[tokio::test]
async fn one_of_two_servers_gets_what_both_are_asked_for() {
    for servers in Servers::start_all().await {
        let (first, second) = servers.clients().await;
        for n in 0..20 {
            let specs =
                [json!({ "clusterIP": format!("10.0.0.{}", 100 + n), "ports": [{ "port": 80 }] })];
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
