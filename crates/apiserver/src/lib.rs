//! The generic Kubernetes API server: authentication, audit, flow control, authorization, admission, verbs, discovery,
//! OpenAPI, custom resources and aggregation.
//!
//! [`Server`] serves requests in process; [`listen`](listen::listen) serves them over TLS. [`Server::builder`] builds a
//! custom API server with its own kinds and storage; [`delegate`] delegates its authentication and authorization to
//! another server.
//!
//! ```
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() {
//! use std::sync::Arc;
//!
//! use http::Request;
//! use http_body_util::Empty;
//! use mizzen_apiserver::clock::{SystemRandom, WallClock};
//! use mizzen_apiserver::{Server, User};
//! use mizzen_registry::{Registry, Store};
//! use tower_service::Service as _;
//!
//! const KINDS: &str = "
//! group example.com
//! version v1
//! kind Thing
//!   names things thing
//!   scope Cluster
//!   verbs create delete get list update watch
//!   list ThingList
//! type Thing
//!   1 metadata !meta/v1.ObjectMeta
//! ";
//!
//! let store = Store::in_memory(Default::default());
//! let registry = Registry::new(store, Arc::new(WallClock), Arc::new(SystemRandom));
//! let server = Server::builder(registry).kinds("things.kinds", KINDS).build().unwrap();
//! let mut client = server.in_process(User::master("admin"), "example");
//! let request = Request::get("/apis/example.com/v1/things").body(Empty::new()).unwrap();
//! assert_eq!(client.call(request).await.unwrap().status(), 200);
//! # }
//! ```
//!
//! `mizzen-controlplane` composes the Kubernetes API server of it.

pub mod admission;
pub mod aggregation;
mod audit;
pub mod authorization;
pub mod catalog;
mod chain;
mod change_watcher;
mod content;
mod cors;
mod crd;
mod deadline;
pub mod decode;
pub mod delegate;
pub mod delete_options;
pub mod discovery;
pub mod extend;
pub mod field_manager;
mod flowcontrol;
mod health;
mod in_process;
pub mod listen;
mod log_files;
pub mod metrics;
mod non_resource;
mod openid;
pub mod options;
mod peer_proxy;
mod receive;
mod recover;
pub mod request;
pub mod server;
pub mod verbs;
pub mod websocket;
mod zpages;

pub use cors::Cors;
pub use extend::{
    BuildError, Builder, NonResourceHandler, NonResourceHandlers, NonResourceRequest,
};
pub use health::{ComponentHealth, HealthCheck, HealthEndpoint, kube_apiserver_boot_sequence};
pub use in_process::InProcess;
pub use mizzen_file_watcher as file_watcher;
pub use mizzen_flowcontrol::Concurrency;
pub use mizzen_object::{MASTERS, User};
pub use mizzen_outgoing::{AnyServerCertificate, ClientIdentity, InterceptWebhook, SendError};
pub use mizzen_registry::clock;
pub use mizzen_serving::response::{self, Body, Response, TruncatedResponse};
pub use mizzen_serving::{MetaSchemas, UnsentLimits};
pub use peer_proxy::{PeerEndpointLeases, PeerProxyOptions};
pub use server::{Http, Options, Server};
pub use zpages::Zpages;
