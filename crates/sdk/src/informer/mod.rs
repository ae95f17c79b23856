//! Shared informers: one watch and one cache per kind.
//!
//! ```
//! # use mizzen_apiserver::User;
//! # tokio::runtime::Builder::new_current_thread().enable_all().build()?.block_on(async {
//! # let client = kube::Client::new(mizzen_controlplane::in_memory().await.in_process(User::master("me"), "me"), "default");
//! # let pod = mizzen_sdk::Object::parse(br#"{"metadata":{"name":"web","namespace":"default"},"spec":{"containers":[{"name":"web","image":"web"}]}}"#)?;
//! # mizzen_sdk::dynamic::DynamicClient::new(client.clone()).create(&mizzen_sdk::resource::PODS, &pod).await?;
//! use k8s_openapi::api::core::v1::Pod;
//! use mizzen_sdk::informer::{Event, Informer};
//! use mizzen_sdk::queue::Queue;
//! use mizzen_sdk::watch::ListWatch;
//!
//! let queue = Queue::new("pods");
//! let pods: Informer<Pod> = Informer::new(ListWatch::all(client));
//! let todo = queue.clone();
//! pods.add_handler(move |event: Event<Pod>| todo.add(event.key().clone()));
//! pods.start();
//! pods.wait_for_sync().await;
//! while let Some(key) = queue.get().await {
//!     if let Ok(Some(pod)) = pods.lister().by_key(&key) {
//!         println!("{key} is on {:?}", pod.spec.as_ref().and_then(|spec| spec.node_name.as_ref()));
//!     }
//!     queue.done(&key);
//!     # queue.shut_down();
//! }
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! # })?;
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! A [`Factory`] shares informers, the same one for the same kind and scope:
//!
//! ```
//! # use mizzen_apiserver::User;
//! # tokio::runtime::Builder::new_current_thread().enable_all().build()?.block_on(async {
//! # let client = kube::Client::new(mizzen_controlplane::in_memory().await.in_process(User::master("me"), "me"), "default");
//! # for name in ["shop", "bank"] {
//! # let namespace = mizzen_sdk::Object::parse(format!(r#"{{"metadata":{{"name":"{name}"}}}}"#).as_bytes())?;
//! # mizzen_sdk::dynamic::DynamicClient::new(client.clone()).create(&mizzen_sdk::resource::NAMESPACES, &namespace).await?;
//! # }
//! use k8s_openapi::api::core::v1::{ConfigMap, Pod};
//! use mizzen_sdk::informer::{Factory, FactoryOptions};
//!
//! let namespaces = vec!["shop".into(), "bank".into()];
//! let factory = Factory::with(client, FactoryOptions { namespaces, ..FactoryOptions::default() });
//! let (pods, configs) = (factory.informer::<Pod>(), factory.informer::<ConfigMap>());
//! factory.start();
//! factory.wait_for_sync().await;
//! println!("{} pods, {} config maps", pods.store().len(), configs.store().len());
//! println!("{}", mizzen_sdk::metrics::Families::of(&[&factory]));
//! factory.stop();
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! # })?;
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! Invariant: when a handler gets an event, the cache has the change. Invariant: the events of one
//! object are a consistent history: it is added before it is updated or deleted, and each update
//! starts from the last state that the handler got.

mod event;
mod factory;
mod handler;
mod handler_scope;
mod mailbox;
mod metrics;
mod read_your_writes;
mod shared;

pub use event::Event;
pub use factory::{Factory, FactoryOptions};
pub use handler::{Handler, HandlerOptions, Registration};
pub use metrics::Metrics;
pub use shared::{Informer, Options};
