//! Event handlers that enqueue the controller of a dependent, or all possible adopters of an
//! orphan.

use std::sync::Arc;

use mizzen_object::select::LabelSelector;
use mizzen_sdk::cache::{Entry, Lister};
use mizzen_sdk::informer::{Event, Informer};
use mizzen_sdk::queue::Queue;
use mizzen_sdk::{Key, Object, Resource};

/// Enqueues the key of every object for which an event arrives.
pub(crate) fn enqueue_objects(objects: &Informer<Object>, queue: &Queue<Key>) {
    let queue = queue.clone();
    objects.add_handler(move |event: Event<Object>| queue.add(event.key().clone()));
}

/// Enqueues the owners of a kind for events of `dependents`.
pub(crate) fn enqueue_owners(
    dependents: &Informer<Object>,
    owners: &Informer<Object>,
    kind: &Resource,
    queue: &Queue<Key>,
) {
    let (owners, kind, queue) = (owners.lister(), kind.clone(), queue.clone());
    dependents.add_handler(move |event: Event<Object>| {
        owners_for_event(&event, &owners, &kind)
            .into_iter()
            .for_each(|key| queue.add(key));
    });
}

fn owners_for_event(event: &Event<Object>, owners: &Lister<Object>, kind: &Resource) -> Vec<Key> {
    match event {
        Event::Added { object, .. } => owner_keys(object, owners, kind),
        Event::Updated { old, new } => {
            let mut keys = owner_keys(new, owners, kind);
            keys.extend(controller(old, kind).filter(|key| !keys.contains(key)));
            keys
        }
        Event::Deleted { last, .. } => controller(last, kind).into_iter().collect(),
    }
}

fn owner_keys(object: &Entry<Object>, owners: &Lister<Object>, kind: &Resource) -> Vec<Key> {
    match object.object() {
        Ok(orphan) if orphan.controller().is_none() => adopters(&orphan, owners),
        _ => controller(object, kind).into_iter().collect(),
    }
}

/// The key of the controller if it is of this kind.
fn controller(entry: &Entry<Object>, kind: &Resource) -> Option<Key> {
    let object = entry.object().ok()?;
    let owner = object
        .controller()
        .filter(|owner| owner["kind"].str() == kind.kind)?;
    Some(Key::new(object.namespace(), owner["name"].str()))
}

/// The owners in an orphan's namespace that select it.
pub(crate) fn adopters(orphan: &Object, owners: &Lister<Object>) -> Vec<Key> {
    let selects = |owner: &&Arc<Object>| {
        let selector = LabelSelector::from_value(&owner["spec"]["selector"]);
        selector.is_some_and(|selector| {
            !selector.is_empty() && selector.matches(|label| orphan.label(label))
        })
    };
    let owners = owners.namespaced(orphan.namespace()).list();
    let owners = owners.unwrap_or_default();
    owners
        .iter()
        .filter(selects)
        .map(|owner| owner.key())
        .collect()
}

#[cfg(test)]
mod tests {
    use mizzen_sdk::cache::Store;
    use mizzen_sdk::resource::STATEFUL_SETS;

    use super::*;

    fn entry(text: &str) -> Entry<Object> {
        Entry::new(text.as_bytes()).expect("JSON")
    }

    /// A pod with labels that `web` of namespace `a` selects.
    fn pod(owner: &str) -> Entry<Object> {
        let owners = match owner.split_once('/') {
            None => String::new(),
            Some((kind, name)) => {
                format!(r#"{{"kind": "{kind}", "name": "{name}", "controller": true}}"#)
            }
        };
        entry(&format!(
            r#"{{"metadata": {{"name": "p", "namespace": "a", "labels": {{"app": "web"}}, "ownerReferences": [{owners}]}}}}"#
        ))
    }

    #[track_caller]
    fn check(event: Event<Object>, expect: &[&str]) {
        let store = Store::new();
        for (namespace, name, app) in [("a", "web", "web"), ("a", "db", "db"), ("b", "web", "web")]
        {
            let selector = format!(r#"{{"matchLabels": {{"app": "{app}"}}}}"#);
            let metadata = format!(r#"{{"namespace": "{namespace}", "name": "{name}"}}"#);
            store.insert(entry(&format!(
                r#"{{"metadata": {metadata}, "spec": {{"selector": {selector}}}}}"#
            )));
        }
        let keys = owners_for_event(&event, &Lister::new(store), &STATEFUL_SETS);
        assert_eq!(keys.iter().map(Key::to_string).collect::<Vec<_>>(), expect);
    }

    #[test]
    fn the_controller_is_enqueued() {
        check(
            Event::Added {
                object: pod("StatefulSet/x"),
                initial: false,
            },
            &["a/x"],
        );
        check(
            Event::Added {
                object: pod("DaemonSet/x"),
                initial: false,
            },
            &[],
        );
        check(
            Event::Deleted {
                last: pod("StatefulSet/x"),
                final_state_unknown: false,
            },
            &["a/x"],
        );
    }

    #[test]
    fn an_orphan_enqueues_its_adopters_unless_it_was_deleted() {
        check(
            Event::Added {
                object: pod(""),
                initial: false,
            },
            &["a/web"],
        );
        check(
            Event::Deleted {
                last: pod(""),
                final_state_unknown: false,
            },
            &[],
        );
    }

    #[test]
    fn the_previous_controller_is_enqueued_too() {
        check(
            Event::Updated {
                old: pod("StatefulSet/x"),
                new: pod("StatefulSet/y"),
            },
            &["a/y", "a/x"],
        );
        check(
            Event::Updated {
                old: pod("StatefulSet/x"),
                new: pod(""),
            },
            &["a/web", "a/x"],
        );
    }
}
