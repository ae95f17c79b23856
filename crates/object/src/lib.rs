//! What is an object? Meaning without a home: values, names, schemas, kinds, codecs, and each operation
//! that a schema allows.
//!
//! ```
//! use mizzen_object::{json, yaml};
//!
//! let document = yaml::read(b"replicas: 010\npaused: yes").unwrap();
//! assert_eq!(json::to_string(&document.value), r#"{"paused":true,"replicas":8}"#);
//! ```
//!
//! Invariant: no I/O, no clock, no randomness, and no kind is spelled here.

pub mod condition;
pub mod config_file;
pub mod custom;
pub mod decode;
pub mod default;
mod hooks;
pub mod jsonpath;
mod kind;
mod names;
pub mod own;
pub mod owner_references;
pub mod patch;
pub mod proto;
pub mod schema;
pub mod select;
mod status;
pub mod structural;
mod user;
pub mod validate;
mod violation;

pub use hooks::{Action, Context, Hooks, NoHooks};
pub use kind::{
    Column, Deprecated, Kind, KindData, MetaCheck, MetaChecks, NameRule, Rules, ScalePaths, Scope,
    Subresource,
};
pub use names::{GroupResource, GroupVersionKind};
pub use status::{Cause, Details, Status};
pub use user::{CREDENTIAL_ID, MASTERS, User};
pub use violation::{Path, Reason, Violation, Violations, in_one, show};
