//! The log of a cluster: which component wrote what, and when.

use std::collections::{HashMap, VecDeque};
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::Method;
use mizzen_value::{Value, json};
use parking_lot::Mutex;
use tokio::time::Instant;

use crate::diff::changes_between;
use crate::request::RequestTarget;

/// How many steps are kept.
const MAX_STEPS: usize = 20_000;

/// A write of a component or of the test, or a fault.
///
/// ```
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() {
/// use mizzen_testing::Cluster;
///
/// let cluster = Cluster::start().await;
/// cluster.apply("{apiVersion: v1, kind: ConfigMap, metadata: {name: settings}}").await;
/// let steps = cluster.steps();
/// let last = steps.last().unwrap();
/// assert_eq!((&*last.actor, &*last.object, &*last.what), ("test", "configmaps/settings", "created"));
/// # }
/// ```
#[derive(Debug, Clone)]
pub struct Step {
    /// The time since the cluster was started.
    pub at: Duration,
    /// The component: a controller's name, `scheduler`, `kubelet`, the name of a program, or `test`.
    pub actor: Arc<str>,
    /// The object: `pods/web-5d8f-x7k2p`; or `FAULT`.
    pub object: String,
    /// What happened: `created`, `status.readyReplicas 2 → 3`, or the error.
    pub what: String,
}

/// The object of a step that is a fault.
const FAULT: &str = "FAULT";

impl Step {
    /// Whether it is a fault.
    pub(crate) fn is_fault(&self) -> bool {
        self.object == FAULT
    }
}

/// The same columns as `mizzen trace`.
impl fmt::Display for Step {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        let Step {
            at,
            actor,
            object,
            what,
        } = self;
        let seconds = at.as_secs_f64();
        write!(f, "{seconds:>8.3}s  {actor:<24} {object:<34} {what}")
    }
}

/// A write as it was sent and answered. Text is derived when it is printed.
#[derive(Debug, Clone)]
pub(crate) struct RecordedWrite {
    pub(crate) actor: Arc<str>,
    pub(crate) method: Method,
    pub(crate) path: String,
    pub(crate) code: u16,
    pub(crate) answer: Bytes,
}

#[derive(Debug, Clone)]
enum Entry {
    Write(RecordedWrite),
    /// A fault, and the component that it hits.
    Fault {
        actor: Arc<str>,
        what: String,
    },
}

/// The steps of a cluster, the latest ones. Clones share them.
#[derive(Debug, Clone)]
pub(crate) struct StepLog {
    began: Instant,
    entries: Arc<Mutex<VecDeque<(Duration, Entry)>>>,
}

impl StepLog {
    pub(crate) fn new() -> StepLog {
        StepLog {
            began: Instant::now(),
            entries: Arc::default(),
        }
    }

    pub(crate) fn elapsed(&self) -> Duration {
        self.began.elapsed()
    }

    /// Records a write. Events and Leases are left out: they are many, and say nothing of a failure.
    pub(crate) fn record_write(&self, write: RecordedWrite) {
        let resource = RequestTarget::parse(&write.path).resource;
        if !matches!(resource, "events" | "leases") {
            self.push(Entry::Write(write));
        }
    }

    pub(crate) fn record_fault(&self, actor: &Arc<str>, what: String) {
        let actor = actor.clone();
        self.push(Entry::Fault { actor, what });
    }

    fn push(&self, entry: Entry) {
        let mut entries = self.entries.lock();
        if entries.len() == MAX_STEPS {
            entries.pop_front();
        }
        entries.push_back((self.elapsed(), entry));
    }

    /// All steps that are kept, oldest first.
    pub(crate) fn steps(&self) -> Vec<Step> {
        let entries: Vec<_> = self.entries.lock().iter().cloned().collect();
        let mut states = HashMap::new();
        entries
            .into_iter()
            .map(|(at, entry)| match entry {
                Entry::Fault { actor, what } => Step {
                    at,
                    actor,
                    object: FAULT.into(),
                    what,
                },
                Entry::Write(write) => write.step(at, &mut states),
            })
            .collect()
    }

    /// The last `n` steps, a line each.
    pub(crate) fn tail(&self, n: usize) -> String {
        let steps = self.steps();
        let from = steps.len().saturating_sub(n);
        let lines: Vec<String> = steps[from..].iter().map(Step::to_string).collect();
        lines.join(
            "
",
        )
    }
}

impl RecordedWrite {
    /// `states` has the last seen state of each object.
    fn step(self, at: Duration, states: &mut HashMap<String, Value>) -> Step {
        let target = RequestTarget::parse(&self.path);
        let answer = json::parse(&self.answer).unwrap_or_default();
        // The Status of a rejected create has the name in its details.
        let name = match target.name {
            "" if self.code >= 300 => answer["details"]["name"].str(),
            "" => answer["metadata"]["name"].str(),
            name => name,
        };
        let object = format!("{}/{name}", target.resource);
        let key = format!("{}/{object}", target.namespace);
        let is_object = answer["kind"].str() != "Status" && !answer["metadata"]["uid"].is_null();
        let what = match (self.code, &self.method, target.subresource) {
            (code @ 300.., method, _) => {
                format!("{method} answered {code}: {}", answer["message"].str())
            }
            (_, &Method::DELETE, _) if is_terminating(&answer) => "terminating".into(),
            (_, &Method::DELETE, _) => "deleted".into(),
            (_, &Method::POST, "") => "created".into(),
            (_, &Method::POST, subresource) => subresource.into(),
            _ => match states.get(&key) {
                Some(old) if is_object => changes_between(old, &answer),
                _ if self.code == 201 => "created".into(),
                _ => "changed".into(),
            },
        };
        match &self.method {
            &Method::DELETE if what == "deleted" => drop(states.remove(&key)),
            _ if is_object && self.code < 300 => drop(states.insert(key, answer)),
            _ => {}
        }
        Step {
            at,
            actor: self.actor,
            object,
            what,
        }
    }
}

/// Whether a deleted object still exists: it has a grace period or finalizers.
fn is_terminating(object: &Value) -> bool {
    let metadata = &object["metadata"];
    let is_pending = metadata["deletionGracePeriodSeconds"].int() > 0;
    !metadata["deletionTimestamp"].is_null() && (is_pending || !metadata["finalizers"].is_empty())
}
