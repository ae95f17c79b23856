//! Changing an object by a patch.
//!
//! Kubernetes: the maps that a patch touches come out sorted by key, the others as they were; error messages
//! show it, so we do the same.

mod go_text;
mod json_patch;
mod merge;
mod strategic;
mod strict;

pub(crate) use go_text::go_float;
pub use go_text::{go_text, go_type};
pub use json_patch::{JsonPatch, JsonPatchError};
pub use merge::merge;
pub use strategic::{StrategicError, strategic_diff, strategic_merge};
pub use strict::repeated_keys;
