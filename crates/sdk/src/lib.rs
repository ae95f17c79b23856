//! A client library for Kubernetes controllers, as client-go is: the parts that every controller is
//! made of, each usable alone, on the `kube` crate's client.
//!
//! ```
//! # use mizzen_apiserver::User;
//! # tokio::runtime::Builder::new_current_thread().enable_all().build()?.block_on(async {
//! # let client = kube::Client::new(mizzen_controlplane::in_memory().await.in_process(User::master("me"), "me"), "default");
//! use k8s_openapi::api::core::v1::Namespace;
//! use mizzen_sdk::Key;
//! use mizzen_sdk::controller::{Action, Context, Controller, typed};
//! # let (done, reconciled) = tokio::sync::oneshot::channel();
//! # let done = parking_lot::Mutex::new(Some(done));
//!
//! let context = Context::new(client).named("greeter");
//! let controller = Controller::for_kind(&context, typed::<Namespace>()).reconcile(move |key: Key, _| {
//!     println!("hello, {key}");
//! #   drop(done.lock().take());
//!     async { Ok(Action::done()) }
//! });
//! # let stop = async { drop::<Result<(), _>>(reconciled.await) };
//! controller.run(stop).await?;
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! # })?;
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! [`controller`] has a whole example, and [`manager`] runs several controllers with webhooks, leader
//! election and shared caches. Each part below is used alone, too: a shared informer, for example, is
//!
//! ```
//! # use mizzen_apiserver::User;
//! # tokio::runtime::Builder::new_current_thread().enable_all().build()?.block_on(async {
//! # let client = kube::Client::new(mizzen_controlplane::in_memory().await.in_process(User::master("me"), "me"), "default");
//! use mizzen_sdk::Object;
//! use mizzen_sdk::informer::{Event, Informer};
//! use mizzen_sdk::resource::PODS;
//! use mizzen_sdk::watch::ListWatch;
//!
//! let pods: Informer<Object> = Informer::new(ListWatch::at(client, PODS.path("default")));
//! pods.add_handler(|event: Event<Object>| println!("{}", event.key()));
//! pods.start();
//! pods.wait_for_sync().await;
//! assert!(pods.lister().list()?.is_empty());
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! # })?;
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! | part | what it has |
//! |---|---|
//! | [`controller`] | controllers: builder, workers, owners, adoption |
//! | [`watch`] | list and watch: reflectors |
//! | [`fifo`] | the delta FIFO: changes by object |
//! | [`cache`] | caches, indexes and listers |
//! | [`informer`] | shared informers and their factory |
//! | [`queue`] | work queues with rate limits |
//! | [`Object`], [`resource`], [`dynamic`] | untyped objects and requests |
//! | [`yaml`] | objects from files |
//! | [`protobuf`] | the protobuf content type |
//! | [`kubeconfig`] | clients from kubeconfig files |
//! | [`rate_limit`] | the client-side rate limit |
//! | [`expectations`] | expected creations and deletions |
//! | [`write`](mod@write) | optimistic concurrency and server-side apply |
//! | [`owner`], [`condition`] | owner references, finalizers, conditions |
//! | [`event`] | event recorders |
//! | [`election`] | leader election |
//! | [`discover`] | discovery, REST mapping and schemes |
//! | [`convert`] | versions of a kind |
//! | [`manager`] | caches, webhooks, leader election and tasks, started and stopped in order |
//! | [`signal`] | the signals that end a process |
//! | [`webhook`] | admission and conversion webhooks |
//! | [`rbac`] | the permissions of a controller |
//! | [`manifests`](mod@manifests) | manifests of an operator: Kustomize bases and a Helm chart |
//! | [`timeline`] | durations that survive steps of the wall clock |
//! | [`metrics`] | the metrics of all parts |
//! | [`failure_log`] | log back-off for repeated failures |
//!
//! Invariant: nothing here depends on our server; it works with any API server.

mod accessor;
pub mod cache;
pub mod clock;
pub mod condition;
pub mod controller;
pub mod convert;
pub mod discover;
pub mod dynamic;
pub mod election;
pub mod event;
pub mod expectations;
pub mod failure_log;
pub mod fifo;
pub mod informer;
mod key;
pub mod kubeconfig;
#[cfg(feature = "manager")]
pub mod manager;
pub mod manifests;
mod object;
pub mod owner;
pub mod protobuf;
pub mod queue;
pub mod rate_limit;
pub mod rbac;
pub mod resource;
#[cfg(feature = "signal")]
pub mod signal;
pub mod timeline;
pub mod watch;
#[cfg(feature = "webhook")]
pub mod webhook;
pub mod write;
pub mod yaml;

pub use accessor::Accessor;
pub use key::{Key, ParseKeyError};
pub use mizzen_metrics as metrics;
pub use mizzen_sdk_derive::Rbac;
pub use object::Object;
pub use rbac::{Rbac, RbacRule};
pub use resource::ResourceType;
