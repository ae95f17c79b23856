//! Versions of a kind, converted through a hub: Go's conversion-gen, without generated files.
//!
//! One version of a kind is its hub. Every other version is a spoke: `#[derive(Convert)]` converts
//! it to the hub and back, field by field. Fields of the same name need nothing, other ones an
//! attribute, and what no attribute can say is written by hand. `#[derive(CustomResource)]` of
//! `kube` makes the kind and its CustomResourceDefinition, as always:
//!
//! ```
//! use kube::CustomResource;
//! use mizzen_sdk::convert::{Convert, ConvertError, ConvertTo};
//! use schemars::JsonSchema;
//! use serde::{Deserialize, Serialize};
//!
//! mod v2 {
//! #   use super::*;
//!     /// The hub.
//!     #[derive(CustomResource, Serialize, Deserialize, JsonSchema, Clone, Debug, Default, PartialEq)]
//!     #[kube(group = "shop.example.com", version = "v2", kind = "Oven", namespaced, derive = "PartialEq")]
//!     #[serde(rename_all = "camelCase")]
//!     pub struct OvenSpec {
//!         pub max_temperature: u32,
//!         pub timeout_seconds: Option<u64>,
//!         pub racks: Vec<Rack>,
//!     }
//!
//!     #[derive(Serialize, Deserialize, JsonSchema, Clone, Debug, Default, PartialEq)]
//!     pub struct Rack {
//!         pub width: u32,
//!     }
//! }
//!
//! mod v1 {
//! #   use super::*;
//!     #[derive(CustomResource, Convert, Serialize, Deserialize, JsonSchema, Clone, Debug, PartialEq)]
//!     #[kube(group = "shop.example.com", version = "v1", kind = "Oven", namespaced, derive = "PartialEq")]
//!     #[kube(derive = "Convert", attr = "convert(hub = super::v2::Oven)")]
//!     #[convert(hub = super::v2::OvenSpec)]
//!     #[serde(rename_all = "camelCase")]
//!     pub struct OvenSpec {
//!         #[convert(rename = "max_temperature")]
//!         pub temperature: u32,
//!         #[convert(rename = "timeout_seconds", with = "seconds")]
//!         pub timeout: Option<String>,
//!         pub racks: Vec<Rack>,
//!     }
//!
//!     #[derive(Convert, Serialize, Deserialize, JsonSchema, Clone, Debug, PartialEq)]
//!     #[convert(hub = super::v2::Rack)]
//!     pub struct Rack {
//!         pub width: u32,
//!     }
//!
//!     /// The hand-written rest: `90s` in v1 is 90 in v2.
//!     mod seconds {
//! #       use super::*;
//!         pub fn to_hub(text: Option<String>) -> Result<Option<u64>, ConvertError> {
//!             let parse = |text: String| text.trim_end_matches('s').parse();
//!             text.map(parse).transpose().map_err(ConvertError::new)
//!         }
//!
//!         pub fn from_hub(seconds: Option<u64>) -> Result<Option<String>, ConvertError> {
//!             Ok(seconds.map(|seconds| format!("{seconds}s")))
//!         }
//!     }
//! }
//!
//! # fn main() -> Result<(), ConvertError> {
//! let spec = v1::OvenSpec { temperature: 300, timeout: Some("90s".into()), racks: vec![v1::Rack { width: 40 }] };
//! let oven = v1::Oven::new("big", spec);
//! let hub: v2::Oven = oven.clone().convert_to()?;
//! assert_eq!((hub.spec.max_temperature, hub.spec.timeout_seconds), (300, Some(90)));
//! let back: v1::Oven = hub.convert_to()?;
//! assert_eq!(back, oven);
//!
//! let mut broken = oven;
//! broken.spec.timeout = Some("soon".into());
//! let error = ConvertTo::<v2::Oven>::convert_to(broken).unwrap_err();
//! assert_eq!(error.to_string(), "spec.timeout: invalid digit found in string");
//! # Ok(())
//! # }
//! ```
//!
//! A [`Scheme`](crate::discover::Scheme) has the versions of all kinds, and is a conversion webhook
//! by itself. `check_round_trip` (feature `round-trip`) tests that no version loses anything, and
//! `#[convert(hub = …, round_trip)]` on a kind generates that test.
//!
//! What does not fit is a compile error at its field:
//!
//! ```compile_fail
//! # use mizzen_sdk::convert::Convert;
//! #[derive(Default)]
//! struct Hub { size: u64 }
//!
//! #[derive(Convert)]
//! #[convert(hub = Hub)]
//! struct Spoke { size: String } // `String` cannot be converted to `u64`
//! ```
//!
//! ```compile_fail
//! # use mizzen_sdk::convert::Convert;
//! struct Hub { size: u64 }
//!
//! #[derive(Convert)]
//! #[convert(hub = Hub)]
//! struct Spoke { length: u64 } // the hub has no field `length`
//! ```

