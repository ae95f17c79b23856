//! How much do nodes and pods use? The API `metrics.k8s.io/v1beta1`, as metrics-server serves it.
//!
//! [`serve`] makes an API server of the two kinds in `metrics.kinds` and lets the main API server serve it. In the order a request
//! goes: `api` (which nodes and pods are asked for), `scrape` (their kubelets are read), `decode` (what kubelets report),
//! `history` (usage between two reports).
//!
//! ```
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() {
//! use http::Request;
//! use http_body_util::Empty;
//! use mizzen_apiserver::User;
//! use tower_service::Service as _;
//!
//! let server = mizzen_controlplane::in_memory().await;
//! mizzen_metrics_server::serve(&server).unwrap();
//!
//! let mut client = server.in_process(User::master("admin"), "example");
//! let request = Request::get("/apis/metrics.k8s.io/v1beta1").body(Empty::new()).unwrap();
//! assert_eq!(client.call(request).await.unwrap().status(), 200);
//! # }
//! ```
//!
//! Invariant: a kubelet is read because a client asks, at most every `scrape::FRESH`; there is no background work.

mod api;
mod decode;
mod history;
mod scrape;

use std::sync::Arc;

use mizzen_apiserver::discovery::Priority;
use mizzen_apiserver::{BuildError, Server};
use mizzen_object::{GroupResource, GroupVersionKind};

use api::{MetricsCells, NodeMetrics, PodMetrics};
use scrape::Scraper;

const GROUP: &str = "metrics.k8s.io";
const NODE_METRICS: GroupVersionKind = GroupVersionKind::new(GROUP, "v1beta1", "NodeMetrics");
const POD_METRICS: GroupVersionKind = GroupVersionKind::new(GROUP, "v1beta1", "PodMetrics");
const NODES: GroupResource = GroupResource::new(GROUP, "nodes");
const PODS: GroupResource = GroupResource::new(GROUP, "pods");

/// Kubernetes: the priorities of metrics-server's APIService (manifests/base/apiservice.yaml).
const PRIORITY: Priority = Priority {
    group: 100,
    version: 100,
};

/// The service account in whose name nodes and pods are read, of `kube-system`.
pub const SERVICE_ACCOUNT: &str = "metrics-server";

/// Lets `main` serve `metrics.k8s.io/v1beta1`, of what the kubelets of its nodes report. Reads nodes and pods as
/// `kube-system/metrics-server`, which needs the role of metrics-server, `system:metrics-server`.
pub fn serve(main: &Server) -> Result<(), BuildError> {
    let scraper = Arc::new(Scraper::new(main.clone()));
    let builder = Server::builder(main.registry().clone())
        .kinds("metrics.kinds", include_str!("metrics.kinds"))
        .hooks(NODE_METRICS, MetricsCells)
        .hooks(POD_METRICS, MetricsCells)
        .storage(NODES, NodeMetrics(scraper.clone()))
        .storage(PODS, PodMetrics(scraper));
    main.serve_locally(builder, PRIORITY).map(drop)
}
