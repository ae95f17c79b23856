//! A priority level at work: its queues behind a lock, and who is let in.

use parking_lot::{Mutex, MutexGuard};
use std::sync::Arc;

use mizzen_value::Str;
use tokio::runtime::Handle;
use tokio::time::sleep_until;

use super::Reason;
use super::demand::Seen;
use super::entry::{Key, Newcomer};
use super::house::{House, Phase, Standing};
use super::lend::Part;
use super::level::{Level, Seats, Shape};
use super::place::{Place, Wait};
use super::queues::Queues;
use super::retry::Retry;
use super::tally::Tally;
use super::turn;
use super::work::Nanos;

/// A priority level at work.
pub(super) struct Room {
    /// The level's name.
    pub name: Str,
    pub house: Arc<House>,
    state: Mutex<State>,
}

/// What changes about it.
pub(super) struct State {
    /// As it is configured.
    pub level: Level,
    pub seats: Seats,
    pub queues: Queues,
    /// What it wanted lately.
    pub seen: Seen,
    /// What it should have had at the last look, if there had been enough.
    pub target: f64,
    /// Whether the level is no longer configured: it is used up.
    pub is_leftover: bool,
    retry: Retry,
    /// When somebody will look whether seats are given back that were kept.
    minded: Option<Nanos>,
}

impl State {
    /// How many requests may wait, and how many seats are its own.
    pub(super) fn size(&self) -> (usize, usize) {
        (self.level.shape.room_to_wait(), self.seats.nominal)
    }
}

impl Room {
    /// A level that begins with what is its own, less half of what it may lend.
    pub(super) fn new(house: Arc<House>, level: Level, seats: Seats) -> Room {
        let limit = seats.nominal - (seats.nominal - seats.lower) / 2;
        let queues = Queues::new(house.now(), level.shape, limit, house.tenth());
        let state = State {
            level: level.clone(),
            seats,
            queues,
            seen: Seen::default(),
            target: 0.0,
            is_leftover: false,
            retry: Retry::default(),
            minded: None,
        };
        Room {
            name: level.name,
            house,
            state: Mutex::new(state),
        }
    }

    /// Looks at everything as it is now.
    pub(super) fn look<T>(&self, look: impl FnOnce(&mut State) -> T) -> T {
        let (mut state, now) = self.now();
        state.queues.settle(now);
        look(&mut state)
    }

    /// Another configuration from now on. The seats of now follow from [`Room::give`].
    pub(super) fn configure(&self, level: Level, seats: Seats, is_leftover: bool) {
        let (mut state, now) = self.now();
        let limit = state.queues.limit();
        state.queues.configure(now, level.shape, limit);
        (state.level, state.seats, state.is_leftover) = (level, seats, is_leftover);
    }

    /// What it takes to say how many seats it should have.
    pub(super) fn part(&self) -> Part {
        let (mut state, now) = self.now();
        let State { queues, seen, .. } = &mut *state;
        queues.settle(now);
        queues.demand.look(now, seen);
        let Seats {
            nominal,
            lower,
            upper,
            ..
        } = state.seats;
        let is_exempt = state.level.shape == Shape::Exempt;
        let part = Part {
            is_exempt,
            nominal,
            lower,
            upper,
            seen: state.seen,
        };
        state.target = part.target();
        part
    }

    /// So many seats from now on.
    pub(super) fn give(&self, seats: usize) {
        let (mut state, now) = self.now();
        let shape = state.level.shape;
        state.queues.configure(now, shape, seats);
    }

    /// The place in which the requests of a flow schema are counted.
    pub(super) fn slot(&self, schema: &Str) -> usize {
        let (mut state, _) = self.now();
        let tallies = &mut state.queues.tallies;
        tallies
            .iter()
            .position(|tally| tally.schema == *schema)
            .unwrap_or_else(|| {
                tallies.push(Tally::new(schema.clone()));
                tallies.len() - 1
            })
    }

    /// A request comes. It has a place from now on, and perhaps has to wait; or is turned away.
    pub(super) fn enter(
        self: &Arc<Room>,
        newcomer: Newcomer,
    ) -> Result<(Place, Option<Wait>), Reason> {
        let (mut state, now) = self.now();
        let is_write = !turn::is_read(newcomer.about.info.verb());
        let key = state.queues.begin(now, newcomer)?;
        let wait = state.queues.wait(key);
        let phase = if wait.is_some() {
            Phase::Waiting
        } else {
            Phase::Executing
        };
        let standing = Standing { phase, is_write };
        self.house.join(standing, now);
        self.mind(&mut state);
        Ok((Place::new(self.clone(), key, standing), wait))
    }

    /// A request that waited goes.
    pub(super) fn go(&self, waited: Standing) -> Standing {
        let (now, going) = (
            self.house.now(),
            Standing {
                phase: Phase::Executing,
                ..waited
            },
        );
        self.house.part(waited, now);
        self.house.join(going, now);
        going
    }

    /// A request has waited long enough. Returns whether it is gone: it may have been let in this very moment.
    pub(super) fn time_out(&self, key: Key, standing: Standing) -> bool {
        let (mut state, now) = self.now();
        let is_gone = state.queues.give_up(now, key);
        if is_gone {
            self.house.part(standing, now);
        }
        is_gone
    }

    /// A request is answered, or its client is gone.
    pub(super) fn leave(self: &Arc<Room>, key: Key, standing: Standing) {
        let (mut state, now) = self.now();
        state.queues.leave(now, key);
        self.house.part(standing, now);
        self.mind(&mut state);
    }

    /// Somebody is turned away. Returns when to come back, in seconds from now.
    pub(super) fn turn_away(&self) -> u64 {
        let (mut state, now) = self.now();
        state.retry.turn_away(now / 1_000_000_000)
    }

    fn now(&self) -> (MutexGuard<'_, State>, Nanos) {
        let state = self.state.lock();
        // Read under the lock, so that time does not go backwards.
        (state, self.house.now())
    }

    /// Sees to it that somebody looks when seats are given back for which others wait.
    fn mind(self: &Arc<Room>, state: &mut State) {
        let Some(at) = state.queues.look_at() else {
            return;
        };
        if state.minded.is_some_and(|minded| minded <= at) {
            return;
        }
        // Without a runtime nobody waits any more.
        let Ok(runtime) = Handle::try_current() else {
            return;
        };
        state.minded = Some(at);
        runtime.spawn(self.clone().look_at(at));
    }

    async fn look_at(self: Arc<Room>, mut at: Nanos) {
        loop {
            sleep_until(self.house.moment(at)).await;
            // Unless somebody else looks earlier by now, and goes on from there.
            let next = self.look(|state| {
                (state.minded == Some(at)).then(|| {
                    state.minded = state.queues.look_at();
                    state.minded
                })
            });
            match next.flatten() {
                Some(next) => at = next,
                None => return,
            }
        }
    }
}
