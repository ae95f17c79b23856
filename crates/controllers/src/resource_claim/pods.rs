//! Syncs pods with ResourceClaims: generates claims from templates, and reserves allocated claims
//! of scheduled pods.

use std::sync::Arc;

use mizzen_sdk::controller::Context;
use mizzen_sdk::dynamic::PatchType;
use mizzen_sdk::event::Note;
use mizzen_sdk::informer::Informer;
use mizzen_sdk::resource::{PODS, RESOURCE_CLAIM_TEMPLATES, RESOURCE_CLAIMS};
use mizzen_sdk::write::message;
use mizzen_sdk::{Key, Object};
use mizzen_value::{Value, value};

use super::OF_POD;
use super::names::{PodClaim, entries, is_done, pod_claim};
use crate::{Action, ControllerContext, Error, Reconcile};

/// The annotation of a claim with the pod's entry for which it was generated.
const ENTRY: &str = "resource.kubernetes.io/pod-claim-name";
/// The field manager of the pod's status.
const MANAGER: &str = "ResourceClaimController";
/// The limit of `status.reservedFor`.
const RESERVED_FOR_MAX_SIZE: usize = 256;
/// The longest generateName of a claim.
const LONGEST: usize = 57;

pub(super) struct PodSync {
    pub context: ControllerContext,
    pub pods: Informer<Object>,
    pub claims: Informer<Object>,
    pub templates: Informer<Object>,
}

impl Reconcile for PodSync {
    async fn reconcile(&self, key: &Key, _: &Context) -> Result<Action, Error> {
        // A finished pod needs no claims, and they must not be generated again.
        let needs = |pod: &Arc<Object>| !pod.is_terminating() && !is_done(pod);
        let Some(pod) = self.pods.lister().by_key(key)?.filter(needs) else {
            return Ok(Action::done());
        };
        let mut made = Vec::new();
        for entry in entries(&pod) {
            match self.ensure_claim(&pod, entry).await {
                Ok(name) => made.extend(name.map(|name| (entry["name"].str(), name))),
                Err(why) => {
                    let message = format!("PodResourceClaim {}: {why}", entry["name"].str());
                    self.context.record_event(
                        &PODS,
                        &pod,
                        Note::warning("FailedResourceClaimCreation", "", message),
                    );
                    return Err(why);
                }
            }
        }
        if !made.is_empty() {
            let statuses: Vec<Value> = made
                .iter()
                .map(|(entry, name)| value!({"name": (*entry), "resourceClaimName": name}))
                .collect();
            let patch = value!({
                "apiVersion": "v1",
                "kind": "Pod",
                "metadata": {"name": (pod.name()), "namespace": (pod.namespace())},
                "status": {"resourceClaimStatuses": statuses},
            });
            self.context
                .api
                .patch(
                    &PODS,
                    key,
                    "status",
                    PatchType::Apply { manager: MANAGER },
                    &patch,
                )
                .await?;
        }
        if !pod["spec"]["nodeName"].str().is_empty() {
            self.reserve_claims(&pod).await?;
        }
        Ok(Action::done())
    }
}

impl PodSync {
    /// Ensures the claim of an entry; its name if the pod's status lacks it.
    async fn ensure_claim(&self, pod: &Object, entry: &Value) -> Result<Option<String>, Error> {
        let template = match pod_claim(pod, entry) {
            PodClaim::Missing(template) => template,
            PodClaim::Made(name) => {
                let known = self
                    .claims
                    .lister()
                    .by_key(&Key::new(pod.namespace(), name))?;
                if known.is_some_and(|claim| claim.is_controlled_by(pod.uid())) {
                    return Ok(None);
                }
                entry["resourceClaimTemplateName"].str()
            }
            PodClaim::Named(_) | PodClaim::Unneeded => return Ok(None),
            PodClaim::Unknown => {
                let why =
                    "checking for claim before creating it: none of the supported fields are set";
                return Err(Error::other(why));
            }
        };
        if let Some(name) = self.find_claim(pod, entry)? {
            return Ok(Some(name));
        }
        self.create_claim(pod, entry, template).await.map(Some)
    }

    /// A claim that was generated although the pod's status lacks it.
    fn find_claim(&self, pod: &Object, entry: &Value) -> Result<Option<String>, Error> {
        let owned = self
            .claims
            .lister()
            .by_index(OF_POD, pod.uid())
            .unwrap_or(Ok(Vec::new()))?;
        let is_it = |claim: &&Arc<Object>| claim.annotation(ENTRY) == Some(entry["name"].str());
        Ok(owned
            .iter()
            .find(is_it)
            .map(|claim| claim.name().to_string()))
    }

