//! A class of volume attributes stays while a claim or volume names it.

use std::sync::Arc;

use mizzen_sdk::cache::{Entry, IndexFunction};
use mizzen_sdk::informer::{Event, Informer};
use mizzen_sdk::queue::Queue;
use mizzen_sdk::resource::{
    PERSISTENT_VOLUME_CLAIMS, PERSISTENT_VOLUMES, VOLUME_ATTRIBUTES_CLASSES,
};
use mizzen_sdk::{Key, Object};
use mizzen_value::Value;

use super::Plan;
use crate::{After, Context, Error, Reconcile, Work};

const FINALIZER: &str = "kubernetes.io/vac-protection";
/// Claims and volumes by the classes that they name.
const CLASS: &str = "attributes class";

struct Classes {
    context: Context,
    classes: Informer<Object>,
    users: [Informer<Object>; 2],
}

/// Sets up the loop.
pub(crate) fn start(context: &Context) -> Work {
    let context = context.named("volumeattributesclass-protection-controller");
    let queue = context.queue("vacprotection");
    let classes = context.follow(&VOLUME_ATTRIBUTES_CLASSES);
    let todo = queue.clone();
    classes.add_handler(move |event: Event<Object>| todo.add(event.key().clone()));
    let users = [
        context.follow(&PERSISTENT_VOLUME_CLAIMS),
        context.follow(&PERSISTENT_VOLUMES),
    ];
    for informer in &users {
        informer.add_index(CLASS, by_class());
        let todo = queue.clone();
        informer.add_handler(move |event: Event<Object>| user_changed(&event, &todo));
    }
    Work::new(
        queue,
        1,
        Arc::new(Classes {
            context,
            classes,
            users,
        }),
    )
}

/// The classes that an object named and may not name any more.
fn user_changed(event: &Event<Object>, todo: &Queue<Key>) {
    let (Event::Updated { old: last, .. } | Event::Deleted { last, .. }) = event else {
        return;
    };
    let names = last
        .object()
        .map(|object| names(&object))
        .unwrap_or_default();
    names
        .into_iter()
        .for_each(|name| todo.add(Key::cluster(name)));
}

fn by_class() -> IndexFunction<Object> {
    Arc::new(|entry: &Entry<Object>| {
        entry
            .object()
            .map(|object| names(&object))
            .unwrap_or_default()
    })
}

/// The classes that a claim or volume names: the one it wants, the one it has, the one on its way.
fn names(object: &Value) -> Vec<String> {
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

impl Reconcile for Classes {
    async fn reconcile(&self, key: &Key) -> Result<After, Error> {
        let Some(class) = self.classes.lister().by_key(key)? else {
            return Ok(After::Done);
        };
        let has_users = |users: &Informer<Object>| {
            users
                .store()
                .by_index(CLASS, key.name())
                .is_some_and(|users| !users.is_empty())
        };
        match super::plan(&class, FINALIZER) {
            Plan::Add => {
                super::add(&self.context, &VOLUME_ATTRIBUTES_CLASSES, &class, FINALIZER).await?
            }
            Plan::RemoveIfUnused if !self.users.iter().any(has_users) => {
                super::remove(&self.context, &VOLUME_ATTRIBUTES_CLASSES, &class, FINALIZER).await?;
            }
            _ => (),
        }
        Ok(After::Done)
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
        assert_eq!(names(&claim), ["gold", "silver", "gold"]);
        assert!(names(&value!({"spec": {"volumeAttributesClassName": ""}})).is_empty());
    }
}
