//! The ephemeral volume controller: creates the claims of generic ephemeral volumes, owned by their
//! pods.

use mizzen_object::owner_references::controller_reference;
use mizzen_sdk::controller::{Context, Predicate, dynamic};
use mizzen_sdk::event::Note;
use mizzen_sdk::informer::{Event, Informer};
use mizzen_sdk::resource::{PERSISTENT_VOLUME_CLAIMS, PODS};
use mizzen_sdk::write::message;
use mizzen_sdk::{Key, Object};
use mizzen_value::{Value, value};

use crate::{Action, Controller, ControllerContext, Error, Reconcile, pod_index};

struct EphemeralVolumes {
    context: ControllerContext,
    pods: Informer<Object>,
    claims: Informer<Object>,
}

pub(crate) fn start(context: &ControllerContext) -> Controller {
    let context = context
        .named("ephemeral-volume-controller")
        .with_event_source("ephemeral_volume");
    let pods = context.informer(&PODS);
    let claims = context.informer(&PERSISTENT_VOLUME_CLAIMS);
    pod_index::add_claim_index(&pods);
    let new_with_claims = Predicate::new(
        |event| matches!(event, Event::Added { object, .. } if pod_index::may_claim(object.text())),
    );
    let all = pods.clone();
    Controller::for_kind(&context, dynamic(&PODS).filter(new_with_claims))
        .watches_events(&PERSISTENT_VOLUME_CLAIMS, move |event, queue| {
            if let Event::Deleted { last, .. } = event {
                let users = pod_index::pods_using_claim(&all, &last.key().to_string());
                let users = users.unwrap_or_default();
                users.iter().for_each(|pod| queue.add(pod.key()));
            }
        })
        .queue_name("ephemeral_volume")
        .workers(5)
        .reconcile(EphemeralVolumes {
            context,
            pods,
            claims,
        })
}

impl Reconcile for EphemeralVolumes {
    async fn reconcile(&self, key: &Key, _: &Context) -> Result<Action, Error> {
        let Some(pod) = self
            .pods
            .lister()
            .by_key(key)?
            .filter(|pod| !pod.is_terminating())
        else {
            return Ok(Action::done());
        };
        for volume in pod["spec"]["volumes"]
            .list()
            .iter()
            .filter(|volume| !volume["ephemeral"].is_null())
        {
            if let Err(why) = self.ensure_claim(&pod, volume).await {
                let message = format!("ephemeral volume {}: {why}", volume["name"].str());
                self.context
                    .record_event(&PODS, &pod, Note::warning("FailedBinding", "", message));
                return Err(why);
            }
        }
        Ok(Action::done())
    }
}

impl EphemeralVolumes {
    async fn ensure_claim(&self, pod: &Object, volume: &Value) -> Result<(), Error> {
        let wanted = claim_from_template(pod, volume);
        let key = Key::new(pod.namespace(), wanted["metadata"]["name"].str());
        if let Some(claim) = self.claims.lister().by_key(&key)? {
            return match claim.is_controlled_by(pod.uid()) {
                true => Ok(()),
                false => Err(Error::other(format!(
                    "PVC {key} was not created for pod {} (pod is not owner)",
                    pod.key()
                ))),
            };
        }
        let api = &self.context.api;
        match api.create(&PERSISTENT_VOLUME_CLAIMS, &wanted).await {
            Err(error) => Err(Error::other(format!(
                "create PVC {}: {}",
                key.name(),
                message(&error)
            ))),
            Ok(_) => Ok(()),
        }
    }
}

/// The claim of an ephemeral volume.
fn claim_from_template(pod: &Object, volume: &Value) -> Value {
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
        let claim = Object(claim_from_template(
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
