//! The absent owner cache: owners that do not exist, so that the thousand dependents of one owner
//! do not all read it.

use std::collections::{HashSet, VecDeque};

use super::identity::ObjectIdentity;

/// The capacity.
const LIMIT: usize = 500;

/// The owners that were found absent last.
#[derive(Debug, Default)]
pub(super) struct AbsentOwnerCache {
    known: HashSet<ObjectIdentity>,
    order: VecDeque<ObjectIdentity>,
}

impl AbsentOwnerCache {
    /// Adds an owner; the oldest is dropped at the capacity.
    pub(super) fn add(&mut self, identity: ObjectIdentity) {
        if !self.known.insert(identity.clone()) {
            return;
        }
        self.order.push_back(identity);
        if self.order.len() > LIMIT
            && let Some(oldest) = self.order.pop_front()
        {
            self.known.remove(&oldest);
        }
    }

    pub(super) fn has(&self, identity: &ObjectIdentity) -> bool {
        self.known.contains(identity)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::garbage_collector::identity::InternedNames;

    #[test]
    fn the_oldest_entry_is_dropped() {
        let mut names = InternedNames::default();
        let mut absent = AbsentOwnerCache::default();
        let mut identity = |number: usize| ObjectIdentity {
            kind: names.kind("v1", "Pod"),
            namespace: names.namespace("a"),
            name: "web".into(),
            uid: number.to_string().as_str().into(),
        };
        (0..=LIMIT).for_each(|number| absent.add(identity(number)));
        absent.add(identity(1));
        assert!(
            !absent.has(&identity(0)) && absent.has(&identity(1)) && absent.has(&identity(LIMIT))
        );
        assert_eq!(absent.known.len(), LIMIT);
    }
}
