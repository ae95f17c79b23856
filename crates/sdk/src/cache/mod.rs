//! The cache of one kind, with many readers and one writer.
//!
//! Objects are kept as the server sent them and decoded on use: a decoded object is several times
//! larger than its text, and most objects of a large cluster are seldom used. Readers get an `Arc`,
//! so they cannot change the cache.
//!
//! ```
//! use k8s_openapi::api::core::v1::Pod;
//! use mizzen_sdk::Key;
//! use mizzen_sdk::cache::{Entry, Lister, Store, by_field};
//!
//! let store: Store<Pod> = Store::new();
//! store.add_index("node", by_field("spec.nodeName"));
//! let text = r#"{"metadata": {"namespace": "default", "name": "web"}, "spec": {"nodeName": "n1", "containers": []}}"#;
//! store.insert(Entry::new(text.as_bytes())?);
//!
//! let before = store.snapshot();
//! let pods = Lister::new(store.clone()).by_index("node", "n1").expect("there is such an index")?;
//! assert_eq!(pods[0].metadata.name.as_deref(), Some("web"));
//! store.remove(&Key::new("default", "web"));
//! assert_eq!((before.iter().count(), store.len()), (1, 0));
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! Invariant: a reader sees objects and indexes of one moment.

mod entry;
pub(crate) mod field;
mod index;
mod lister;
mod store;

pub use entry::{DecodeError, Entry, Version};
pub use index::{IndexFunction, by_field, by_label, by_labels, by_namespace, by_owner};
pub use lister::Lister;
pub(crate) use lister::NAMESPACE;
pub use store::{KeyFunction, Snapshot, Store};
