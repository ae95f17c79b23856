//! The pool of patterns in use and of their compiled programs.
//!
//! A pattern stays in the pool while a handle exists, so those of deleted definitions are freed
//! with them. The memory of all programs is bounded: when a new one would exceed the limit, all are
//! dropped and compiled again at their next match, which takes microseconds each.

use parking_lot::{Mutex, MutexGuard};
use std::collections::{HashMap, VecDeque};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, LazyLock, Weak};

use super::Regexp;
use super::program::Prog;
use mizzen_value::Str;

/// The maximum memory of all compiled patterns, in bytes.
pub const MAX_COMPILED_BYTES: usize = 32 << 20;

/// The number of patterns that [`Regexp::recent`](super::Regexp::recent) keeps.
const MAX_RECENT: usize = 64;

static POOL: LazyLock<Mutex<RegexpPool>> = LazyLock::new(Mutex::default);
/// The memory of the compiled programs. Updated under the pool's lock.
static COMPILED: AtomicUsize = AtomicUsize::new(0);

#[derive(Default)]
struct RegexpPool {
    known: HashMap<Str, Weak<Regexp>, foldhash::fast::RandomState>,
    recent: VecDeque<Arc<Regexp>>,
}

/// The memory of all compiled patterns, in bytes.
pub fn compiled_bytes() -> usize {
    COMPILED.load(Ordering::Relaxed)
}

pub(super) fn intern(pattern: &str) -> Arc<Regexp> {
    lock().intern(pattern)
}

pub(super) fn intern_recent(pattern: &str) -> Arc<Regexp> {
    let mut pool = lock();
    let regexp = pool.intern(pattern);
    if !pool.recent.iter().any(|known| Arc::ptr_eq(known, &regexp)) {
        pool.recent.push_back(regexp.clone());
    }
    let oldest = if pool.recent.len() > MAX_RECENT {
        pool.recent.pop_front()
    } else {
        None
    };
    // Dropping the last handle takes the lock.
    drop(pool);
    drop(oldest);
    regexp
}

/// Stores the program of a pattern, and drops all programs first if the limit is exceeded.
pub(super) fn keep(regexp: &Regexp, program: &Arc<Prog>) {
    let pool = lock();
    let mut dropped = Vec::new();
    if compiled_bytes() + program.bytes > MAX_COMPILED_BYTES {
        dropped.extend(pool.known.values().filter_map(Weak::upgrade));
        dropped.iter().for_each(|other| forget(other));
    }
    let mut compiled = regexp.compiled();
    if compiled.is_none() {
        COMPILED.fetch_add(program.bytes, Ordering::Relaxed);
        *compiled = Some(program.clone());
    }
    drop((compiled, pool));
    // Each may be the last handle by now, and dropping that takes the lock.
    drop(dropped);
}

fn forget(regexp: &Regexp) {
    if let Some(program) = regexp.compiled().take() {
        COMPILED.fetch_sub(program.bytes, Ordering::Relaxed);
    }
}

impl Drop for Regexp {
    fn drop(&mut self) {
        forget(self);
        let mut pool = lock();
        // A new handle for the same pattern may exist already.
        if pool
            .known
            .get(&self.pattern)
            .is_some_and(|known| known.strong_count() == 0)
        {
            pool.known.remove(&self.pattern);
        }
    }
}

impl RegexpPool {
    fn intern(&mut self, pattern: &str) -> Arc<Regexp> {
        if let Some(known) = self.known.get(pattern).and_then(Weak::upgrade) {
            return known;
        }
        let pattern = Str::from(pattern);
        let regexp = Arc::new(Regexp {
            pattern: pattern.clone(),
            program: Mutex::default(),
        });
        self.known.insert(pattern, Arc::downgrade(&regexp));
        regexp
    }
}

fn lock() -> MutexGuard<'static, RegexpPool> {
    POOL.lock()
}
