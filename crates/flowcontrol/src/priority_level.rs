//! A priority level: its queue set behind a lock, and the wake-ups that release lingering seats.

use parking_lot::{Mutex, MutexGuard};
use std::sync::Arc;

use mizzen_value::Str;
use tokio::runtime::Handle;
use tokio::time::sleep_until;

use super::RejectReason;
use super::concurrency_allocation::AllocationItem;
use super::demand::SeatDemandStats;
use super::dropped_requests::DroppedRequestsTracker;
use super::entry::{ArrivingRequest, RequestKey};
use super::flow_schema_counts::FlowSchemaCounts;
use super::flow_ticket;
use super::level::{LimitResponse, PriorityLevelConfiguration, SeatLimits};
use super::queue_set::QueueSet;
use super::seat_lease::{SeatLease, Wait};
use super::server_concurrency::{Phase, RequestClass, ServerConcurrency};
use super::work_estimate::Nanos;

/// A priority level.
pub(super) struct PriorityLevel {
    pub name: Str,
    pub server: Arc<ServerConcurrency>,
    state: Mutex<PriorityLevelState>,
}

/// The mutable state of a level.
pub(super) struct PriorityLevelState {
    pub level: PriorityLevelConfiguration,
    pub seats: SeatLimits,
    pub queues: QueueSet,
    /// Statistics of its seat demand.
    pub demand_stats: SeatDemandStats,
    /// Its target at the last adjustment of borrowing.
    pub target: f64,
    /// Whether the level is no longer configured. It is removed once it is idle.
    pub is_quiescing: bool,
    retry: DroppedRequestsTracker,
    /// When the next wake-up releases lingering seats, if one is scheduled.
    wakeup_at: Option<Nanos>,
}

impl PriorityLevelState {
    /// The requests that may wait, and the nominal seats.
    pub(super) fn size(&self) -> (usize, usize) {
        (self.level.response.max_waiting(), self.seats.nominal)
    }
}

impl PriorityLevel {
    /// Starts with the nominal seats, less half of what may be lent.
    pub(super) fn new(
        server: Arc<ServerConcurrency>,
        level: PriorityLevelConfiguration,
        seats: SeatLimits,
    ) -> PriorityLevel {
        let limit = seats.nominal - (seats.nominal - seats.lower) / 2;
        let queues = QueueSet::new(
            server.now(),
            level.response,
            limit,
            server.unlimited_scale(),
        );
        let state = PriorityLevelState {
            level: level.clone(),
            seats,
            queues,
            demand_stats: SeatDemandStats::default(),
            target: 0.0,
            is_quiescing: false,
            retry: DroppedRequestsTracker::default(),
            wakeup_at: None,
        };
        PriorityLevel {
            name: level.name,
            server,
            state: Mutex::new(state),
        }
    }

    /// Calls `look` with the state as of now.
    pub(super) fn inspect<T>(&self, look: impl FnOnce(&mut PriorityLevelState) -> T) -> T {
        let (mut state, now) = self.lock_now();
        state.queues.settle(now);
        look(&mut state)
    }

    /// Applies another configuration. The limit is adjusted later by [`PriorityLevel::set_limit`].
    pub(super) fn configure(
        &self,
        level: PriorityLevelConfiguration,
        seats: SeatLimits,
        is_quiescing: bool,
    ) {
        let (mut state, now) = self.lock_now();
        let limit = state.queues.limit();
        state.queues.configure(now, level.response, limit);
        (state.level, state.seats, state.is_quiescing) = (level, seats, is_quiescing);
    }

    /// The input of concurrency allocation.
    pub(super) fn allocation_item(&self) -> AllocationItem {
        let (mut state, now) = self.lock_now();
        let PriorityLevelState {
            queues,
            demand_stats: seen,
            ..
        } = &mut *state;
        queues.settle(now);
        queues.demand.reset_into(now, seen);
        let SeatLimits {
            nominal,
            lower,
            upper,
            ..
        } = state.seats;
        let is_exempt = state.level.response == LimitResponse::Exempt;
        let part = AllocationItem {
            is_exempt,
            nominal,
            lower,
            upper,
            demand: state.demand_stats,
        };
        state.target = part.target();
        part
    }

