//! Syncs ResourceClaims: removes reservations of finished pods, then the allocation, then the
//! claim.

use std::collections::HashSet;

use mizzen_sdk::controller::Context;
use mizzen_sdk::dynamic::DeleteOptions;
use mizzen_sdk::informer::Informer;
use mizzen_sdk::resource::{PODS, RESOURCE_CLAIMS};
use mizzen_sdk::write::is_not_found;
use mizzen_sdk::{Key, Object};
use mizzen_value::Value;

use super::names::is_done;
use crate::{Action, ControllerContext, Error, Reconcile};

/// The finalizer of allocated claims.
const FINALIZER: &str = "resource.kubernetes.io/delete-protection";

pub(super) struct ClaimSync {
    pub context: ControllerContext,
    pub pods: Informer<Object>,
    pub claims: Informer<Object>,
}

/// What to do with a claim.
#[derive(Debug, PartialEq)]
struct ClaimPlan {
    /// The claim with its status to be written.
    status: Option<Object>,
    /// Whether the finalizer is to be removed.
    is_free: bool,
    /// Whether no consumer is left.
    is_unused: bool,
}

impl Reconcile for ClaimSync {
    async fn reconcile(&self, key: &Key, _: &Context) -> Result<Action, Error> {
        let Some(claim) = self.claims.lister().by_key(key)? else {
            return Ok(Action::done());
        };
        let gone = self.finished_consumers(&claim).await?;
        let plan = plan(&claim, &gone);
        let mut current = Object::clone(&claim);
        if let Some(after) = &plan.status {
            current = self
                .context
                .api
                .update_status(&RESOURCE_CLAIMS, after)
                .await?;
        }
        if plan.is_free && current.has_finalizer(FINALIZER) {
            let finalizers = current.entry("metadata").entry("finalizers");
            finalizers.make_list().retain(|one| one.str() != FINALIZER);
            self.context.api.update(&RESOURCE_CLAIMS, &current).await?;
        }
        if plan.is_unused && !claim.is_terminating() && self.is_owner_pod_done(&claim)? {
            let options = DeleteOptions {
                uid: Some(claim.uid()),
                ..DeleteOptions::default()
            };
            let api = &self.context.api;
            match api.delete(&RESOURCE_CLAIMS, key, &options).await {
                Err(error) if !is_not_found(&error) => return Err(error.into()),
                _ => (),
            }
        }
        Ok(Action::done())
    }
}

impl ClaimSync {
    /// The uids of consumers that are finished or gone. Pods that the cache lacks are read from the
    /// server: a reservation of a starting pod must not be removed.
    async fn finished_consumers(&self, claim: &Object) -> Result<HashSet<String>, Error> {
        let mut gone = HashSet::new();
        for share in claim["status"]["reservedFor"]
            .list()
            .iter()
            .filter(|share| is_pod(share))
        {
            let key = Key::new(claim.namespace(), share["name"].str());
            let uid = share["uid"].str();
            let pod = match self.pods.lister().by_key(&key)? {
                Some(pod) => Some(Object::clone(&pod)),
                None => self.context.api.find(&PODS, &key).await?,
            };
            if pod.is_none_or(|pod| pod.uid() != uid || is_done(&pod)) {
                gone.insert(uid.to_string());
            }
        }
        Ok(gone)
    }

    /// Whether a claim was created for a pod that is finished. If the pod does not exist, the
    /// garbage collector deletes the claim.
    fn is_owner_pod_done(&self, claim: &Object) -> Result<bool, Error> {
        let is_pod =
            |owner: &&Value| owner["apiVersion"].str() == "v1" && owner["kind"].str() == "Pod";
        let Some(owner) = claim.controller().filter(is_pod) else {
            return Ok(false);
        };
        let pod = self
            .pods
            .lister()
            .by_key(&Key::new(claim.namespace(), owner["name"].str()))?;
        Ok(pod.is_some_and(|pod| pod.uid() != owner["uid"].str() || is_done(&pod)))
    }
}

fn is_pod(share: &Value) -> bool {
    share["apiGroup"].str().is_empty() && share["resource"].str() == "pods"
}

/// Plans a claim without these consumers.
fn plan(claim: &Object, gone: &HashSet<String>) -> ClaimPlan {
    let shares = claim["status"]["reservedFor"].list();
    let left: Vec<Value> = shares
        .iter()
        .filter(|share| !is_pod(share) || !gone.contains(share["uid"].str()))
        .cloned()
        .collect();
    let (is_unused, was_used) = (left.is_empty(), left.len() < shares.len());
    // A claim that was never reserved keeps its allocation, unless it is being deleted.
    let ends = is_unused && (was_used || claim.is_terminating()) && claim.has_finalizer(FINALIZER);
    let is_allocated = !claim["status"]["allocation"].is_null();
    let mut after = claim.clone();
    if was_used {
        match is_unused {
            true => drop(after.entry("status").remove("reservedFor")),
            false => after.entry("status").set("reservedFor", left),
        }
    }
    if ends && is_allocated {
        after.entry("status").remove("allocation");
    }
    let status = (*after != **claim).then_some(after);
    ClaimPlan {
        status,
        is_free: ends,
        is_unused,
    }
}

#[cfg(test)]
mod tests {
    use mizzen_value::value;

    use super::*;

    fn claim(shares: &[&str], is_going: bool) -> Object {
        let shares: Vec<Value> = shares
            .iter()
            .map(|uid| value!({"resource": "pods", "name": "p", "uid": (*uid)}))
            .collect();
        let mut claim = Object(
            value!({"metadata": {"finalizers": [FINALIZER]}, "status": {"allocation": {"a": 1}, "reservedFor": shares}}),
        );
        if is_going {
            claim
                .entry("metadata")
                .set("deletionTimestamp", "2024-01-01T00:00:00Z");
        }
        claim
    }

    /// How many reservations are left, whether it is allocated, whether the finalizer is removed.
    #[track_caller]
    fn check(claim: Object, gone: &[&str], wanted: (usize, bool, bool)) {
        let plan = plan(&claim, &gone.iter().map(|uid| uid.to_string()).collect());
        let after = plan.status.unwrap_or(claim);
        let status = &after["status"];
        assert_eq!(
            (
                status["reservedFor"].list().len(),
                !status["allocation"].is_null(),
                plan.is_free
            ),
            wanted
        );
    }

    #[test]
    fn the_last_consumer_releases_the_allocation() {
        check(claim(&["a", "b"], false), &[], (2, true, false));
        check(claim(&["a", "b"], false), &["a"], (1, true, false));
        check(claim(&["a", "b"], false), &["a", "b"], (0, false, true));
    }

    #[test]
    fn a_claim_that_was_never_reserved_stays_allocated_until_it_is_deleted() {
        check(claim(&[], false), &[], (0, true, false));
        check(claim(&[], true), &[], (0, false, true));
    }
}
