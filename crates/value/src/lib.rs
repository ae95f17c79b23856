//! JSON values as Kubernetes means them, and the formats in which they are written.
//!
//! [`Value`] keeps numbers as they were written and maps in their order. [`json`] and [`yaml`] (1.1, as Kubernetes reads
//! it) parse and print them; [`quantity`], [`time`] and [`address`] are the scalar types of the API that are
//! strings on the wire; [`validation`] has the checks of names, keys and ports. [`clock`] has the traits through which
//! code takes the time and random bytes, so that tests can choose them.
//!
//! ```
//! use mizzen_value::{json, value};
//!
//! let pod = json::parse(br#"{"spec": {"nodeName": "node-0"}}"#).unwrap();
//! assert_eq!(pod["spec"]["nodeName"].str(), "node-0");
//! assert_eq!(pod["status"]["phase"].str(), "", "what is absent reads as Go's zero value");
//! assert_eq!(json::to_string(&value!({"a": [1, true, null]})), r#"{"a":[1,true,null]}"#);
//! ```
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
