//! Revisions: one per change, and larger than all that a client had seen before.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;

use crate::{EventKind, Freshness, History, Outcome, Scope, Version, Violation};

/// What is known to have been changed by which revision, from all responses and events.
#[derive(Debug, Default)]
pub(crate) struct Changes<'a> {
    by_revision: BTreeMap<u64, Change<'a>>,
    by_key: BTreeMap<&'a str, BTreeMap<u64, Option<&'a str>>>,
}

/// A put of a value, or a delete.
pub(crate) type Change<'a> = (&'a str, Option<&'a str>);

impl<'a> Changes<'a> {
    pub(crate) fn collect(history: &'a History, violations: &mut Vec<Violation>) -> Changes<'a> {
        let mut changes = Changes::default();
        let mut add = |revision, key: &'a str, value| {
            if let Err(problem) = changes.add(revision, key, value) {
                violations.push(Violation::Revision { revision, problem });
            }
        };
        for operation in &history.operations {
            match &operation.outcome {
                Outcome::Stored { revision } => {
                    add(*revision, &operation.key, operation.written());
                }
                Outcome::Found(version) => {
                    add(version.revision, &operation.key, Some(&version.value));
                }
                _ => {}
            }
        }
        for read in &history.reads {
            if let Some(Version { revision, value }) = &read.found {
                add(*revision, &read.key, Some(value));
            }
        }
        let lists = history.lists.iter().map(|list| &list.items);
        for items in lists.chain(history.watches.iter().map(|watch| &watch.items)) {
            for (key, Version { revision, value }) in items {
                add(*revision, key, Some(value));
            }
        }
        for watch in &history.watches {
            for event in &watch.events {
                let is_put = event.kind != EventKind::Deleted;
                // It may have another label, and be there.
                if !is_put && matches!(watch.scope, Scope::Label(_)) {
                    continue;
                }
                let value = is_put.then_some(event.version.value.as_str());
                add(event.version.revision, &event.key, value);
            }
        }
        changes
    }

    fn add(&mut self, revision: u64, key: &'a str, value: Option<&'a str>) -> Result<(), String> {
        match self.by_revision.entry(revision) {
            Entry::Vacant(entry) => drop(entry.insert((key, value))),
            Entry::Occupied(entry) if *entry.get() == (key, value) => {}
            Entry::Occupied(entry) => {
                return Err(format!("{:?} and {:?}", entry.get(), (key, value)));
            }
        }
        self.by_key.entry(key).or_default().insert(revision, value);
        Ok(())
    }

    /// The changes after `start`, up to and with `end`.
    pub(crate) fn between(&self, start: u64, end: u64) -> impl Iterator<Item = (u64, Change<'a>)> {
        let after = self.by_revision.range(start.saturating_add(1)..);
        after
            .take_while(move |(revision, _)| **revision <= end)
            .map(|(&revision, &change)| (revision, change))
    }

    /// The change of a revision, if it is known.
    pub(crate) fn at(&self, revision: u64) -> Option<Change<'a>> {
        self.by_revision.get(&revision).copied()
    }

    /// The last change of `key` that is known, up to and with `revision`.
    pub(crate) fn last(&self, key: &str, revision: u64) -> Option<(u64, Option<&'a str>)> {
        let changes = self.by_key.get(key)?;
        let (&revision, &value) = changes.range(..=revision).next_back()?;
        Some((revision, value))
    }
}

/// A revision that a client saw.
struct Sighting {
    called: u64,
    returned: u64,
    revision: u64,
    /// Whether the revision was new, and not only the latest.
    is_write: bool,
}

/// A write that began after a revision was seen has a larger one, and a read of the present has no smaller one.
pub(crate) fn check(history: &History, violations: &mut Vec<Violation>) {
    let writes = history.operations.iter().filter_map(|operation| {
        let Outcome::Stored { revision } = operation.outcome else {
            return None;
        };
        Some(Sighting {
            called: operation.called,
            returned: operation.returned,
            revision,
            is_write: true,
        })
    });
    let lists = history.lists.iter();
    let lists = lists.filter(|list| list.freshness == Freshness::MostRecent);
    let lists = lists.map(|list| Sighting {
        called: list.called,
        returned: list.returned,
        revision: list.revision,
        is_write: false,
    });
    let mut by_call: Vec<Sighting> = writes.chain(lists).collect();
    by_call.sort_by_key(|sighting| sighting.called);
    let mut by_return: Vec<(u64, u64)> = by_call
        .iter()
        .map(|sighting| (sighting.returned, sighting.revision))
        .collect();
    by_return.sort_unstable();
    let mut returns = by_return.into_iter().peekable();
    let mut latest = 0;
    for sighting in by_call {
        while let Some((_, revision)) = returns.next_if(|next| next.0 < sighting.called) {
            latest = latest.max(revision);
        }
        let is_behind = match sighting.is_write {
            true => sighting.revision <= latest,
            false => sighting.revision < latest,
        };
        if is_behind {
            violations.push(Violation::Revision {
                revision: sighting.revision,
                problem: format!("sent at {}, after {latest} was seen", sighting.called),
            });
        }
    }
}
