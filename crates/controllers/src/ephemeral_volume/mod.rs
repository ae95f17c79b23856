//! A volume that a pod brings along needs a claim: it is made, and goes with the pod.

use std::sync::Arc;

use mizzen_object::owner_references::controller_reference;
use mizzen_sdk::event::Note;
use mizzen_sdk::informer::{Event, Informer};
use mizzen_sdk::resource::{PERSISTENT_VOLUME_CLAIMS, PODS};
use mizzen_sdk::{Key, Object};
use mizzen_value::{Value, value};

use crate::common::failure;
use crate::{After, Context, Error, Reconcile, Work, pod_index};

struct Ephemeral {
    context: Context,
    pods: Informer<Object>,
    claims: Informer<Object>,
}

/// Sets up the loop.
pub(crate) fn start(context: &Context) -> Work {
    let context = context
        .named("ephemeral-volume-controller")
        .recording_as("ephemeral_volume");
    let queue = context.queue("ephemeral_volume");
    let (pods, claims) = (
        context.follow(&PODS),
        context.follow(&PERSISTENT_VOLUME_CLAIMS),
    );
    pod_index::add_claim(&pods);
    let todo = queue.clone();
    pods.add_handler(move |event: Event<Object>| {
        if let Event::Added { object, .. } = event
            && pod_index::may_claim(object.text())
        {
            todo.add(object.key().clone());
        }
    });
    let (todo, all) = (queue.clone(), pods.clone());
    claims.add_handler(move |event: Event<Object>| {
        if let Event::Deleted { last, .. } = event {
            let users = pod_index::of_claim(&all, &last.key().to_string()).unwrap_or_default();
            users.iter().for_each(|pod| todo.add(pod.key()));
        }
    });
    Work::new(
        queue,
        5,
        Arc::new(Ephemeral {
            context,
            pods,
            claims,
        }),
    )
}

impl Reconcile for Ephemeral {
    async fn reconcile(&self, key: &Key) -> Result<After, Error> {
        let Some(pod) = self
            .pods
            .lister()
            .by_key(key)?
            .filter(|pod| !pod.is_going())
        else {
            return Ok(After::Done);
        };
        for volume in pod["spec"]["volumes"]
            .list()
            .iter()
            .filter(|volume| !volume["ephemeral"].is_null())
        {
            if let Err(why) = self.provide(&pod, volume).await {
                let message = format!("ephemeral volume {}: {why}", volume["name"].str());
                self.context
                    .record(&PODS, &pod, Note::warning("FailedBinding", "", message));
                return Err(why);
            }
        }
        Ok(After::Done)
    }
}

impl Ephemeral {
    async fn provide(&self, pod: &Object, volume: &Value) -> Result<(), Error> {
        let wanted = draft(pod, volume);
        let key = Key::new(pod.namespace(), wanted["metadata"]["name"].str());
        if let Some(claim) = self.claims.lister().by_key(&key)? {
            return match claim.is_controlled_by(pod.uid()) {
                true => Ok(()),
                false => Err(Error::Other(format!(
                    "PVC {key} was not created for pod {} (pod is not owner)",
                    pod.key()
                ))),
            };
        }
        match self
            .context
            .api
            .create(&PERSISTENT_VOLUME_CLAIMS, &wanted)
            .await
        {
            Err(error) => Err(Error::Other(format!(
                "create PVC {}: {}",
                key.name(),
                failure::message(&error)
            ))),
            Ok(_) => Ok(()),
        }
    }
}

/// The claim of a volume that a pod brings along.
fn draft(pod: &Object, volume: &Value) -> Value {
    let template = &volume["ephemeral"]["volumeClaimTemplate"];
    let mut claim = value!({
        "metadata": {
            "name": (pod_index::claim_name(pod, volume)),
            "namespace": (pod.namespace()),
            "ownerReferences": [(controller_reference(pod, "v1", "Pod"))],
        },
        "spec": (template["spec"].clone()),
    });
    for field in ["annotations", "labels"] {
        if let Some(given) = template["metadata"].get(field) {
            claim.entry("metadata").set(field, given.clone());
        }
    }
    claim
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_claim_belongs_to_the_pod_and_is_as_the_template_says() {
        let pod = Object(value!({"metadata": {"name": "p", "namespace": "ns", "uid": "u"}}));
        let template =
            value!({"metadata": {"labels": {"l": "1"}}, "spec": {"storageClassName": "x"}});
        let claim = Object(draft(
            &pod,
            &value!({"name": "v", "ephemeral": {"volumeClaimTemplate": template}}),
        ));
        assert_eq!(
            (claim.key().to_string().as_str(), claim.label("l")),
            ("ns/p-v", Some("1"))
        );
        assert!(claim.is_controlled_by("u"));
        assert_eq!(claim["spec"]["storageClassName"].str(), "x");
    }
}
