//! How does one follow a kind? List it, then watch it, whatever happens in between.
//!
//! ```no_run
//! # async fn example(client: kube::Client) {
//! use k8s_openapi::api::core::v1::Pod;
//! use mizzen_sdk::cache::Store;
//! use mizzen_sdk::watch::{Initial, ListWatch, Reflector};
//!
//! let mut source: ListWatch<Pod> = ListWatch::namespaced(client, "default");
//! source.fields = Some("spec.nodeName=node-1".into());
//! source.initial = Initial::Stream;
//! let store = Store::new();
//! let reflector = Reflector::new(source, store.clone());
//! let meter = reflector.meter.clone();
//! tokio::spawn(reflector.run());
//! println!("{} pods\n{}", store.len(), meter.read().to_text());
//! # }
//! ```

mod backoff;
mod list_watch;
mod metrics;
mod reflector;

pub use backoff::Backoff;
pub use list_watch::{Initial, ListWatch, Page, Said, WatchError, WatchStream};
pub use metrics::{Meter, Metrics};
pub use reflector::{ErrorHandler, Reflector, Sink, Transform};
