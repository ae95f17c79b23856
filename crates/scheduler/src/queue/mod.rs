//! Which pod is next? Pods to be tried wait by priority and time; those that failed wait for something to happen that can
//! help them, or for a while.
//!
//! What happens is told between two tries, never during one, so nothing that happens while a pod is tried is missed: it is
//! heard after the pod is back.
//!
//! Invariant: a pod waits in at most one place.

mod nominated;
mod waiting;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use mizzen_value::Str;
use tokio::time::Instant;

use crate::model::Pod;
use crate::plugin::{Name, Names};
use crate::{HashMap, HashSet};

pub(crate) use nominated::Nominated;
pub(crate) use waiting::Waiting;
use waiting::{Place, Rank};

/// Backing off ends at whole windows, so that pods that waited about as long are tried by priority.
const WINDOW: Duration = Duration::from_secs(1);
/// How often pods that nothing helped are looked for.
const FLUSH_EVERY: Duration = Duration::from_secs(30);

/// How long pods wait.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Delays {
    /// After the first failure; doubled each time.
    pub first: Duration,
    /// At most.
    pub most: Duration,
    /// Until a pod is tried again that nothing helped.
    pub unschedulable: Duration,
}

impl Default for Delays {
    fn default() -> Delays {
        let seconds = Duration::from_secs;
        Delays {
            first: seconds(1),
            most: seconds(10),
            unschedulable: seconds(300),
        }
    }
}

/// Pods that wait to be placed.
pub(crate) struct Queue {
    pods: HashMap<Str, Waiting>,
    /// To be tried now.
    active: BTreeSet<Rank>,
    /// Helped by something, but tried not long ago. Tried early if nobody else wants to be.
    backing_off: BTreeSet<(Instant, Rank)>,
    /// Tried again after a while because something went wrong.
    erring: BTreeSet<(Instant, Rank)>,
    /// Those that wait for something to happen, by who rejected them.
    unschedulable: HashMap<Names, HashSet<Str>>,
    pub nominated: Nominated,
    delays: Delays,
    origin: Instant,
    next_flush: Instant,
    sequence: u64,
}

/// How many pods wait where.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Depths {
    pub active: usize,
    pub backoff: usize,
    pub unschedulable: usize,
    pub gated: usize,
}

impl Queue {
    pub(crate) fn new(delays: Delays) -> Queue {
        let origin = Instant::now();
        Queue {
            pods: HashMap::default(),
            active: BTreeSet::new(),
            backing_off: BTreeSet::new(),
            erring: BTreeSet::new(),
            unschedulable: HashMap::default(),
            nominated: Nominated::default(),
            delays,
            origin,
            next_flush: origin + FLUSH_EVERY,
            sequence: 0,
        }
    }

    pub(crate) fn depths(&self) -> Depths {
        Depths {
            active: self.active.len(),
            backoff: self.backing_off.len() + self.erring.len(),
            unschedulable: self.unschedulable.values().map(HashSet::len).sum(),
            gated: self
                .pods
                .values()
                .filter(|waiting| waiting.gate.is_some())
                .count(),
        }
    }

    /// How many pods each plugin rejected that wait now, by profile.
    pub(crate) fn rejected(&self) -> BTreeMap<(Name, Str), usize> {
        let mut counts = BTreeMap::new();
        for (rejectors, uids) in &self.unschedulable {
            let profiles = uids.iter().filter_map(|uid| self.pods.get(uid));
            for profile in profiles.map(|waiting| &waiting.pod.scheduler) {
                for name in Name::ALL.iter().filter(|name| rejectors.has(**name)) {
                    *counts.entry((*name, profile.clone())).or_default() += 1;
                }
            }
        }
        counts
    }

    /// A pod that waits.
    pub(crate) fn get(&self, uid: &str) -> Option<&Waiting> {
        self.pods.get(uid)
    }

    /// Takes in a new pod. `gate` says who does not let it in yet.
    pub(crate) fn add(&mut self, pod: Arc<Pod>, gate: Option<Name>) {
        self.nominated.add(&pod, None);
        self.sequence += 1;
        let waiting = Waiting::new(pod, Instant::now(), self.sequence);
        self.admit(waiting, gate);
    }

    /// Lets a pod be tried, unless somebody does not let it in.
    fn admit(&mut self, mut waiting: Waiting, gate: Option<Name>) {
        waiting.gate = gate;
        if let Some(name) = gate {
            waiting.rejectors.insert(name);
            self.put(waiting, Place::Unschedulable);
        } else {
            self.put(waiting, Place::Active);
        }
    }

