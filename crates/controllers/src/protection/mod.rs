//! What must not go while it is used? A finalizer keeps it until nobody does.

mod attributes_classes;
mod claims;
mod volumes;

pub(crate) use attributes_classes::start as start_attributes_classes;
pub(crate) use claims::start as start_claims;
pub(crate) use volumes::start as start_volumes;

use mizzen_sdk::{Object, Resource};

use crate::{Context, Error};

/// What an object's finalizer needs.
#[derive(Debug, PartialEq, Eq)]
enum Plan {
    /// Nothing.
    Nothing,
    /// To be added.
    Add,
    /// To be removed as soon as the object is not used.
    RemoveIfUnused,
}

fn plan(object: &Object, finalizer: &str) -> Plan {
    match (object.is_going(), object.has_finalizer(finalizer)) {
        (false, false) => Plan::Add,
        (true, true) => Plan::RemoveIfUnused,
        _ => Plan::Nothing,
    }
}

async fn add(
    context: &Context,
    of: &Resource,
    object: &Object,
    finalizer: &str,
) -> Result<(), Error> {
    let mut object = object.clone();
    object
        .entry("metadata")
        .entry("finalizers")
        .make_list()
        .push(finalizer.into());
    context.api.update(of, &object).await?;
    Ok(())
}

async fn remove(
    context: &Context,
    of: &Resource,
    object: &Object,
    finalizer: &str,
) -> Result<(), Error> {
    let mut object = object.clone();
    object
        .entry("metadata")
        .entry("finalizers")
        .make_list()
        .retain(|one| one.str() != finalizer);
    context.api.update(of, &object).await?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use mizzen_value::value;

    use super::*;

    #[test]
    fn an_object_is_protected_from_the_beginning_and_let_go_at_the_end() {
        let going = || value!({"deletionTimestamp": "2024-01-01T00:00:00Z", "finalizers": ["f"]});
        let check = |meta, finalizer, wanted| {
            assert_eq!(plan(&Object(value!({"metadata": meta})), finalizer), wanted)
        };
        check(value!({}), "f", Plan::Add);
        check(value!({"finalizers": ["f"]}), "f", Plan::Nothing);
        check(going(), "f", Plan::RemoveIfUnused);
        check(going(), "g", Plan::Nothing);
    }
}
