//! A server with the metrics API, controllers, a scheduler, and nodes.

use std::net::Ipv4Addr;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::{HeaderMap, Method};
use http_body_util::BodyExt as _;
use kube::Client;
use mizzen_apiserver::clock::{CountingRandom, SettableClock};
use mizzen_apiserver::{ClientIdentity, Server, User};
use mizzen_controllers as controllers;
use mizzen_controlplane::{Options, Plugins};
use mizzen_node as node;
use mizzen_registry::{Registry, Store};
use mizzen_scheduler as scheduler;
use mizzen_sdk::clock;
use mizzen_value::{Value, json, yaml};
use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, DnType, IsCa, KeyPair};
use tokio::task::JoinSet;
use tokio::time::sleep;

/// The time at which every cluster begins.
pub(crate) const BEGIN: i64 = 1_700_000_000;

/// What metrics-server's manifests allow it, and what every cluster has.
const OBJECTS: &str = "
apiVersion: v1
kind: Namespace
metadata: {name: default}
---
apiVersion: v1
kind: Namespace
metadata: {name: other}
---
apiVersion: v1
kind: Namespace
metadata: {name: kube-system}
---
apiVersion: v1
kind: Namespace
metadata: {name: kube-node-lease}
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

/// A cluster. It stops when this is dropped.
pub(crate) struct Cluster {
    pub server: Server,
    _nodes: JoinSet<()>,
    _controllers: controllers::Handle,
    _scheduler: scheduler::Handle,
}

impl Cluster {
    /// A cluster with two nodes.
    pub(crate) async fn new() -> Cluster {
        Cluster::with_nodes_at(Ipv4Addr::LOCALHOST.into()).await
    }

    /// A cluster with two nodes of which the first has an address.
    pub(crate) async fn with_nodes_at(address: std::net::IpAddr) -> Cluster {
        let mut params = CertificateParams::default();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let authority = CertifiedIssuer::self_signed(params, KeyPair::generate().unwrap()).unwrap();
        let mut params = CertificateParams::default();
        let name = "kube-apiserver-kubelet-client";
        params.distinguished_name.push(DnType::CommonName, name);
        let key = KeyPair::generate().unwrap();
        let certificate = params.signed_by(&key, &authority).unwrap();

        let clock = SettableClock::starting_at(BEGIN);
        let store = Store::in_memory(Default::default());
        let random = Arc::new(CountingRandom::default());
        let registry = Registry::new(store, Arc::new(clock.clone()), random);
        let options = Options {
            plugins: Plugins::alone(),
            kubelet_client: Some(ClientIdentity {
                certificate: certificate.pem(),
                key: key.serialize_pem(),
            }),
            ..Options::default()
        };
        let server = mizzen_controlplane::server(registry, options);
        server.start().await;
        mizzen_metrics_server::serve(&server).unwrap();
        server.aggregate().await.unwrap();
        create(&server, OBJECTS).await;

        let clock = clock::following(clock);
        let way = server.clone();
        let clients: controllers::Clients = Arc::new(move |_| client(&way));
        let mut loops = controllers::Options::new(clients);
        loops.clock = clock.clone();
        let mut placing = scheduler::Options::new(client(&server));
        placing.clock = clock.clone();
        let mut nodes = node::Options::simulated(client(&server), 2);
        nodes.clock = clock.clone();
        nodes.address = address;
        let serving = node::Serving::bind(address, &authority.pem(), clock).await;
        nodes.serving = Some(serving.unwrap());
        let cluster = Cluster {
            server,
            _controllers: controllers::start(loops),
            _scheduler: scheduler::start(placing).unwrap(),
            _nodes: JoinSet::from_iter([node::run(nodes)]),
        };
        cluster.pass(5).await;
        cluster
    }

    /// Lets so many seconds pass. Paused time advances to the next timer whenever a task is woken by a connection, so timers are
    /// close together: what is read over a connection takes less time than its timeout.
    pub(crate) async fn pass(&self, seconds: u64) {
        for _ in 0..seconds * 50 {
            sleep(Duration::from_millis(20)).await;
        }
    }

