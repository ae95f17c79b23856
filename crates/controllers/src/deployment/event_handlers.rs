//! Event handlers: which deployment is enqueued for an event of a ReplicaSet or a pod.

use std::sync::Arc;

use mizzen_object::select::LabelSelector;
use mizzen_sdk::cache::{DecodeError, Entry};
use mizzen_sdk::informer::{Event, Informer};
use mizzen_sdk::queue::Queue;
use mizzen_sdk::resource::{DEPLOYMENTS, REPLICA_SETS};
use mizzen_sdk::{Key, Object};
use mizzen_value::Value;

use crate::select;

/// The state of the event handlers.
#[derive(Clone)]
pub(super) struct DeploymentEventHandlers {
    pub deployments: Informer<Object>,
    pub sets: Informer<Object>,
    pub queue: Queue<Key>,
}

impl DeploymentEventHandlers {
    /// Registers handlers for deployments, ReplicaSets and pods.
    pub(super) fn register(&self, pods: &Informer<Object>) {
        select::index_selectors(&self.deployments, selector);
        let queue = self.queue.clone();
        self.deployments
            .add_handler(move |event: Event<Object>| queue.add(event.key().clone()));
        let handlers = self.clone();
        self.sets
            .add_handler(move |event: Event<Object>| log(handlers.on_set(&event)));
        let handlers = self.clone();
        pods.add_handler(move |event: Event<Object>| {
            if let Event::Deleted { last, .. } = event {
                log(handlers.on_pod_deleted(&last));
            }
        });
    }

    fn on_set(&self, event: &Event<Object>) -> Result<(), DecodeError> {
        match event {
            Event::Added { object, .. } => self.on_set_changed(None, &*object.object()?),
            Event::Updated { old, new } if old.version() == new.version() => {}
            Event::Updated { old, new } => {
                self.on_set_changed(Some(old.object()?), &*new.object()?)
            }
            Event::Deleted { last, .. } => self.enqueue_owner(&*last.object()?),
        }
        Ok(())
    }

    fn on_set_changed(&self, old: Option<Arc<Object>>, new: &Object) {
        let is_other = |field: &str| {
            old.as_ref()
                .is_none_or(|old| old["metadata"][field] != new["metadata"][field])
        };
        match &old {
            Some(old) if old.controller() != new.controller() => self.enqueue_owner(old),
            _ => {}
        }
        match new.controller() {
            Some(_) => self.enqueue_owner(new),
            None if !new.is_terminating()
                && (is_other("labels") || is_other("ownerReferences")) =>
            {
                self.enqueue_adopters(new)
            }
            None => {}
        }
    }

    /// A Recreate rollout waits until the last old pod is gone.
    fn on_pod_deleted(&self, pod: &Entry<Object>) -> Result<(), DecodeError> {
        let pod = pod.object()?;
        let Some(owner) = pod
            .controller()
            .filter(|owner| owner["kind"].str() == REPLICA_SETS.kind)
        else {
            return Ok(());
        };
        let set = resolve_owner(&self.sets, pod.namespace(), owner);
        let set = set.map(|set| set.object()).transpose()?;
        let owner = set.as_ref().and_then(|set| set.controller());
        let Some(deployment) = owner.and_then(|owner| self.deployment(pod.namespace(), owner))
        else {
            return Ok(());
        };
        if deployment.object()?["spec"]["strategy"]["type"].str() == "Recreate" {
            self.queue.add(deployment.key().clone());
        }
        Ok(())
    }

    fn enqueue_owner(&self, set: &Object) {
        let owner = set
            .controller()
            .and_then(|owner| self.deployment(set.namespace(), owner));
        owner
            .into_iter()
            .for_each(|deployment| self.queue.add(deployment.key().clone()));
    }

    fn deployment(&self, namespace: &str, owner: &Value) -> Option<Entry<Object>> {
        let is_deployment = owner["kind"].str() == DEPLOYMENTS.kind;
        is_deployment
            .then(|| resolve_owner(&self.deployments, namespace, owner))
            .flatten()
    }

    /// Enqueues every deployment that may adopt an orphan.
    fn enqueue_adopters(&self, orphan: &Object) {
        let labels = &orphan["metadata"]["labels"];
        let deployments =
            select::objects_selecting(&self.deployments, orphan.namespace(), labels, selector);
        deployments
            .into_iter()
            .for_each(|deployment| self.queue.add(deployment.key()));
    }
}

/// A deployment's selector; none if it selects nothing.
pub(super) fn selector(deployment: &Value) -> Option<LabelSelector> {
    LabelSelector::from_value(&deployment["spec"]["selector"])
        .filter(|selector| !selector.is_empty())
}

/// The object of an owner reference, if its uid matches.
fn resolve_owner(
    informer: &Informer<Object>,
    namespace: &str,
    owner: &Value,
) -> Option<Entry<Object>> {
    let key = Key::new(namespace, owner["name"].str());
    informer
        .store()
        .get(&key)
        .filter(|entry| entry.uid() == owner["uid"].str())
}

fn log(outcome: Result<(), DecodeError>) {
    if let Err(error) = outcome {
        tracing::warn!(%error, "event object not decoded");
    }
}
