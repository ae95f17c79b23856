//! The node lifecycle controller: sets Ready to Unknown without heartbeats, and taints nodes.
//!
//! Condition taints and labels are synced on events ([`labels_and_taints`]); health is checked
//! periodically ([`monitor`]), and NoExecute taints are added at a limited rate.

mod health;
mod labels_and_taints;
mod monitor;
mod pods;
mod taint_queue;
mod taints;
mod zones;

use std::sync::Arc;

use mizzen_sdk::api::Patch;
use mizzen_sdk::cache::Entry;
use mizzen_sdk::informer::{Event, Informer};
use mizzen_sdk::resource::{LEASES, NODES, PODS};
use mizzen_sdk::{Key, Object};
use mizzen_value::value;

use crate::common::owner_events::enqueue_objects;
use crate::common::pod::condition;
use crate::{Action, Controller, ControllerContext, Error, Reconcile, pod_index};
use monitor::HealthMonitor;

pub use health::NodeMonitor;

pub(crate) fn start(context: &ControllerContext) -> Controller {
    let context = context.named("node-controller");
    let (nodes, pods) = (context.informer(&NODES), context.informer(&PODS));
    pod_index::add_node_index(&pods);
    let monitor = HealthMonitor::new(
        context.clone(),
        nodes.clone(),
        pods.clone(),
        context.informer(&LEASES),
    );
    let queue = context.queue("node_lifecycle_controller");
    enqueue_objects(&nodes, &queue);
    let sync = TaintAndLabelSync {
        context: context.clone(),
        nodes: nodes.clone(),
    };
    Controller::new(queue, 8, Arc::new(sync))
        .merge(watch_new_pods(&context, &nodes, &pods))
        .with_task(monitor.run())
}

/// Pods that are added to a node that is not ready.
///
/// Kubernetes: only the addition counts; a pod that becomes ready on such a node later stays ready
/// until the node's heartbeats stop (node_lifecycle_controller.go).
fn watch_new_pods(
    context: &ControllerContext,
    nodes: &Informer<Object>,
    pods: &Informer<Object>,
) -> Controller {
    let queue = context.queue("node_lifecycle_controller_pods");
    let todo = queue.clone();
    let node_of = |pod: &Entry<Object>| pod.text_at(&["spec", "nodeName"]);
    pods.add_handler(move |event: Event<Object>| {
        let came = match &event {
            Event::Added { object, initial } => !initial && node_of(object).is_some(),
            Event::Updated { old, new } => node_of(old) != node_of(new),
            Event::Deleted { .. } => false,
        };
        if came {
            todo.add(event.key().clone());
        }
    });
    let new_pods = NewPods {
        context: context.clone(),
        nodes: nodes.clone(),
        pods: pods.clone(),
    };
    Controller::new(queue, 4, Arc::new(new_pods))
}

struct TaintAndLabelSync {
    context: ControllerContext,
    nodes: Informer<Object>,
}

impl Reconcile for TaintAndLabelSync {
    async fn reconcile(&self, key: &Key) -> Result<Action, Error> {
        let Some(node) = self.nodes.lister().by_key(key)? else {
            return Ok(Action::AwaitChange);
        };
        let now = self.context.now_text();
        if labels_and_taints::taints(&node, &now).is_some() {
            taints::change(&self.context, key.name(), |node| {
                labels_and_taints::taints(node, &now)
            })
            .await?;
        }
        if let Some(labels) = labels_and_taints::labels(&node) {
            let patch = value!({"metadata": {"labels": labels}});
            self.context
                .api
                .patch(&NODES, key, "", Patch::Merge, &patch)
                .await?;
        }
        Ok(Action::AwaitChange)
    }
}

struct NewPods {
    context: ControllerContext,
    nodes: Informer<Object>,
    pods: Informer<Object>,
}

impl Reconcile for NewPods {
    async fn reconcile(&self, key: &Key) -> Result<Action, Error> {
        let Some(pod) = self.pods.lister().by_key(key)? else {
            return Ok(Action::AwaitChange);
        };
        let Some(node) = self.nodes.lister().get(pod["spec"]["nodeName"].str())? else {
            return Ok(Action::AwaitChange);
        };
        let ready = condition(&node, "Ready");
        if ready.is_some_and(|ready| ready["status"].str() != "True") {
            pods::mark_pod_not_ready(&self.context, &pod).await?;
        }
        Ok(Action::AwaitChange)
    }
}