    /// Makes objects from YAML.
    pub(crate) async fn create(&self, text: &str) {
        create(&self.server, text).await;
    }

    /// A pod on a node, or on none, with an annotation about its usage.
    pub(crate) async fn run_pod(&self, name: &str, node: &str, usage: &str) {
        self.create(&format!(
            "{{apiVersion: v1, kind: Pod, metadata: {{name: {name}, namespace: default, labels: {{app: {name}}}, \
             annotations: {{mizzen.dev/usage: '{usage}'}}}}, spec: {{nodeName: '{node}', schedulerName: none, containers: [{{name: web, image: i}}]}}}}"
        ))
        .await;
    }

    /// The code and the JSON of an answer to a GET.
    pub(crate) async fn get(&self, path: &str) -> (u16, Value) {
        call(&self.server, Method::GET, path, "application/json", "").await
    }

    /// The JSON of an answer to a GET that succeeds.
    pub(crate) async fn read(&self, path: &str) -> Value {
        let (code, value) = self.get(path).await;
        assert_eq!(code, 200, "{path}: {value:?}");
        value
    }

    /// The table at a path: a line of cells for each row, headings first.
    pub(crate) async fn table(&self, path: &str) -> Vec<String> {
        let accept = "application/json;as=Table;g=meta.k8s.io;v=v1";
        let (code, table) = call(&self.server, Method::GET, path, accept, "").await;
        assert_eq!(code, 200, "{path}: {table:?}");
        let columns = table["columnDefinitions"].list().iter();
        let headings: Vec<&str> = columns.map(|column| column["name"].str()).collect();
        let rows = table["rows"].list().iter().map(|row| {
            let cells = row["cells"].list().iter();
            cells.map(Value::str).collect::<Vec<_>>().join(" ")
        });
        std::iter::once(headings.join(" ")).chain(rows).collect()
    }

    /// Changes an object by a merge patch.
    pub(crate) async fn patch(&self, path: &str, change: &str) {
        let (code, value) = call(&self.server, Method::PATCH, path, "*/*", change).await;
        assert_eq!(code, 200, "{path}: {value:?}");
    }

    /// Deletes an object.
    pub(crate) async fn delete(&self, path: &str) {
        let (code, value) = call(&self.server, Method::DELETE, path, "*/*", "").await;
        assert_eq!(code, 200, "{path}: {value:?}");
    }
}

fn client(server: &Server) -> Client {
    Client::new(server.in_process(User::master("admin"), "loops"), "default")
}

async fn create(server: &Server, text: &str) {
    for text in text.split("---\n") {
        let object = yaml::read(text.as_bytes()).unwrap().value;
        let (version, kind) = (object["apiVersion"].str(), object["kind"].str());
        let root = if version.contains('/') { "apis" } else { "api" };
        let plural = format!("{}s", kind.to_lowercase());
        let path = match object["metadata"]["namespace"].str() {
            "" => format!("/{root}/{version}/{plural}"),
            namespace => format!("/{root}/{version}/namespaces/{namespace}/{plural}"),
        };
        let body = json::to_string(&object);
        let (code, value) = call(server, Method::POST, &path, "*/*", &body).await;
        assert_eq!(code, 201, "{path}: {value:?}");
    }
}

async fn call(
    server: &Server,
    method: Method,
    path: &str,
    accept: &str,
    body: &str,
) -> (u16, Value) {
    let mut headers = HeaderMap::new();
    headers.insert("accept", accept.parse().unwrap());
    if method == Method::PATCH {
        let merge = "application/merge-patch+json".parse().unwrap();
        headers.insert("content-type", merge);
    }
    let body = Bytes::from(body.to_owned());
    let user = Some(User::master("admin"));
    let answer = server
        .call(user, method, path.parse().unwrap(), headers, body)
        .await;
    let code = answer.status().as_u16();
    let text = answer.into_body().collect().await.unwrap().to_bytes();
    (code, json::parse(&text).unwrap_or_default())
}
