//! Pods for the tests of several controllers.

use mizzen_sdk::Object;
use mizzen_sdk::resource::PODS;
use mizzen_testing::Cluster;
use mizzen_value::value;

/// Before any test starts.
pub(crate) const LONG_AGO: &str = "2020-01-01T00:00:00Z";

/// Creates a pod on node `n1` with the label `app: web`; `more` is added to its metadata.
pub(crate) async fn pod(cluster: &Cluster, name: &str, more: &str) -> Object {
    cluster.create(&format!(
            "{{apiVersion: v1, kind: Pod, metadata: {{name: {name}, namespace: default, labels: {{app: web}}{more}}}, \
             spec: {{nodeName: n1, containers: [{{name: c, image: i, resources: {{requests: {{cpu: '1'}}}}}}]}}}}"
        ))
        .await
}

/// Makes a pod run, ready or not.
pub(crate) async fn run(cluster: &Cluster, name: &str, ip: &str, ready: bool) {
    let ready = if ready { "True" } else { "False" };
    let status = value!({
        "phase": "Running", "podIP": (ip), "podIPs": [{"ip": (ip)}], "startTime": (LONG_AGO),
        "conditions": [{"type": "Ready", "status": (ready), "lastTransitionTime": (LONG_AGO)}]
    });
    cluster
        .change_status(&PODS, &format!("default/{name}"), |old| *old = status)
        .await;
}

/// Creates the node of all pods.
pub(crate) async fn node(cluster: &Cluster) {
    let labels = "{topology.kubernetes.io/zone: z1}";
    cluster
        .create(&format!(
            "{{apiVersion: v1, kind: Node, metadata: {{name: n1, labels: {labels}}}}}"
        ))
        .await;
}
