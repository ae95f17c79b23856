//! One pod that waits.

use std::cmp::Reverse;
use std::sync::Arc;

use mizzen_value::Str;
use tokio::time::Instant;

use crate::model::Pod;
use crate::plugin::{Name, Names};

/// Where a pod waits.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Place {
    /// To be tried now.
    Active,
    /// Until then, or until nobody else wants to be tried.
    BackingOff(Instant),
    /// Until then.
    Erring(Instant),
    /// Until something happens.
    Unschedulable,
}

/// The order in which pods are tried: by priority, then by time.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Rank {
    priority: Reverse<i32>,
    since: Instant,
    sequence: u64,
    pub uid: Str,
}

/// A pod that waits, and its history.
#[derive(Debug)]
pub(crate) struct Waiting {
    pub pod: Arc<Pod>,
    pub(super) place: Place,
    /// Since when it waits.
    pub(super) since: Instant,
    /// When it was tried though nothing happened.
    pub(super) flushed: Instant,
    sequence: u64,
    /// How often it was tried.
    pub attempts: u32,
    /// When it was tried first.
    pub first_attempt: Option<Instant>,
    pub(super) n_failures: u32,
    /// Of late, one after the other.
    pub(super) n_errors: u32,
    /// Who rejected it the last time.
    pub rejectors: Names,
    /// Who does not let it be tried.
    pub(super) gate: Option<Name>,
    /// Whether pods are on their way out for it.
    pub(super) is_held: bool,
    /// Whether something happened meanwhile that may help it.
    pub(super) was_helped: bool,
}

impl Waiting {
    pub(super) fn new(pod: Arc<Pod>, now: Instant, sequence: u64) -> Waiting {
        Waiting {
            pod,
            place: Place::Active,
            since: now,
            flushed: now,
            sequence,
            attempts: 0,
            first_attempt: None,
            n_failures: 0,
            n_errors: 0,
            rejectors: Names::default(),
            gate: None,
            is_held: false,
            was_helped: false,
        }
    }

    pub(super) fn rank(&self) -> Rank {
        Rank {
            priority: Reverse(self.pod.priority),
            since: self.since,
            sequence: self.sequence,
            uid: self.pod.uid.clone(),
        }
    }
}
