//! Reserve and PreBind: volumes and devices of a pod.
//!
//! Reserve assumes the result at once, so that no other pod gets the same. PreBind writes it in the
//! binding cycle.

use std::sync::Arc;
use std::time::Duration;

use mizzen_sdk::cache::{Lister, Version};
use mizzen_sdk::clock::Clock;
use mizzen_sdk::dynamic::{DynamicClient, PatchType};
use mizzen_sdk::informer::Factory;
use mizzen_sdk::resource::{PERSISTENT_VOLUME_CLAIMS, PERSISTENT_VOLUMES, RESOURCE_CLAIMS};
use mizzen_sdk::write::{is_conflict, is_not_found};
use mizzen_sdk::{Key, Object};
use mizzen_value::{Str, Value, time, value};
use tokio::time::{sleep, timeout};

use crate::bind::error_message;
use crate::cluster_state::ClusterState;
use crate::model::PodInfo;
use crate::storage::{SELECTED_NODE, is_bound};

/// The finalizer of claims with an allocation.
const FINALIZER: &str = "resource.kubernetes.io/delete-protection";
/// The number of attempts to write a claim on conflicts.
const MAX_ATTEMPTS: usize = 5;
/// How often claims are checked while PreBind waits for their volumes.
const POLL_INTERVAL: Duration = Duration::from_secs(1);

/// One step of PreBind.
#[derive(Debug, Clone)]
pub(crate) enum PreBindStep {
    /// Binds a volume to a claim.
    BindVolume {
        /// The volume with its claimRef.
        volume: Arc<Object>,
        claim: Key,
        /// `bindTimeoutSeconds`.
        bind_timeout: Duration,
    },
    /// Has a volume provisioned for a claim on the selected node.
    Provision {
        /// The claim with its selected-node annotation.
        claim: Arc<Object>,
        /// `bindTimeoutSeconds`.
        bind_timeout: Duration,
    },
    /// Allocates a ResourceClaim and reserves it for the pod.
    Claim {
        claim: Key,
        uid: Str,
        /// The new allocation; `None` if it has one.
        allocation: Option<Value>,
        pod: Arc<PodInfo>,
    },
}

/// Reserve: assumes the result of the steps.
pub(crate) fn assume(steps: &[PreBindStep], cluster: &mut ClusterState) {
    for step in steps {
        match step {
            PreBindStep::BindVolume { volume, .. } => cluster.storage.assume_volume(volume.clone()),
            PreBindStep::Provision { claim, .. } => cluster.storage.assume_claim(claim.clone()),
            PreBindStep::Claim {
                uid,
                allocation: Some(allocation),
                ..
            } => cluster.devices.assume(uid, allocation),
            PreBindStep::Claim { .. } => {}
        }
    }
}

/// Unreserve: forgets the result of the steps.
pub(crate) fn forget(steps: &[PreBindStep], cluster: &mut ClusterState) {
    for step in steps {
        match step {
            PreBindStep::BindVolume { volume, .. } => cluster.storage.forget_volume(volume.name()),
            PreBindStep::Provision { claim, .. } => cluster.storage.forget_claim(&claim.key()),
            PreBindStep::Claim { uid, .. } => cluster.devices.forget(uid),
        }
    }
}

/// Runs PreBind.
#[derive(Clone)]
pub(crate) struct PreBinder {
    api: DynamicClient,
    clock: Clock,
    claims: Lister<Object>,
}

impl PreBinder {
    pub(crate) fn new(api: DynamicClient, clock: Clock, informers: &Factory) -> PreBinder {
        PreBinder {
            api,
            clock,
            claims: informers.objects(&PERSISTENT_VOLUME_CLAIMS).lister(),
        }
    }

    /// Runs all steps, and waits until the claims are bound.
    pub(crate) async fn run(&self, steps: &[PreBindStep]) -> Result<(), String> {
        let mut pending_claims = Vec::with_capacity(steps.len());
        for step in steps {
            pending_claims.extend(self.write_step(step).await.map_err(|error| {
                let plugin = if matches!(step, PreBindStep::Claim { .. }) {
                    "DynamicResources"
                } else {
                    "VolumeBinding"
                };
                format!(
                    "running PreBind plugin \"{plugin}\": {}",
                    error_message(error)
                )
            })?);
        }
        if pending_claims.is_empty() {
            return Ok(());
        }
        let waiting = self.wait_for_bound_claims(&pending_claims).await;
        waiting.map_err(|error| {
            format!("running PreBind plugin \"VolumeBinding\": binding volumes: {error}")
        })
    }

    async fn write_step(&self, step: &PreBindStep) -> Result<Option<PendingClaim>, kube::Error> {
        Ok(Some(match step {
            PreBindStep::Claim {
                claim,
                allocation,
                pod,
                ..
            } => {
                self.reserve_claim(claim, allocation.as_ref(), pod).await?;
                return Ok(None);
            }
            PreBindStep::BindVolume {
                volume,
                claim,
                bind_timeout,
            } => {
                self.api.update(&PERSISTENT_VOLUMES, volume).await?;
                PendingClaim {
                    claim: claim.clone(),
                    node: None,
                    since: Version::default(),
                    bind_timeout: *bind_timeout,
                }
            }
            PreBindStep::Provision {
                claim,
                bind_timeout,
            } => {
                let written = self.api.update(&PERSISTENT_VOLUME_CLAIMS, claim).await?;
                let node = claim.annotation(SELECTED_NODE).map(String::from);
                let since = Version::parse(written.version());
                PendingClaim {
                    claim: claim.key(),
                    node,
                    since,
                    bind_timeout: *bind_timeout,
                }
            }
        }))
    }

