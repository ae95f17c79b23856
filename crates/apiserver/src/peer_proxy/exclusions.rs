//! The versions of groups that no peer is asked for: those of CustomResourceDefinitions and of aggregated API servers.
//!
//! Definitions and APIServices are in the store that all servers share, and the discovery of a peer is not fetched again when
//! one is deleted. So what this server knows of them decides, and a deleted one is excluded for a while longer.
//!
//! Kubernetes: util/peerproxy/gv_exclusion_manager.go.

use std::collections::{HashMap, HashSet};
use std::time::Duration;

use mizzen_value::Str;
use tokio::time::Instant;

/// How long the version of a deleted definition stays excluded. Kubernetes: defaultExclusionGracePeriod.
const GRACE: Duration = Duration::from_secs(5 * 60);

/// A group and a version.
pub(super) type GroupVersion = (Str, Str);

/// The excluded versions.
#[derive(Default)]
pub(super) struct Exclusions {
    active: HashSet<GroupVersion>,
    /// When they were deleted.
    deleted: HashMap<GroupVersion, Instant>,
}

impl Exclusions {
    /// Sets the versions of all definitions and aggregated API servers, and returns whether the excluded ones are others
    /// now.
    pub(super) fn set_active(&mut self, active: HashSet<GroupVersion>, now: Instant) -> bool {
        let n_deleted = self.deleted.len();
        self.deleted
            .retain(|_, deleted| now.duration_since(*deleted) <= GRACE);
        let has_expired = self.deleted.len() < n_deleted;
        let gone: Vec<GroupVersion> = self.active.difference(&active).cloned().collect();
        let is_changed = has_expired || self.active != active;
        self.deleted
            .extend(gone.into_iter().map(|gone| (gone, now)));
        self.active = active;
        is_changed
    }

    pub(super) fn contains(&self, version: &GroupVersion) -> bool {
        self.active.contains(version) || self.deleted.contains_key(version)
    }

    /// When the next deleted version is no longer excluded.
    pub(super) fn next_expiry(&self) -> Option<Instant> {
        let first = self.deleted.values().min()?;
        Some(*first + GRACE + Duration::from_millis(1))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_deleted_version_is_excluded_for_five_minutes() {
        let version = |group: &str| (Str::from(group), Str::from("v1"));
        let mut exclusions = Exclusions::default();
        let start = Instant::now();
        assert!(exclusions.set_active([version("a"), version("b")].into(), start));
        assert!(!exclusions.set_active([version("a"), version("b")].into(), start));
        assert!(exclusions.set_active([version("b")].into(), start));
        assert!(exclusions.contains(&version("a")) && exclusions.contains(&version("b")));
        let expiry = exclusions.next_expiry().unwrap();
        assert!(!exclusions.set_active([version("b")].into(), start + GRACE));
        assert!(exclusions.contains(&version("a")));
        assert!(exclusions.set_active([version("b")].into(), expiry));
        assert!(!exclusions.contains(&version("a")) && exclusions.contains(&version("b")));
        assert_eq!(exclusions.next_expiry(), None);
    }
}
