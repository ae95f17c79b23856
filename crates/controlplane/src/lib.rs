//! The Kubernetes API server: what kube-apiserver has beyond the generic server of `mizzen-apiserver`.
//!
//! [`server()`] composes it: the built-in kinds with their hooks (`mizzen-kinds`), the admission plug-ins in upstream's order,
//! the node authorizer, subresources that reach pods, nodes and services, and the allocation of services' addresses and
//! ports. All of it is registered with [`mizzen_apiserver::Builder`]; the generic server knows none of it.
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
//! let mut client = server.in_process(User::master("admin"), "example");
//! let request = Request::get("/api/v1/namespaces/default").body(Empty::new()).unwrap();
//! assert_eq!(client.call(request).await.unwrap().status(), 200);
//! # }
//! ```

mod admission;
mod legacy;
mod node_authorizer;
mod runtime_config;
mod server;
mod service;
mod subresources;

pub use admission::{
    Admission, AdmissionConfigurationError, EventRateLimit, ImagePolicy, LimitedResource,
    NamespacePolicy, NodeSelectors, PluginError, Plugins, PodSecurity, PodTolerations, Standard,
    StandardLevel, StandardVersion, TolerationSeconds,
};
pub use mizzen_core_kinds::pod::disallow_privileged;
pub use runtime_config::{ApiSetting, check_runtime_config};
pub(crate) use server::ControlPlane;
pub use server::{Options, components, in_memory, repair, server};
pub use subresources::{ControlPlaneComponents, get_from_kubelet};
