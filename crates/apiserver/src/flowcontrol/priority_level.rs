//! A priority level at work: its queues behind a lock, and who is let in.

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

/// A priority level at work.
pub(super) struct PriorityLevel {
    /// The level's name.
    pub name: Str,
    pub server: Arc<ServerConcurrency>,
    state: Mutex<PriorityLevelState>,
}

/// What changes about it.
pub(super) struct PriorityLevelState {
    /// As it is configured.
    pub level: PriorityLevelConfiguration,
    pub seats: SeatLimits,
    pub queues: QueueSet,
    /// What it wanted lately.
    pub demand_stats: SeatDemandStats,
    /// What it should have had at the last look, if there had been enough.
    pub target: f64,
    /// Whether the level is no longer configured: it is used up.
    pub is_quiescing: bool,
    retry: DroppedRequestsTracker,
    /// When somebody will look whether seats are given back that were kept.
    wakeup_at: Option<Nanos>,
}

impl PriorityLevelState {
    /// How many requests may wait, and how many seats are its own.
    pub(super) fn size(&self) -> (usize, usize) {
        (self.level.response.max_waiting(), self.seats.nominal)
    }
}

impl PriorityLevel {
    /// A level that begins with what is its own, less half of what it may lend.
    pub(super) fn new(
        house: Arc<ServerConcurrency>,
        level: PriorityLevelConfiguration,
        seats: SeatLimits,
    ) -> PriorityLevel {
        let limit = seats.nominal - (seats.nominal - seats.lower) / 2;
        let queues = QueueSet::new(house.now(), level.response, limit, house.unlimited_scale());
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
            server: house,
            state: Mutex::new(state),
        }
    }

    /// Looks at everything as it is now.
    pub(super) fn inspect<T>(&self, look: impl FnOnce(&mut PriorityLevelState) -> T) -> T {
        let (mut state, now) = self.lock_now();
        state.queues.settle(now);
        look(&mut state)
    }

    /// Another configuration from now on. The seats of now follow from [`Room::give`].
    pub(super) fn configure(
        &self,
        level: PriorityLevelConfiguration,
        seats: SeatLimits,
        is_leftover: bool,
    ) {
        let (mut state, now) = self.lock_now();
        let limit = state.queues.limit();
        state.queues.configure(now, level.response, limit);
        (state.level, state.seats, state.is_quiescing) = (level, seats, is_leftover);
    }

    /// What it takes to say how many seats it should have.
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

    /// So many seats from now on.
    pub(super) fn set_limit(&self, seats: usize) {
        let (mut state, now) = self.lock_now();
        let shape = state.level.response;
        state.queues.configure(now, shape, seats);
    }

    /// The place in which the requests of a flow schema are counted.
    pub(super) fn counts_index(&self, schema: &Str) -> usize {
        let (mut state, _) = self.lock_now();
        let tallies = &mut state.queues.schema_counts;
        tallies
            .iter()
            .position(|tally| tally.schema == *schema)
            .unwrap_or_else(|| {
                tallies.push(FlowSchemaCounts::new(schema.clone()));
                tallies.len() - 1
            })
    }

    /// A request comes. It has a place from now on, and perhaps has to wait; or is turned away.
    pub(super) fn admit(
        self: &Arc<PriorityLevel>,
        newcomer: ArrivingRequest,
    ) -> Result<(SeatLease, Option<Wait>), RejectReason> {
        let (mut state, now) = self.lock_now();
        let is_write = !flow_ticket::is_read(newcomer.digest.info.verb());
        let key = state.queues.start_request(now, newcomer)?;
        let wait = state.queues.wait_receiver(key);
        let phase = if wait.is_some() {
            Phase::Waiting
        } else {
            Phase::Executing
        };
        let standing = RequestClass { phase, is_write };
        self.server.add_request(standing, now);
        self.schedule_wakeup(&mut state);
        Ok((SeatLease::new(self.clone(), key, standing), wait))
    }

    /// A request that waited goes.
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

    /// A request has waited long enough. Returns whether it is gone: it may have been let in this very moment.
    pub(super) fn time_out(&self, key: RequestKey, standing: RequestClass) -> bool {
        let (mut state, now) = self.lock_now();
        let is_gone = state.queues.cancel(now, key);
        if is_gone {
            self.server.remove_request(standing, now);
        }
        is_gone
    }

    /// A request is answered, or its client is gone.
    pub(super) fn finish(self: &Arc<PriorityLevel>, key: RequestKey, standing: RequestClass) {
        let (mut state, now) = self.lock_now();
        state.queues.finish(now, key);
        self.server.remove_request(standing, now);
        self.schedule_wakeup(&mut state);
    }

    /// Somebody is turned away. Returns when to come back, in seconds from now.
    pub(super) fn retry_after(&self) -> u64 {
        let (mut state, now) = self.lock_now();
        state.retry.record_dropped(now / 1_000_000_000)
    }

    fn lock_now(&self) -> (MutexGuard<'_, PriorityLevelState>, Nanos) {
        let state = self.state.lock();
        // Read under the lock, so that time does not go backwards.
        (state, self.server.now())
    }

    /// Sees to it that somebody looks when seats are given back for which others wait.
    fn schedule_wakeup(self: &Arc<PriorityLevel>, state: &mut PriorityLevelState) {
        let Some(at) = state.queues.next_wakeup() else {
            return;
        };
        if state.wakeup_at.is_some_and(|minded| minded <= at) {
            return;
        }
        // Without a runtime nobody waits any more.
        let Ok(runtime) = Handle::try_current() else {
            return;
        };
        state.wakeup_at = Some(at);
        runtime.spawn(self.clone().run_wakeups(at));
    }

    async fn run_wakeups(self: Arc<PriorityLevel>, mut at: Nanos) {
        loop {
            sleep_until(self.server.instant_at(at)).await;
            // Unless somebody else looks earlier by now, and goes on from there.
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