    /// Writes the allocation of a claim and reserves the claim for the pod. Retries on conflicts.
    async fn reserve_claim(
        &self,
        key: &Key,
        allocation: Option<&Value>,
        pod: &PodInfo,
    ) -> Result<(), kube::Error> {
        let mut tries = 0;
        loop {
            let outcome = self.try_reserve_claim(key, allocation, pod).await;
            tries += 1;
            match outcome {
                Err(error) if is_conflict(&error) && tries < MAX_ATTEMPTS => {}
                outcome => return outcome,
            }
        }
    }

    async fn try_reserve_claim(
        &self,
        key: &Key,
        allocation: Option<&Value>,
        pod: &PodInfo,
    ) -> Result<(), kube::Error> {
        let mut claim = self.api.get(&RESOURCE_CLAIMS, key).await?;
        if !claim.has_finalizer(FINALIZER) {
            claim
                .entry("metadata")
                .entry("finalizers")
                .make_list()
                .push(FINALIZER.into());
            claim = self.api.update(&RESOURCE_CLAIMS, &claim).await?;
        }
        let status = claim.entry("status");
        if let Some(allocation) = allocation.filter(|_| status["allocation"].is_null()) {
            status.set("allocation", allocation.clone());
        }
        let allocation = status.entry("allocation");
        if allocation["allocationTimestamp"].is_null() {
            allocation.set(
                "allocationTimestamp",
                time::from_unix((self.clock)().as_second()),
            );
        }
        let consumers = status.entry("reservedFor").make_list();
        if !consumers
            .iter()
            .any(|consumer| consumer["uid"].str() == pod.uid)
        {
            let PodInfo { name, uid, .. } = pod;
            consumers.push(value!({"resource": "pods", "name": name, "uid": uid}));
        }
        self.api
            .update_status(&RESOURCE_CLAIMS, &claim)
            .await
            .map(drop)
    }

    /// Unreserve: removes a pod that was not bound from `reservedFor` of its claims.
    ///
    /// Kubernetes: the allocation stays. The resource claim controller deallocates it, or the pod
    /// uses it again.
    pub(crate) async fn unreserve_claims(&self, steps: &[PreBindStep]) {
        for step in steps {
            let PreBindStep::Claim {
                claim, uid, pod, ..
            } = step
            else {
                continue;
            };
            // The response to the earlier write may have been lost, so every claim is patched.
            let change = value!({
                "metadata": {"uid": uid},
                "status": {"reservedFor": [{"$patch": "delete", "uid": (&pod.uid)}]}
            });
            let written = self
                .api
                .patch(
                    &RESOURCE_CLAIMS,
                    claim,
                    "status",
                    PatchType::Strategic,
                    &change,
                )
                .await;
            if let Err(error) = written.map(drop)
                && !is_not_found(&error)
            {
                // The next attempt of the pod unreserves again, if it fails.
                tracing::warn!(%claim, %error, "a claim is still reserved for a pod that is not bound");
            }
        }
    }

    async fn wait_for_bound_claims(&self, pending_claims: &[PendingClaim]) -> Result<(), String> {
        let bind_timeout = pending_claims
            .iter()
            .map(|pending_claim| pending_claim.bind_timeout)
            .max()
            .unwrap_or_default();
        let all_kept = async {
            loop {
                sleep(POLL_INTERVAL).await;
                let kept: Vec<bool> = pending_claims
                    .iter()
                    .map(|pending_claim| self.is_claim_bound(pending_claim))
                    .collect::<Result<_, _>>()?;
                if !kept.contains(&false) {
                    return Ok(());
                }
            }
        };
        timeout(bind_timeout, all_kept)
            .await
            .unwrap_or_else(|_| Err("context deadline exceeded".into()))
    }

    /// Whether a claim is bound; an error if provisioning failed on this node.
    fn is_claim_bound(&self, pending_claim: &PendingClaim) -> Result<bool, String> {
        let PendingClaim {
            claim: key,
            node,
            since,
            ..
        } = pending_claim;
        let claim = self.claims.by_key(key).map_err(|error| error.to_string())?;
        let claim = claim.ok_or_else(|| {
            format!("failed to check provisioning pvc: could not find v1.PersistentVolumeClaim \"{key}\"")
        })?;
        // The informer may not have the written version yet.
        if Version::parse(claim.version()) < *since {
            return Ok(false);
        }
        if node.is_some() && claim.annotation(SELECTED_NODE) != node.as_deref() {
            return Err(format!("provisioning failed for PVC \"{}\"", key.name()));
        }
        Ok(is_bound(&claim))
    }
}

/// A claim whose volume PreBind waits for.
struct PendingClaim {
    claim: Key,
    /// The selected node; `None` if the volume exists.
    node: Option<String>,
    /// The resource version of our write.
    since: Version,
    /// `bindTimeoutSeconds`.
    bind_timeout: Duration,
}
