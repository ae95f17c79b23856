//! Carrying out what a plan says, and telling people of it.

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};

use mizzen_sdk::Object;
use mizzen_sdk::api::DeleteOptions;
use mizzen_sdk::event::Note;
use mizzen_sdk::resource::{PERSISTENT_VOLUME_CLAIMS, PODS, STATEFUL_SETS};
use mizzen_sdk::write::{is_already_exists, is_conflict, is_not_found};

use super::plan::{Plan, Step};
use super::{StatefulSets, identity, pod, retention, storage};
use crate::Error;
use crate::common::batch::slow_start;
use crate::common::failure::message;
use crate::common::seen;

/// Somebody who acts for a set.
pub(super) struct Actor<'a> {
    /// The loop.
    pub by: &'a StatefulSets,
    /// The set.
    pub set: &'a Object,
    /// How many pods were deleted to be replaced.
    pub n_replaced: AtomicI64,
}

impl Actor<'_> {
    /// Does everything that is planned, up to the first phase in which something fails.
    pub(super) async fn carry_out(&self, plan: &Plan) -> Result<(), Error> {
        for phase in &plan.phases {
            if plan.in_order {
                for step in phase {
                    self.step(step).await?;
                }
            } else {
                let mut steps = phase.iter();
                let next = || {
                    let step = steps.next();
                    async move {
                        if let Some(step) = step {
                            self.step(step).await
                        } else {
                            Ok(())
                        }
                    }
                };
                slow_start(phase.len(), next).await.1?;
            }
        }
        Ok(())
    }

    async fn step(&self, step: &Step) -> Result<(), Error> {
        match step {
            Step::Create(pod) => self.create(pod).await,
            Step::Supply(pod) => {
                self.make_claims(pod).await?;
                self.give_claims_their_owner(pod)
                    .await
                    .inspect_err(|error| self.tell_failure("Update", pod, error))
            }
            Step::Repair(pod) => self.repair(pod).await,
            Step::Bequeath(pod) => self.give_claims_their_owner(pod).await,
            Step::Delete(pod) => self.delete(pod).await,
            Step::Replace(pod) => {
                self.delete(pod).await?;
                self.n_replaced.fetch_add(1, Ordering::Relaxed);
                Ok(())
            }
        }
    }

    async fn create(&self, pod: &Arc<Object>) -> Result<(), Error> {
        self.make_claims(pod)
            .await
            .inspect_err(|error| self.tell_failure("Create", pod, error))?;
        let outcome = self.by.context.api.create(&PODS, pod).await;
        match &outcome {
            Ok(made) => seen::written(&self.by.pods, made).await,
            Err(error) if is_already_exists(error) => {
                return outcome.map(drop).map_err(Error::from);
            }
            Err(_) => {}
        }
        self.give_claims_their_owner(pod)
            .await
            .inspect_err(|error| self.tell_failure("Update", pod, error))?;
        self.tell("Create", pod, outcome.map(drop).map_err(Error::from))
    }

    async fn repair(&self, pod: &Arc<Object>) -> Result<(), Error> {
        let mut right = (**pod).clone();
        let ordinal = identity::ordinal(pod).unwrap_or_default();
        if !identity::is_right(self.set, pod) {
            identity::give(self.set, &mut right, ordinal);
        }
        let has_storage = storage::is_right(self.set, pod);
        if !has_storage {
            storage::give(self.set, &mut right, ordinal);
        }
        let supply = async {
            if !has_storage || pod::is_pending(pod) {
                self.make_claims(pod).await?;
            }
            self.give_claims_their_owner(pod).await
        };
        supply
            .await
            .inspect_err(|error| self.tell_failure("Update", pod, error))?;
        match self.by.context.api.update(&PODS, &right).await {
            Err(error) if is_conflict(&error) => Err(error.into()),
            Err(error) => self.tell("Update", pod, Err(error.into())),
            Ok(written) => {
                seen::written(&self.by.pods, &written).await;
                self.tell("Update", pod, Ok(()))
            }
        }
    }

    async fn delete(&self, pod: &Arc<Object>) -> Result<(), Error> {
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
            Err(error) if !is_not_found(&error) => self.tell("Delete", pod, Err(error.into())),
            _ => {
                seen::deleted(&self.by.pods, pod).await;
                self.tell("Delete", pod, Ok(()))
            }
        }
    }

    /// Makes the claims of a pod that are not there. One that is about to go has to be gone first.
    async fn make_claims(&self, pod: &Object) -> Result<(), Error> {
        let mut problems = Vec::new();
        for claim in storage::claims(self.set, identity::ordinal(pod).unwrap_or_default()) {
            match self.by.claim(self.set, claim.name()) {
                Some(known) if known.is_going() => {
                    problems.push(format!("pvc {} is being deleted", claim.name()))
                }
                Some(_) => {}
                None => problems.extend(self.make_claim(pod, &claim).await.err()),
            }
        }
        match problems.as_slice() {
            [] => Ok(()),
            [problem] => Err(Error::Other(problem.clone())),
            problems => Err(Error::Other(format!("[{}]", problems.join(", ")))),
        }
    }

    async fn make_claim(&self, pod: &Object, claim: &Object) -> Result<(), String> {
        let (name, pod, set) = (claim.name(), pod.name(), self.set.name());
        match self
            .by
            .context
            .api
            .create(&PERSISTENT_VOLUME_CLAIMS, claim)
            .await
        {
            Ok(made) => {
                seen::written(&self.by.claims, &made).await;
                let message = format!("Create Claim {name} Pod {pod} in StatefulSet {set} success");
                self.record(Note::normal("SuccessfulCreate", "", message));
                Ok(())
            }
            Err(error) => {
                let reason = message(&error);
                if !is_already_exists(&error) {
                    let message = format!(
                        "Create Claim {name} for Pod {pod} in StatefulSet {set} failed error: {reason}"
                    );
                    self.record(Note::warning("FailedCreate", "", message));
                }
                Err(format!("failed to create PVC {name}: {reason}"))
            }
        }
    }

    /// Lets the claims of a pod go with whom they should go.
    async fn give_claims_their_owner(&self, pod: &Object) -> Result<(), Error> {
        let names = storage::claim_names(self.set, identity::ordinal(pod).unwrap_or_default());
        for claim in names.filter_map(|name| self.by.claim(self.set, &name)) {
            if retention::has_other_controller(&claim, self.set, pod) {
                self.record(Note::warning(
                    "ConflictingController",
                    "",
                    conflict(claim.name()),
                ));
            }
            if !retention::is_right(&claim, self.set, pod) {
                self.give_owner(&claim, pod).await?;
            }
        }
        Ok(())
    }

    async fn give_owner(&self, claim: &Object, pod: &Object) -> Result<(), Error> {
        let mut owned = claim.clone();
        owned
            .entry("metadata")
            .set("ownerReferences", retention::owners(claim, self.set, pod));
        match self
            .by
            .context
            .api
            .update(&PERSISTENT_VOLUME_CLAIMS, &owned)
            .await
        {
            Ok(written) => {
                seen::written(&self.by.claims, &written).await;
                Ok(())
            }
            Err(error) => {
                let (name, reason) = (claim.name(), message(&error));
                Err(Error::Other(format!(
                    "could not update claim {name} for delete policy ownerRefs: {reason}"
                )))
            }
        }
    }

    /// Tells how something went that was done to a pod.
    fn tell(&self, verb: &str, pod: &Object, outcome: Result<(), Error>) -> Result<(), Error> {
        match &outcome {
            Err(error) => self.tell_failure(verb, pod, error),
            Ok(()) => {
                let message = format!(
                    "{verb} Pod {} in StatefulSet {} successful",
                    pod.name(),
                    self.set.name()
                );
                self.record(Note::normal(&format!("Successful{verb}"), "", message));
            }
        }
        outcome
    }

    fn tell_failure(&self, verb: &str, pod: &Object, error: &Error) {
        let reason = match error {
            Error::Api(error) => message(error),
            error => error.to_string(),
        };
        let (pod, set) = (pod.name(), self.set.name());
        let message = format!("{verb} Pod {pod} in StatefulSet {set} failed error: {reason}");
        self.record(Note::warning(&format!("Failed{verb}"), "", message));
    }

    fn record(&self, note: Note) {
        self.by.context.record(&STATEFUL_SETS, self.set, note);
    }
}

/// Kubernetes: the typing error is upstream's (stateful_pod_control.go).
fn conflict(claim: &str) -> String {
    format!(
        "PersistentVolumeClaim {claim} has a conflicting OwnerReference that acts as a manging controller, the retention policy is ignored for this claim"
    )
}
