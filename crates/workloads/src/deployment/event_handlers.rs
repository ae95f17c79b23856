//! Event handlers: which deployment is enqueued for an event of a pod.

use mizzen_object::select::LabelSelector;
use mizzen_sdk::cache::{DecodeError, Entry, Store};
use mizzen_sdk::informer::{Event, Informer};
use mizzen_sdk::queue::Queue;
use mizzen_sdk::resource::{DEPLOYMENTS, REPLICA_SETS};
use mizzen_sdk::{Key, Object, ResourceType};

/// A Recreate rollout waits until the last old pod is gone.
pub(super) fn on_pod_deleted(
    deployments: &Informer<Object>,
    sets: &Informer<Object>,
) -> impl FnMut(&Event<Object>, &Queue<Key>) + Send + 'static {
    let (deployments, sets) = (deployments.store().clone(), sets.store().clone());
    move |event, queue| {
        let Event::Deleted { last, .. } = event else {
            return;
        };
        match recreating_deployment(last, &sets, &deployments) {
            Ok(deployment) => deployment.into_iter().for_each(|key| queue.add(key)),
            Err(error) => tracing::warn!(%error, "event object not decoded"),
        }
    }
}

/// The deployment of a pod's ReplicaSet, if its strategy is Recreate.
fn recreating_deployment(
    pod: &Entry<Object>,
    sets: &Store<Object>,
    deployments: &Store<Object>,
) -> Result<Option<Key>, DecodeError> {
    let Some(set) = resolve_controller(&*pod.object()?, sets, &REPLICA_SETS) else {
        return Ok(None);
    };
    let Some(deployment) = resolve_controller(&*set.object()?, deployments, &DEPLOYMENTS) else {
        return Ok(None);
    };
    let is_recreate = deployment.object()?["spec"]["strategy"]["type"].str() == "Recreate";
    Ok(is_recreate.then(|| deployment.key().clone()))
}

/// A deployment's selector; none if it selects nothing.
pub(super) fn selector(deployment: &Object) -> Option<LabelSelector> {
    LabelSelector::from_value(&deployment["spec"]["selector"])
        .filter(|selector| !selector.is_empty())
}

/// The controller of an object, if it is of this kind and its uid matches.
fn resolve_controller(
    object: &Object,
    owners: &Store<Object>,
    kind: &ResourceType,
) -> Option<Entry<Object>> {
    let owner = object
        .controller()
        .filter(|owner| owner["kind"].str() == kind.kind)?;
    let known = owners.get(&Key::new(object.namespace(), owner["name"].str()));
    known.filter(|known| known.uid() == owner["uid"].str())
}
