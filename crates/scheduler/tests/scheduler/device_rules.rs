//! Fields of ResourceClaims and ResourceSlices.

use mizzen_sdk::resource::RESOURCE_CLAIMS;
use mizzen_testing::Cluster;
use mizzen_value::Value;

use crate::device::{POD, class};
use crate::fixtures::{create_node, create_pod, place, refusal, start};

/// A cluster with the nodes `n1` and `n2` and the class `gpu`.
async fn cluster() -> Cluster {
    let cluster = start().await;
    create_node(&cluster, "n1", "{}").await;
    create_node(&cluster, "n2", "{}").await;
    class(&cluster).await;
    cluster
}

/// Creates the ResourceSlice of a node. `pool` adds fields.
async fn devices(cluster: &Cluster, node: &str, devices: &str) {
    slice(
        cluster,
        node,
        &format!("nodeName: {node}, devices: [{devices}]"),
        1,
    )
    .await;
}

/// Creates one ResourceSlice of the pool of a node.
async fn slice(cluster: &Cluster, node: &str, spec: &str, n_slices: usize) {
    let name = format!("s-{node}-{}", spec.len());
    let pool = format!("{{name: {node}, generation: 1, resourceSliceCount: {n_slices}}}");
    cluster.create(&format!(
            "{{apiVersion: resource.k8s.io/v1, kind: ResourceSlice, metadata: {{name: {name}}}, spec: {{driver: gpu.example.com, pool: {pool}, {spec}}}}}"
        ))
        .await;
}

/// Creates a claim and a pod of the same name that uses it.
async fn claim(cluster: &Cluster, name: &str, devices: &str) {
    cluster.create(&format!(
            "{{apiVersion: resource.k8s.io/v1, kind: ResourceClaim, metadata: {{name: {name}, namespace: default}}, spec: {{devices: {{{devices}}}}}}}"
        ))
        .await;
    create_pod(
        cluster,
        name,
        &POD.replace(
            "resourceClaimName: c",
            &format!("resourceClaimName: {name}"),
        ),
    )
    .await;
}

async fn allocation(cluster: &Cluster, claim: &str) -> Value {
    cluster
        .object(&RESOURCE_CLAIMS, &format!("default/{claim}"))
        .await["status"]["allocation"]
        .clone()
}

/// The allocated devices of a claim, as `request=device`.
async fn got(cluster: &Cluster, claim: &str) -> Vec<String> {
    let allocation = allocation(cluster, claim).await;
    let show = |result: &Value| format!("{}={}", result["request"].str(), result["device"].str());
    allocation["devices"]["results"]
        .list()
        .iter()
        .map(show)
        .collect()
}

const ONE: &str = "exactly: {deviceClassName: gpu}";
const NOT_HERE: &str = "0/2 nodes are available: 2 cannot allocate all claims.";

#[tokio::test(start_paused = true)]
async fn match_attribute_constraint_backtracks() {
    let cluster = cluster().await;
    let device = |name: &str, model: &str| {
        format!("{{name: {name}, attributes: {{model: {{string: {model}}}}}}}")
    };
    devices(
        &cluster,
        "n1",
        &[device("d0", "a"), device("d1", "b"), device("d2", "b")].join(", "),
    )
    .await;
    let constraint = "constraints: [{requests: [r, s], matchAttribute: gpu.example.com/model}]";
    claim(
        &cluster,
        "c",
        &format!("requests: [{{name: r, {ONE}}}, {{name: s, {ONE}}}], {constraint}"),
    )
    .await;
    assert_eq!(place(&cluster, "c").await, "n1");
    assert_eq!(got(&cluster, "c").await, ["r=d1", "s=d2"]);
    claim(
        &cluster,
        "d",
        &format!("requests: [{{name: r, {ONE}}}, {{name: s, {ONE}}}], {constraint}"),
    )
    .await;
    assert!(refusal(&cluster, "d").await.1.starts_with(NOT_HERE));
}

#[tokio::test(start_paused = true)]
async fn distinct_attribute_constraint_holds() {
    let cluster = cluster().await;
    let device =
        |name: &str, slot: i64| format!("{{name: {name}, attributes: {{slot: {{int: {slot}}}}}}}");
    devices(
        &cluster,
        "n2",
        &[device("d0", 1), device("d1", 1), device("d2", 2)].join(", "),
    )
    .await;
    let constraint = "constraints: [{distinctAttribute: gpu.example.com/slot}]";
    let two = "requests: [{name: r, exactly: {deviceClassName: gpu, count: 2}}]";
    claim(&cluster, "c", &format!("{two}, {constraint}")).await;
    assert_eq!(place(&cluster, "c").await, "n2");
    assert_eq!(got(&cluster, "c").await, ["r=d0", "r=d2"]);
}

