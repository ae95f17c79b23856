//! The two limits without priority and fairness: concurrent reads and concurrent writes.

use std::sync::Arc;

use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use mizzen_object::User;

use super::flow_ticket;

/// Permits of reads and of writes. None where there is no limit.
pub(super) struct MaxInFlight {
    reads: Option<Arc<Semaphore>>,
    writes: Option<Arc<Semaphore>>,
}

impl MaxInFlight {
    /// Zero means no limit.
    pub(super) fn new(reads: usize, writes: usize) -> MaxInFlight {
        let limit = |seats: usize| {
            (seats > 0).then(|| Arc::new(Semaphore::new(seats.min(Semaphore::MAX_PERMITS))))
        };
        MaxInFlight {
            reads: limit(reads),
            writes: limit(writes),
        }
    }

    /// Acquires a permit. Members of `system:masters` are admitted without one.
    pub(super) fn acquire(
        &self,
        user: &User,
        verb: &str,
    ) -> Result<Option<OwnedSemaphorePermit>, NoPermit> {
        let Some(seats) = (if flow_ticket::is_read(verb) {
            &self.reads
        } else {
            &self.writes
        }) else {
            return Ok(None);
        };
        match seats.clone().try_acquire_owned() {
            Ok(seat) => Ok(Some(seat)),
            Err(_) if user.is_master() => Ok(None),
            Err(_) => Err(NoPermit),
        }
    }
}

/// All permits are in use.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct NoPermit;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_and_writes_have_limits_of_their_own() {
        let (inflight, ann) = (MaxInFlight::new(2, 1), User::component("ann"));
        let first = inflight.acquire(&ann, "get").unwrap();
        let second = inflight.acquire(&ann, "list").unwrap();
        assert_eq!(inflight.acquire(&ann, "get").err(), Some(NoPermit));
        assert!(
            inflight
                .acquire(&User::master("admin"), "get")
                .unwrap()
                .is_none(),
            "a master is let in anyway"
        );
        let write = inflight.acquire(&ann, "patch").unwrap();
        assert_eq!(inflight.acquire(&ann, "delete").err(), Some(NoPermit));
        drop((first, second, write));
        assert!(inflight.acquire(&ann, "get").unwrap().is_some());
        assert!(
            MaxInFlight::new(0, 0)
                .acquire(&ann, "get")
                .unwrap()
                .is_none()
        );
    }
}
