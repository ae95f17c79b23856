//! What one handler has still to hear.
//!
//! Up to a limit every event is kept. Beyond it, what happens to an object that waits already is joined with
//! what waits, so that a handler that is too slow hears less of each object but still of each, and a mailbox never
//! holds more than its limit and one event for every other object (two, for one that went and came again).

use parking_lot::{Mutex, MutexGuard};
use std::collections::{HashMap, VecDeque};

use tokio::sync::Notify;

use super::event::Event;
use crate::key::Key;

pub(super) struct Mailbox<K> {
    state: Mutex<State<K>>,
    arrived: Notify,
    limit: usize,
}

struct State<K> {
    letters: VecDeque<Letter<K>>,
    /// How many letters of each object wait.
    waiting: HashMap<Key, usize, foldhash::fast::RandomState>,
    is_closed: bool,
}

pub(super) enum Letter<K> {
    Event(Event<K>),
    /// All that was there when the handler began to listen has been told before this.
    Synced,
}

impl<K> Mailbox<K> {
    pub(super) fn new(limit: usize) -> Mailbox<K> {
        let state = State {
            letters: VecDeque::new(),
            waiting: HashMap::default(),
            is_closed: false,
        };
        Mailbox {
            state: Mutex::new(state),
            arrived: Notify::new(),
            limit,
        }
    }

    pub(super) fn push(&self, event: Event<K>) {
        let mut state = self.lock();
        if state.letters.len() >= self.limit && state.waiting.contains_key(event.key()) {
            state.join(event);
        } else {
            state.push(event);
        }
        drop(state);
        self.arrived.notify_one();
    }

    pub(super) fn push_synced(&self) {
        self.lock().letters.push_back(Letter::Synced);
        self.arrived.notify_one();
    }

    /// The next letter; none after the mailbox was closed and emptied.
    pub(super) async fn next(&self) -> Option<Letter<K>> {
        loop {
            let arrived = self.arrived.notified();
            {
                let mut state = self.lock();
                if let Some(letter) = state.pop() {
                    return Some(letter);
                }
                if state.is_closed {
                    return None;
                }
            }
            arrived.await;
        }
    }

    pub(super) fn close(&self) {
        self.lock().is_closed = true;
        self.arrived.notify_one();
    }

    pub(super) fn len(&self) -> usize {
        self.lock().letters.len()
    }

    fn lock(&self) -> MutexGuard<'_, State<K>> {
        self.state.lock()
    }
}

impl<K> State<K> {
    fn push(&mut self, event: Event<K>) {
        *self.waiting.entry(event.key().clone()).or_default() += 1;
        self.letters.push_back(Letter::Event(event));
    }

    fn pop(&mut self) -> Option<Letter<K>> {
        let letter = self.letters.pop_front()?;
        if let Letter::Event(event) = &letter {
            self.forget(event.key());
        }
        Some(letter)
    }

    fn forget(&mut self, key: &Key) {
        match self.waiting.get_mut(key) {
            Some(count) if *count > 1 => *count -= 1,
            _ => drop(self.waiting.remove(key)),
        }
    }

    /// Joins an event with the latest that waits about the same object.
    fn join(&mut self, event: Event<K>) {
        let same = |letter: &Letter<K>| matches!(letter, Letter::Event(waiting) if waiting.key() == event.key());
        let Some(at) = self.letters.iter().rposition(same) else {
            return self.push(event);
        };
        let Some(Letter::Event(waiting)) = self.letters.remove(at) else {
            return;
        };
        self.forget(event.key());
        for (offset, event) in waiting.then(event).into_iter().enumerate() {
            *self.waiting.entry(event.key().clone()).or_default() += 1;
            self.letters.insert(at + offset, Letter::Event(event));
        }
    }
}
