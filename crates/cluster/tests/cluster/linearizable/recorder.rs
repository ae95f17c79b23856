//! The history of a run, as it is recorded.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};

use mizzen_linearizability::{Action, History, List, Operation, Outcome, Version, Watch};
use parking_lot::Mutex;
use serde_json::Value;
use tokio::sync::watch;

use super::proxy::Proxy;

/// Takes down what clients and watchers see.
pub(super) struct Recorder {
    pub(super) proxy: Proxy,
    clock: AtomicU64,
    history: Mutex<History>,
    /// How many requests have ended, with or without a response.
    n_attempts: watch::Sender<usize>,
    /// The revision that watches must reach.
    end: watch::Sender<Option<u64>>,
}

impl Recorder {
    pub(super) fn new(proxy: Proxy) -> Recorder {
        Recorder {
            proxy,
            clock: AtomicU64::new(1),
            history: Mutex::default(),
            n_attempts: watch::Sender::new(0),
            end: watch::Sender::new(None),
        }
    }

    /// The next position in the order of calls and returns.
    pub(super) fn now(&self) -> u64 {
        self.clock.fetch_add(1, Ordering::SeqCst)
    }

    pub(super) fn add_operation(&self, operation: Operation) {
        self.history.lock().operations.push(operation);
    }

    pub(super) fn add_list(&self, list: List) {
        self.history.lock().lists.push(list);
    }

    pub(super) fn add_watch(&self, watch: Watch) {
        self.history.lock().watches.push(watch);
    }

    pub(super) fn count_attempt(&self) {
        self.n_attempts.send_modify(|n| *n += 1);
    }

    pub(super) fn n_attempts(&self) -> usize {
        *self.n_attempts.borrow()
    }

    /// Waits for `n_attempts` requests since the beginning.
    pub(super) async fn attempted(&self, n_attempts: usize) {
        let mut counter = self.n_attempts.subscribe();
        let reached = counter.wait_for(|&n| n >= n_attempts).await;
        drop(reached.expect("the recorder has the sender"));
    }

    pub(super) fn end_at(&self, revision: u64) {
        self.end.send_replace(Some(revision));
    }

    /// Waits until the end is known, and `revision` has reached it.
    pub(super) async fn ended(&self, revision: u64) {
        let mut end = self.end.subscribe();
        let reached = end.wait_for(|end| end.is_some_and(|end| revision >= end));
        drop(reached.await.expect("the recorder has the sender"));
    }

    pub(super) fn history(&self) -> History {
        self.history.lock().clone()
    }
}

/// The number of writes without a response.
pub(super) fn n_unknown(history: &History) -> usize {
    let unknown = |operation: &&Operation| operation.outcome == Outcome::Unknown;
    history.operations.iter().filter(unknown).count()
}

/// The objects of a run begin with this; there are others in the namespace.
pub(super) const PREFIX: &str = "k";
pub(super) const PATH: &str = "/api/v1/namespaces/default/configmaps";

/// The body of a create or update.
pub(super) fn body(key: &str, action: &Action) -> String {
    let (value, expected) = match action {
        Action::Create { value } => (value, None),
        Action::Update { value, expected } => (value, *expected),
        _ => return String::new(),
    };
    let expected = expected.map_or(String::new(), |it| format!(r#","resourceVersion":"{it}""#));
    format!(r#"{{"metadata":{{"name":"{key}"{expected}}},"data":{{"value":"{value}"}}}}"#)
}

/// The name and the version of an object.
pub(super) fn object(object: &Value) -> (String, Version) {
    let value = object["data"]["value"].as_str().unwrap_or_default();
    let name = object["metadata"]["name"].as_str().unwrap();
    let version = Version {
        revision: revision(object),
        value: value.into(),
    };
    (name.into(), version)
}

/// The objects of a run in a list.
pub(super) fn items(list: &Value) -> BTreeMap<String, Version> {
    let items = list["items"].as_array().unwrap().iter().map(object);
    items.filter(|(name, _)| name.starts_with(PREFIX)).collect()
}

pub(super) fn revision(object: &Value) -> u64 {
    let revision = object["metadata"]["resourceVersion"].as_str().unwrap();
    revision.parse().unwrap()
}
