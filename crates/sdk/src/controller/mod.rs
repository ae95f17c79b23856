//! Controllers: a kind, the events that matter, and a function that brings the cluster closer to
//! what an object says. What controller-runtime is for Go.
//!
//! ```
//! # use mizzen_apiserver::User;
//! # tokio::runtime::Builder::new_current_thread().enable_all().build()?.block_on(async {
//! # let client = kube::Client::new(mizzen_controlplane::in_memory().await.in_process(User::master("me"), "me"), "default");
//! # let secret = mizzen_sdk::Object::parse(br#"{"metadata":{"name":"web","namespace":"default"},"data":{"a":"YQ=="}}"#)?;
//! # mizzen_sdk::dynamic::DynamicClient::new(client.clone()).create(&mizzen_sdk::resource::SECRETS, &secret).await?;
//! use std::sync::Arc;
//!
//! use k8s_openapi::api::core::v1::{ConfigMap, Secret};
//! use kube::api::{Api, ObjectMeta, PostParams};
//! use mizzen_sdk::controller::{Action, Context, Controller, Error, typed};
//! use mizzen_sdk::owner;
//!
//! /// Keeps a ConfigMap beside each Secret that lists its keys.
//! async fn publish_keys(secret: Arc<Secret>, context: Context) -> Result<Action, Error> {
//!     let (namespace, name) = (secret.metadata.namespace.clone().unwrap_or_default(), secret.metadata.name.clone());
//!     let keys = secret.data.iter().flatten().map(|(key, _)| (key.clone(), String::new()));
//!     let mut config = ConfigMap {
//!         metadata: ObjectMeta { name, namespace: Some(namespace.clone()), ..ObjectMeta::default() },
//!         data: Some(keys.collect()),
//!         ..ConfigMap::default()
//!     };
//!     owner::set_controller(&*secret, &(), &mut config)?; // so that `owns` finds the secret
//!     let configs: Api<ConfigMap> = Api::namespaced(context.client(), &namespace);
//!     match configs.create(&PostParams::default(), &config).await {
//!         Err(error) if !mizzen_sdk::write::is_already_exists(&error) => Err(error.into()),
//!         _ => Ok(Action::done()),
//!     }
//! }
//!
//! let context = Context::new(client.clone()).named("publish-keys");
//! let controller = Controller::for_kind(&context, typed::<Secret>())
//!     .owns(typed::<ConfigMap>())
//!     .workers(4)
//!     .reconcile_objects(publish_keys);
//! let published = async move {
//!     let configs: Api<ConfigMap> = Api::default_namespaced(client);
//!     while configs.get_opt("web").await.ok().flatten().is_none() {
//!         tokio::task::yield_now().await;
//!     }
//! };
//! controller.run(published).await?; // or until a signal
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! # })?;
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! | part | what it has |
//! |---|---|
//! | [`Controller`], [`Builder`] | which events enqueue which keys, how many workers; start and graceful stop |
//! | [`Source`]: [`typed`], [`dynamic`], [`metadata`] | the kinds that are watched, typed or not |
//! | [`Predicate`] | which events count |
//! | [`Reconcile`], [`ReconcileObject`] | what authors write |
//! | [`Action`], [`Error`] | what follows: nothing, a requeue, a retry with back-off, a terminal error |
//! | [`Context`] | client, informers, events, clock |
//! | [`ControllerRefManager`], [`controlled_by`], [`candidates`] | adoption and release of dependents |
//! | [`select_objects`], [`objects_selecting`] | objects by selector and the reverse, by index |
//! | [`LastWrites`], [`slow_start_batch`] | stale caches, failing batches |
//! | [`ControllerMetrics`] | metrics under controller-runtime's names |
//!
//! Invariant: no key is reconciled by two workers at once. Invariant: a failed key is retried, a
//! panic fails one reconcile only. Invariant: after a stop no reconcile starts, and `run` returns
//! when the running ones have ended.

mod action;
mod batch;
mod builder;
mod context;
mod controller_index;
mod controller_ref_manager;
mod error;
mod last_writes;
mod metrics;
mod owner_events;
mod predicate;
mod reconcile;
mod run;
mod selector_index;
mod source;
mod worker;

pub use action::Action;
pub use batch::slow_start_batch;
pub use builder::{Builder, ForKeys, ForKind};
pub use context::{Clients, Context, ContextOptions};
pub use controller_index::{candidates, controlled_by, decode_entries, index_controllers, orphans};
pub use controller_ref_manager::ControllerRefManager;
pub use error::Error;
pub use last_writes::LastWrites;
pub use metrics::ControllerMetrics;
pub use mizzen_object::select::LabelSelector;
pub use predicate::{
    Predicate, annotations_changed, generation_changed, labels_changed, resource_version_changed,
};
pub use reconcile::{Reconcile, ReconcileObject};
pub use run::{Controller, RunError};
pub use selector_index::{
    ReadSelector, index_labels, index_selectors, objects_selecting, select_objects,
};
pub use source::{Source, dynamic, metadata, typed};
