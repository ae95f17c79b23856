//! Which nodes can be relied on? Heartbeats lost make a node Unknown; what a node says of itself taints it; taints that
//! drive pods away come at a rate.
//!
//! Two things happen here: what a node says is mirrored as soon as it says so ([`marks`]), and whether it still speaks is
//! looked at every few seconds ([`monitor`]).

mod health;
mod marks;
mod monitor;
mod pods;
mod taints;
mod waiting;
mod zones;

use std::sync::Arc;

use mizzen_sdk::api::Patch;
use mizzen_sdk::cache::Entry;
use mizzen_sdk::informer::{Event, Informer};
use mizzen_sdk::resource::{LEASES, NODES, PODS};
use mizzen_sdk::{Key, Object};
use mizzen_value::value;

use crate::common::pod::condition;
use crate::{After, Context, Error, Reconcile, Work, pod_index};
use monitor::Monitor;

pub use health::NodeMonitor;

/// Sets up the loop.
pub(crate) fn start(context: &Context) -> Work {
    let context = context.named("node-controller");
    let (nodes, pods) = (context.follow(&NODES), context.follow(&PODS));
    pod_index::add_node(&pods);
    let monitor = Monitor::new(
        context.clone(),
        nodes.clone(),
        pods.clone(),
        context.follow(&LEASES),
    );
    mirror(&context, &nodes)
        .with(newcomers(&context, &nodes, &pods))
        .and(monitor.run())
}

fn mirror(context: &Context, nodes: &Informer<Object>) -> Work {
    let queue = context.queue("node_lifecycle_controller");
    let todo = queue.clone();
    nodes.add_handler(move |event: Event<Object>| todo.add(event.key().clone()));
    Work::new(
        queue,
        8,
        Arc::new(Mirror {
            context: context.clone(),
            nodes: nodes.clone(),
        }),
    )
}

/// Pods that come to a node that is not ready.
///
/// Kubernetes: only their coming matters; a pod that becomes ready on such a node later stays so, until the node's
/// heartbeats are lost (node_lifecycle_controller.go).
fn newcomers(context: &Context, nodes: &Informer<Object>, pods: &Informer<Object>) -> Work {
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
    let newcomers = Newcomers {
        context: context.clone(),
        nodes: nodes.clone(),
        pods: pods.clone(),
    };
    Work::new(queue, 4, Arc::new(newcomers))
}

struct Mirror {
    context: Context,
    nodes: Informer<Object>,
}

impl Reconcile for Mirror {
    async fn reconcile(&self, key: &Key) -> Result<After, Error> {
        let Some(node) = self.nodes.lister().by_key(key)? else {
            return Ok(After::Done);
        };
        let now = self.context.now_text();
        if marks::taints(&node, &now).is_some() {
            taints::change(&self.context, key.name(), |node| marks::taints(node, &now)).await?;
        }
        if let Some(labels) = marks::labels(&node) {
            let patch = value!({"metadata": {"labels": labels}});
            self.context
                .api
                .patch(&NODES, key, "", Patch::Merge, &patch)
                .await?;
        }
        Ok(After::Done)
    }
}

struct Newcomers {
    context: Context,
    nodes: Informer<Object>,
    pods: Informer<Object>,
}

impl Reconcile for Newcomers {
    async fn reconcile(&self, key: &Key) -> Result<After, Error> {
        let Some(pod) = self.pods.lister().by_key(key)? else {
            return Ok(After::Done);
        };
        let Some(node) = self.nodes.lister().get(pod["spec"]["nodeName"].str())? else {
            return Ok(After::Done);
        };
        let ready = condition(&node, "Ready");
        if ready.is_some_and(|ready| ready["status"].str() != "True") {
            pods::mark(&self.context, &pod).await?;
        }
        Ok(After::Done)
    }
}
