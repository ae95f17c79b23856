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

pub mod address;
pub mod cel;
pub mod condition;
pub mod config_file;
pub mod custom;
pub mod decode;
pub mod default;
mod go_base64;
pub mod go_regexp;
mod hooks;
pub mod json;
pub mod jsonpath;
mod kind;
mod names;
pub mod own;
pub mod owner_references;
pub mod patch;
pub mod percent;
pub mod proto;
pub mod quantity;
pub mod schema;
pub mod seam;
pub mod select;
mod status;
pub mod structural;
pub mod time;
mod user;
pub mod validate;
mod value;
mod violation;
pub mod yaml;

pub use hooks::{Action, Context, Hooks, NoHooks};
pub use kind::{
    Column, Deprecated, Kind, KindData, MetaCheck, MetaChecks, NameRule, Rules, ScalePaths, Scope,
    Subresource,
};
pub use names::{GroupResource, GroupVersionKind};
pub use status::{Cause, Details, Status};
pub use user::{CREDENTIAL_ID, MASTERS, User};
pub use value::{Map, Str, Value};
pub use violation::{Path, Reason, Violation, Violations, in_one, show};