#[tokio::test(start_paused = true)]
async fn first_available_request_scores_nodes() {
    let cluster = cluster().await;
    let device =
        |model: &str| format!("{{name: {model}, attributes: {{model: {{string: {model}}}}}}}");
    devices(&cluster, "n1", &device("small")).await;
    devices(
        &cluster,
        "n2",
        &[device("large"), device("small")].join(", "),
    )
    .await;
    let wish = |model: &str| {
        let expression = format!("device.attributes[\"gpu.example.com\"].model == \"{model}\"");
        format!(
            "{{name: {model}, deviceClassName: gpu, selectors: [{{cel: {{expression: '{expression}'}}}}]}}"
        )
    };
    let wishes = format!(
        "requests: [{{name: r, firstAvailable: [{}, {}]}}]",
        wish("large"),
        wish("small")
    );
    claim(&cluster, "c", &wishes).await;
    assert_eq!(place(&cluster, "c").await, "n2");
    assert_eq!(got(&cluster, "c").await, ["r/large=large"]);
    for name in ["d", "e"] {
        claim(&cluster, name, &wishes).await;
        assert_ne!(place(&cluster, name).await, "");
        assert_eq!(got(&cluster, name).await, ["r/small=small"]);
    }
}

#[tokio::test(start_paused = true)]
async fn partitionable_devices_share_counters() {
    let cluster = cluster().await;
    slice(
        &cluster,
        "n1",
        "nodeName: n1, sharedCounters: [{name: card, counters: {memory: {value: 10Gi}}}]",
        2,
    )
    .await;
    let part = |name: &str, size: &str| {
        let counters = format!("{{memory: {{value: {size}}}}}");
        format!("{{name: {name}, consumesCounters: [{{counterSet: card, counters: {counters}}}]}}")
    };
    let parts = [
        part("whole", "10Gi"),
        part("a", "5Gi"),
        part("b", "5Gi"),
        part("c", "5Gi"),
    ]
    .join(", ");
    slice(
        &cluster,
        "n1",
        &format!("nodeName: n1, devices: [{parts}]"),
        2,
    )
    .await;
    let two = "requests: [{name: r, exactly: {deviceClassName: gpu, count: 2}}]";
    claim(&cluster, "c", two).await;
    assert_eq!(place(&cluster, "c").await, "n1");
    assert_eq!(got(&cluster, "c").await, ["r=a", "r=b"]);
    claim(&cluster, "d", &format!("requests: [{{name: r, {ONE}}}]")).await;
    assert!(refusal(&cluster, "d").await.1.starts_with(NOT_HERE));
}

#[tokio::test(start_paused = true)]
async fn claims_share_a_device_up_to_its_capacity() {
    let cluster = cluster().await;
    let policy = "{default: 1Gi, validRange: {min: 1Gi, step: 1Gi}}";
    let capacity = format!("{{memory: {{value: 4Gi, requestPolicy: {policy}}}}}");
    devices(
        &cluster,
        "n1",
        &format!("{{name: d0, allowMultipleAllocations: true, capacity: {capacity}}}"),
    )
    .await;
    let wish = |size: &str| {
        format!(
            "requests: [{{name: r, exactly: {{deviceClassName: gpu, capacity: {{requests: {{memory: {size}}}}}}}}}]"
        )
    };
    claim(&cluster, "c", &wish("1536Mi")).await;
    assert_eq!(place(&cluster, "c").await, "n1");
    let first = allocation(&cluster, "c").await["devices"]["results"][0].clone();
    assert_eq!(first["consumedCapacity"]["memory"].str(), "2Gi");
    claim(&cluster, "d", &wish("3Gi")).await;
    assert!(refusal(&cluster, "d").await.1.starts_with(NOT_HERE));
    claim(&cluster, "e", &format!("requests: [{{name: r, {ONE}}}]")).await;
    assert_eq!(place(&cluster, "e").await, "n1");
    let second = allocation(&cluster, "e").await["devices"]["results"][0].clone();
    assert_eq!(second["consumedCapacity"]["memory"].str(), "1Gi");
    assert_ne!(first["shareID"], second["shareID"]);
}

