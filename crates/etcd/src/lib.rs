//! How is etcd used? The messages of its API, version 3.
//!
//! ```
//! use mizzen_etcd::messages::{Compare, RequestOp, TxnRequest};
//!
//! // Writes the key unless it exists.
//! let txn = TxnRequest {
//!     compare: vec![Compare::mod_revision("/registry/pods/default/web", 0)],
//!     success: vec![RequestOp::put("/registry/pods/default/web", "{}", 0)],
//!     failure: vec![RequestOp::get("/registry/pods/default/web")],
//! };
//! assert_eq!(txn.compare.len(), 1);
//! ```

pub mod messages;
