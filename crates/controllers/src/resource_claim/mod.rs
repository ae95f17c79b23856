//! Devices for pods: claims from templates, shares of them, and their end.

mod claims;
mod names;
mod pods;

pub(crate) use names::{Claim, claim, entries};

use std::sync::Arc;

use mizzen_sdk::cache::{Entry, IndexFunction, by_owner};
use mizzen_sdk::informer::{Event, Informer};
use mizzen_sdk::queue::Queue;
use mizzen_sdk::resource::{PODS, RESOURCE_CLAIM_TEMPLATES, RESOURCE_CLAIMS};
use mizzen_sdk::{Key, Object};

use crate::{Context, Work, pod_index};
use claims::Claims;
use pods::Pods;

/// Claims by the pod that owns them.
const OF_POD: &str = "owner";
/// Pods by the claims that they use.
const BY_CLAIM: &str = "resource claim";
/// Pods by the templates that they use.
const BY_TEMPLATE: &str = "resource claim template";

/// Sets up the loop.
pub(crate) fn start(context: &Context) -> Work {
    let context = context
        .named("resource-claim-controller")
        .recording_as("resource_claim");
    let (pod_queue, claim_queue) = (
        context.queue("resource_claim_pods"),
        context.queue("resource_claim"),
    );
    let (pods, claims) = (context.follow(&PODS), context.follow(&RESOURCE_CLAIMS));
    let templates = context.follow(&RESOURCE_CLAIM_TEMPLATES);
    claims.add_index(OF_POD, by_owner());
    pods.add_index(BY_CLAIM, by(|pod| in_namespace(pod, names::known(pod))));
    pods.add_index(
        BY_TEMPLATE,
        by(|pod| in_namespace(pod, names::templates(pod))),
    );
    let (todo, of_claims) = (pod_queue.clone(), claim_queue.clone());
    pods.add_handler(move |event: Event<Object>| pod_changed(&event, &todo, &of_claims));
    let (todo, of_pods, all) = (claim_queue.clone(), pod_queue.clone(), pods.clone());
    claims.add_handler(move |event: Event<Object>| {
        todo.add(event.key().clone());
        wake(&all, BY_CLAIM, event.key(), &of_pods);
    });
    let (todo, all) = (pod_queue.clone(), pods.clone());
    templates.add_handler(move |event: Event<Object>| wake(&all, BY_TEMPLATE, event.key(), &todo));
    let for_claims = Claims {
        context: context.clone(),
        pods: pods.clone(),
        claims: claims.clone(),
    };
    let for_pods = Pods {
        context,
        pods,
        claims,
        templates,
    };
    Work::new(pod_queue, 10, Arc::new(for_pods)).with(Work::new(
        claim_queue,
        10,
        Arc::new(for_claims),
    ))
}

/// A pod with claims; the claims, too, if it may not need them any more.
fn pod_changed(event: &Event<Object>, todo: &Queue<Key>, claims: &Queue<Key>) {
    if !may_claim(event.object()) {
        return;
    }
    let Ok(pod) = event.object().object() else {
        return;
    };
    let is_gone = matches!(event, Event::Deleted { .. }) || names::is_done(&pod);
    if is_gone {
        names::known(&pod).for_each(|name| claims.add(Key::new(pod.namespace(), name)));
    }
    if !names::entries(&pod).is_empty() {
        todo.add(event.key().clone());
    }
}

/// Whether a pod may have claims; most have none, and need not be read to know it.
fn may_claim(pod: &Entry<Object>) -> bool {
    pod_index::says(pod.text(), b"esourceClaim")
}

fn wake(pods: &Informer<Object>, index: &str, key: &Key, todo: &Queue<Key>) {
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
