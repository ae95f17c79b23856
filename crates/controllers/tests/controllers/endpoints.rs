//! The Endpoints and EndpointSlice controllers.

use std::collections::BTreeMap;
use std::time::Duration;

use mizzen_sdk::Object;
use mizzen_sdk::dynamic::DeleteOptions;
use mizzen_sdk::resource::{ENDPOINT_SLICES, ENDPOINTS, EVENTS, NODES, PODS, SERVICES};
use mizzen_testing::{Builder, Cluster};
use mizzen_value::{Value, value};

use crate::pods::{node, pod, run};
use crate::{settle, start};

const CONTROLLERS: &[&str] = &[
    "endpoints-controller",
    "endpointslice-controller",
    "endpointslice-mirroring-controller",
];

async fn service(cluster: &Cluster, more: &str) {
    cluster
        .create(&format!(
            "{{apiVersion: v1, kind: Service, metadata: {{name: web, namespace: default{more}}}, \
             spec: {{selector: {{app: web}}, ports: [{{port: 80, targetPort: 8080}}]}}}}"
        ))
        .await;
}

/// Addresses and whether they are ready, of all slices.
async fn published(cluster: &Cluster) -> Vec<String> {
    let slices = cluster.objects(&ENDPOINT_SLICES, "default").await;
    let endpoints = slices.iter().flat_map(|slice| slice["endpoints"].list());
    let say = |endpoint: &Value| {
        let word = if endpoint["conditions"]["ready"].bool() {
            "ready"
        } else {
            "not ready"
        };
        format!("{} {word}", endpoint["addresses"][0].str())
    };
    let mut all: Vec<String> = endpoints.map(say).collect();
    all.sort();
    all
}

#[tokio::test(start_paused = true)]
async fn pods_are_published_as_they_become_ready_and_go() {
    let cluster = start(CONTROLLERS).await;
    node(&cluster).await;
    service(&cluster, ", labels: {team: x}").await;
    settle(&cluster).await;
    let [empty] = cluster
        .objects(&ENDPOINT_SLICES, "default")
        .await
        .try_into()
        .expect("an empty slice");
    assert_eq!(
        (&empty["endpoints"], empty.label("team")),
        (&Value::Null, Some("x"))
    );

    pod(&cluster, "p1", "").await;
    run(&cluster, "p1", "10.1.0.1", false).await;
    settle(&cluster).await;
    assert_eq!(published(&cluster).await, ["10.1.0.1 not ready"]);
    let endpoints = cluster.object(&ENDPOINTS, "default/web").await;
    assert_eq!(
        endpoints["subsets"][0]["notReadyAddresses"][0]["ip"].str(),
        "10.1.0.1"
    );

    run(&cluster, "p1", "10.1.0.1", true).await;
    settle(&cluster).await;
    let [slice] = cluster
        .objects(&ENDPOINT_SLICES, "default")
        .await
        .try_into()
        .expect("the same slice");
    assert_eq!(slice.uid(), empty.uid());
    assert_eq!(
        slice["endpoints"],
        value!([{
            "addresses": ["10.1.0.1"],
            "conditions": {"ready": true, "serving": true, "terminating": false},
            "targetRef": {
                "kind": "Pod", "namespace": "default", "name": "p1",
                "uid": (cluster.object(&PODS, "default/p1").await.uid())
            },
            "nodeName": "n1",
            "zone": "z1"
        }])
    );

    cluster.delete(&PODS, "default/p1").await;
    settle(&cluster).await;
    let slice = &cluster.objects(&ENDPOINT_SLICES, "default").await[0];
    let conditions = value!({"ready": false, "serving": true, "terminating": true});
    assert_eq!(
        slice["endpoints"][0]["conditions"], conditions,
        "it goes, and serves while it does"
    );
    assert_eq!(
        cluster.object(&ENDPOINTS, "default/web").await["subsets"],
        Value::Null
    );
}

fn sizes(slices: &[Object]) -> Vec<usize> {
    let mut sizes: Vec<usize> = slices
        .iter()
        .map(|slice| slice["endpoints"].list().len())
        .collect();
    sizes.sort();
    sizes
}

