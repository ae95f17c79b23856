//! The history of a run, as it is recorded.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use mizzen_linearizability::{
    Action, History, List, Operation, Outcome, Read, Scope, Version, Watch,
};
use parking_lot::Mutex;
use serde_json::Value;
use tokio::sync::watch;

use super::coverage::{self, Counts};
use super::proxy::Proxy;

/// Takes down what clients and watchers see.
pub(crate) struct Recorder {
    pub(crate) proxy: Proxy,
    clock: AtomicU64,
    history: Mutex<History>,
    counts: Mutex<Counts>,
    /// How many requests have ended, with or without a response.
    n_attempts: watch::Sender<usize>,
    /// After how many requests clients end.
    limit: AtomicUsize,
    /// The revisions that watches of each scope must reach.
    ends: watch::Sender<BTreeMap<Scope, u64>>,
}

impl Recorder {
    /// Clients end after `n_requests`, or when they are stopped.
    pub(crate) fn new(proxy: Proxy, n_requests: usize) -> Recorder {
        Recorder {
            proxy,
            clock: AtomicU64::new(1),
            history: Mutex::default(),
            counts: Mutex::default(),
            n_attempts: watch::Sender::new(0),
            limit: AtomicUsize::new(n_requests),
            ends: watch::Sender::default(),
        }
    }

    /// The next position in the order of calls and returns.
    pub(crate) fn now(&self) -> u64 {
        self.clock.fetch_add(1, Ordering::SeqCst)
    }

    /// Something has happened that a run must have.
    pub(crate) fn count(&self, what: &'static str) {
        self.counts.lock().add(what);
    }

    pub(crate) fn counts(&self) -> Counts {
        self.counts.lock().clone()
    }

    pub(crate) fn add_operation(&self, operation: Operation) {
        self.count(coverage::of_action(&operation.action));
        self.count(coverage::of_outcome(&operation.outcome));
        self.history.lock().operations.push(operation);
    }

    pub(crate) fn add_read(&self, read: Read) {
        self.history.lock().reads.push(read);
    }

    pub(crate) fn add_list(&self, list: List) {
        self.history.lock().lists.push(list);
    }

    pub(crate) fn add_watch(&self, watch: Watch) {
        self.count(coverage::of_watch(&watch.scope));
        self.history.lock().watches.push(watch);
    }

    pub(crate) fn count_attempt(&self) {
        self.n_attempts.send_modify(|n| *n += 1);
    }

    pub(crate) fn n_attempts(&self) -> usize {
        *self.n_attempts.borrow()
    }

    /// Whether clients end.
    pub(crate) fn is_over(&self) -> bool {
        self.n_attempts() >= self.limit.load(Ordering::Relaxed)
    }

    pub(crate) fn stop_clients(&self) {
        self.limit.store(0, Ordering::Relaxed);
    }

    /// Waits for `n_attempts` requests since the beginning.
    pub(crate) async fn attempted(&self, n_attempts: usize) {
        let mut counter = self.n_attempts.subscribe();
        let reached = counter.wait_for(|&n| n >= n_attempts).await;
        drop(reached.expect("the recorder has the sender"));
    }

    pub(crate) fn end_at(&self, ends: BTreeMap<Scope, u64>) {
        self.ends.send_replace(ends);
    }

    /// Waits until the end of a scope is known, and `revision` has reached it.
    pub(crate) async fn ended(&self, scope: &Scope, revision: u64) {
        let mut ends = self.ends.subscribe();
        let reached = ends.wait_for(|ends| ends.get(scope).is_some_and(|end| revision >= *end));
        drop(reached.await.expect("the recorder has the sender"));
    }

    pub(crate) fn history(&self) -> History {
        self.history.lock().clone()
    }
}

/// The number of writes without a response.
pub(crate) fn n_unknown(history: &History) -> usize {
    let unknown = |operation: &&Operation| operation.outcome == Outcome::Unknown;
    history.operations.iter().filter(unknown).count()
}

/// The objects of a run begin with this; there are others in the namespace.
pub(crate) const PREFIX: &str = "k";
pub(crate) const PATH: &str = "/api/v1/namespaces/default/configmaps";
/// The label of an object, which its value begins with.
const LABEL: &str = "colour";
pub(crate) const LABELS: [&str; 2] = ["red", "blue"];

/// The path of a scope, with further parameters.
pub(crate) fn path(scope: &Scope, parameters: &str) -> String {
    let selector = match scope {
        Scope::All => String::new(),
        Scope::Key(key) => format!("fieldSelector=metadata.name%3D{key}"),
        Scope::Label(label) => format!("labelSelector={LABEL}%3D{label}"),
    };
    match (selector.as_str(), parameters) {
        ("", "") => PATH.to_owned(),
        ("", query) | (query, "") => format!("{PATH}?{query}"),
        (selector, parameters) => format!("{PATH}?{parameters}&{selector}"),
    }
}

/// The body of a create or update, with the value so many times over.
pub(crate) fn body(key: &str, action: &Action, n_copies: usize) -> String {
    let (value, expected) = match action {
        Action::Create { value } => (value, None),
        Action::Update { value, expected } => (value, *expected),
        _ => return String::new(),
    };
    let expected = expected.map_or(String::new(), |it| format!(r#","resourceVersion":"{it}""#));
    let copies = value.repeat(n_copies);
    let label = label_of(value);
    format!(
        r#"{{"metadata":{{"name":"{key}","labels":{{"{LABEL}":"{label}"}}{expected}}},"data":{{"value":"{value}","copies":"{copies}"}}}}"#
    )
}

fn label_of(value: &str) -> &str {
    value.split_once('/').expect("a value has a label").0
}

/// The name and the version of an object, whose content must be whole.
pub(crate) fn object(object: &Value) -> (String, Version) {
    let value = object["data"]["value"].as_str().unwrap_or_default();
    let copies = object["data"]["copies"].as_str().unwrap_or_default();
    let n_copies = copies.len() / value.len().max(1);
    assert_eq!(copies, value.repeat(n_copies), "{}", object["metadata"]);
    let name = object["metadata"]["name"].as_str().unwrap();
    if name.starts_with(PREFIX) {
        let label = &object["metadata"]["labels"][LABEL];
        assert_eq!(label, label_of(value), "{}", object["metadata"]);
    }
    let version = Version {
        revision: revision(object),
        value: value.into(),
    };
    (name.into(), version)
}

/// The objects of a run in a list.
pub(crate) fn items(list: &Value) -> BTreeMap<String, Version> {
    let items = list["items"].as_array().unwrap().iter().map(object);
    items.filter(|(name, _)| name.starts_with(PREFIX)).collect()
}

pub(crate) fn revision(object: &Value) -> u64 {
    let revision = object["metadata"]["resourceVersion"].as_str().unwrap();
    revision.parse().unwrap()
}
