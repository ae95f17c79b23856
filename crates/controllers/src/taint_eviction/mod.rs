//! Who has to leave a node? Pods that do not tolerate its taints, at once or when their time is over.

mod plan;

use parking_lot::{Mutex, MutexGuard};
use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::jiff::Timestamp;
use mizzen_sdk::api::{DeleteOptions, Patch};
use mizzen_sdk::event::Note;
use mizzen_sdk::informer::{Event, Informer};
use mizzen_sdk::queue::Queue;
use mizzen_sdk::resource::{NODES, PODS};
use mizzen_sdk::write::is_not_found;
use mizzen_sdk::{Key, Object, condition};
use mizzen_value::value;

use crate::{After, Context, Error, Reconcile, Work, pod_index, taint};
use plan::{Known, Plan, Verdict};

struct Evictions {
    context: Context,
    nodes: Informer<Object>,
    pods: Informer<Object>,
    known: Mutex<HashMap<Key, Known>>,
}

/// Sets up the loop.
pub(crate) fn start(context: &Context) -> Work {
    let context = context
        .named("node-controller")
        .recording_as("taint-eviction-controller");
    let queue = context.queue("noexec_taint_pod");
    let (nodes, pods) = (context.follow(&NODES), context.follow(&PODS));
    pod_index::add_node(&pods);
    let todo = queue.clone();
    pods.add_handler(move |event: Event<Object>| todo.add(event.key().clone()));
    let (todo, all) = (queue.clone(), pods.clone());
    nodes.add_handler(move |event: Event<Object>| look_again(&event, &all, &todo));
    Work::new(
        queue,
        8,
        Arc::new(Evictions {
            context,
            nodes,
            pods,
            known: Mutex::default(),
        }),
    )
}

/// All pods of a node whose taints changed.
fn look_again(event: &Event<Object>, pods: &Informer<Object>, todo: &Queue<Key>) {
    let taints = |entry: &mizzen_sdk::cache::Entry<Object>| {
        entry.object().map(|node| taint::no_execute(&node)).ok()
    };
    if matches!(event, Event::Updated { old, new } if taints(old) == taints(new)) {
        return;
    }
    for pod in pod_index::on_node(pods, event.key().name()).unwrap_or_default() {
        todo.add(pod.key());
    }
}

impl Reconcile for Evictions {
    async fn reconcile(&self, key: &Key) -> Result<After, Error> {
        let Some(pod) = self.pods.lister().by_key(key)? else {
            self.forget(key);
            return Ok(After::Done);
        };
        let verdict = self.judge(&pod)?;
        let (now, known) = (self.context.monotonic_now(), self.known().get(key).cloned());
        match plan::plan(known.as_ref(), pod.uid(), verdict, now) {
            Plan::Nothing => (),
            Plan::Forget | Plan::Cancel => self.forget(key),
            Plan::Wait(until) => {
                self.known().insert(key.clone(), Known::Until(until));
                return Ok(After::Again(time_until(until, now)));
            }
            Plan::Evict { was_planned } => self.evict(&pod, was_planned).await?,
        }
        Ok(After::Done)
    }
}

impl Evictions {
    fn known(&self) -> MutexGuard<'_, HashMap<Key, Known>> {
        self.known.lock()
    }

    /// Forgets a pod; if it was to go, it is told that it is not any more.
    fn forget(&self, key: &Key) {
        let known = self.known().remove(key);
        if let Some(Known::Until(_)) = known {
            self.tell(key, format!("Cancelling deletion of Pod {key}"));
        }
    }

    fn judge(&self, pod: &Object) -> Result<Verdict, Error> {
        let taints = match pod["spec"]["nodeName"].str() {
            "" => Vec::new(),
            node => self
                .nodes
                .lister()
                .get(node)?
                .map(|node| taint::no_execute(&node))
                .unwrap_or_default(),
        };
        Ok(plan::judge(pod["spec"]["tolerations"].list(), &taints))
    }

    async fn evict(&self, pod: &Object, was_planned: bool) -> Result<(), Error> {
        let key = pod.key();
        if was_planned {
            self.forget(&key);
        }
        if !self.is_told(pod) {
            self.tell(&key, format!("Marking for deletion Pod {key}"));
        }
        match self.mark_and_delete(pod).await {
            Err(Error::Api(error)) if is_not_found(&error) => Ok(()),
            Err(error) => {
                // It was announced; what failed is tried again without saying so again.
                self.known().insert(key, Known::Until(Timestamp::MIN));
                Err(error)
            }
            Ok(()) => {
                self.known().insert(key, Known::Told(pod.uid().into()));
                Ok(())
            }
        }
    }

    fn is_told(&self, pod: &Object) -> bool {
        self.known().get(&pod.key()) == Some(&Known::Until(Timestamp::MIN))
    }

    async fn mark_and_delete(&self, pod: &Object) -> Result<(), Error> {
        let (api, key) = (&self.context.api, pod.key());
        if let Some(condition) = plan::condition(pod, &self.context.now_text()) {
            let status = condition::added(pod, condition);
            let patch = value!({"metadata": {"uid": (pod.uid())}, "status": status});
            api.patch(&PODS, &key, "status", Patch::Strategic, &patch)
                .await?;
        }
        api.delete(
            &PODS,
            &key,
            &DeleteOptions {
                uid: Some(pod.uid()),
                ..DeleteOptions::default()
            },
        )
        .await?;
        Ok(())
    }

    fn tell(&self, pod: &Key, message: String) {
        let named = value!({"metadata": {"namespace": (pod.namespace()), "name": (pod.name())}});
        self.context.record(
            &PODS,
            &Object(named),
            Note::normal("TaintManagerEviction", "", message),
        );
    }
}

fn time_until(until: Timestamp, now: Timestamp) -> Duration {
    Duration::try_from(until.duration_since(now)).unwrap_or_default()
}
