//! Which owners are known not to exist? A few are remembered, so that the thousand dependents of one owner do not all
//! ask for it.

use std::collections::{HashSet, VecDeque};

use super::name::Identity;

/// How many are remembered.
const LIMIT: usize = 500;

/// The owners that were found absent last.
#[derive(Debug, Default)]
pub(super) struct Absent {
    known: HashSet<Identity>,
    order: VecDeque<Identity>,
}

impl Absent {
    /// Remembers one, and forgets the oldest for it.
    pub(super) fn add(&mut self, identity: Identity) {
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

    /// Whether one is remembered.
    pub(super) fn has(&self, identity: &Identity) -> bool {
        self.known.contains(identity)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::garbage_collector::name::Names;

    #[test]
    fn the_oldest_is_forgotten() {
        let mut names = Names::default();
        let mut absent = Absent::default();
        let mut identity = |number: usize| Identity {
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
