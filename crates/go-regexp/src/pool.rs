//! Which patterns are in use, and what of them is compiled.
//!
//! A pattern is known as long as something holds it, so that those of deleted definitions are gone with them. The
//! programs of all patterns together are bounded: when one more would be too much, all are dropped, and compiled
//! again when they are matched again, which takes microseconds each.

use parking_lot::{Mutex, MutexGuard};
use std::collections::{HashMap, VecDeque};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, LazyLock, Weak};

use super::Regexp;
use super::program::Program;
use mizzen_value::Str;

/// The most bytes that compiled patterns take together.
pub const MAX_COMPILED_BYTES: usize = 32 << 20;

/// How many patterns that come from data are remembered.
const MAX_RECENT: usize = 64;

static POOL: LazyLock<Mutex<Pool>> = LazyLock::new(Mutex::default);
/// Changes while the programs that it counts change.
static COMPILED: AtomicUsize = AtomicUsize::new(0);

#[derive(Default)]
struct Pool {
    known: HashMap<Str, Weak<Regexp>, foldhash::fast::RandomState>,
    recent: VecDeque<Arc<Regexp>>,
}

/// How many bytes compiled patterns take now.
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

/// Keeps what a pattern was compiled to, and makes room for it if necessary.
pub(super) fn keep(regexp: &Regexp, program: &Arc<Program>) {
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
        // A new handle on the same pattern may be there already.
        if pool
            .known
            .get(&self.pattern)
            .is_some_and(|known| known.strong_count() == 0)
        {
            pool.known.remove(&self.pattern);
        }
    }
}

impl Pool {
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

fn lock() -> MutexGuard<'static, Pool> {
    POOL.lock()
}
