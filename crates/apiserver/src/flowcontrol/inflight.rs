//! Two plain limits instead of fairness: so many reads and so many writes at a time.

use std::sync::Arc;

use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use mizzen_object::User;

use super::turn;

/// Seats for reads and for writes. None where there is no limit.
pub(super) struct Inflight {
    reads: Option<Arc<Semaphore>>,
    writes: Option<Arc<Semaphore>>,
}

impl Inflight {
    /// Limits; nothing is no limit.
    pub(super) fn new(reads: usize, writes: usize) -> Inflight {
        let limit = |seats: usize| {
            (seats > 0).then(|| Arc::new(Semaphore::new(seats.min(Semaphore::MAX_PERMITS))))
        };
        Inflight {
            reads: limit(reads),
            writes: limit(writes),
        }
    }

    /// A seat, or the news that there is none. Who may do everything needs none.
    pub(super) fn enter(
        &self,
        user: &User,
        verb: &str,
    ) -> Result<Option<OwnedSemaphorePermit>, Full> {
        let Some(seats) = (if turn::is_read(verb) {
            &self.reads
        } else {
            &self.writes
        }) else {
            return Ok(None);
        };
        match seats.clone().try_acquire_owned() {
            Ok(seat) => Ok(Some(seat)),
            Err(_) if user.is_master() => Ok(None),
            Err(_) => Err(Full),
        }
    }
}

/// All seats are taken.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Full;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_and_writes_have_limits_of_their_own() {
        let (inflight, ann) = (Inflight::new(2, 1), User::component("ann"));
        let first = inflight.enter(&ann, "get").unwrap();
        let second = inflight.enter(&ann, "list").unwrap();
        assert_eq!(inflight.enter(&ann, "get").err(), Some(Full));
        assert!(
            inflight
                .enter(&User::master("admin"), "get")
                .unwrap()
                .is_none(),
            "a master is let in anyway"
        );
        let write = inflight.enter(&ann, "patch").unwrap();
        assert_eq!(inflight.enter(&ann, "delete").err(), Some(Full));
        drop((first, second, write));
        assert!(inflight.enter(&ann, "get").unwrap().is_some());
        assert!(Inflight::new(0, 0).enter(&ann, "get").unwrap().is_none());
    }
}
