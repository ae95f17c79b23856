//! How is etcd used? The messages of its API, version 3, and a client that calls it.
//!
//! ```no_run
//! # async fn example(clock: std::sync::Arc<dyn mizzen_value::clock::Clock>) -> Result<(), Box<dyn std::error::Error>> {
//! use mizzen_etcd::client::{Client, Config};
//! use mizzen_etcd::messages::{Compare, RequestOp, TxnRequest, WatchCreateRequest};
//!
//! let endpoints = vec!["http://127.0.0.1:2379".to_owned()];
//! let client = Client::connect(Config::new(endpoints, clock))?;
//!
//! // Writes the key unless it exists.
//! let key = "/registry/pods/default/web";
//! let create = TxnRequest {
//!     compare: vec![Compare::mod_revision(key, 0)],
//!     success: vec![RequestOp::put(key, "{}", 0)],
//!     failure: vec![RequestOp::get(key)],
//! };
//! let created = client.txn(create).await?;
//!
//! // Every change of it from there on.
//! let revision = created.header.map_or(0, |header| header.revision);
//! let request = WatchCreateRequest {
//!     key: key.into(),
//!     start_revision: revision + 1,
//!     ..WatchCreateRequest::default()
//! };
//! let mut watch = client.watch(request).await?;
//! println!("{:?}", watch.next().await?.events);
//! # Ok(())
//! # }
//! ```

pub mod client;
mod engine;
pub mod messages;
mod revisions;

pub use engine::{ClusterOverride, EngineOptions, EtcdMetrics, engine, store};
pub use revisions::Revisions;
