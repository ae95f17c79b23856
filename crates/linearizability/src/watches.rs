//! Watches: every change after the start, in the order of revisions, once.

use std::collections::{BTreeMap, BTreeSet};

use crate::revisions::Changes;
use crate::{EventKind, History, Outcome, Scope, Version, Violation, Watch};

/// Checks each watch.
pub(crate) fn check(history: &History, changes: &Changes<'_>, violations: &mut Vec<Violation>) {
    let writes = history.operations.iter();
    let carried_out =
        |outcome: &Outcome| matches!(outcome, Outcome::Stored { .. } | Outcome::Unknown);
    let written: BTreeSet<(&str, &str)> = writes
        .filter(|operation| carried_out(&operation.outcome))
        .filter_map(|operation| Some((&*operation.key, operation.written()?)))
        .collect();
    for watch in &history.watches {
        check_order(watch, &written, violations);
        check_scope(watch, changes, violations);
        check_complete(history, watch, changes, violations);
    }
}

/// Each event follows from the state before it.
fn check_order(watch: &Watch, written: &BTreeSet<(&str, &str)>, violations: &mut Vec<Violation>) {
    let mut state: BTreeMap<&str, &Version> = watch
        .items
        .iter()
        .map(|(key, version)| (&**key, version))
        .collect();
    let mut last = watch.start;
    for event in &watch.events {
        let (key, version) = (event.key.as_str(), &event.version);
        if version.revision <= last {
            violations.push(watch.violation(version.revision, format!("it came after {last}")));
        }
        last = last.max(version.revision);
        let before = state.get(key).copied();
        let follows = match event.kind {
            EventKind::Added => before.is_none(),
            EventKind::Modified => before.is_some(),
            EventKind::Deleted => before.is_some_and(|before| before.value == version.value),
        };
        if !follows {
            let problem = format!("{:?} of {key} after {before:?}", event.kind);
            violations.push(watch.violation(version.revision, problem));
        }
        match event.kind {
            EventKind::Deleted => drop(state.remove(key)),
            _ if written.contains(&(key, version.value.as_str())) => {
                state.insert(key, version);
            }
            _ => violations.push(watch.violation(
                version.revision,
                format!("no request wrote {:?} to {key}", version.value),
            )),
        }
    }
}

/// Each event is of an object in the scope, or of one that has just left it.
fn check_scope(watch: &Watch, changes: &Changes<'_>, violations: &mut Vec<Violation>) {
    for event in &watch.events {
        let (key, version) = (event.key.as_str(), &event.version);
        if !watch.scope.has(key, &version.value) {
            let problem = format!("{key} with {:?} is not in the scope", version.value);
            violations.push(watch.violation(version.revision, problem));
        }
        let stays = match changes.at(version.revision) {
            Some((_, Some(value))) => watch.scope.has(key, value),
            _ => false,
        };
        if event.kind == EventKind::Deleted && stays {
            let problem = format!("{key} was deleted, and is in the scope");
            violations.push(watch.violation(version.revision, problem));
        }
    }
}

/// Every known change in the scope is among the events, and the state at the end is that of any list of the same revision.
fn check_complete(
    history: &History,
    watch: &Watch,
    changes: &Changes<'_>,
    violations: &mut Vec<Violation>,
) {
    let delivered: BTreeSet<u64> = watch.events.iter().map(|it| it.version.revision).collect();
    let mut present: BTreeSet<&str> = watch.items.keys().map(String::as_str).collect();
    let mut events = watch.events.iter().peekable();
    for (revision, change) in changes.between(watch.start, watch.end) {
        while let Some(event) = events.next_if(|event| event.version.revision < revision) {
            match event.kind {
                EventKind::Deleted => present.remove(&*event.key),
                _ => present.insert(&event.key),
            };
        }
        // What leaves the scope was in it.
        let (key, value) = change;
        let is_due = watch.scope.has(key, value.unwrap_or_default()) || present.contains(key);
        if is_due && !delivered.contains(&revision) {
            violations.push(watch.violation(revision, format!("{change:?} was not delivered")));
        }
    }
    for list in &history.lists {
        if !(watch.start..=watch.end).contains(&list.revision) {
            continue;
        }
        let state = inside(&list.scope, watch.state_at(list.revision));
        let items = inside(&watch.scope, list.items.clone());
        if state != items {
            let problem = format!("the events lead to {state:?}, the list has {items:?}");
            violations.push(watch.violation(list.revision, problem));
        }
    }
}

/// The objects that are in a scope.
fn inside(scope: &Scope, mut objects: BTreeMap<String, Version>) -> BTreeMap<String, Version> {
    objects.retain(|key, version| scope.has(key, &version.value));
    objects
}

impl Watch {
    /// The state of the watcher when it has handled all events up to `revision`.
    fn state_at(&self, revision: u64) -> BTreeMap<String, Version> {
        let mut state = self.items.clone();
        for event in self
            .events
            .iter()
            .take_while(|it| it.version.revision <= revision)
        {
            match event.kind {
                EventKind::Deleted => drop(state.remove(&event.key)),
                _ => drop(state.insert(event.key.clone(), event.version.clone())),
            }
        }
        state
    }

    fn violation(&self, revision: u64, problem: String) -> Violation {
        Violation::Watch {
            watcher: self.watcher,
            start: self.start,
            revision,
            problem,
        }
    }
}
