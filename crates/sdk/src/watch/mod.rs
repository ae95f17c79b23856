//! Reflectors: list a kind, then watch it.
//!
//! ```
//! # use mizzen_apiserver::User;
//! # tokio::runtime::Builder::new_current_thread().enable_all().build()?.block_on(async {
//! # let client = kube::Client::new(mizzen_controlplane::in_memory().await.in_process(User::master("me"), "me"), "default");
//! # let pod = mizzen_sdk::Object::parse(br#"{"metadata":{"name":"web","namespace":"default"},"spec":{"containers":[{"name":"web","image":"web"}]}}"#)?;
//! # mizzen_sdk::dynamic::DynamicClient::new(client.clone()).create(&mizzen_sdk::resource::PODS, &pod).await?;
//! use k8s_openapi::api::core::v1::Pod;
//! use mizzen_sdk::cache::Store;
//! use mizzen_sdk::watch::{Initial, ListWatch, Reflector};
//!
//! let mut source: ListWatch<Pod> = ListWatch::namespaced(client, "default");
//! source.fields = Some("metadata.name=web".into());
//! source.initial = Initial::Stream;
//! let store = Store::new();
//! let reflector = Reflector::new(source, store.clone());
//! let meter = reflector.meter.clone();
//! tokio::spawn(reflector.run());
//! while store.is_empty() {
//!     tokio::task::yield_now().await;
//! }
//! println!("{} pods\n{}", store.len(), mizzen_sdk::metrics::Families::of(&[&meter.read()]));
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! # })?;
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

mod backoff;
mod list_watch;
mod metrics;
mod reflector;

pub use backoff::Backoff;
pub use list_watch::{Initial, ListWatch, Page, WatchError, WatchEvent, WatchStream};
pub use metrics::{Meter, Metrics};
pub use reflector::{ErrorHandler, Reflector, Sink, Transform};
