//! What the repair of cluster IPs and node ports mends, and what it tells in Events.

use mizzen_controlplane::repair;
use mizzen_store::{Draft, Expect, Write};
use mizzen_value::Value;

use crate::rig::Rig;

const SERVICES: &str = "/api/v1/namespaces/default/services";
const ADDRESSES: &str = "/apis/networking.k8s.io/v1/ipaddresses";
const EVENTS: &str = "/apis/events.k8s.io/v1/namespaces/default/events";

const LABELS: &str = r#"{"ipaddress.kubernetes.io/ip-family":"IPv4","ipaddress.kubernetes.io/managed-by":"ipallocator.k8s.io"}"#;

/// Stores an object past the API.
async fn store(rig: &Rig, space: &str, key: &str, object: String) {
    let store = rig.server.registry().store();
    let draft = Draft {
        value: object.into(),
        ..Draft::default()
    };
    let write = Write::put(&store.keyspace(space), key, Expect::Any, draft);
    store.commit_one(write).await.unwrap();
}

/// Stores a Service past the API.
async fn store_service(rig: &Rig, name: &str, address: &str, ports: &str) {
    let service = format!(
        r#"{{"kind":"Service","apiVersion":"v1","metadata":{{"name":"{name}","namespace":"default","uid":"uid-of-{name}","creationTimestamp":"2026-01-01T00:00:00Z"}},"spec":{{"type":"NodePort","clusterIP":"{address}","clusterIPs":["{address}"],"ports":[{ports}]}}}}"#
    );
    store(rig, "services", &format!("default/{name}"), service).await;
}

/// Stores the IPAddress 10.0.0.9 past the API.
async fn store_address(rig: &Rig, parent: &str, labels: &str) {
    let address = format!(
        r#"{{"kind":"IPAddress","apiVersion":"networking.k8s.io/v1","metadata":{{"name":"10.0.0.9","uid":"another","creationTimestamp":"2026-01-01T00:00:00Z","labels":{labels}}},"spec":{{"parentRef":{parent}}}}}"#
    );
    store(rig, "networking.k8s.io/ipaddresses", "10.0.0.9", address).await;
}

/// A server with the Service `s`, which has 10.0.0.9, and `other`, which has 10.0.0.10.
async fn with_services() -> Rig {
    let rig = Rig::new().await;
    for (name, address) in [("s", "10.0.0.9"), ("other", "10.0.0.10")] {
        let body = format!(
            r#"{{"metadata":{{"name":"{name}"}},"spec":{{"clusterIP":"{address}","ports":[{{"port":80}}]}}}}"#
        );
        rig.post(SERVICES, &body).await.expect(201);
    }
    rig
}

/// What the repairs have told, in order: the kind and name of the object, the reason, and the note.
async fn told(rig: &Rig) -> Vec<String> {
    let events = rig.get(EVENTS).await.expect(200).body;
    let mut events: Vec<Value> = events["items"].list().to_vec();
    events.sort_by_key(|event| event["metadata"]["name"].str().to_owned());
    let tell = |event: &Value| {
        assert_eq!(event["type"].str(), "Warning");
        let regarding = &event["regarding"];
        format!(
            "{} {} {}: {}",
            regarding["kind"].str(),
            regarding["name"].str(),
            event["reason"].str(),
            event["note"].str()
        )
    };
    events.iter().map(tell).collect()
}

