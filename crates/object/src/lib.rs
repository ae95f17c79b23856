//! Kubernetes objects: schemas, kinds, codecs, and the operations that a schema defines.
//!
//! A [`Kind`] is data: names, a schema, rules. Built-in kinds come from data files
//! ([`schema::parse`]), custom ones from a CustomResourceDefinition ([`custom::kinds`]); all
//! operations work on both. What data cannot express is in [`Hooks`].
//!
//! ```
//! use mizzen_object::{decode, default, patch, schema};
//! use mizzen_value::{json, value};
//!
//! let types = "group example.com\nversion v1\n\ntype Limits\n  - qps int32 default=5\n  - burst ?int32\n";
//! let schemas = schema::parse([("limits.types", types)]).unwrap();
//! let limits = &schemas.types["example.com/v1.Limits"];
//!
//! let decoded = decode::decode(limits, br#"{"burst": 10, "brust": 11}"#).unwrap();
//! assert_eq!(decoded.complaints, [r#"unknown field "brust""#]);
//!
//! let mut object = decoded.value;
//! default::apply(limits, &mut object);
//! patch::merge(&mut object, value!({"burst": 20}));
//! schema::canonical(limits, &mut object);
//! assert_eq!(json::to_string(&object), r#"{"qps":5,"burst":20}"#);
//! ```
//!
//! # Modules
//!
//! - [`schema`]: struct types, and the canonical form of values.
//! - [`Kind`], [`Hooks`], [`GroupVersionKind`]: what is served, and the rules that are code.
//! - [`decode`] and [`proto`]: the JSON and protobuf codecs. [`config_file`] decodes configuration
//!   files of components.
//! - [`mod@default`]: schema defaults.
//! - [`structural`] and [`custom`]: structural schemas (prune, default, validate, CEL rules) and
//!   custom kinds.
//! - [`managed_fields`]: `metadata.managedFields` and server-side apply.
//! - [`patch`]: JSON Patch, JSON merge patch, strategic merge patch.
//! - [`select`]: label and field selectors. [`jsonpath`]: kubectl's JSONPath.
//! - [`validate`], [`Violations`], [`Status`]: shared validation, and how errors reach clients.
//! - [`condition`] and [`owner_references`]: parts of every object. [`User`]: the user of a request.
//!
//! Invariant: no I/O, no clock, no randomness, and no kind is named here.

pub mod condition;
pub mod config_file;
pub mod custom;
pub mod decode;
pub mod default;
mod hooks;
pub mod jsonpath;
mod kind;
pub mod managed_fields;
mod names;
pub mod owner_references;
pub mod patch;
pub mod proto;
pub mod round_trip;
pub mod schema;
pub mod select;
mod status;
pub mod structural;
mod user;
pub mod validate;
mod violation;

pub use hooks::{Action, HookContext, Hooks, NoHooks};
pub use kind::{
    Column, Deprecated, Kind, KindData, KindRules, MetaCheck, MetaChecks, NameRule, ResourceScope,
    ScalePaths, Subresource,
};
pub use names::{GroupResource, GroupVersionKind};
pub use status::{Cause, Details, Status};
pub use user::{CREDENTIAL_ID, MASTERS, User};
pub use violation::{Path, Violation, ViolationReason, Violations, aggregate, show};
