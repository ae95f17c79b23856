//! Which DaemonSets does an event of a ControllerRevision wake?
//!
//! Kubernetes: a new revision that has a controller wakes nothing, for that controller made it; a change or a deletion does
//! (daemon_controller.go: addHistory, updateHistory, deleteHistory). StatefulSets hear of no revision at all.

use mizzen_object::select::LabelSelector;
use mizzen_sdk::cache::{Entry, Lister};
use mizzen_sdk::informer::{Event, Informer};
use mizzen_sdk::queue::Queue;
use mizzen_sdk::resource::DAEMON_SETS;
use mizzen_sdk::{Key, Object};
use mizzen_value::Value;

/// Enqueues the DaemonSets that an event concerns.
pub(super) fn handle(revisions: &Informer<Object>, sets: &Informer<Object>, queue: &Queue<Key>) {
    let (sets, queue) = (sets.lister(), queue.clone());
    revisions.add_handler(move |event: Event<Object>| {
        concerned(&event, &sets)
            .into_iter()
            .for_each(|key| queue.add(key));
    });
}

fn concerned(event: &Event<Object>, sets: &Lister<Object>) -> Vec<Key> {
    match event {
        Event::Added { object, .. } => {
            read(object).map_or_else(Vec::new, |revision| added(&revision, sets))
        }
        Event::Updated { old, new } if old.version() == new.version() => Vec::new(),
        Event::Updated { old, new } => {
            let both = read(old).zip(read(new));
            both.map_or_else(Vec::new, |(old, new)| updated(&old, &new, sets))
        }
        Event::Deleted { last, .. } => {
            read(last).map_or_else(Vec::new, |revision| deleted(&revision, sets))
        }
    }
}

fn read(entry: &Entry<Object>) -> Option<std::sync::Arc<Object>> {
    entry.object().ok()
}

fn added(revision: &Object, sets: &Lister<Object>) -> Vec<Key> {
    if revision.is_going() {
        return deleted(revision, sets);
    }
    match revision.controller() {
        Some(_) => Vec::new(),
        None => selecting(revision, sets),
    }
}

fn updated(old: &Object, new: &Object, sets: &Lister<Object>) -> Vec<Key> {
    let is_moved = old.controller() != new.controller();
    let mut keys = Vec::new();
    if is_moved {
        keys.extend(
            old.controller()
                .and_then(|reference| resolve(old, reference, sets)),
        );
    }
    match new.controller() {
        Some(reference) => keys.extend(resolve(new, reference, sets)),
        None if is_moved || old["metadata"]["labels"] != new["metadata"]["labels"] => {
            keys.extend(selecting(new, sets));
        }
        None => {}
    }
    keys
}

fn deleted(revision: &Object, sets: &Lister<Object>) -> Vec<Key> {
    revision
        .controller()
        .and_then(|reference| resolve(revision, reference, sets))
        .into_iter()
        .collect()
}

/// The DaemonSet that a reference names, if there is one of that uid.
fn resolve(revision: &Object, reference: &Value, sets: &Lister<Object>) -> Option<Key> {
    if reference["kind"].str() != DAEMON_SETS.kind {
        return None;
    }
    let key = Key::new(revision.namespace(), reference["name"].str());
    let set = sets.by_key(&key).ok()??;
    (set.uid() == reference["uid"].str()).then_some(key)
}

/// The DaemonSets that could adopt an orphan.
fn selecting(revision: &Object, sets: &Lister<Object>) -> Vec<Key> {
    let sets = sets
        .namespaced(revision.namespace())
        .list()
        .unwrap_or_default();
    let selects = |set: &Object| {
        let selector = LabelSelector::of(&set["spec"]["selector"]);
        selector.is_some_and(|selector| {
            !selector.is_empty() && selector.matches(|label| revision.label(label))
        })
    };
    sets.iter()
        .filter(|set| selects(set))
        .map(|set| set.key())
        .collect()
}

#[cfg(test)]
mod tests {
    use mizzen_sdk::cache::Store;

    use super::*;

    fn entry(text: &str) -> Entry<Object> {
        Entry::new(text.as_bytes()).expect("JSON")
    }

    /// A revision of `a` with a version, a label `app` and perhaps a controller, as `Kind/name/uid`.
    fn revision(version: u32, app: &str, owner: &str, more: &str) -> Entry<Object> {
        let owners = match *owner.split('/').collect::<Vec<_>>() {
            [kind, name, uid] => {
                format!(r#"{{"kind":"{kind}","name":"{name}","uid":"{uid}","controller":true}}"#)
            }
            _ => String::new(),
        };
        entry(&format!(
            r#"{{"metadata":{{"name":"r","namespace":"a","resourceVersion":"{version}","labels":{{"app":"{app}"}},"ownerReferences":[{owners}]{more}}}}}"#
        ))
    }

    #[track_caller]
    fn check(event: Event<Object>, expected: &[&str]) {
        let store = Store::new();
        for (namespace, name) in [("a", "web"), ("a", "db"), ("b", "web")] {
            let selector = format!(r#"{{"matchLabels":{{"app":"{name}"}}}}"#);
            store.insert(entry(&format!(
                r#"{{"metadata":{{"namespace":"{namespace}","name":"{name}","uid":"{namespace}-{name}"}},"spec":{{"selector":{selector}}}}}"#
            )));
        }
        let keys = concerned(&event, &Lister::new(store));
        assert_eq!(
            keys.iter().map(Key::to_string).collect::<Vec<_>>(),
            expected
        );
    }

    const WEB: &str = "DaemonSet/web/a-web";
    const DB: &str = "DaemonSet/db/a-db";

    #[test]
    fn a_new_revision_wakes_a_set_only_if_it_is_an_orphan_or_going() {
        let added = |owner: &str, more: &str| Event::Added {
            object: revision(1, "web", owner, more),
            initial: false,
        };
        check(added(WEB, ""), &[]);
        check(added("", ""), &["a/web"]);
        let going = r#","deletionTimestamp":"2024-01-01T00:00:00Z""#;
        check(added(WEB, going), &["a/web"]);
        check(added("", going), &[]);
    }

    #[test]
    fn a_change_wakes_who_has_it_and_who_had_it() {
        let updated = |old: Entry<Object>, new: Entry<Object>| Event::Updated { old, new };
        check(
            updated(revision(1, "web", WEB, ""), revision(2, "web", WEB, "")),
            &["a/web"],
        );
        check(
            updated(revision(1, "web", WEB, ""), revision(1, "web", WEB, "")),
            &[],
        );
        check(
            updated(revision(1, "web", WEB, ""), revision(2, "web", DB, "")),
            &["a/web", "a/db"],
        );
        check(
            updated(revision(1, "db", WEB, ""), revision(2, "db", "", "")),
            &["a/web", "a/db"],
        );
    }

    #[test]
    fn a_change_of_an_orphan_counts_if_its_labels_change() {
        let updated = |old: &str, new: &str| Event::Updated {
            old: revision(1, old, "", ""),
            new: revision(2, new, "", ""),
        };
        check(updated("web", "web"), &[]);
        check(updated("none", "db"), &["a/db"]);
    }

    #[test]
    fn a_reference_must_name_the_set_that_is_there() {
        let deleted = |owner: &str| Event::Deleted {
            last: revision(1, "web", owner, ""),
            unseen: false,
        };
        check(deleted(WEB), &["a/web"]);
        check(deleted("DaemonSet/web/another"), &[]);
        check(deleted("StatefulSet/web/a-web"), &[]);
        check(deleted(""), &[]);
    }
}