/// Repairs an IPAddress 10.0.0.9 with this parent and these labels so often, until it is right.
async fn check(parent: &str, labels: &str, n_repairs: usize, expected: &[&str]) {
    let rig = with_services().await;
    store_address(&rig, parent, labels).await;
    for _ in 0..n_repairs {
        repair(&rig.server).await.unwrap();
    }
    let path = format!("{ADDRESSES}/10.0.0.9");
    let repaired = rig.get(&path).await.expect(200).body;
    assert_ne!(repaired["metadata"]["uid"].str(), "another", "{parent}");
    let parent = &repaired["spec"]["parentRef"];
    assert_eq!(
        ["group", "resource", "namespace", "name"].map(|field| parent[field].str()),
        ["", "services", "default", "s"]
    );
    let labels = &repaired["metadata"]["labels"];
    assert_eq!(labels["ipaddress.kubernetes.io/ip-family"].str(), "IPv4");
    let manager = labels["ipaddress.kubernetes.io/managed-by"].str();
    assert_eq!(manager, "ipallocator.k8s.io");
    assert_eq!(told(&rig).await, expected);
    // Nothing is left to repair.
    repair(&rig.server).await.unwrap();
    let after = rig.get(&path).await.expect(200).body;
    assert_eq!(after["metadata"]["uid"], repaired["metadata"]["uid"]);
    assert_eq!(told(&rig).await, expected);
}

const WRONG: &str = "Service s ClusterIPNotAllocated: the ClusterIP [IPv4]: 10.0.0.9 for Service default/s has a wrong \
                     reference; repairing";

#[tokio::test]
async fn an_ip_address_that_refers_to_no_service_is_recreated() {
    let gateway = r#"{"group":"gateway.networking.k8s.io","resource":"gateways","namespace":"default","name":"s"}"#;
    check(gateway, LABELS, 1, &[WRONG]).await;
    check(gateway, "{}", 1, &[WRONG]).await;
    let gone = r#"{"resource":"services","namespace":"default","name":"gone"}"#;
    check(gone, LABELS, 1, &[WRONG]).await;
    check(gone, "{}", 1, &[WRONG]).await;
}

#[tokio::test]
async fn an_ip_address_without_the_labels_of_the_allocator_is_recreated() {
    let own = r#"{"resource":"services","namespace":"default","name":"s"}"#;
    check(own, "{}", 1, &[]).await;
    let other_family = LABELS.replace("IPv4", "IPv6");
    check(own, &other_family, 1, &[]).await;
}

#[tokio::test]
async fn an_ip_address_that_refers_to_another_service_is_deleted_and_created_again() {
    let other = r#"{"resource":"services","namespace":"default","name":"other"}"#;
    let expected = [
        "IPAddress 10.0.0.9 IPAddressWrongReference: IPAddress: 10.0.0.9 for Service default/other has a wrong reference; \
         cleaning up",
        "Service s ClusterIPNotAllocated: Cluster IP [IPv4]: 10.0.0.9 is not allocated; repairing",
    ];
    let rig = with_services().await;
    store_address(&rig, other, LABELS).await;
    repair(&rig.server).await.unwrap();
    rig.get(&format!("{ADDRESSES}/10.0.0.9")).await.expect(404);
    check(other, LABELS, 2, &expected).await;
}

#[tokio::test]
async fn ip_addresses_of_the_allocator_that_no_service_has_are_deleted() {
    for (parent, note) in [
        (
            r#"{"resource":"services","namespace":"default","name":"gone"}"#,
            "IPAddress: 10.0.0.9 for Service default/gone appears to have leaked: cleaning up",
        ),
        (
            r#"{"group":"example.com","resource":"gateways","name":"g"}"#,
            "IPAddress 10.0.0.9 appears to have been modified, not referencing a Service \
             &ParentReference{Group:example.com,Resource:gateways,Namespace:,Name:g,}: cleaning up",
        ),
    ] {
        let rig = Rig::new().await;
        store_address(&rig, parent, "{}").await;
        repair(&rig.server).await.unwrap();
        let own = rig.get(ADDRESSES).await.names();
        assert_eq!(own, ["10.0.0.9"], "that of another controller");
        store_address(&rig, parent, LABELS).await;
        repair(&rig.server).await.unwrap();
        assert_eq!(rig.get(ADDRESSES).await.names(), [""; 0]);
        let expected = format!("IPAddress 10.0.0.9 IPAddressNotAllocated: {note}");
        assert_eq!(told(&rig).await, [expected]);
    }
}

