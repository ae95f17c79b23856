//! A claim stays while a pod on a node uses it.

use std::sync::Arc;

use mizzen_sdk::api::ListOptions;
use mizzen_sdk::cache::Entry;
use mizzen_sdk::informer::{Event, Informer};
use mizzen_sdk::queue::Queue;
use mizzen_sdk::resource::{PERSISTENT_VOLUME_CLAIMS, PODS};
use mizzen_sdk::{Key, Object};
use mizzen_value::Value;

use super::Plan;
use crate::common::pod::is_terminal;
use crate::{After, Context, Error, Reconcile, Work, pod_index};

const FINALIZER: &str = "kubernetes.io/pvc-protection";

struct Claims {
    context: Context,
    claims: Informer<Object>,
    pods: Informer<Object>,
}

/// Sets up the loop.
pub(crate) fn start(context: &Context) -> Work {
    let context = context.named("pvc-protection-controller");
    let queue = context.queue("pvcprotection");
    let (claims, pods) = (
        context.follow(&PERSISTENT_VOLUME_CLAIMS),
        context.follow(&PODS),
    );
    pod_index::add_claim(&pods);
    let todo = queue.clone();
    claims.add_handler(move |event: Event<Object>| todo.add(event.key().clone()));
    let todo = queue.clone();
    pods.add_handler(move |event: Event<Object>| pod_changed(&event, &todo));
    Work::new(
        queue,
        10,
        Arc::new(Claims {
            context,
            claims,
            pods,
        }),
    )
}

/// The claims of a pod that may not use them any more; of its predecessor, too, if it has the same name.
fn pod_changed(event: &Event<Object>, todo: &Queue<Key>) {
    let (last, now) = match event {
        Event::Added { object, .. } => (None, Some(object)),
        Event::Updated { old, new } => (Some(old).filter(|old| old.uid() != new.uid()), Some(new)),
        Event::Deleted { last, .. } => (Some(last), None),
    };
    let may_use = |pod: &Object| !pod["spec"]["nodeName"].str().is_empty() && !is_terminal(pod);
    let read = |entry: &Entry<Object>| {
        entry
            .object()
            .ok()
            .filter(|_| pod_index::may_claim(entry.text()))
    };
    let now = now.and_then(read).filter(|pod| !may_use(pod));
    for pod in now.into_iter().chain(last.and_then(read)) {
        pod_index::claims(&pod).for_each(|name| todo.add(Key::new(pod.namespace(), name)));
    }
}

impl Reconcile for Claims {
    async fn reconcile(&self, key: &Key) -> Result<After, Error> {
        let Some(claim) = self.claims.lister().by_key(key)? else {
            return Ok(After::Done);
        };
        match super::plan(&claim, FINALIZER) {
            Plan::Nothing => (),
            Plan::Add => {
                super::add(&self.context, &PERSISTENT_VOLUME_CLAIMS, &claim, FINALIZER).await?
            }
            Plan::RemoveIfUnused => {
                if !self.is_used(&claim).await? {
                    super::remove(&self.context, &PERSISTENT_VOLUME_CLAIMS, &claim, FINALIZER)
                        .await?;
                }
            }
        }
        Ok(After::Done)
    }
}

impl Claims {
    /// The server is asked only if our cache knows of nobody: it may not know of the newest pods.
    async fn is_used(&self, claim: &Object) -> Result<bool, Error> {
        let known = pod_index::of_claim(&self.pods, &claim.key().to_string())?;
        if known.iter().any(|pod| uses(pod, claim)) {
            return Ok(true);
        }
        let pods = self
            .context
            .api
            .list(&PODS, claim.namespace(), &ListOptions::default())
            .await?;
        Ok(pods.iter().any(|pod| uses(pod, claim)))
    }
}

/// Whether a pod uses a claim: a pod without a node cannot, and one that is over still counts.
fn uses(pod: &Object, claim: &Object) -> bool {
    let has = |volume: &Value| pod_index::claim_name(pod, volume).as_deref() == Some(claim.name());
    let counts = |volume: &Value| match volume["ephemeral"].is_null() {
        true => true,
        false => !is_shut_down(pod) && claim.is_controlled_by(pod.uid()),
    };
    let volumes = pod["spec"]["volumes"].list();
    !pod["spec"]["nodeName"].str().is_empty()
        && volumes.iter().any(|volume| has(volume) && counts(volume))
}

/// Whether a pod only waits for somebody to remove it.
fn is_shut_down(pod: &Object) -> bool {
    pod.is_going() && pod["metadata"]["deletionGracePeriodSeconds"].as_int() == Some(0)
}

#[cfg(test)]
mod tests {
    use mizzen_value::value;

    use super::*;

    #[track_caller]
    fn check(node: &str, volume: Value, grace: Option<i64>, wanted: bool) {
        let mut pod = Object(
            value!({"metadata": {"name": "p", "uid": "u"}, "spec": {"nodeName": node, "volumes": [volume]}}),
        );
        if let Some(grace) = grace {
            pod.entry("metadata")
                .set("deletionTimestamp", "2024-01-01T00:00:00Z");
            pod.entry("metadata")
                .set("deletionGracePeriodSeconds", grace);
        }
        let claim = Object(
            value!({"metadata": {"name": "p-v", "ownerReferences": [{"uid": "u", "controller": true}]}}),
        );
        assert_eq!(uses(&pod, &claim), wanted);
    }

    #[test]
    fn a_pod_on_a_node_uses_its_claims() {
        let named = || value!({"name": "v", "persistentVolumeClaim": {"claimName": "p-v"}});
        let ephemeral = || value!({"name": "v", "ephemeral": {}});
        check("", named(), None, false);
        check("n", named(), None, true);
        check("n", named(), Some(0), true);
        check(
            "n",
            value!({"name": "v", "persistentVolumeClaim": {"claimName": "other"}}),
            None,
            false,
        );
        check("n", ephemeral(), None, true);
        check("n", ephemeral(), Some(30), true);
        check("n", ephemeral(), Some(0), false);
    }
}
