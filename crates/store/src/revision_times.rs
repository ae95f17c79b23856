//! When was a revision the latest? The store reads no clock: the caller passes the time.

use std::collections::VecDeque;

use crate::Revision;

/// Which revision was the latest at which second, oldest first.
#[derive(Debug, Default)]
pub(crate) struct RevisionTimes(VecDeque<(u64, Revision)>);

impl RevisionTimes {
    /// Notes that `revision` is the latest at second `now`. Returns the latest of which it was noted at least `age`
    /// seconds ago; each only once.
    pub(crate) fn note(&mut self, now: u64, revision: Revision, age: u64) -> Option<Revision> {
        self.0.push_back((now, revision));
        let n_old = self
            .0
            .partition_point(|(noted, _)| noted.saturating_add(age) <= now);
        self.0
            .drain(..n_old)
            .next_back()
            .map(|(_, revision)| revision)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_revision_is_old_once_its_age_has_passed() {
        let mut ages = RevisionTimes::default();
        let mut note = |now, revision| ages.note(now, Revision(revision), 75).map(|old| old.0);
        assert_eq!(
            [note(100, 1), note(110, 2), note(174, 3)],
            [None, None, None]
        );
        assert_eq!(
            [note(175, 3), note(176, 3), note(400, 4)],
            [Some(1), None, Some(3)]
        );
    }
}
