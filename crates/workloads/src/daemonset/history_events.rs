//! Enqueues DaemonSets for events of ControllerRevisions.
//!
//! Kubernetes: an added revision with a controller enqueues nothing, because that controller
//! created it; an update or a deletion does (daemon_controller.go: addHistory, updateHistory,
//! deleteHistory). StatefulSets handle no revision events.

use mizzen_sdk::cache::Store;
use mizzen_sdk::controller::objects_selecting;
use mizzen_sdk::informer::Event;
use mizzen_sdk::resource::DAEMON_SETS;
use mizzen_sdk::{Key, Object};

use super::selector;

/// The DaemonSets to enqueue for an event of a revision.
pub(super) fn daemon_sets_for_event(event: &Event<Object>, sets: &Store<Object>) -> Vec<Key> {
    let controller = |revision: &Object| {
        let reference = revision.controller()?;
        let key = Key::new(revision.namespace(), reference["name"].str());
        let set = sets.get(&key)?;
        let is_it =
            reference["kind"].str() == DAEMON_SETS.kind && set.uid() == reference["uid"].str();
        is_it.then_some(key)
    };
    let adopters = |orphan: &Object| -> Vec<Key> {
        let labels = orphan.labels();
        let sets = objects_selecting(sets, orphan.namespace(), &labels, selector);
        sets.iter().map(|set| set.key()).collect()
    };
    match event {
        Event::Added { object, .. } => match object.object() {
            Ok(revision) if revision.is_terminating() => {
                controller(&revision).into_iter().collect()
            }
            Ok(revision) if revision.controller().is_none() => adopters(&revision),
            _ => Vec::new(),
        },
        Event::Updated { old, new } if old.version() == new.version() => Vec::new(),
        Event::Updated { old, new } => {
            let (Ok(old), Ok(new)) = (old.object(), new.object()) else {
                return Vec::new();
            };
            let is_moved = old.controller() != new.controller();
            let mut keys: Vec<Key> = Vec::new();
            if is_moved {
                keys.extend(controller(&old));
            }
            if new.controller().is_some() {
                keys.extend(controller(&new));
            } else if is_moved || old["metadata"]["labels"] != new["metadata"]["labels"] {
                keys.extend(adopters(&new));
            }
            keys
        }
        Event::Deleted { last, .. } => match last.object() {
            Ok(revision) => controller(&revision).into_iter().collect(),
            Err(_) => Vec::new(),
        },
    }
}

#[cfg(test)]
mod tests {
    use mizzen_sdk::cache::Entry;
    use mizzen_sdk::controller::index_selectors;

    use super::*;

    fn entry(text: &str) -> Entry<Object> {
        Entry::new(text.as_bytes()).expect("JSON")
    }

    /// A revision of `a` with a version, a label `app` and perhaps a controller, as
    /// `Kind/name/uid`.
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
        index_selectors(&store, selector);
        for (namespace, name) in [("a", "web"), ("a", "db"), ("b", "web")] {
            let selector = format!(r#"{{"matchLabels":{{"app":"{name}"}}}}"#);
            store.insert(entry(&format!(
                r#"{{"metadata":{{"namespace":"{namespace}","name":"{name}","uid":"{namespace}-{name}"}},"spec":{{"selector":{selector}}}}}"#
            )));
        }
        let keys = daemon_sets_for_event(&event, &store);
        assert_eq!(
            keys.iter().map(Key::to_string).collect::<Vec<_>>(),
            expected
        );
    }

    const WEB: &str = "DaemonSet/web/a-web";
    const DB: &str = "DaemonSet/db/a-db";

    #[test]
    fn a_new_revision_enqueues_a_set_only_if_it_is_an_orphan_or_being_deleted() {
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
    fn an_update_enqueues_the_new_and_the_old_controller() {
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
    fn a_controller_reference_must_match_by_uid() {
        let deleted = |owner: &str| Event::Deleted {
            last: revision(1, "web", owner, ""),
            final_state_unknown: false,
        };
        check(deleted(WEB), &["a/web"]);
        check(deleted("DaemonSet/web/another"), &[]);
        check(deleted("StatefulSet/web/a-web"), &[]);
        check(deleted(""), &[]);
    }
}
