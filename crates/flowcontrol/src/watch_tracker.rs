//! The watch tracker: how many watches a write notifies.

use parking_lot::Mutex;
use std::collections::HashMap;
use std::sync::Arc;

use mizzen_object::select::FieldSelector;
use mizzen_value::Str;

use mizzen_request::ResourceAttributes;

/// All watches, by what they watch.
#[derive(Clone, Default)]
pub(super) struct WatchTracker(Arc<Mutex<HashMap<WatchIdentifier, usize>>>);

/// What a watch selects. An empty namespace or name selects all.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
struct WatchIdentifier {
    group: Str,
    resource: Str,
    namespace: Str,
    name: Str,
}

/// A registered watch, until it is dropped.
pub(crate) struct WatchRegistration {
    watchers: WatchTracker,
    watched: WatchIdentifier,
}

impl WatchTracker {
    /// Registers a watch. Kubernetes: watches of the pods of one node are not counted, for they get
    /// few events (flowcontrol/watch_tracker.go).
    pub(super) fn register(&self, target: &ResourceAttributes) -> Option<WatchRegistration> {
        let selects_one_node = || {
            let fields = FieldSelector::parse(target.fields).unwrap_or_default();
            fields
                .exact("spec.nodeName")
                .is_some_and(|node| !node.is_empty())
        };
        if target.resource == "pods" && selects_one_node() {
            return None;
        }
        let watched = identify_watch(target, target.namespace, target.name);
        self.with_counts(|counts| *counts.entry(watched.clone()).or_default() += 1);
        Some(WatchRegistration {
            watchers: self.clone(),
            watched,
        })
    }

    /// How many watches a write notifies.
    pub(super) fn count(&self, target: &ResourceAttributes) -> usize {
        let all = identify_watch(target, "", "");
        self.with_counts(|counts| {
            let count = |watched| counts.get(&watched).copied().unwrap_or_default();
            if counts.is_empty() {
                return 0;
            }
            let inside = if target.namespace.is_empty() {
                0
            } else {
                count(identify_watch(target, target.namespace, ""))
            };
            let itself = if target.name.is_empty() {
                0
            } else {
                count(identify_watch(target, target.namespace, target.name))
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

fn identify_watch(target: &ResourceAttributes, namespace: &str, name: &str) -> WatchIdentifier {
    WatchIdentifier {
        group: target.group.into(),
        resource: target.resource.into(),
        namespace: namespace.into(),
        name: name.into(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pods(namespace: &'static str, name: &'static str) -> ResourceAttributes<'static> {
        ResourceAttributes {
            resource: "pods",
            namespace,
            name,
            ..ResourceAttributes::default()
        }
    }

    #[test]
    fn a_write_notifies_watches_of_all_of_its_namespace_and_of_itself() {
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
            watchers.count(&ResourceAttributes {
                resource: "nodes",
                ..ResourceAttributes::default()
            }),
            0
        );
        drop(watching);
        assert_eq!(watchers.count(&pods("a", "x")), 0);
    }

    #[test]
    fn watches_of_the_pods_of_a_node_are_not_counted() {
        let watchers = WatchTracker::default();
        let _one = watchers.register(&ResourceAttributes {
            fields: "spec.nodeName=n1",
            ..pods("", "")
        });
        let _other = watchers.register(&ResourceAttributes {
            fields: "spec.nodeName!=n1",
            ..pods("", "")
        });
        assert_eq!(watchers.count(&pods("a", "x")), 1);
    }
}
