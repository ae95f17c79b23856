//! The taint eviction controller: deletes pods that do not tolerate the NoExecute taints of their
//! node.

mod plan;

use parking_lot::Mutex;
use std::collections::HashMap;
use std::time::Duration;

use k8s_openapi::jiff::Timestamp;
use mizzen_sdk::cache::Entry;
use mizzen_sdk::controller::{Context, Predicate, dynamic};
use mizzen_sdk::event::Note;
use mizzen_sdk::informer::Informer;
use mizzen_sdk::resource::{NODES, PODS};
use mizzen_sdk::write::is_not_found;
use mizzen_sdk::{Key, Object};
use mizzen_value::value;

use crate::eviction::mark_and_delete;
use crate::{Action, Controller, ControllerContext, Error, Reconcile, pod_index, taint};
use plan::{EvictionPlan, EvictionRecord, TolerationTime};

struct TaintEviction {
    context: ControllerContext,
    nodes: Informer<Object>,
    pods: Informer<Object>,
    known: Mutex<HashMap<Key, EvictionRecord>>,
}

pub(crate) fn start(context: &ControllerContext) -> Controller {
    let context = context
        .named("node-controller")
        .with_event_source("taint-eviction-controller");
    let (nodes, pods) = (context.informer(&NODES), context.informer(&PODS));
    pod_index::add_node_index(&pods);
    let all = pods.clone();
    Controller::for_kind(&context, &PODS)
        .watches_events(
            dynamic(&NODES).filter(Predicate::updates(taints_changed)),
            move |event, queue| {
                let pods = pod_index::pods_on_node(&all, event.key().name());
                let pods = pods.unwrap_or_default();
                pods.iter().for_each(|pod| queue.add(pod.key()));
            },
        )
        .queue_name("noexec_taint_pod")
        .workers(8)
        .reconcile(TaintEviction {
            context,
            nodes,
            pods,
            known: Mutex::default(),
        })
}

/// Whether the NoExecute taints of a node changed.
fn taints_changed(old: &Entry<Object>, new: &Entry<Object>) -> bool {
    let taints = |entry: &Entry<Object>| {
        let node = entry.object();
        node.map(|node| taint::no_execute_taints(&node)).ok()
    };
    taints(old) != taints(new)
}

impl Reconcile for TaintEviction {
    async fn reconcile(&self, key: &Key, _: &Context) -> Result<Action, Error> {
        let Some(pod) = self.pods.lister().by_key(key)? else {
            self.forget(key);
            return Ok(Action::done());
        };
        let tolerated = self.toleration_time(&pod)?;
        let now = self.context.monotonic_now();
        let known = self.known.lock().get(key).cloned();
        match plan::plan(known.as_ref(), pod.uid(), tolerated, now) {
            EvictionPlan::Nothing => (),
            EvictionPlan::Forget | EvictionPlan::Cancel => self.forget(key),
            EvictionPlan::Wait(until) => {
                self.known
                    .lock()
                    .insert(key.clone(), EvictionRecord::Until(until));
                let delay = Duration::try_from(until.duration_since(now)).unwrap_or_default();
                return Ok(Action::requeue_after(delay));
            }
            EvictionPlan::Evict { was_planned } => self.evict(&pod, was_planned).await?,
        }
        Ok(Action::done())
    }
}

impl TaintEviction {
    /// Forgets a pod; a planned eviction is cancelled with an event.
    fn forget(&self, key: &Key) {
        let known = self.known.lock().remove(key);
        if let Some(EvictionRecord::Until(_)) = known {
            self.record_event(key, format!("Cancelling deletion of Pod {key}"));
        }
    }

    fn toleration_time(&self, pod: &Object) -> Result<TolerationTime, Error> {
        let taints = match pod["spec"]["nodeName"].str() {
            "" => Vec::new(),
            node => self
                .nodes
                .lister()
                .get(node)?
                .map(|node| taint::no_execute_taints(&node))
                .unwrap_or_default(),
        };
        Ok(plan::toleration_time(
            pod["spec"]["tolerations"].list(),
            &taints,
        ))
    }

    async fn evict(&self, pod: &Object, was_planned: bool) -> Result<(), Error> {
        let key = pod.key();
        if was_planned {
            self.forget(&key);
        }
        if !self.is_marked(pod) {
            self.record_event(&key, format!("Marking for deletion Pod {key}"));
        }
        let condition = plan::condition(pod, &self.context.now_text());
        match mark_and_delete(&self.context, pod, condition).await {
            Err(Error::Api(error)) if is_not_found(&error) => Ok(()),
            Err(error) => {
                // The event was recorded; the retry does not record it again.
                self.known
                    .lock()
                    .insert(key, EvictionRecord::Until(Timestamp::MIN));
                Err(error)
            }
            Ok(()) => {
                self.known
                    .lock()
                    .insert(key, EvictionRecord::Evicted(pod.uid().into()));
                Ok(())
            }
        }
    }

    fn is_marked(&self, pod: &Object) -> bool {
        self.known.lock().get(&pod.key()) == Some(&EvictionRecord::Until(Timestamp::MIN))
    }

    fn record_event(&self, pod: &Key, message: String) {
        let named = value!({"metadata": {"namespace": (pod.namespace()), "name": (pod.name())}});
        self.context.record_event(
            &PODS,
            &Object(named),
            Note::normal("TaintManagerEviction", "", message),
        );
    }
}
