//! The defaulting webhook of ovens.

use crate::api::oven::Oven;

/// Fills in what a client left out, and a default of the schema cannot express.
pub fn apply_defaults(object: &mut Oven) {
    let spec = &mut object.spec;
    spec.message.get_or_insert_with(|| "hello".into());
}
