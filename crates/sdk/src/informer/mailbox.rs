//! The event queue of one handler.
//!
//! Up to a limit every event is queued. Beyond it, an event is merged with the queued one of the
//! same object, so a slow handler misses intermediate states but no object. The queue never holds
//! more than its limit and one event per further object (two, for one that was deleted and created
//! again).

use parking_lot::Mutex;
use std::collections::{HashMap, VecDeque};

use tokio::sync::Notify;

use super::event::Event;
use crate::key::Key;

pub(super) struct Mailbox<K> {
    state: Mutex<MailboxState<K>>,
    arrived: Notify,
    limit: usize,
}

struct MailboxState<K> {
    events: VecDeque<QueuedEvent<K>>,
    /// The number of queued events of each object.
    waiting: HashMap<Key, usize, foldhash::fast::RandomState>,
    is_closed: bool,
}

pub(super) enum QueuedEvent<K> {
    Event(Event<K>),
    /// All initial objects come before this.
    Synced,
}

impl<K> Mailbox<K> {
    pub(super) fn new(limit: usize) -> Mailbox<K> {
        let state = MailboxState {
            events: VecDeque::new(),
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
        let mut state = self.state.lock();
        if state.events.len() >= self.limit && state.waiting.contains_key(event.key()) {
            state.join(event);
        } else {
            state.push(event);
        }
        drop(state);
        self.arrived.notify_one();
    }

    pub(super) fn push_synced(&self) {
        self.state.lock().events.push_back(QueuedEvent::Synced);
        self.arrived.notify_one();
    }

    /// The next item; `None` after the queue was closed and emptied.
    pub(super) async fn next(&self) -> Option<QueuedEvent<K>> {
        loop {
            let arrived = self.arrived.notified();
            {
                let mut state = self.state.lock();
                if let Some(queued) = state.pop() {
                    return Some(queued);
                }
                if state.is_closed {
                    return None;
                }
            }
            arrived.await;
        }
    }

    pub(super) fn close(&self) {
        self.state.lock().is_closed = true;
        self.arrived.notify_one();
    }

    pub(super) fn len(&self) -> usize {
        self.state.lock().events.len()
    }
}

impl<K> MailboxState<K> {
    fn push(&mut self, event: Event<K>) {
        *self.waiting.entry(event.key().clone()).or_default() += 1;
        self.events.push_back(QueuedEvent::Event(event));
    }

    fn pop(&mut self) -> Option<QueuedEvent<K>> {
        let queued = self.events.pop_front()?;
        if let QueuedEvent::Event(event) = &queued {
            self.forget(event.key());
        }
        Some(queued)
    }

    fn forget(&mut self, key: &Key) {
        match self.waiting.get_mut(key) {
            Some(count) if *count > 1 => *count -= 1,
            _ => drop(self.waiting.remove(key)),
        }
    }

    /// Merges an event with the latest queued one of the same object.
    fn join(&mut self, event: Event<K>) {
        let same = |queued: &QueuedEvent<K>| matches!(queued, QueuedEvent::Event(waiting) if waiting.key() == event.key());
        let Some(at) = self.events.iter().rposition(same) else {
            return self.push(event);
        };
        let Some(QueuedEvent::Event(waiting)) = self.events.remove(at) else {
            return;
        };
        self.forget(event.key());
        for (offset, event) in waiting.then(event).into_iter().enumerate() {
            *self.waiting.entry(event.key().clone()).or_default() += 1;
            self.events.insert(at + offset, QueuedEvent::Event(event));
        }
    }
}
