//! The node lifecycle controller: sets Ready to Unknown without heartbeats, and taints nodes.
//!
//! Condition taints and labels are synced on events ([`labels_and_taints`]); health is checked
//! periodically ([`monitor`]), and NoExecute taints are added at a limited rate.

mod health;
mod labels_and_taints;
mod metrics;
mod monitor;
mod pods;
mod taint_queue;
mod taints;
mod zones;

use std::collections::HashMap;
use std::sync::Arc;

use mizzen_sdk::cache::Entry;
use mizzen_sdk::controller::{Context, Predicate, dynamic};
use mizzen_sdk::dynamic::PatchType;
use mizzen_sdk::informer::{Event, Informer};
use mizzen_sdk::resource::{LEASES, NODES, PODS};
use mizzen_sdk::{Key, Object};
use mizzen_value::value;
use mizzen_workloads::common::pod::condition;

use crate::{Action, Controller, ControllerContext, Error, Reconcile, pod_index};
use metrics::NodeCollectorMetrics;
use monitor::HealthMonitor;
use zones::ZoneStates;

pub use health::NodeMonitor;

pub(crate) fn start(context: &ControllerContext) -> Controller {
    let context = context.named("node-controller");
    let (nodes, pods) = (context.informer(&NODES), context.informer(&PODS));
    pod_index::add_node_index(&pods);
    let metrics = Arc::<NodeCollectorMetrics>::default();
    let monitor = HealthMonitor {
        context: context.clone(),
        nodes: nodes.clone(),
        pods: pods.clone(),
        leases: context.informer(&LEASES),
        metrics: metrics.clone(),
        known: HashMap::new(),
        zones: ZoneStates::default(),
    };
    let new_pods = Controller::for_kind(&context, dynamic(&PODS).filter(node_assigned()))
        .queue_name("node_lifecycle_controller_pods")
        .workers(4)
        .reconcile(NewPods {
            context: context.clone(),
            nodes: nodes.clone(),
            pods,
        });
    Controller::for_kind(&context, &NODES)
        .queue_name("node_lifecycle_controller")
        .workers(8)
        .reconcile(TaintAndLabelSync { context, nodes })
        .merge(new_pods)
        .with_task(monitor.run())
        .with_metrics(metrics)
}

/// Pods that are added to a node that is not ready.
///
/// Kubernetes: only the addition counts; a pod that becomes ready on such a node later stays ready
/// until the node's heartbeats stop (node_lifecycle_controller.go).
fn node_assigned() -> Predicate<Object> {
    let node_of = |pod: &Entry<Object>| pod.text_at(&["spec", "nodeName"]);
    Predicate::new(move |event| match event {
        Event::Added { object, initial } => !initial && node_of(object).is_some(),
        Event::Updated { old, new } => node_of(old) != node_of(new),
        Event::Deleted { .. } => false,
    })
}

struct TaintAndLabelSync {
    context: ControllerContext,
    nodes: Informer<Object>,
}

impl Reconcile for TaintAndLabelSync {
    async fn reconcile(&self, key: &Key, _: &Context) -> Result<Action, Error> {
        let Some(node) = self.nodes.lister().by_key(key)? else {
            return Ok(Action::done());
        };
        let now = self.context.now_text();
        if labels_and_taints::taints(&node, &now).is_some() {
            taints::change(&self.context, &self.nodes, key.name(), |node| {
                labels_and_taints::taints(node, &now)
            })
            .await?;
        }
        if let Some(labels) = labels_and_taints::labels(&node) {
            let patch = value!({"metadata": {"labels": labels}});
            self.context
                .api
                .patch(&NODES, key, "", PatchType::Merge, &patch)
                .await?;
        }
        Ok(Action::done())
    }
}

struct NewPods {
    context: ControllerContext,
    nodes: Informer<Object>,
    pods: Informer<Object>,
}

impl Reconcile for NewPods {
    async fn reconcile(&self, key: &Key, _: &Context) -> Result<Action, Error> {
        let Some(pod) = self.pods.lister().by_key(key)? else {
            return Ok(Action::done());
        };
        let Some(node) = self.nodes.lister().get(pod["spec"]["nodeName"].str())? else {
            return Ok(Action::done());
        };
        let ready = condition(&node, "Ready");
        if ready.is_some_and(|ready| ready["status"].str() != "True") {
            pods::mark_pod_not_ready(&self.context, &pod).await?;
        }
        Ok(Action::done())
    }
}
