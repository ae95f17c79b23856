//! Did several servers behave like one? Checks what concurrent clients saw against a model.
//!
//! A [`History`] has every request of a run with its result, every list and every watch. The model is a map from key to
//! a version, which is a value and the revision that wrote it. [`check`] returns what no order of the requests explains:
//!
//! - `search`: the requests to each key, and lists as reads of all keys, are linearizable;
//! - `revisions`: revisions are unique, and grow in the order in which clients saw writes end and begin;
//! - `reads`: a read that may come from a cache shows the state of a key at the requested revision or at a later one;
//! - `lists`: a list shows the state of all keys, or of those in its scope, at exactly its revision;
//! - `watches`: a watch delivers every change in its scope after its start, in order, once.
//!
//! A request without a response may have taken effect at any later time, or never.
//!
//! ```
//! use mizzen_linearizability::{Action, History, Operation, Outcome, check};
//!
//! let operation = |called, returned, action, outcome| Operation {
//!     client: 0,
//!     key: "a".into(),
//!     called,
//!     returned,
//!     action,
//!     outcome,
//! };
//! let create = Action::Create { value: "1".into() };
//! let mut history = History::default();
//! history.operations.push(operation(1, 2, create, Outcome::Stored { revision: 7 }));
//! history.operations.push(operation(3, 4, Action::Get, Outcome::NotFound));
//! assert_eq!(check(&history).len(), 1, "an acknowledged write was lost");
//! ```
//!
//! Invariant: pure. Times are positions in the order of the recorder, not readings of a clock.

mod history;
mod lists;
mod model;
mod reads;
mod revisions;
mod search;
#[cfg(test)]
mod tests;
mod watches;

pub use history::{
    Action, EventKind, Freshness, History, List, Operation, Outcome, Read, Scope, Version, Watch,
    WatchEvent,
};

use revisions::Changes;

/// What no order of the requests explains.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Violation {
    /// The requests to one key.
    #[error("requests to {key} are not linearizable; none of these can be next:\n{stuck}")]
    NotLinearizable {
        /// The key.
        key: String,
        /// The requests that could come next where the longest order ends, a line each.
        stuck: String,
    },
    /// A revision.
    #[error("revision {revision}: {problem}")]
    Revision {
        /// The revision.
        revision: u64,
        /// What is wrong with it.
        problem: String,
    },
    /// A read that may come from a cache.
    #[error("read of {key} not older than {revision}: {problem}")]
    Read {
        /// The key.
        key: String,
        /// The revision that was requested.
        revision: u64,
        /// What is wrong with it.
        problem: String,
    },
    /// A list.
    #[error("list at {revision}, {key}: {problem}")]
    List {
        /// Its revision.
        revision: u64,
        /// The key with the wrong state.
        key: String,
        /// What is wrong with it.
        problem: String,
    },
    /// A watch.
    #[error("watch {watcher} from {start}, event {revision}: {problem}")]
    Watch {
        /// The watcher.
        watcher: usize,
        /// The revision after which the watch began.
        start: u64,
        /// The revision of the event in question.
        revision: u64,
        /// What is wrong with it.
        problem: String,
    },
}

/// Everything that is wrong with a history; empty if one server that handles one request at a time could have given all
/// of its answers.
pub fn check(history: &History) -> Vec<Violation> {
    let mut violations = Vec::new();
    let changes = Changes::collect(history, &mut violations);
    revisions::check(history, &mut violations);
    reads::check(history, &changes, &mut violations);
    lists::check(history, &changes, &mut violations);
    watches::check(history, &changes, &mut violations);
    search::check(history, &mut violations);
    violations
}