#[tokio::test(start_paused = true)]
async fn many_pods_are_packed_by_the_hundred_and_few_slices_are_rewritten() {
    let cluster = start(CONTROLLERS).await;
    node(&cluster).await;
    for n in 0..230 {
        pod(&cluster, &format!("p{n}"), "").await;
        run(
            &cluster,
            &format!("p{n}"),
            &format!("10.1.{}.{}", n / 100, n % 100 + 1),
            true,
        )
        .await;
    }
    service(&cluster, "").await;
    settle(&cluster).await;
    let before = cluster.objects(&ENDPOINT_SLICES, "default").await;
    assert_eq!(sizes(&before), [30, 100, 100]);

    run(&cluster, "p7", "10.1.0.8", false).await;
    settle(&cluster).await;
    let after = cluster.objects(&ENDPOINT_SLICES, "default").await;
    let versions: BTreeMap<&str, &str> = before
        .iter()
        .map(|slice| (slice.name(), slice.version()))
        .collect();
    let changed = after
        .iter()
        .filter(|slice| versions[slice.name()] != slice.version());
    assert_eq!(changed.count(), 1, "one pod changed, one slice is written");
    assert_eq!(
        published(&cluster)
            .await
            .iter()
            .filter(|text| text.ends_with("not ready"))
            .count(),
        1
    );
}

#[tokio::test(start_paused = true)]
async fn changes_of_slices_by_other_clients_are_reverted() {
    let cluster = start(CONTROLLERS).await;
    node(&cluster).await;
    pod(&cluster, "p1", "").await;
    run(&cluster, "p1", "10.1.0.1", true).await;
    service(&cluster, "").await;
    settle(&cluster).await;
    let name = |slices: Vec<Object>| format!("default/{}", slices[0].name());
    let slice = name(cluster.objects(&ENDPOINT_SLICES, "default").await);
    let foreign = value!([{"addresses": ["9.9.9.9"]}]);
    cluster
        .change(&ENDPOINT_SLICES, &slice, |slice| {
            slice.set("endpoints", foreign)
        })
        .await;
    cluster.advance(Duration::from_secs(2)).await;
    assert_eq!(published(&cluster).await, ["10.1.0.1 ready"]);

    cluster.delete(&ENDPOINT_SLICES, &slice).await;
    cluster.delete(&ENDPOINTS, "default/web").await;
    cluster.advance(Duration::from_secs(2)).await;
    assert_eq!(published(&cluster).await, ["10.1.0.1 ready"]);
    assert!(
        cluster
            .find_object(&ENDPOINTS, "default/web")
            .await
            .is_some()
    );
}

#[tokio::test(start_paused = true)]
async fn a_pod_whose_node_comes_later_is_published_then() {
    let cluster = start(CONTROLLERS).await;
    pod(&cluster, "p1", "").await;
    run(&cluster, "p1", "10.1.0.1", true).await;
    service(&cluster, "").await;
    settle(&cluster).await;
    assert_eq!(published(&cluster).await, Vec::<String>::new());
    let events = cluster.objects(&EVENTS, "default").await;
    let event = events
        .iter()
        .find(|event| event["reason"].str() == "FailedToUpdateEndpointSlices");
    let event = event.expect("the event is recorded");
    assert_eq!(
        event["message"].str(),
        "Error updating Endpoint Slices for Service default/web: \
         skipping Pod p1 for Service default/web: Node n1 Not Found"
    );
    assert_eq!(
        event["source"]["component"].str(),
        "endpoint-slice-controller"
    );

    node(&cluster).await;
    cluster.advance(Duration::from_secs(5)).await;
    assert_eq!(published(&cluster).await, ["10.1.0.1 ready"]);
}

#[tokio::test(start_paused = true)]
async fn labels_and_selectors_of_services_are_followed() {
    let cluster = start(CONTROLLERS).await;
    node(&cluster).await;
    pod(&cluster, "p1", "").await;
    run(&cluster, "p1", "10.1.0.1", true).await;
    service(&cluster, "").await;
    settle(&cluster).await;
    cluster
        .change(&SERVICES, "default/web", |service| {
            service
                .entry("metadata")
                .set("labels", value!({"team": "y"}));
            service
                .entry("spec")
                .set("trafficDistribution", "PreferClose");
        })
        .await;
    settle(&cluster).await;
    let slice = &cluster.objects(&ENDPOINT_SLICES, "default").await[0];
    assert_eq!(slice.label("team"), Some("y"));
    assert_eq!(
        slice["endpoints"][0]["hints"],
        value!({"forZones": [{"name": "z1"}]})
    );
    assert_eq!(
        cluster
            .object(&ENDPOINTS, "default/web")
            .await
            .label("team"),
        Some("y")
    );

    cluster
        .change(&PODS, "default/p1", |pod| {
            pod.entry("metadata")
                .set("labels", value!({"app": "other"}))
        })
        .await;
    settle(&cluster).await;
    assert_eq!(published(&cluster).await, Vec::<String>::new());
}

