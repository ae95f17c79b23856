//! The webhook server for operators: admission and conversion handlers as plain async functions.
//!
//! ```
//! # use k8s_openapi::api::core::v1::ConfigMap;
//! # use mizzen_apiserver::User;
//! # tokio::runtime::Builder::new_multi_thread().enable_all().build()?.block_on(async {
//! # let client = kube::Client::new(mizzen_controlplane::in_memory().await.in_process(User::master("me"), "me"), "default");
//! use std::time::Duration;
//! use mizzen_sdk::webhook::{
//!     AdmissionRequest, CertificateRotator, Denied, Endpoint, RotationOptions, Rule, Server, Webhook,
//! };
//! use tokio::net::TcpListener;
//!
//! fn set_colour(config: &mut ConfigMap) {
//!     config.data.get_or_insert_default().entry("colour".into()).or_insert("red".into());
//! }
//!
//! async fn forbid_grey(request: AdmissionRequest<ConfigMap>) -> Result<(), Denied> {
//!     match request.object()?.data.as_ref().is_some_and(|data| data["colour"] == "grey") {
//!         true => Err(Denied::new("grey is not a colour")),
//!         false => Ok(()),
//!     }
//! }
//!
//! let server = Server::builder("shop")
//!     .webhook(Webhook::defaulting("colour.shop.example.com", Rule::kind::<ConfigMap>(), set_colour))
//!     .webhook(Webhook::validating("configs.shop.example.com", Rule::kind::<ConfigMap>(), forbid_grey))
//!     .build()?;
//!
//! // Certificates of its own, in a Secret that replicas share.
//! let listener = TcpListener::bind(("127.0.0.1", 0)).await?;
//! let endpoint = Endpoint::Url(format!("https://{}", listener.local_addr()?));
//! let mut options = RotationOptions::new("default", "shop-webhook", endpoint.names());
//! options.targets = server.injection_targets();
//! let rotator = CertificateRotator::start(client.clone(), options).await?;
//!
//! let (handle, certificate) = (server.clone(), rotator.certificate());
//! tokio::spawn(async move { handle.serve(listener, certificate, std::future::pending(), Duration::ZERO).await });
//! server.apply(&client, &endpoint, &rotator.bundle()).await?;
//! tokio::spawn(async move { rotator.run().await });
//!
//! # use kube::api::{Api, PostParams};
//! # let configs: Api<ConfigMap> = Api::namespaced(client, "default");
//! let mut config = ConfigMap::default();
//! config.metadata.name = Some("web".into());
//! let mut config = configs.create(&PostParams::default(), &config).await?;
//! assert_eq!(config.data.get_or_insert_default()["colour"], "red");
//! config.data.get_or_insert_default().insert("colour".into(), "grey".into());
//! let denied = configs.replace("web", &PostParams::default(), &config).await.unwrap_err();
//! assert!(denied.to_string().contains("denied the request: grey is not a colour"));
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! # })?;
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! - [`AdmissionRequest`], [`Denied`]: what a handler gets, and how it rejects.
//! - [`Webhook`], [`Rule`]: a handler and its registration.
//! - [`Server`]: limits, TLS, webhook configurations. Panics and timeouts are contained.
//! - [`CertificateRotator`]: certificates of its own; or [`ServingCertificate::follow_files`]:
//!   certificates that cert-manager writes.

mod admission;
mod certificate;
mod conversion;
mod denied;
mod hook;
mod inject;
mod listen;
mod merge;
mod registration;
mod rotation;
mod server;

pub use admission::{AdmissionRequest, Operation};
pub use certificate::{
    Authority, CertificateError, CertificateFiles, KeyPem, ServingCertificate, Validity,
};
pub use denied::Denied;
pub use hook::{Rule, Webhook};
pub use inject::InjectionTarget;
pub use mizzen_object::{Violation, Violations};
pub use registration::Endpoint;
pub use rotation::{CertificateRotator, RotationError, RotationOptions};
pub use server::{BuildError, Builder, Limits, Server};
