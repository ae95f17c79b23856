//! VolumeAttributesClass protection: the finalizer stays while a claim or volume uses the class.

use std::sync::Arc;

use mizzen_sdk::cache::Entry;
use mizzen_sdk::controller::Context;
use mizzen_sdk::informer::{Event, Informer};
use mizzen_sdk::queue::Queue;
use mizzen_sdk::resource::{
    PERSISTENT_VOLUME_CLAIMS, PERSISTENT_VOLUMES, VOLUME_ATTRIBUTES_CLASSES,
};
use mizzen_sdk::{Key, Object};
use mizzen_value::Value;

use super::FinalizerPlan;
use crate::{Action, Controller, ControllerContext, Error, Reconcile};

const FINALIZER: &str = "kubernetes.io/vac-protection";
/// The index of claims and volumes by class.
const CLASS: &str = "attributes class";

struct VacProtection {
    context: ControllerContext,
    classes: Informer<Object>,
    users: [Informer<Object>; 2],
}

pub(crate) fn start(context: &ControllerContext) -> Controller {
    let context = context.named("volumeattributesclass-protection-controller");
    let kinds = [&PERSISTENT_VOLUME_CLAIMS, &PERSISTENT_VOLUMES];
    let users = kinds.map(|kind| context.informer(kind));
    let classes_of = |entry: &Entry<Object>| {
        let object = entry.object();
        object
            .map(|object| class_names(&object))
            .unwrap_or_default()
    };
    // The object may not use the classes of its last state any more.
    let on_user_event = move |event: &Event<Object>, queue: &Queue<Key>| {
        if let Event::Updated { old: last, .. } | Event::Deleted { last, .. } = event {
            let names = classes_of(last).into_iter();
            names.for_each(|name| queue.add(Key::cluster(name)));
        }
    };
    for informer in &users {
        informer.add_index(CLASS, Arc::new(classes_of));
    }
    Controller::for_kind(&context, &VOLUME_ATTRIBUTES_CLASSES)
        .watches_events(&PERSISTENT_VOLUME_CLAIMS, on_user_event)
        .watches_events(&PERSISTENT_VOLUMES, on_user_event)
        .queue_name("vacprotection")
        .reconcile(VacProtection {
            classes: context.informer(&VOLUME_ATTRIBUTES_CLASSES),
            context,
            users,
        })
}

/// The classes of a claim or volume: wanted, current and target.
fn class_names(object: &Value) -> Vec<String> {
    let wanted = &object["spec"]["volumeAttributesClassName"];
    let status = &object["status"];
    let next = &status["modifyVolumeStatus"]["targetVolumeAttributesClassName"];
    let names = [wanted, &status["currentVolumeAttributesClassName"], next];
    names
        .iter()
        .map(|name| name.str().to_string())
        .filter(|name| !name.is_empty())
        .collect()
}

impl Reconcile for VacProtection {
    async fn reconcile(&self, key: &Key, _: &Context) -> Result<Action, Error> {
        let Some(class) = self.classes.lister().by_key(key)? else {
            return Ok(Action::done());
        };
        let has_users = |users: &Informer<Object>| {
            users
                .store()
                .by_index(CLASS, key.name())
                .is_some_and(|users| !users.is_empty())
        };
        match super::plan(&class, FINALIZER) {
            FinalizerPlan::Add => {
                super::add_finalizer(&self.context, &VOLUME_ATTRIBUTES_CLASSES, &class, FINALIZER)
                    .await?
            }
            FinalizerPlan::RemoveIfUnused if !self.users.iter().any(has_users) => {
                super::remove_finalizer(
                    &self.context,
                    &VOLUME_ATTRIBUTES_CLASSES,
                    &class,
                    FINALIZER,
                )
                .await?;
            }
            _ => (),
        }
        Ok(Action::done())
    }
}

#[cfg(test)]
mod tests {
    use mizzen_value::value;

    use super::*;

    #[test]
    fn every_class_that_is_named_is_used() {
        let claim = value!({
            "spec": {"volumeAttributesClassName": "gold"},
            "status": {"currentVolumeAttributesClassName": "silver", "modifyVolumeStatus": {"targetVolumeAttributesClassName": "gold"}},
        });
        assert_eq!(class_names(&claim), ["gold", "silver", "gold"]);
        assert!(class_names(&value!({"spec": {"volumeAttributesClassName": ""}})).is_empty());
    }
}