    /// Replaces what is known of a pod that waits. Whether it does.
    pub(crate) fn replace(&mut self, pod: &Arc<Pod>) -> bool {
        let Some(mut waiting) = self.take(&pod.uid) else {
            return false;
        };
        let place = waiting.place;
        let old = std::mem::replace(&mut waiting.pod, pod.clone());
        self.nominated.update(&old, pod);
        self.put(waiting, place);
        true
    }

    /// Forgets a pod.
    pub(crate) fn remove(&mut self, uid: &str) -> Option<Arc<Pod>> {
        self.nominated.remove(uid);
        self.take(uid).map(|waiting| waiting.pod)
    }

    /// The pod to be tried next.
    pub(crate) fn pop(&mut self) -> Option<Waiting> {
        let early = || self.backing_off.first().map(|(_, rank)| rank);
        let uid = self.active.first().or_else(early)?.uid.clone();
        let mut waiting = self.take(&uid)?;
        waiting.attempts += 1;
        waiting.first_attempt.get_or_insert_with(Instant::now);
        Some(waiting)
    }

    /// Takes back a pod that could not be placed. Without rejectors something went wrong, and only time helps.
    pub(crate) fn fail(&mut self, mut waiting: Waiting, rejectors: Names) {
        waiting.rejectors = rejectors;
        waiting.since = Instant::now();
        if rejectors.is_empty() {
            waiting.n_errors += 1;
            let place = self.off(&waiting);
            self.put(waiting, place);
        } else {
            waiting.n_failures += 1;
            waiting.n_errors = 0;
            self.put(waiting, Place::Unschedulable);
        }
    }

    /// Lets pods be tried again that something may have helped. Only those are looked at that one of `interests` rejected;
    /// `helps` decides by the pod and who rejected it; `gate` says who still does not let it in.
    pub(crate) fn wake(
        &mut self,
        interests: Names,
        helps: impl Fn(&Pod, Names) -> bool,
        gate: impl Fn(&Pod) -> Option<Name>,
    ) {
        let concerned = self
            .unschedulable
            .iter()
            .filter(|(rejectors, _)| rejectors.meets(interests));
        let concerned = concerned
            .flat_map(|(_, uids)| uids)
            .filter_map(|uid| self.pods.get(uid));
        let helped = concerned.filter(|waiting| helps(&waiting.pod, waiting.rejectors));
        let uids: Vec<Str> = helped.map(|waiting| waiting.pod.uid.clone()).collect();
        for uid in uids {
            let gate = self.pods.get(&uid).and_then(|waiting| gate(&waiting.pod));
            self.requeue(&uid, gate);
        }
    }

    /// Lets one pod be tried again as soon as it has backed off.
    pub(crate) fn requeue(&mut self, uid: &str, gate: Option<Name>) {
        let Some(mut waiting) = self.take(uid) else {
            return;
        };
        if waiting.is_held {
            waiting.was_helped = true;
            return self.put(waiting, Place::Unschedulable);
        }
        let place = self.off(&waiting);
        match place {
            _ if gate.is_some() => self.admit(waiting, gate),
            Place::BackingOff(until) | Place::Erring(until) if self.is_waiting(until) => {
                waiting.gate = None;
                self.put(waiting, place);
            }
            _ => self.admit(waiting, None),
        }
    }

    /// Lets a pod be tried at once.
    pub(crate) fn activate(&mut self, uid: &str, gate: Option<Name>) {
        if let Some(waiting) = self.take(uid) {
            self.admit(waiting, gate);
        }
    }

    /// Keeps a pod back until pods have gone that it preempts.
    pub(crate) fn hold(&mut self, uid: &str) {
        if let Some(waiting) = self.pods.get_mut(uid) {
            waiting.is_held = true;
        }
    }

    /// Ends [`hold`](Queue::hold). If pods could not be preempted it is tried again at once.
    pub(crate) fn release(&mut self, uid: &str, preempted: bool) {
        let Some(waiting) = self.pods.get_mut(uid) else {
            return;
        };
        waiting.is_held = false;
        let was_helped = std::mem::take(&mut waiting.was_helped);
        if !preempted {
            self.activate(uid, None);
        } else if was_helped {
            self.requeue(uid, None);
        }
    }

