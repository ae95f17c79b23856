//! A cluster with the metrics API, and requests to it.

use std::net::{IpAddr, Ipv4Addr};
use std::time::Duration;

use bytes::Bytes;
use http::{HeaderMap, Method};
use http_body_util::BodyExt as _;
use mizzen_apiserver::{ClientIdentity, User};
use mizzen_node as node;
use mizzen_sdk::clock;
use mizzen_testing::{Builder, Cluster};
use mizzen_value::{Value, json};
use parking_lot::Mutex;
use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, DnType, IsCa, KeyPair};

/// What metrics-server's manifests allow it, and a second namespace.
const OBJECTS: &str = "
apiVersion: v1
kind: Namespace
metadata: {name: other}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRole
metadata: {name: 'system:metrics-server'}
rules: [{apiGroups: [''], resources: [nodes, pods], verbs: [get, list, watch]}]
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRoleBinding
metadata: {name: 'system:metrics-server'}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: 'system:metrics-server'}
subjects: [{kind: ServiceAccount, name: metrics-server, namespace: kube-system}]
";

/// A cluster with the metrics API and two nodes.
pub(crate) async fn start() -> Cluster {
    start_at(Ipv4Addr::LOCALHOST.into()).await
}

/// The same; the first node has this address.
pub(crate) async fn start_at(address: IpAddr) -> Cluster {
    let mut params = CertificateParams::default();
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    let authority = CertifiedIssuer::self_signed(params, KeyPair::generate().unwrap()).unwrap();
    let mut params = CertificateParams::default();
    let name = "kube-apiserver-kubelet-client";
    params.distinguished_name.push(DnType::CommonName, name);
    let key = KeyPair::generate().unwrap();
    let certificate = params.signed_by(&key, &authority).unwrap();
    let identity = ClientIdentity {
        certificate: certificate.pem(),
        key: key.serialize_pem(),
    };

    let server = Cluster::builder().server_only();
    let cluster = server
        .tune_server(move |options| options.kubelet_client = Some(identity.clone()))
        .start()
        .await;
    mizzen_metrics_server::serve(cluster.server()).unwrap();
    cluster.server().aggregate().await.unwrap();
    cluster.apply(OBJECTS).await;

    let clock = clock::following(cluster.clock().clone());
    let serving = node::Serving::bind(address, &authority.pem(), clock).await;
    let serving = Mutex::new(Some(serving.unwrap()));
    let serve = move |options: &mut node::Options| {
        options.address = address;
        options.serving = serving.lock().take();
    };
    let whole = Builder::default().nodes(2).tune_nodes(serve);
    cluster.restart_with(|_| whole).await;
    pass(&cluster, 5).await;
    cluster
}

/// Lets so many seconds pass. Paused time advances to the next timer whenever a task is woken by a connection, so timers are
/// close together: what is read over a connection takes less time than its timeout.
pub(crate) async fn pass(cluster: &Cluster, seconds: u64) {
    for _ in 0..seconds * 50 {
        cluster.advance(Duration::from_millis(20)).await;
    }
}

/// A pod on a node, or on none, with an annotation about its usage.
pub(crate) async fn run_pod(cluster: &Cluster, name: &str, node: &str, usage: &str) {
    let pod = format!(
        "{{apiVersion: v1, kind: Pod, metadata: {{name: {name}, namespace: default, labels: {{app: {name}}}, \
         annotations: {{mizzen.dev/usage: '{usage}'}}}}, spec: {{nodeName: '{node}', schedulerName: none, containers: [{{name: web, image: i}}]}}}}"
    );
    cluster.create(&pod).await;
}

/// The code and the JSON of an answer to a GET.
pub(crate) async fn get(cluster: &Cluster, path: &str, accept: &str) -> (u16, Value) {
    let headers = HeaderMap::from_iter([(http::header::ACCEPT, accept.parse().unwrap())]);
    let (user, uri) = (Some(User::master("admin")), path.parse().unwrap());
    let answer = cluster
        .server()
        .call(user, Method::GET, uri, headers, Bytes::new())
        .await;
    let code = answer.status().as_u16();
    let text = answer.into_body().collect().await.unwrap().to_bytes();
    (code, json::parse(&text).unwrap_or_default())
}

/// The JSON of an answer to a GET that succeeds.
pub(crate) async fn read(cluster: &Cluster, path: &str) -> Value {
    let (code, value) = get(cluster, path, "application/json").await;
    assert_eq!(code, 200, "{path}: {value:?}");
    value
}

/// The table at a path: a line of cells for each row, headings first.
pub(crate) async fn table(cluster: &Cluster, path: &str) -> Vec<String> {
    let accept = "application/json;as=Table;g=meta.k8s.io;v=v1";
    let (code, table) = get(cluster, path, accept).await;
    assert_eq!(code, 200, "{path}: {table:?}");
    let columns = table["columnDefinitions"].list().iter();
    let headings: Vec<&str> = columns.map(|column| column["name"].str()).collect();
    let rows = table["rows"].list().iter().map(|row| {
        let cells = row["cells"].list().iter();
        cells.map(Value::str).collect::<Vec<_>>().join(" ")
    });
    std::iter::once(headings.join(" ")).chain(rows).collect()
}
