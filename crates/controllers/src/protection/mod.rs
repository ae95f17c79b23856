//! The protection controllers: a finalizer keeps an object while it is in use.

mod attributes_classes;
mod claims;
mod volumes;

pub(crate) use attributes_classes::start as start_attributes_classes;
pub(crate) use claims::start as start_claims;
pub(crate) use volumes::start as start_volumes;

use mizzen_sdk::{Object, ResourceType};

use crate::{ControllerContext, Error};

/// What to do with an object's finalizer.
#[derive(Debug, PartialEq, Eq)]
enum FinalizerPlan {
    Nothing,
    Add,
    RemoveIfUnused,
}

fn plan(object: &Object, finalizer: &str) -> FinalizerPlan {
    match (object.is_terminating(), object.has_finalizer(finalizer)) {
        (false, false) => FinalizerPlan::Add,
        (true, true) => FinalizerPlan::RemoveIfUnused,
        _ => FinalizerPlan::Nothing,
    }
}

async fn add_finalizer(
    context: &ControllerContext,
    of: &ResourceType,
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

async fn remove_finalizer(
    context: &ControllerContext,
    of: &ResourceType,
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
    fn the_finalizer_is_added_at_once_and_removed_when_unused() {
        let going = || value!({"deletionTimestamp": "2024-01-01T00:00:00Z", "finalizers": ["f"]});
        let check = |meta, finalizer, wanted| {
            assert_eq!(plan(&Object(value!({"metadata": meta})), finalizer), wanted)
        };
        check(value!({}), "f", FinalizerPlan::Add);
        check(value!({"finalizers": ["f"]}), "f", FinalizerPlan::Nothing);
        check(going(), "f", FinalizerPlan::RemoveIfUnused);
        check(going(), "g", FinalizerPlan::Nothing);
    }
}
