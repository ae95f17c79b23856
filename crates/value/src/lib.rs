//! JSON values with Kubernetes' semantics, and the formats in which they are written.
//!
//! Kubernetes objects are JSON, but with the rules of Go's encoder: integers are 64 bits wide,
//! absent members read as zero values, maps are written in a fixed order, and errors have the
//! wording that clients know. This crate is that layer, without any knowledge of kinds.
//!
//! ```
//! use mizzen_value::quantity::Quantity;
//! use mizzen_value::{json, value, yaml};
//!
//! let pod = json::parse(br#"{"spec": {"nodeName": "node-0"}}"#).unwrap();
//! assert_eq!(pod["spec"]["nodeName"].str(), "node-0");
//! assert_eq!(pod["status"]["phase"].str(), "", "an absent member reads as Go's zero value");
//! assert_eq!(json::to_string(&value!({"a": [1, true, null]})), r#"{"a":[1,true,null]}"#);
//!
//! // YAML 1.1: `010` is eight and `yes` is true.
//! let document = yaml::read(b"replicas: 010\npaused: yes").unwrap();
//! assert_eq!(document.value["replicas"].int(), 8);
//! assert!(document.value["paused"].bool());
//!
//! let sum = Quantity::parse("1500m").unwrap().add(&Quantity::parse("500m").unwrap());
//! assert_eq!(sum.to_string(), "2");
//! ```
//!
//! # Modules
//!
//! - [`Value`] and [`Map`]: a JSON value. Numbers are kept as they were written, maps in their
//!   order. The [`value!`] macro builds one.
//! - [`json`]: the parser and the printer, with the errors of Go's `encoding/json`.
//! - [`yaml`]: YAML 1.1, with the errors of go-yaml.
//! - [`quantity`]: resource quantities such as `100m` and `1Gi`.
//! - [`time`]: timestamps, durations and time zones.
//! - [`address`]: IP addresses and CIDR blocks.
//! - [`validation`]: names, label keys, ports and addresses.
//! - [`go_base64`] and [`percent`]: base64 as Go reads it, and percent-encoding.
//! - [`clock`]: the traits for the wall clock and random bytes, so that tests are deterministic.
//!
//! Invariant: no I/O, no clock, no randomness of its own.

pub mod address;
pub mod clock;
pub mod go_base64;
pub mod json;
mod map;
pub mod percent;
pub mod quantity;
pub mod time;
pub mod validation;
mod value;
pub mod yaml;

pub use map::Map;
#[cfg(feature = "count-moves")]
pub use map::take_moved;
pub use value::{Str, Value, go_int};
