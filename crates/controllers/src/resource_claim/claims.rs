//! Who still needs a resource claim? Shares of pods that are done are given back, then the allocation, then the claim.

use std::collections::HashSet;

use mizzen_sdk::api::DeleteOptions;
use mizzen_sdk::informer::Informer;
use mizzen_sdk::resource::{PODS, RESOURCE_CLAIMS};
use mizzen_sdk::write::is_not_found;
use mizzen_sdk::{Key, Object};
use mizzen_value::Value;

use super::names::is_done;
use crate::{After, Context, Error, Reconcile};

/// Keeps a claim while it is allocated.
const FINALIZER: &str = "resource.kubernetes.io/delete-protection";

pub(super) struct Claims {
    pub context: Context,
    pub pods: Informer<Object>,
    pub claims: Informer<Object>,
}

/// What a claim needs.
#[derive(Debug, PartialEq)]
struct Plan {
    /// The claim with its status to be written.
    status: Option<Object>,
    /// Whether nothing keeps it any more.
    is_free: bool,
    /// Whether nobody has a share of it.
    is_unused: bool,
}

impl Reconcile for Claims {
    async fn reconcile(&self, key: &Key) -> Result<After, Error> {
        let Some(claim) = self.claims.lister().by_key(key)? else {
            return Ok(After::Done);
        };
        let gone = self.gone(&claim).await?;
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
        if plan.is_unused && !claim.is_going() && self.is_left_over(&claim)? {
            let options = DeleteOptions {
                uid: Some(claim.uid()),
                ..DeleteOptions::default()
            };
            match self
                .context
                .api
                .delete(&RESOURCE_CLAIMS, key, &options)
                .await
            {
                Err(error) if !is_not_found(&error) => return Err(error.into()),
                _ => (),
            }
        }
        Ok(After::Done)
    }
}

impl Claims {
    /// The uids of pods that have a share and need it no more. The server is asked about pods that we do not know:
    /// taking a share from one that is about to run would be bad.
    async fn gone(&self, claim: &Object) -> Result<HashSet<String>, Error> {
        let mut gone = HashSet::new();
        for share in claim["status"]["reservedFor"]
            .list()
            .iter()
            .filter(|share| is_pod(share))
        {
            let (key, uid) = (
                Key::new(claim.namespace(), share["name"].str()),
                share["uid"].str(),
            );
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

    /// Whether a claim was made for a pod that is done. One that is not known may be new; if it is gone, whoever collects
    /// what belongs to nobody sees to it.
    fn is_left_over(&self, claim: &Object) -> Result<bool, Error> {
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

/// Decides what a claim needs when these pods do not need it.
fn plan(claim: &Object, gone: &HashSet<String>) -> Plan {
    let shares = claim["status"]["reservedFor"].list();
    let left: Vec<Value> = shares
        .iter()
        .filter(|share| !is_pod(share) || !gone.contains(share["uid"].str()))
        .cloned()
        .collect();
    let (is_unused, was_used) = (left.is_empty(), left.len() < shares.len());
    // A claim that nobody uses yet keeps its allocation, unless it is to go.
    let ends = is_unused && (was_used || claim.is_going()) && claim.has_finalizer(FINALIZER);
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
    Plan {
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

    /// How many shares are left, whether it is still allocated, whether nothing keeps it.
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
    fn the_last_share_takes_the_allocation_with_it() {
        check(claim(&["a", "b"], false), &[], (2, true, false));
        check(claim(&["a", "b"], false), &["a"], (1, true, false));
        check(claim(&["a", "b"], false), &["a", "b"], (0, false, true));
    }

    #[test]
    fn a_claim_that_nobody_uses_yet_stays_allocated_until_it_is_to_go() {
        check(claim(&[], false), &[], (0, true, false));
        check(claim(&[], true), &[], (0, false, true));
    }
}
