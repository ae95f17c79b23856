//! Who asks, may they, what do they get? HTTP down and up.
//!
//! [`Server`] answers requests without a network; [`listen`](listen::listen) puts it on one. A custom API
//! server is this crate with other kinds and other storage: [`Server::builder`] makes it, and [`delegate`] lets
//! another server say who asks and what they may do.
//!
//! ```
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() {
//! use http::Request;
//! use http_body_util::Empty;
//! use mizzen_apiserver::{Server, User};
//! use tower_service::Service as _;
//!
//! let server = Server::in_memory().await;
//! let mut client = server.in_process(User::master("admin"), "example");
//! let request = Request::get("/api/v1/namespaces/default").body(Empty::new()).unwrap();
//! assert_eq!(client.call(request).await.unwrap().status(), 200);
//! # }
//! ```

pub mod access;
mod admission;
mod aggregation;
mod answer;
pub mod audit;
pub mod authenticate;
mod browsers;
mod catalog;
mod chain;
mod close_notify;
mod content;
mod deadline;
mod definitions;
pub mod delegate;
mod delete_options;
pub mod discovery;
pub mod extend;
mod fairness;
pub mod file_watcher;
mod frame_budget;
mod framing;
mod gather;
mod header;
mod health;
mod http2_path;
mod in_process;
mod intake;
pub mod jose;
mod legacy;
pub mod listen;
mod load;
mod log_files;
pub mod metrics;
mod openid;
mod options;
mod outgoing;
mod ownership;
mod pages;
mod receive;
mod recover;
mod request;
mod request_line;
mod runtime_config;
pub mod seams;
mod server;
mod tap;
mod token;
mod types;
mod unsent;
mod verbs;
mod zpages;

pub use admission::{
    Admission, ConfigurationError, EventRateLimit, ImagePolicy, Level, LimitedResource,
    NodeSelectors, PluginError, Plugins, PodSecurity, PodTolerations, Policy, Standard,
    TolerationSeconds, Version,
};
pub use answer::{Answer, Body, Broken};
pub use browsers::Browsers;
pub use extend::{BuildError, Builder, NonResourceHandler, NonResourceRequest};
pub use fairness::Concurrency;
pub use health::{ComponentHealth, Endpoint, HealthCheck, kube_apiserver_boot_sequence};
pub use in_process::InProcess;
pub use mizzen_kinds::disallow_privileged;
pub use mizzen_object::{MASTERS, User};
pub use outgoing::{Anyone, Identity};
pub use runtime_config::{ApiSetting, check_runtime_config};
pub use server::{Http, Options, Server};
pub use token::{ServiceAccounts, Signer, issue as issue_token};
pub use unsent::UnsentLimits;
pub use verbs::ControlPlaneComponents;
pub use zpages::Zpages;