    pub(super) fn set_limit(&self, seats: usize) {
        let (mut state, now) = self.lock_now();
        let shape = state.level.response;
        state.queues.configure(now, shape, seats);
    }

    /// The index of the counts of a flow schema.
    pub(super) fn counts_index(&self, schema: &Str) -> usize {
        let (mut state, _) = self.lock_now();
        let schema_counts = &mut state.queues.schema_counts;
        schema_counts
            .iter()
            .position(|counts| counts.schema == *schema)
            .unwrap_or_else(|| {
                schema_counts.push(FlowSchemaCounts::new(schema.clone()));
                schema_counts.len() - 1
            })
    }

    /// Admits or rejects a request. An admitted one may have to wait for its seats.
    pub(super) fn admit(
        self: &Arc<PriorityLevel>,
        arriving: ArrivingRequest,
    ) -> Result<(SeatLease, Option<Wait>), RejectReason> {
        let (mut state, now) = self.lock_now();
        let is_write = !flow_ticket::is_read(arriving.digest.info.verb());
        let key = state.queues.start_request(now, arriving)?;
        let wait = state.queues.wait_receiver(key);
        let phase = if wait.is_some() {
            Phase::Waiting
        } else {
            Phase::Executing
        };
        let class = RequestClass { phase, is_write };
        self.server.add_request(class, now);
        self.schedule_wakeup(&mut state);
        Ok((SeatLease::new(self.clone(), key, class), wait))
    }

    /// Counts a request that has waited as executing.
    pub(super) fn start_executing(&self, waited: RequestClass) -> RequestClass {
        let (now, going) = (
            self.server.now(),
            RequestClass {
                phase: Phase::Executing,
                ..waited
            },
        );
        self.server.remove_request(waited, now);
        self.server.add_request(going, now);
        going
    }

    /// Removes a request whose wait timed out. Returns false if it was dispatched meanwhile.
    pub(super) fn time_out(&self, key: RequestKey, class: RequestClass) -> bool {
        let (mut state, now) = self.lock_now();
        let is_gone = state.queues.cancel(now, key);
        if is_gone {
            self.server.remove_request(class, now);
        }
        is_gone
    }

    /// Releases the seats of a request that is finished or whose client is gone.
    pub(super) fn finish(self: &Arc<PriorityLevel>, key: RequestKey, class: RequestClass) {
        let (mut state, now) = self.lock_now();
        state.queues.finish(now, key);
        self.server.remove_request(class, now);
        self.schedule_wakeup(&mut state);
    }

    /// Records a dropped request. Returns the `Retry-After` in seconds.
    pub(super) fn retry_after(&self) -> u64 {
        let (mut state, now) = self.lock_now();
        state.retry.record_dropped(now / 1_000_000_000)
    }

    fn lock_now(&self) -> (MutexGuard<'_, PriorityLevelState>, Nanos) {
        let state = self.state.lock();
        // Read under the lock, so that time does not go backwards.
        (state, self.server.now())
    }

    /// Schedules a wake-up for the time when lingering seats are released, if requests wait for
    /// them.
    fn schedule_wakeup(self: &Arc<PriorityLevel>, state: &mut PriorityLevelState) {
        let Some(at) = state.queues.next_wakeup() else {
            return;
        };
        if state.wakeup_at.is_some_and(|minded| minded <= at) {
            return;
        }
        // Without a runtime no request can be waiting.
        let Ok(runtime) = Handle::try_current() else {
            return;
        };
        state.wakeup_at = Some(at);
        runtime.spawn(self.clone().run_wakeups(at));
    }

    async fn run_wakeups(self: Arc<PriorityLevel>, mut at: Nanos) {
        loop {
            sleep_until(self.server.instant_at(at)).await;
            // An earlier wake-up may have been scheduled meanwhile, which then continues the chain.
            let next = self.inspect(|state| {
                (state.wakeup_at == Some(at)).then(|| {
                    state.wakeup_at = state.queues.next_wakeup();
                    state.wakeup_at
                })
            });
            match next.flatten() {
                Some(next) => at = next,
                None => return,
            }
        }
    }
}