#[cfg(feature = "round-trip")]
mod arbitrary;
#[cfg(feature = "round-trip")]
mod round_trip;

#[doc(hidden)]
pub mod derived;

use std::fmt;

#[cfg(feature = "round-trip")]
pub use arbitrary::arbitrary;
pub use mizzen_sdk_derive::Convert;
#[cfg(feature = "round-trip")]
pub use round_trip::{check_round_trip, check_round_trip_of};

/// A conversion to another type. Every type converts to itself; `#[derive(Convert)]` adds the
/// conversion to a hub and back.
///
/// ```
/// use mizzen_sdk::convert::{ConvertError, ConvertTo};
///
/// struct Celsius(f64);
/// struct Kelvin(f64);
///
/// impl ConvertTo<Kelvin> for Celsius {
///     fn convert_to(self) -> Result<Kelvin, ConvertError> {
///         match self.0 + 273.15 {
///             kelvin if kelvin < 0.0 => Err(ConvertError::new("below absolute zero")),
///             kelvin => Ok(Kelvin(kelvin)),
///         }
///     }
/// }
///
/// assert!(ConvertTo::<Kelvin>::convert_to(Celsius(-300.0)).is_err());
/// let kelvin: Kelvin = Celsius(20.0).convert_to()?;
/// assert!(kelvin.0 > 293.0);
/// # Ok::<(), ConvertError>(())
/// ```
#[diagnostic::on_unimplemented(
    message = "`{Self}` cannot be converted to `{T}`",
    label = "derive `Convert` for the type of this field, or use `#[convert(with = …)]`"
)]
pub trait ConvertTo<T> {
    /// Converts the value.
    fn convert_to(self) -> Result<T, ConvertError>;
}

impl<T> ConvertTo<T> for T {
    fn convert_to(self) -> Result<T, ConvertError> {
        Ok(self)
    }
}

/// Why a value cannot be converted, and the path of the field.
///
/// ```
/// use mizzen_sdk::convert::ConvertError;
///
/// let error = ConvertError::new("too large").at("width").at_index(2).at("racks");
/// assert_eq!(error.to_string(), "racks[2].width: too large");
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ConvertError {
    path: String,
    message: String,
}

impl ConvertError {
    /// An error without a path; the fields on the way add it.
    pub fn new(message: impl fmt::Display) -> ConvertError {
        ConvertError {
            path: String::new(),
            message: message.to_string(),
        }
    }

    /// The same error, inside of a field.
    pub fn at(mut self, field: &str) -> ConvertError {
        self.path = match self.path.is_empty() || self.path.starts_with('[') {
            true => format!("{field}{}", self.path),
            false => format!("{field}.{}", self.path),
        };
        self
    }

    /// The same error, inside of an item of a list.
    pub fn at_index(mut self, index: usize) -> ConvertError {
        self.path = match self.path.is_empty() {
            true => format!("[{index}]"),
            false => format!("[{index}].{}", self.path),
        };
        self
    }
}

impl fmt::Display for ConvertError {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.path.is_empty() {
            true => formatter.write_str(&self.message),
            false => write!(formatter, "{}: {}", self.path, self.message),
        }
    }
}

impl std::error::Error for ConvertError {}