#[tokio::test]
async fn addresses_that_users_have_to_mend_are_told() {
    let rig = with_services().await;
    for (name, address) in [("twin", "10.0.0.9"), ("far", "192.0.2.1"), ("odd", "ten")] {
        store_service(&rig, name, address, r#"{"port":80}"#).await;
    }
    repair(&rig.server).await.unwrap();
    assert_eq!(
        told(&rig).await,
        [
            "Service far ClusterIPOutOfRange: Cluster IP [IPv4]: 192.0.2.1 is not within any configured Service CIDR; please \
             recreate service",
            "Service odd ClusterIPNotValid: Cluster IP <nil> is not a valid IP; please recreate Service",
            "Service twin ClusterIPAlreadyAllocated: Cluster IP [IPv4]:10.0.0.9 was assigned to multiple services; please \
             recreate service",
        ]
    );
    // They stay as they are.
    assert_eq!(rig.get(ADDRESSES).await.names(), ["10.0.0.10", "10.0.0.9"]);
    let parent = rig.get(&format!("{ADDRESSES}/10.0.0.9")).await.body;
    assert_eq!(parent["spec"]["parentRef"]["name"].str(), "s");
    let events = rig.get(EVENTS).await.body;
    let event = &events["items"].list()[0];
    assert_eq!(event["action"].str(), "ClusterIPAllocation");
    let controller = "ipallocator-repair-controller";
    assert_eq!(event["reportingController"].str(), controller);
    let instance = event["reportingInstance"].str();
    assert!(
        instance.starts_with(&format!("{controller}-")),
        "{instance}"
    );
    assert_eq!(event["regarding"]["apiVersion"].str(), "v1");
    assert_eq!(event["regarding"]["namespace"].str(), "default");
    assert_eq!(event["regarding"]["uid"].str(), "uid-of-far");
}

#[tokio::test]
async fn an_event_that_is_repeated_is_a_series() {
    let rig = Rig::new().await;
    store_service(&rig, "far", "192.0.2.1", r#"{"port":80}"#).await;
    for count in [0, 2, 3] {
        repair(&rig.server).await.unwrap();
        let events = rig.get(EVENTS).await.body;
        assert_eq!(events["items"].list().len(), 1);
        assert_eq!(events["items"].list()[0]["series"]["count"].int(), count);
    }
    // One that was deleted is written again.
    rig.delete(EVENTS, "").await.expect(200);
    repair(&rig.server).await.unwrap();
    assert_eq!(told(&rig).await.len(), 1);
}

#[tokio::test]
async fn node_ports_that_users_have_to_mend_are_told_and_counted() {
    let rig = Rig::new().await;
    for (name, address, port) in [("a", 7, 30_001), ("b", 8, 30_001), ("c", 9, 40_000)] {
        let ports = format!(r#"{{"port":80,"protocol":"TCP","nodePort":{port}}}"#);
        store_service(&rig, name, &format!("10.0.0.{address}"), &ports).await;
    }
    repair(&rig.server).await.unwrap();
    let mut told = told(&rig).await;
    told.retain(|event| event.contains("Port "));
    assert_eq!(
        told,
        [
            "Service b PortAlreadyAllocated: Port 30001 was assigned to multiple services; please recreate service",
            "Service c PortOutOfRange: Port 40000 is not within the port range 30000-32767; please recreate service",
        ]
    );
    let text = rig.get("/metrics").await.expect(200).body.str().to_owned();
    for line in [
        r#"apiserver_nodeport_repair_port_errors_total{type="duplicate"} 1"#,
        r#"apiserver_nodeport_repair_port_errors_total{type="outOfRange"} 1"#,
        "apiserver_nodeport_repair_reconcile_errors_total 0",
    ] {
        assert!(text.lines().any(|known| known == line), "{line}: {text}");
    }
}
