//! What is there before anybody asks: the system's namespaces, and the server as a service.

use bytes::Bytes;
use http::{HeaderMap, Method};
use mizzen_apiserver::{Server, User};
use mizzen_object::{Value, json, value};

/// The namespaces that every cluster has.
const NAMESPACES: [&str; 4] = ["default", "kube-node-lease", "kube-public", "kube-system"];

/// The priorities of what the cluster cannot do without.
const PRIORITY_CLASSES: [(&str, i64, &str); 2] = [
    (
        "system-cluster-critical",
        2_000_000_000,
        "Used for system critical pods that must run in the cluster, but can be moved to another node if necessary.",
    ),
    (
        "system-node-critical",
        2_000_001_000,
        "Used for system critical pods that must not be moved from their current node.",
    ),
];

/// Makes what is missing. Like everybody, through the API.
pub async fn bootstrap(server: &Server, port: u16) -> Result<(), String> {
    let namespaces = NAMESPACES.map(|name| {
        let namespace = value!({ "apiVersion": "v1", "kind": "Namespace", "metadata": { "name": name } });
        create(server, "/api/v1/namespaces", namespace)
    });
    for made in namespaces {
        made.await?;
    }
    create(server, "/api/v1/namespaces/default/services", service(port)).await?;
    for (name, priority, description) in PRIORITY_CLASSES {
        let class = value!({
            "apiVersion": "scheduling.k8s.io/v1", "kind": "PriorityClass", "metadata": { "name": name },
            "value": priority, "description": description
        });
        create(server, "/apis/scheduling.k8s.io/v1/priorityclasses", class).await?;
    }
    Ok(())
}

fn service(port: u16) -> Value {
    value!({
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": {
            "name": "kubernetes",
            "namespace": "default",
            "labels": { "component": "apiserver", "provider": "kubernetes" }
        },
        "spec": {
            "clusterIP": "10.0.0.1",
            "clusterIPs": ["10.0.0.1"],
            "internalTrafficPolicy": "Cluster",
            "ipFamilies": ["IPv4"],
            "ipFamilyPolicy": "SingleStack",
            "ports": [{ "name": "https", "port": 443, "protocol": "TCP", "targetPort": port }],
            "sessionAffinity": "None",
            "type": "ClusterIP"
        }
    })
}

async fn exists(server: &Server, path: &str, name: &str) -> bool {
    let Ok(uri) = format!("{path}/{name}").parse() else { return false };
    let user = User::master("system:apiserver");
    let answer = server.call(Some(user), Method::GET, uri, HeaderMap::new(), Bytes::new()).await;
    answer.status().is_success()
}

async fn create(server: &Server, path: &'static str, object: Value) -> Result<(), String> {
    if exists(server, path, object["metadata"]["name"].str()).await {
        return Ok(());
    }
    let user = User::master("system:apiserver");
    let mut headers = HeaderMap::new();
    headers.insert("user-agent", http::HeaderValue::from_static("kube-apiserver"));
    let body = Bytes::from(json::to_string(&object));
    let uri = http::Uri::from_static(path);
    let answer = server.call(Some(user), Method::POST, uri, headers, body).await;
    match answer.status().as_u16() {
        201 | 409 => Ok(()),
        code => Err(format!("cannot create {path}: {code}")),
    }
}