    async fn create_claim(
        &self,
        pod: &Object,
        entry: &Value,
        template: &str,
    ) -> Result<String, Error> {
        let known = self
            .templates
            .lister()
            .by_key(&Key::new(pod.namespace(), template))?;
        let Some(known) = known else {
            let kind = format!("resourceclaimtemplate.{}", RESOURCE_CLAIM_TEMPLATES.group);
            let why =
                format!("resource claim template {template:?}: {kind} {template:?} not found");
            return Err(Error::other(why));
        };
        // Kubernetes: it has no name yet, so the message has none (resourceclaim/controller.go).
        let rejected = |error| Error::other(format!("create ResourceClaim : {}", message(&error)));
        let draft = claim_from_template(pod, entry, &known);
        let api = &self.context.api;
        let made = api
            .create(&RESOURCE_CLAIMS, &draft)
            .await
            .map_err(rejected)?;
        // The next sync must find it, or it would generate another one.
        self.claims.wait_for_write(&made).await;
        Ok(made.name().to_string())
    }

    /// Reserves allocated claims for a pod that bypassed the scheduler.
    async fn reserve_claims(&self, pod: &Object) -> Result<(), Error> {
        for entry in entries(pod) {
            let (PodClaim::Named(name) | PodClaim::Made(name)) = pod_claim(pod, entry) else {
                continue;
            };
            let Some(claim) = self
                .claims
                .lister()
                .by_key(&Key::new(pod.namespace(), name))?
            else {
                continue;
            };
            if let Some(reserved) = with_reservation(&claim, pod) {
                self.context
                    .api
                    .update_status(&RESOURCE_CLAIMS, &reserved)
                    .await?;
            }
        }
        Ok(())
    }
}

/// The claim with the pod in reservedFor; none if it is there, or cannot be.
fn with_reservation(claim: &Object, pod: &Object) -> Option<Object> {
    let shares = claim["status"]["reservedFor"].list();
    let is_shared = shares.iter().any(|share| share["uid"].str() == pod.uid());
    if claim["status"]["allocation"].is_null() || is_shared || shares.len() >= RESERVED_FOR_MAX_SIZE
    {
        return None;
    }
    let mut after = claim.clone();
    let share = value!({"resource": "pods", "name": (pod.name()), "uid": (pod.uid())});
    after
        .entry("status")
        .entry("reservedFor")
        .make_list()
        .push(share);
    Some(after)
}

/// The claim of an entry, from its template.
fn claim_from_template(pod: &Object, entry: &Value, template: &Object) -> Value {
    let mut claim = value!({
        "metadata": {
            "generateName": (base_name(pod.name(), entry["name"].str())),
            "namespace": (pod.namespace()),
            "ownerReferences": [{
                "apiVersion": "v1",
                "kind": "Pod",
                "name": (pod.name()),
                "uid": (pod.uid()),
                "controller": true,
            }],
            "annotations": (template["spec"]["metadata"]["annotations"].clone()),
        },
        "spec": (template["spec"]["spec"].clone()),
    });
    if let Some(labels) = template["spec"]["metadata"].get("labels") {
        claim.entry("metadata").set("labels", labels.clone());
    }
    claim
        .entry("metadata")
        .entry("annotations")
        .set(ENTRY, entry["name"].str());
    claim
}

/// The generateName: pod and entry name, both truncated alike if they are long.
fn base_name(pod: &str, entry: &str) -> String {
    let whole = format!("{pod}-{entry}-");
    if whole.len() <= LONGEST {
        return whole;
    }
    let share = |part: &str| part.len() * LONGEST / whole.len();
    let cut = |part: &str, at: usize| part.get(..at).unwrap_or(part).to_string();
    format!("{}-{}", cut(pod, share(pod)), cut(entry, share(entry)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_claim_is_as_its_template_says_and_says_for_what_it_is() {
        let pod = Object(value!({"metadata": {"name": "p", "namespace": "ns", "uid": "u"}}));
        let template =
            Object(value!({"spec": {"metadata": {"labels": {"l": "1"}}, "spec": {"devices": {}}}}));
        let claim = Object(claim_from_template(
            &pod,
            &value!({"name": "gpu"}),
            &template,
        ));
        assert_eq!(claim["metadata"]["generateName"].str(), "p-gpu-");
        assert_eq!(
            (claim.annotation(ENTRY), claim.label("l")),
            (Some("gpu"), Some("1"))
        );
        assert!(claim.is_controlled_by("u"));
    }

    #[test]
    fn long_names_are_truncated_alike() {
        let name = base_name(&"p".repeat(80), &"e".repeat(40));
        assert_eq!(name, format!("{}-{}", "p".repeat(37), "e".repeat(18)));
    }

    #[test]
    fn an_allocated_claim_is_reserved_once() {
        let pod = Object(value!({"metadata": {"name": "p", "uid": "u"}}));
        let claim = |status: Value| Object(value!({"status": status}));
        assert!(with_reservation(&claim(value!({})), &pod).is_none());
        let after = with_reservation(&claim(value!({"allocation": {}})), &pod).unwrap();
        assert_eq!(after["status"]["reservedFor"][0]["name"].str(), "p");
        assert!(with_reservation(&after, &pod).is_none());
        let many = Value::List(vec![value!({"uid": "x"}); RESERVED_FOR_MAX_SIZE]);
        assert!(
            with_reservation(
                &claim(value!({"allocation": {}, "reservedFor": many})),
                &pod
            )
            .is_none()
        );
    }
}