#[tokio::test(start_paused = true)]
async fn device_taint_needs_a_toleration() {
    let cluster = cluster().await;
    devices(
        &cluster,
        "n1",
        "{name: d0, taints: [{key: broken, effect: NoSchedule}]}",
    )
    .await;
    claim(&cluster, "c", &format!("requests: [{{name: r, {ONE}}}]")).await;
    assert!(refusal(&cluster, "c").await.1.starts_with(NOT_HERE));
    let tolerant =
        "exactly: {deviceClassName: gpu, tolerations: [{key: broken, operator: Exists}]}";
    claim(
        &cluster,
        "d",
        &format!("requests: [{{name: r, {tolerant}}}]"),
    )
    .await;
    assert_eq!(place(&cluster, "d").await, "n1");
    let result = allocation(&cluster, "d").await["devices"]["results"][0].clone();
    assert_eq!(result["tolerations"][0]["key"].str(), "broken");
}

#[tokio::test(start_paused = true)]
async fn admin_access_ignores_allocations() {
    let cluster = cluster().await;
    let label = "resource.kubernetes.io/admin-access: 'true'";
    let change = format!("{{metadata: {{labels: {{{label}}}}}}}");
    let namespaces = &mizzen_sdk::resource::NAMESPACES;
    cluster.patch(namespaces, "default", "", &change).await;
    devices(&cluster, "n1", "{name: d0}").await;
    claim(&cluster, "c", &format!("requests: [{{name: r, {ONE}}}]")).await;
    assert_eq!(place(&cluster, "c").await, "n1");
    let all = "exactly: {deviceClassName: gpu, allocationMode: All, adminAccess: true}";
    claim(&cluster, "d", &format!("requests: [{{name: r, {all}}}]")).await;
    assert_eq!(place(&cluster, "d").await, "n1");
    assert!(allocation(&cluster, "d").await["devices"]["results"][0]["adminAccess"].bool());
    // The device stays available to other claims.
    let others = "exactly: {deviceClassName: gpu, allocationMode: All}";
    claim(&cluster, "e", &format!("requests: [{{name: r, {others}}}]")).await;
    assert!(refusal(&cluster, "e").await.1.starts_with(NOT_HERE));
}

#[tokio::test(start_paused = true)]
async fn incomplete_pool_is_not_allocated() {
    let cluster = cluster().await;
    slice(&cluster, "n1", "nodeName: n1, devices: [{name: d0}]", 2).await;
    claim(&cluster, "c", &format!("requests: [{{name: r, {ONE}}}]")).await;
    assert!(refusal(&cluster, "c").await.1.starts_with(NOT_HERE));
    let all = "exactly: {deviceClassName: gpu, allocationMode: All}";
    claim(&cluster, "d", &format!("requests: [{{name: r, {all}}}]")).await;
    let why = "claim default/d, request r: asks for all devices, but resource pool gpu.example.com/n1 is currently being updated";
    let said = refusal(&cluster, "d").await.1;
    assert!(said.contains(why), "{said}");
    slice(&cluster, "n1", "nodeName: n1, devices: [{name: other}]", 2).await;
    assert_eq!(place(&cluster, "c").await, "n1");
}

#[tokio::test(start_paused = true)]
async fn driver_config_of_class_and_claim_is_copied() {
    let cluster = cluster().await;
    devices(&cluster, "n1", "{name: d0}, {name: d1}").await;
    let opaque = |text: &str| {
        format!("{{opaque: {{driver: gpu.example.com, parameters: {{say: {text}}}}}}}")
    };
    cluster.create(&format!("{{apiVersion: resource.k8s.io/v1, kind: DeviceClass, metadata: {{name: loud}}, spec: {{config: [{}]}}}}", opaque("class")))
        .await;
    let request = |name: &str| format!("{{name: {name}, exactly: {{deviceClassName: loud}}}}");
    let own = opaque("claim").replace("{opaque", "{requests: [s], opaque");
    claim(
        &cluster,
        "c",
        &format!(
            "requests: [{}, {}], config: [{own}]",
            request("r"),
            request("s")
        ),
    )
    .await;
    assert_eq!(place(&cluster, "c").await, "n1");
    let allocation = allocation(&cluster, "c").await;
    let show = |config: &Value| {
        let requests: Vec<&str> = config["requests"].list().iter().map(Value::str).collect();
        format!(
            "{} {} {}",
            config["source"].str(),
            requests.join(","),
            config["opaque"]["parameters"]["say"].str()
        )
    };
    let config: Vec<String> = allocation["devices"]["config"]
        .list()
        .iter()
        .map(show)
        .collect();
    assert_eq!(config, ["FromClass r,s class", "FromClaim s claim"]);
    let node = &allocation["nodeSelector"]["nodeSelectorTerms"][0]["matchFields"][0]["values"][0];
    assert_eq!(node.str(), "n1");
}
