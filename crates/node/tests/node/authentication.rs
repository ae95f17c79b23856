//! Clients of a node that show a bearer token, over a real connection and on real time.

use http::Method;
use mizzen_sdk::dynamic::DynamicClient;
use mizzen_testing::Cluster;
use mizzen_value::value;

use crate::logs::{Authority, cluster};
use crate::streaming::{call, dial};

/// A cluster in which the service account `scraper` may read metrics of nodes, and its token.
async fn start() -> (Cluster, String) {
    let cluster = cluster(&Authority::new(), None).await;
    for object in [
        "{apiVersion: v1, kind: ServiceAccount, metadata: {name: scraper, namespace: default}}",
        "{apiVersion: rbac.authorization.k8s.io/v1, kind: ClusterRole, metadata: {name: metrics}, \
         rules: [{apiGroups: [''], resources: [nodes/metrics], verbs: [get]}]}",
        "{apiVersion: rbac.authorization.k8s.io/v1, kind: ClusterRoleBinding, metadata: {name: metrics}, \
         roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: metrics}, \
         subjects: [{kind: ServiceAccount, name: scraper, namespace: default}]}",
    ] {
        cluster.create(object).await;
    }
    let request =
        value!({ "kind": "TokenRequest", "apiVersion": "authentication.k8s.io/v1", "spec": {} });
    let path = "/api/v1/namespaces/default/serviceaccounts/scraper/token";
    let api = DynamicClient::new(cluster.client());
    let issued = api.raw(Method::POST, path, Some(&request)).await.unwrap();
    let token = issued["status"]["token"].str().to_owned();
    (cluster, token)
}

#[tokio::test]
async fn a_service_account_reads_what_it_may() {
    let (cluster, token) = start().await;
    let mut stream = dial(&cluster, None).await;
    let mut get = async |path: &str, header: &str| {
        let (code, _, body) = call(&mut stream, "GET", path, header).await;
        (code, body)
    };
    let bearer = format!("Authorization: Bearer {token}\r\n");
    let wrong = format!("Authorization: Bearer {token}x\r\n");
    let metrics = "/metrics/resource";
    assert_eq!(get("/healthz", "").await.0, 401);
    for header in ["", &wrong, "Authorization: Basic eDp5\r\n"] {
        let answer = get(metrics, header).await;
        assert_eq!(answer, (401, "Unauthorized".into()), "{header}");
    }
    let (code, body) = get(metrics, &bearer).await;
    assert!(
        code == 200 && body.contains("resource_scrape_error"),
        "{body}"
    );
    let denied = "Forbidden (user=system:serviceaccount:default:scraper, verb=get, resource=nodes, \
                  subresource(s)=[pods proxy])\n";
    assert_eq!(get("/pods", &bearer).await, (403, denied.into()));
    // What the API server said is used for a while.
    let api = DynamicClient::new(cluster.client());
    let binding = "/apis/rbac.authorization.k8s.io/v1/clusterrolebindings/metrics";
    api.raw(Method::DELETE, binding, None).await.unwrap();
    assert_eq!(get(metrics, &bearer).await.0, 200);
    assert_eq!(get("/metrics/cadvisor", &bearer).await.0, 404);
    assert_eq!(get("/stats/summary", &bearer).await.0, 403);
}