    /// Lets those be tried that have waited long enough.
    pub(crate) fn flush(&mut self, gate: impl Fn(&Pod) -> Option<Name>) {
        for erring in [false, true] {
            while let Some(uid) = self.first_done(erring) {
                let gate = self.pods.get(&uid).and_then(|waiting| gate(&waiting.pod));
                self.activate(&uid, gate);
            }
        }
        let now = Instant::now();
        if now >= self.next_flush {
            self.next_flush = now + FLUSH_EVERY;
            self.flush_unschedulable(now, gate);
        }
    }

    fn flush_unschedulable(&mut self, now: Instant, gate: impl Fn(&Pod) -> Option<Name>) {
        let limit = self.delays.unschedulable;
        let stale = |waiting: &&mut Waiting| {
            waiting.place == Place::Unschedulable
                && now - waiting.since.max(waiting.flushed) > limit
        };
        let uids: Vec<Str> = self
            .pods
            .values_mut()
            .filter(stale)
            .map(|waiting| {
                waiting.flushed = now;
                waiting.pod.uid.clone()
            })
            .collect();
        for uid in uids {
            let gate = self.pods.get(&uid).and_then(|waiting| gate(&waiting.pod));
            self.requeue(&uid, gate);
        }
    }

    fn first_done(&self, erring: bool) -> Option<Str> {
        let set = if erring {
            &self.erring
        } else {
            &self.backing_off
        };
        set.first()
            .filter(|(until, _)| !self.is_waiting(*until))
            .map(|(_, rank)| rank.uid.clone())
    }

    /// When [`flush`](Queue::flush) is to be called next.
    pub(crate) fn next_deadline(&self) -> Instant {
        let ends = [self.backing_off.first(), self.erring.first()]
            .into_iter()
            .flatten();
        ends.map(|(until, _)| *until + WINDOW)
            .min()
            .map_or(self.next_flush, |end| end.min(self.next_flush))
    }

    /// Where a pod backs off.
    fn off(&self, waiting: &Waiting) -> Place {
        let count = if waiting.n_errors > 0 {
            waiting.n_errors
        } else {
            waiting.n_failures
        };
        let Some(doublings) = count.checked_sub(1) else {
            return Place::Active;
        };
        if self.delays.most.is_zero() {
            return Place::Active;
        }
        let factor = 1u32
            .checked_shl(doublings)
            .filter(|factor| *factor > 0)
            .unwrap_or(u32::MAX);
        let until = self.align(
            waiting.since
                + self
                    .delays
                    .first
                    .saturating_mul(factor)
                    .min(self.delays.most),
        );
        if waiting.rejectors.is_empty() {
            Place::Erring(until)
        } else {
            Place::BackingOff(until)
        }
    }

    fn is_waiting(&self, until: Instant) -> bool {
        until >= self.align(Instant::now())
    }

    /// The beginning of a moment's window.
    fn align(&self, at: Instant) -> Instant {
        let since = at.saturating_duration_since(self.origin);
        self.origin + Duration::from_secs(since.as_secs() / WINDOW.as_secs() * WINDOW.as_secs())
    }

    fn put(&mut self, mut waiting: Waiting, place: Place) {
        waiting.place = place;
        let rank = waiting.rank();
        match place {
            Place::Active => drop(self.active.insert(rank)),
            Place::BackingOff(until) => drop(self.backing_off.insert((until, rank))),
            Place::Erring(until) => drop(self.erring.insert((until, rank))),
            Place::Unschedulable => {
                let uid = waiting.pod.uid.clone();
                self.unschedulable
                    .entry(waiting.rejectors)
                    .or_default()
                    .insert(uid);
            }
        }
        self.pods.insert(waiting.pod.uid.clone(), waiting);
    }

    fn leave_unschedulable(&mut self, waiting: &Waiting) {
        let Some(uids) = self.unschedulable.get_mut(&waiting.rejectors) else {
            return;
        };
        uids.remove(&waiting.pod.uid);
        if uids.is_empty() {
            self.unschedulable.remove(&waiting.rejectors);
        }
    }

    fn take(&mut self, uid: &str) -> Option<Waiting> {
        let waiting = self.pods.remove(uid)?;
        let rank = waiting.rank();
        match waiting.place {
            Place::Active => drop(self.active.remove(&rank)),
            Place::BackingOff(until) => drop(self.backing_off.remove(&(until, rank))),
            Place::Erring(until) => drop(self.erring.remove(&(until, rank))),
            Place::Unschedulable => self.leave_unschedulable(&waiting),
        }
        Some(waiting)
    }
}

#[cfg(test)]
mod tests;
