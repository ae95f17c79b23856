//! What nobody owns any more goes; what waits for its dependents goes after them; what leaves its dependents goes alone.
//!
//! The `graph` of all objects hears of every change and says which objects may have to go. Each of them is looked at
//! (`attempt`, `orphan`) as it is on the server (`live`), and `decide` says what becomes of it.
//!
//! Invariant: nothing is deleted because of what the graph knows alone. Whoever is deleted was just read, and is deleted
//! on the condition that it is still as it was.

mod absent;
mod attempt;
mod decide;
mod graph;
mod live;
mod name;
mod orphan;
mod seen;

#[cfg(test)]
mod tests;

use parking_lot::{Mutex, MutexGuard};
use std::borrow::Cow;
use std::collections::HashSet;
use std::mem::take;
use std::sync::Arc;
use std::time::Duration;

use mizzen_sdk::event::Note;
use mizzen_sdk::failure_log::FailureLog;
use mizzen_sdk::queue::Queue;
use mizzen_sdk::{Object, Resource};
use mizzen_value::{Value, value};

use crate::census::{Census, Listed, Listener};
use crate::{Context, Work};
use attempt::Next;
use graph::{Effect, Graph};
use live::{Live, Trouble};
use name::{Identity, Uid};

/// How many objects are looked at at a time.
const DELETERS: usize = 20;
/// How many objects are rid of their dependents at a time.
const ORPHANERS: usize = 5;
/// How long failures may last before they are logged at warn: some objects wait for their owners' kinds.
const PATIENCE: Duration = Duration::from_secs(60);

struct Collector {
    context: Context,
    live: Live,
    graph: Mutex<Graph>,
    to_delete: Queue<Uid>,
    to_orphan: Queue<Uid>,
    /// What cannot be judged because it belongs to something of an unknown kind.
    puzzling: Mutex<HashSet<Uid>>,
    failures: FailureLog,
}

/// Sets up the loop.
pub(crate) fn start(context: &Context) -> Work {
    let context = context.named("generic-garbage-collector");
    let census = context.census().clone();
    let collector = Arc::new(Collector {
        live: Live::new(&context.api, &census),
        context: context.named("garbage-collector-controller"),
        graph: Mutex::default(),
        to_delete: Queue::new("garbage_collector_attempt_to_delete"),
        to_orphan: Queue::new("garbage_collector_attempt_to_orphan"),
        puzzling: Mutex::default(),
        failures: FailureLog::after(PATIENCE),
    });
    census.listen(Arc::new(Arc::downgrade(&collector)));
    let work = Work::default()
        .and(census.clone().run())
        .measured(collector.to_delete.clone())
        .measured(collector.to_orphan.clone());
    let work = (0..DELETERS).fold(work, |work, _| {
        work.and(collector.clone().delete_all(census.clone()))
    });
    (0..ORPHANERS).fold(work, |work, _| {
        work.and(collector.clone().orphan_all(census.clone()))
    })
}

impl Collector {
    async fn delete_all(self: Arc<Collector>, census: Census) {
        census.wait_for_sync().await;
        while let Some(uid) = self.to_delete.get().await {
            match self.attempt(&uid).await {
                Ok(Next::Nothing) | Err(Trouble::Misplaced) => {
                    self.failures.recovered();
                    self.to_delete.forget(&uid);
                }
                Ok(Next::Again) => self.to_delete.add_rate_limited(uid.clone()),
                Err(trouble) => self.try_again(&uid, &trouble),
            }
            self.to_delete.done(&uid);
        }
    }

    fn try_again(&self, uid: &Uid, trouble: &Trouble) {
        self.report(
            uid,
            trouble,
            "an object could not be examined for garbage collection",
        );
        if matches!(trouble, Trouble::UnknownKind(_)) {
            hold(&self.puzzling).insert(uid.clone());
        }
        self.to_delete.add_rate_limited(uid.clone());
    }

    /// Logs a failure: at warn if there have been failures for a while, now and then.
    fn report(&self, uid: &Uid, error: &Trouble, what: &str) {
        match self.failures.failed() {
            Some(unlogged) => tracing::warn!(%uid, %error, unlogged, "{what}"),
            None => tracing::debug!(%uid, %error, "{what}"),
        }
    }

    async fn orphan_all(self: Arc<Collector>, census: Census) {
        census.wait_for_sync().await;
        while let Some(uid) = self.to_orphan.get().await {
            match self.orphan(&uid).await {
                Ok(()) => self.to_orphan.forget(&uid),
                Err(trouble) => {
                    self.report(
                        &uid,
                        &trouble,
                        "the dependents of an object could not be orphaned",
                    );
                    self.to_orphan.add_rate_limited(uid.clone());
                }
            }
            self.to_orphan.done(&uid);
        }
    }

    fn graph(&self) -> MutexGuard<'_, Graph> {
        hold(&self.graph)
    }

    fn follow_up(&self, effects: Vec<Effect>) {
        for effect in effects {
            match effect {
                Effect::TryDelete(uid) => self.to_delete.add(uid),
                Effect::TryDeleteLater(uid) => self.to_delete.add_rate_limited(uid),
                Effect::TryOrphan(uid) => self.to_orphan.add(uid),
                Effect::Complain { dependent, owner } => self.complain(&dependent, &owner),
            }
        }
    }

    fn complain(&self, dependent: &Identity, owner: &Identity) {
        let namespace = &dependent.namespace;
        let message = format!("ownerRef {owner} does not exist in namespace {namespace:?}");
        let (resource, object) = reference(dependent);
        self.context.record(
            &resource,
            &object,
            Note::warning("OwnerRefInvalidNamespace", "", message),
        );
    }
}

fn hold<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock()
}

/// An object as events name it.
fn reference(
    Identity {
        kind,
        namespace,
        name,
        uid,
    }: &Identity,
) -> (Resource, Object) {
    let (group, version) = kind
        .api_version
        .split_once('/')
        .unwrap_or(("", &kind.api_version));
    let own = |text: &str| Cow::Owned(text.to_string());
    let resource = Resource {
        group: own(group),
        version: own(version),
        plural: own(""),
        kind: own(&kind.kind),
        namespaced: !namespace.is_empty(),
    };
    let (namespace, name) = (&**namespace, &**name);
    let metadata = value!({ "namespace": namespace, "name": name, "uid": (uid.to_string()) });
    (resource, Object(value!({ "metadata": metadata })))
}

impl Listener for Collector {
    fn replaced(&self, of: &Resource, objects: Listed) {
        let effects = {
            let mut graph = self.graph();
            let kind = graph.kind(&of.api_version(), &of.kind);
            graph.replace(&kind, objects.iter())
        };
        self.follow_up(effects);
    }

    fn changed(&self, of: &Resource, object: &Value) {
        let effects = {
            let mut graph = self.graph();
            let kind = graph.kind(&of.api_version(), &of.kind);
            graph.see(&kind, object)
        };
        self.follow_up(effects);
    }

    fn gone(&self, _of: &Resource, object: &Value) {
        let effects = self.graph().gone(&object["metadata"]["uid"].str().into());
        self.follow_up(effects);
    }

    fn forgotten(&self, of: &Resource) {
        let effects = {
            let mut graph = self.graph();
            let kind = graph.kind(&of.api_version(), &of.kind);
            graph.forget(&kind)
        };
        self.follow_up(effects);
    }

    /// What was puzzling may be of a kind that is there now.
    fn served(&self) {
        for uid in take(&mut *hold(&self.puzzling)) {
            self.to_delete.forget(&uid);
            self.to_delete.add(uid);
        }
    }
}
