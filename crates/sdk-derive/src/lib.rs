//! The derives of `mizzen-sdk`: `Convert`, conversion between the versions of a kind, and `Rbac`, the
//! permissions of a controller.
//!
//! ```
//! use mizzen_sdk::convert::{Convert, ConvertTo as _};
//!
//! /// The hub.
//! #[derive(Default, Debug, PartialEq)]
//! struct OvenV2 {
//!     max_temperature: u32,
//!     racks: u8,
//! }
//!
//! #[derive(Convert, Debug, PartialEq)]
//! #[convert(hub = OvenV2)]
//! struct OvenV1 {
//!     #[convert(rename = "max_temperature")]
//!     temperature: u32,
//!     racks: u8,
//! }
//!
//! let oven = OvenV1 { temperature: 250, racks: 2 };
//! let hub: OvenV2 = oven.convert_to()?;
//! assert_eq!(hub, OvenV2 { max_temperature: 250, racks: 2 });
//! # Ok::<(), mizzen_sdk::convert::ConvertError>(())
//! ```
//!
//! `mizzen_sdk::convert` and `mizzen_sdk::rbac` have the whole of it.

mod attributes;
mod expand;
mod rbac;

use proc_macro::TokenStream;
use syn::{DeriveInput, parse_macro_input};

/// Conversion between a version of a type and its hub, in both directions: see
/// `mizzen_sdk::convert`, which has all of it.
///
/// ```
/// use mizzen_sdk::convert::{Convert, ConvertTo as _};
///
/// #[derive(Default, Debug, PartialEq)]
/// enum Colour {
///     #[default]
///     Red,
/// }
///
/// #[derive(Convert)]
/// #[convert(hub = Colour)]
/// enum OldColour {
///     #[convert(rename = "Red")]
///     Scarlet,
/// }
///
/// let colour: Colour = OldColour::Scarlet.convert_to()?;
/// assert_eq!(colour, Colour::Red);
/// # Ok::<(), mizzen_sdk::convert::ConvertError>(())
/// ```
///
/// | on the type | |
/// |---|---|
/// | `hub = v2::Foo` | the type of the hub; required |
/// | `hub_default` | fields that only the hub has get their default |
/// | `rest = "module"` | `module::to_hub(&from, &mut hub)` and `module::from_hub(&hub, &mut to)` are called at the end |
/// | `round_trip` | for a kind: a property test that neither side loses anything is generated; it needs the feature `round-trip` of `mizzen-sdk` in `[dev-dependencies]` |
///
/// | on a field or variant | |
/// |---|---|
/// | `rename = "name"` | its name in the hub |
/// | `with = "module"` | converted by `module::to_hub` and `module::from_hub` |
/// | `skip` or `default` | the hub does not have it; it gets its default |
/// | `default = "path"` | the same, with the value of `path()` |
#[proc_macro_derive(Convert, attributes(convert))]
pub fn derive_convert(input: TokenStream) -> TokenStream {
    let input = parse_macro_input!(input as DeriveInput);
    expand::expand(&input)
        .unwrap_or_else(|error| error.into_compile_error())
        .into()
}

/// The RBAC rules of a controller, from attributes: see `mizzen_sdk::rbac`, which has all of it.
///
/// ```
/// use mizzen_sdk::Rbac;
///
/// #[derive(Rbac)]
/// #[rbac(group("apps"), resources("deployments", "deployments/status"), verbs("get", "list", "watch"))]
/// #[rbac(group(""), resources("configmaps"), verbs("get"), names("settings"), scope("Namespaced"))]
/// struct Reconciler;
///
/// assert_eq!(Reconciler::rules().len(), 2);
/// ```
///
/// | in an attribute, which may be repeated | |
/// |---|---|
/// | `group("apps")` | the API group; by default the core group |
/// | `resources("deployments", "deployments/status")` | resources and subresources |
/// | `verbs("get", "list", "watch")` | the verbs; unknown ones are compile errors |
/// | `names("settings")` | these objects alone |
/// | `scope("Namespaced")` | in the namespace of the operator alone; `Cluster` is the default |
/// | `urls("/metrics")` | URLs that are no resources, instead of group and resources |
#[proc_macro_derive(Rbac, attributes(rbac))]
pub fn derive_rbac(input: TokenStream) -> TokenStream {
    let input = parse_macro_input!(input as DeriveInput);
    rbac::expand(&input)
        .unwrap_or_else(|error| error.into_compile_error())
        .into()
}
