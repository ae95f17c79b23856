//! PersistentVolumeClaim protection: the finalizer stays while a pod on a node uses the claim.

use mizzen_component_helpers::pod_state::is_terminal;
use mizzen_sdk::cache::Entry;
use mizzen_sdk::controller::Context;
use mizzen_sdk::dynamic::ListOptions;
use mizzen_sdk::informer::{Event, Informer};
use mizzen_sdk::queue::Queue;
use mizzen_sdk::resource::{PERSISTENT_VOLUME_CLAIMS, PODS};
use mizzen_sdk::{Key, Object};
use mizzen_value::Value;

use super::FinalizerPlan;
use crate::{Action, Controller, ControllerContext, Error, Reconcile, pod_index};

const FINALIZER: &str = "kubernetes.io/pvc-protection";

struct PvcProtection {
    context: ControllerContext,
    claims: Informer<Object>,
    pods: Informer<Object>,
}

pub(crate) fn start(context: &ControllerContext) -> Controller {
    let context = context.named("pvc-protection-controller");
    let claims = context.informer(&PERSISTENT_VOLUME_CLAIMS);
    let pods = context.informer(&PODS);
    pod_index::add_claim_index(&pods);
    Controller::for_kind(&context, &PERSISTENT_VOLUME_CLAIMS)
        .watches_events(&PODS, on_pod_event)
        .queue_name("pvcprotection")
        .workers(10)
        .reconcile(PvcProtection {
            context,
            claims,
            pods,
        })
}

/// Enqueues the claims that a pod may not use any more, and those of its predecessor of the same
/// name.
fn on_pod_event(event: &Event<Object>, todo: &Queue<Key>) {
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
        pod_index::claim_names(&pod).for_each(|name| todo.add(Key::new(pod.namespace(), name)));
    }
}

impl Reconcile for PvcProtection {
    async fn reconcile(&self, key: &Key, _: &Context) -> Result<Action, Error> {
        let Some(claim) = self.claims.lister().by_key(key)? else {
            return Ok(Action::done());
        };
        match super::plan(&claim, FINALIZER) {
            FinalizerPlan::Nothing => (),
            FinalizerPlan::Add => {
                super::add_finalizer(&self.context, &PERSISTENT_VOLUME_CLAIMS, &claim, FINALIZER)
                    .await?
            }
            FinalizerPlan::RemoveIfUnused => {
                if !self.is_used(&claim).await? {
                    super::remove_finalizer(
                        &self.context,
                        &PERSISTENT_VOLUME_CLAIMS,
                        &claim,
                        FINALIZER,
                    )
                    .await?;
                }
            }
        }
        Ok(Action::done())
    }
}

impl PvcProtection {
    /// Reads pods from the server only if the cache has no user: it may lack the newest pods.
    async fn is_used(&self, claim: &Object) -> Result<bool, Error> {
        let known = pod_index::pods_using_claim(&self.pods, &claim.key().to_string())?;
        if known.iter().any(|pod| uses(pod, claim)) {
            return Ok(true);
        }
        let api = &self.context.api;
        let pods = api
            .list(&PODS, claim.namespace(), &ListOptions::default())
            .await?;
        Ok(pods.iter().any(|pod| uses(pod, claim)))
    }
}

/// Whether a pod uses a claim: a pod without a node does not, a finished one does.
fn uses(pod: &Object, claim: &Object) -> bool {
    let has = |volume: &Value| pod_index::claim_name(pod, volume).as_deref() == Some(claim.name());
    let counts = |volume: &Value| match volume["ephemeral"].is_null() {
        true => true,
        false => {
            let is_shut_down = pod.is_terminating()
                && pod["metadata"]["deletionGracePeriodSeconds"].as_int() == Some(0);
            !is_shut_down && claim.is_controlled_by(pod.uid())
        }
    };
    let volumes = pod["spec"]["volumes"].list();
    !pod["spec"]["nodeName"].str().is_empty()
        && volumes.iter().any(|volume| has(volume) && counts(volume))
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
