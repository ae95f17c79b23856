//! Applies a plan and records events.

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};

use mizzen_sdk::Object;
use mizzen_sdk::controller::{Error, slow_start_batch};
use mizzen_sdk::dynamic::DeleteOptions;
use mizzen_sdk::event::Note;
use mizzen_sdk::resource::{PERSISTENT_VOLUME_CLAIMS, PODS, STATEFUL_SETS};
use mizzen_sdk::write::{is_already_exists, is_conflict, is_not_found, message};

use super::plan::{PodStep, StatefulSetPlan};
use super::{StatefulSets, identity, pod, retention, storage};

/// Creates, updates and deletes the pods and claims of a set.
pub(super) struct StatefulPodControl<'a> {
    pub by: &'a StatefulSets,
    pub set: &'a Object,
    /// How many pods were deleted for an update.
    pub n_replaced: AtomicI64,
}

impl StatefulPodControl<'_> {
    /// Applies the plan up to the first phase with a failure.
    pub(super) async fn apply_plan(&self, plan: &StatefulSetPlan) -> Result<(), Error> {
        for phase in &plan.phases {
            if plan.in_order {
                for step in phase {
                    self.apply_step(step).await?;
                }
            } else {
                let mut steps = phase.iter();
                let next = || {
                    let step = steps.next();
                    async move {
                        if let Some(step) = step {
                            self.apply_step(step).await
                        } else {
                            Ok(())
                        }
                    }
                };
                slow_start_batch(phase.len(), next).await.1?;
            }
        }
        Ok(())
    }

    async fn apply_step(&self, step: &PodStep) -> Result<(), Error> {
        match step {
            PodStep::Create(pod) => self.create_pod(pod).await,
            PodStep::EnsureClaims(pod) => {
                self.create_claims(pod).await?;
                self.update_claim_owners(pod)
                    .await
                    .inspect_err(|error| self.record_failure("Update", pod, error))
            }
            PodStep::Update(pod) => self.update_pod(pod).await,
            PodStep::UpdateClaimOwners(pod) => self.update_claim_owners(pod).await,
            PodStep::Delete(pod) => self.delete_pod(pod).await,
            PodStep::Replace(pod) => {
                self.delete_pod(pod).await?;
                self.n_replaced.fetch_add(1, Ordering::Relaxed);
                Ok(())
            }
        }
    }

    async fn create_pod(&self, pod: &Arc<Object>) -> Result<(), Error> {
        self.create_claims(pod)
            .await
            .inspect_err(|error| self.record_failure("Create", pod, error))?;
        let outcome = self.by.context.api.create(&PODS, pod).await;
        match &outcome {
            Ok(made) => self.by.pods.wait_for_write(made).await,
            Err(error) if is_already_exists(error) => {
                return outcome.map(drop).map_err(Error::from);
            }
            Err(_) => {}
        }
        self.update_claim_owners(pod)
            .await
            .inspect_err(|error| self.record_failure("Update", pod, error))?;
        self.record_pod_event("Create", pod, outcome.map(drop).map_err(Error::from))
    }

    async fn update_pod(&self, pod: &Arc<Object>) -> Result<(), Error> {
        let mut right = (**pod).clone();
        let ordinal = identity::ordinal(pod).unwrap_or_default();
        if !identity::identity_matches(self.set, pod) {
            identity::update_identity(self.set, &mut right, ordinal);
        }
        let has_storage = storage::storage_matches(self.set, pod);
        if !has_storage {
            storage::update_storage(self.set, &mut right, ordinal);
        }
        let supply = async {
            if !has_storage || pod::is_pending(pod) {
                self.create_claims(pod).await?;
            }
            self.update_claim_owners(pod).await
        };
        supply
            .await
            .inspect_err(|error| self.record_failure("Update", pod, error))?;
        match self.by.context.api.update(&PODS, &right).await {
            Err(error) if is_conflict(&error) => Err(error.into()),
            Err(error) => self.record_pod_event("Update", pod, Err(error.into())),
            Ok(written) => {
                self.by.pods.wait_for_write(&written).await;
                self.record_pod_event("Update", pod, Ok(()))
            }
        }
    }

    async fn delete_pod(&self, pod: &Arc<Object>) -> Result<(), Error> {
        let uid = Some(pod.uid()).filter(|uid| !uid.is_empty());
        let options = DeleteOptions {
            uid,
            ..DeleteOptions::default()
        };
        match self
            .by
            .context
            .api
            .delete(&PODS, &pod.key(), &options)
            .await
        {
            Err(error) if is_conflict(&error) => Err(error.into()),
            Err(error) if !is_not_found(&error) => {
                self.record_pod_event("Delete", pod, Err(error.into()))
            }
            _ => {
                self.by.pods.wait_for_deletion(pod).await;
                self.record_pod_event("Delete", pod, Ok(()))
            }
        }
    }

    /// Creates missing claims of a pod. A claim that is being deleted must be gone first.
    async fn create_claims(&self, pod: &Object) -> Result<(), Error> {
        let mut problems = Vec::new();
        for claim in storage::claims(self.set, identity::ordinal(pod).unwrap_or_default()) {
            match self.by.claim(self.set, claim.name()) {
                Some(known) if known.is_terminating() => {
                    problems.push(format!("pvc {} is being deleted", claim.name()))
                }
                Some(_) => {}
                None => problems.extend(self.create_claim(pod, &claim).await.err()),
            }
        }
        match problems.as_slice() {
            [] => Ok(()),
            [problem] => Err(Error::other(problem.clone())),
            problems => Err(Error::other(format!("[{}]", problems.join(", ")))),
        }
    }

    async fn create_claim(&self, pod: &Object, claim: &Object) -> Result<(), String> {
        let (name, pod, set) = (claim.name(), pod.name(), self.set.name());
        match self
            .by
            .context
            .api
            .create(&PERSISTENT_VOLUME_CLAIMS, claim)
            .await
        {
            Ok(made) => {
                self.by.claims.wait_for_write(&made).await;
                let message = format!("Create Claim {name} Pod {pod} in StatefulSet {set} success");
                self.record_event(Note::normal("SuccessfulCreate", "", message));
                Ok(())
            }
            Err(error) => {
                let reason = message(&error);
                if !is_already_exists(&error) {
                    let message = format!(
                        "Create Claim {name} for Pod {pod} in StatefulSet {set} failed error: {reason}"
                    );
                    self.record_event(Note::warning("FailedCreate", "", message));
                }
                Err(format!("failed to create PVC {name}: {reason}"))
            }
        }
    }

    /// Sets the owners of a pod's claims as the retention policy says.
    async fn update_claim_owners(&self, pod: &Object) -> Result<(), Error> {
        let names = storage::claim_names(self.set, identity::ordinal(pod).unwrap_or_default());
        for claim in names.filter_map(|name| self.by.claim(self.set, &name)) {
            if retention::has_other_controller(&claim, self.set, pod) {
                // Kubernetes: the typing error is upstream's (stateful_pod_control.go).
                let message = format!(
                    "PersistentVolumeClaim {} has a conflicting OwnerReference that acts as a manging controller, the retention policy is ignored for this claim",
                    claim.name()
                );
                self.record_event(Note::warning("ConflictingController", "", message));
            }
            if !retention::claim_owner_matches_set_and_pod(&claim, self.set, pod) {
                self.update_claim_owner(&claim, pod).await?;
            }
        }
        Ok(())
    }

    async fn update_claim_owner(&self, claim: &Object, pod: &Object) -> Result<(), Error> {
        let mut owned = claim.clone();
        owned.entry("metadata").set(
            "ownerReferences",
            retention::claim_owner_references(claim, self.set, pod),
        );
        match self
            .by
            .context
            .api
            .update(&PERSISTENT_VOLUME_CLAIMS, &owned)
            .await
        {
            Ok(written) => {
                self.by.claims.wait_for_write(&written).await;
                Ok(())
            }
            Err(error) => {
                let (name, reason) = (claim.name(), message(&error));
                Err(Error::other(format!(
                    "could not update claim {name} for delete policy ownerRefs: {reason}"
                )))
            }
        }
    }

    /// Records the outcome of an operation on a pod.
    fn record_pod_event(
        &self,
        verb: &str,
        pod: &Object,
        outcome: Result<(), Error>,
    ) -> Result<(), Error> {
        match &outcome {
            Err(error) => self.record_failure(verb, pod, error),
            Ok(()) => {
                let message = format!(
                    "{verb} Pod {} in StatefulSet {} successful",
                    pod.name(),
                    self.set.name()
                );
                self.record_event(Note::normal(&format!("Successful{verb}"), "", message));
            }
        }
        outcome
    }

    fn record_failure(&self, verb: &str, pod: &Object, error: &Error) {
        let reason = match error {
            Error::Api(error) => message(error),
            error => error.to_string(),
        };
        let (pod, set) = (pod.name(), self.set.name());
        let message = format!("{verb} Pod {pod} in StatefulSet {set} failed error: {reason}");
        self.record_event(Note::warning(&format!("Failed{verb}"), "", message));
    }

    fn record_event(&self, note: Note) {
        self.by.context.record_event(&STATEFUL_SETS, self.set, note);
    }
}
