//! Who will hear of a write? How many watch a collection, a namespace of it, or an object.

use parking_lot::Mutex;
use std::collections::HashMap;
use std::sync::Arc;

use mizzen_object::select::FieldSelector;
use mizzen_value::Str;

use crate::authorization::Resource;

/// All watches under way, by what they watch.
#[derive(Clone, Default)]
pub(super) struct WatchTracker(Arc<Mutex<HashMap<WatchIdentifier, usize>>>);

/// What somebody watches. A namespace or name that is empty stands for all.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
struct WatchIdentifier {
    group: Str,
    resource: Str,
    namespace: Str,
    name: Str,
}

/// A watch under way. It is forgotten when this is dropped.
pub(crate) struct WatchRegistration {
    watchers: WatchTracker,
    watched: WatchIdentifier,
}

impl WatchTracker {
    /// A watch begins. Kubernetes: those of the pods of one node hear of little, so they do not count
    /// (flowcontrol/watch_tracker.go).
    pub(super) fn register(&self, asked: &Resource) -> Option<WatchRegistration> {
        if asked.resource == "pods" && is_of_one_node(asked.fields) {
            return None;
        }
        let watched = identify_watch(asked, asked.namespace, asked.name);
        self.with_counts(|counts| *counts.entry(watched.clone()).or_default() += 1);
        Some(WatchRegistration {
            watchers: self.clone(),
            watched,
        })
    }

    /// How many watch what a write is about.
    pub(super) fn count(&self, asked: &Resource) -> usize {
        let all = identify_watch(asked, "", "");
        self.with_counts(|counts| {
            let count = |watched| counts.get(&watched).copied().unwrap_or_default();
            if counts.is_empty() {
                return 0;
            }
            let inside = if asked.namespace.is_empty() {
                0
            } else {
                count(identify_watch(asked, asked.namespace, ""))
            };
            let itself = if asked.name.is_empty() {
                0
            } else {
                count(identify_watch(asked, asked.namespace, asked.name))
            };
            count(all) + inside + itself
        })
    }

    fn with_counts<T>(&self, change: impl FnOnce(&mut HashMap<WatchIdentifier, usize>) -> T) -> T {
        change(&mut self.0.lock())
    }
}

impl Drop for WatchRegistration {
    fn drop(&mut self) {
        self.watchers.with_counts(|counts| {
            let Some(count) = counts.get_mut(&self.watched) else {
                return;
            };
            *count -= 1;
            if *count == 0 {
                counts.remove(&self.watched);
            }
        });
    }
}

fn identify_watch(asked: &Resource, namespace: &str, name: &str) -> WatchIdentifier {
    WatchIdentifier {
        group: asked.group.into(),
        resource: asked.resource.into(),
        namespace: namespace.into(),
        name: name.into(),
    }
}

fn is_of_one_node(fields: &str) -> bool {
    let fields = FieldSelector::parse(fields).unwrap_or_default();
    fields
        .exact("spec.nodeName")
        .is_some_and(|node| !node.is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pods(namespace: &'static str, name: &'static str) -> Resource<'static> {
        Resource {
            resource: "pods",
            namespace,
            name,
            ..Resource::default()
        }
    }

    #[test]
    fn a_write_is_heard_by_those_who_watch_all_its_namespace_or_itself() {
        let watchers = WatchTracker::default();
        let watched = [
            pods("", ""),
            pods("a", ""),
            pods("a", "x"),
            pods("a", "y"),
            pods("b", ""),
        ];
        let watching = watched.map(|watched| watchers.register(&watched));
        assert_eq!(watchers.count(&pods("a", "x")), 3);
        assert_eq!(
            watchers.count(&pods("a", "")),
            2,
            "whoever creates has no name yet"
        );
        assert_eq!(watchers.count(&pods("c", "x")), 1);
        assert_eq!(
            watchers.count(&Resource {
                resource: "nodes",
                ..Resource::default()
            }),
            0
        );
        drop(watching);
        assert_eq!(watchers.count(&pods("a", "x")), 0);
    }

    #[test]
    fn who_watches_the_pods_of_a_node_does_not_count() {
        let watchers = WatchTracker::default();
        let _one = watchers.register(&Resource {
            fields: "spec.nodeName=n1",
            ..pods("", "")
        });
        let _other = watchers.register(&Resource {
            fields: "spec.nodeName!=n1",
            ..pods("", "")
        });
        assert_eq!(watchers.count(&pods("a", "x")), 1);
    }
}