#[tokio::test(start_paused = true)]
async fn endpoints_of_a_service_deleted_while_down_are_deleted() {
    let cluster = start(CONTROLLERS).await;
    service(&cluster, "").await;
    settle(&cluster).await;
    cluster.restart_with(Builder::server_only).await;
    cluster.delete(&SERVICES, "default/web").await;
    settle(&cluster).await;
    assert!(
        cluster
            .find_object(&ENDPOINTS, "default/web")
            .await
            .is_some(),
        "the controller does not run"
    );
    cluster
        .restart_with(|builder| builder.controllers(CONTROLLERS))
        .await;
    settle(&cluster).await;
    assert!(
        cluster
            .find_object(&ENDPOINTS, "default/web")
            .await
            .is_none()
    );
}

#[tokio::test(start_paused = true)]
async fn endpoints_kept_by_hand_are_mirrored() {
    let cluster = start(CONTROLLERS).await;
    cluster.create("{apiVersion: v1, kind: Service, metadata: {name: web, namespace: default}, spec: {ports: [{port: 80}]}}")
        .await;
    let subsets = "[{addresses: [{ip: 192.0.2.1}, {ip: '2001:db8::1'}], ports: [{port: 8080}]}]";
    cluster.create(&format!(
            "{{apiVersion: v1, kind: Endpoints, metadata: {{name: web, namespace: default, labels: {{own: '1'}}}}, \
             subsets: {subsets}}}"
        ))
        .await;
    settle(&cluster).await;
    assert_eq!(
        published(&cluster).await,
        ["192.0.2.1 ready", "2001:db8::1 ready"]
    );
    let slices = cluster.objects(&ENDPOINT_SLICES, "default").await;
    assert_eq!(slices.len(), 2, "one of each family");
    assert!(slices.iter().all(|slice| slice.label("own") == Some("1")));

    let fewer = value!([{"addresses": [{"ip": "192.0.2.7"}], "ports": [{"port": 8080, "protocol": "TCP"}]}]);
    cluster
        .change(&ENDPOINTS, "default/web", |endpoints| {
            endpoints.set("subsets", fewer)
        })
        .await;
    settle(&cluster).await;
    assert_eq!(published(&cluster).await, ["192.0.2.7 ready"]);

    let slice = cluster.objects(&ENDPOINT_SLICES, "default").await[0].key();
    cluster
        .dynamic_client()
        .delete(&ENDPOINT_SLICES, &slice, &DeleteOptions::default())
        .await
        .unwrap();
    settle(&cluster).await;
    assert_eq!(
        published(&cluster).await,
        ["192.0.2.7 ready"],
        "it comes back"
    );

    cluster
        .change(&ENDPOINTS, "default/web", |endpoints| {
            endpoints
                .entry("metadata")
                .entry("labels")
                .set("endpointslice.kubernetes.io/skip-mirror", "true");
        })
        .await;
    settle(&cluster).await;
    assert_eq!(published(&cluster).await, Vec::<String>::new());
}

#[tokio::test(start_paused = true)]
async fn topology_hints_are_set_while_there_are_several_zones() {
    let cluster = start(CONTROLLERS).await;
    for (name, zone) in [("n1", "z1"), ("n2", "z2")] {
        let labels = format!("{{topology.kubernetes.io/zone: {zone}}}");
        let status = "{allocatable: {cpu: '4'}, conditions: [{type: Ready, status: 'True'}]}";
        cluster.create(&format!(
                "{{apiVersion: v1, kind: Node, metadata: {{name: {name}, labels: {labels}}}, status: {status}}}"
            ))
            .await;
    }
    for n in 1..=4 {
        pod(&cluster, &format!("p{n}"), "").await;
        run(&cluster, &format!("p{n}"), &format!("10.1.0.{n}"), true).await;
    }
    service(
        &cluster,
        ", annotations: {service.kubernetes.io/topology-mode: Auto}",
    )
    .await;
    settle(&cluster).await;
    let hints = async || {
        let slice = &cluster.objects(&ENDPOINT_SLICES, "default").await[0];
        let zone = |endpoint: &Value| endpoint["hints"]["forZones"][0]["name"].str().to_string();
        let mut zones: Vec<String> = slice["endpoints"].list().iter().map(zone).collect();
        zones.sort();
        zones
    };
    assert_eq!(
        hints().await,
        ["z1", "z1", "z2", "z2"],
        "all are in one zone, half of them serve the other"
    );

    cluster.delete(&NODES, "n2").await;
    settle(&cluster).await;
    assert_eq!(hints().await, ["", "", "", ""]);
    let events = cluster.objects(&EVENTS, "default").await;
    let mut said: Vec<&str> = events.iter().map(|event| event["message"].str()).collect();
    said.sort();
    assert_eq!(
        said,
        [
            "Insufficient Node information: allocatable CPU or zone not specified on one or more nodes, addressType: IPv4",
            "Topology Aware Hints has been enabled, addressType: IPv4"
        ]
    );
}
