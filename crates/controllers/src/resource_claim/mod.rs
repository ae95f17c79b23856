//! The resource claim controller: creates claims from templates, reserves them, and releases them.

mod claims;
mod names;
mod pods;

pub(crate) use names::{PodClaim, entries, pod_claim};

use std::sync::Arc;

use mizzen_sdk::cache::{Entry, IndexFunction, by_owner};
use mizzen_sdk::controller::dynamic;
use mizzen_sdk::informer::{Event, Informer};
use mizzen_sdk::queue::Queue;
use mizzen_sdk::resource::{PODS, RESOURCE_CLAIM_TEMPLATES, RESOURCE_CLAIMS};
use mizzen_sdk::{Key, Object};

use crate::{Controller, ControllerContext, pod_index};
use claims::ClaimSync;
use pods::PodSync;

/// The index of claims by owner pod.
const OF_POD: &str = "owner";
/// The index of pods by claim.
const BY_CLAIM: &str = "resource claim";
/// The index of pods by template.
const BY_TEMPLATE: &str = "resource claim template";

pub(crate) fn start(context: &ControllerContext) -> Controller {
    let context = context
        .named("resource-claim-controller")
        .with_event_source("resource_claim");
    let pod_queue = Queue::new("resource_claim_pods");
    let claim_queue = Queue::new("resource_claim");
    let (pods, claims) = (context.informer(&PODS), context.informer(&RESOURCE_CLAIMS));
    let templates = context.informer(&RESOURCE_CLAIM_TEMPLATES);
    claims.add_index(OF_POD, by_owner());
    pods.add_index(
        BY_CLAIM,
        by(|pod| in_namespace(pod, names::claim_names(pod))),
    );
    pods.add_index(
        BY_TEMPLATE,
        by(|pod| in_namespace(pod, names::template_names(pod))),
    );
    let (of_claims, of_pods) = (claim_queue.clone(), pod_queue.clone());
    let (claimed, templated) = (pods.clone(), pods.clone());
    let on_pod = move |event: &_, queue: &_| on_pod_event(event, queue, &of_claims);
    let sync_claims = Controller::for_kind(&context, &RESOURCE_CLAIMS)
        .watches_events(&RESOURCE_CLAIMS, move |event, _| {
            enqueue_pods(&claimed, BY_CLAIM, event.key(), &of_pods);
        })
        .queue(claim_queue)
        .workers(10)
        .reconcile(ClaimSync {
            context: context.clone(),
            pods: pods.clone(),
            claims: claims.clone(),
        });
    Controller::for_kind(&context, dynamic(&PODS).handler(on_pod))
        .watches_events(&RESOURCE_CLAIM_TEMPLATES, move |event, queue| {
            enqueue_pods(&templated, BY_TEMPLATE, event.key(), queue);
        })
        .queue(pod_queue)
        .workers(10)
        .reconcile(PodSync {
            context,
            pods,
            claims,
            templates,
        })
        .merge(sync_claims)
}

/// Enqueues a pod with claims, and its claims if it may not need them any more.
fn on_pod_event(event: &Event<Object>, todo: &Queue<Key>, claims: &Queue<Key>) {
    if !may_claim(event.object()) {
        return;
    }
    let Ok(pod) = event.object().object() else {
        return;
    };
    let is_gone = matches!(event, Event::Deleted { .. }) || names::is_done(&pod);
    if is_gone {
        names::claim_names(&pod).for_each(|name| claims.add(Key::new(pod.namespace(), name)));
    }
    if !names::entries(&pod).is_empty() {
        todo.add(event.key().clone());
    }
}

/// Whether a pod may have claims; avoids decoding most pods.
fn may_claim(pod: &Entry<Object>) -> bool {
    pod_index::contains_bytes(pod.text(), b"esourceClaim")
}

fn enqueue_pods(pods: &Informer<Object>, index: &str, key: &Key, todo: &Queue<Key>) {
    for pod in pods
        .store()
        .by_index(index, &key.to_string())
        .into_iter()
        .flatten()
    {
        todo.add(pod.key().clone());
    }
}

fn in_namespace<'a>(pod: &Object, names: impl Iterator<Item = &'a str>) -> Vec<String> {
    names
        .map(|name| format!("{}/{name}", pod.namespace()))
        .collect()
}

fn by(values: impl Fn(&Object) -> Vec<String> + Send + Sync + 'static) -> IndexFunction<Object> {
    Arc::new(move |entry: &Entry<Object>| match may_claim(entry) {
        true => entry.object().map(|pod| values(&pod)).unwrap_or_default(),
        false => Vec::new(),
    })
}
