//! What must be done before a pod is bound, so that its volumes and devices are there?
//!
//! What will be is assumed at once, so that no other pod gets the same; doing it is the binding's business.

use std::sync::Arc;
use std::time::Duration;

use mizzen_sdk::api::{Api, Patch};
use mizzen_sdk::cache::{Lister, Version};
use mizzen_sdk::informer::Factory;
use mizzen_sdk::resource::{PERSISTENT_VOLUME_CLAIMS, PERSISTENT_VOLUMES, RESOURCE_CLAIMS};
use mizzen_sdk::seam::Clock;
use mizzen_sdk::write::{is_conflict, is_not_found};
use mizzen_sdk::{Key, Object};
use mizzen_value::{Str, Value, time, value};
use tokio::time::{sleep, timeout};

use crate::bind::message;
use crate::model::Pod;
use crate::storage::{SELECTED_NODE, is_bound};
use crate::world::World;

/// Keeps a claim of devices until nobody uses them.
const FINALIZER: &str = "resource.kubernetes.io/delete-protection";
/// How often a claim is written that others write, too.
const MOST_TRIES: usize = 5;
/// How often they are looked at.
const LOOK_EVERY: Duration = Duration::from_secs(1);

/// Something to be done first.
#[derive(Debug, Clone)]
pub(crate) enum Step {
    /// Binds a volume to a claim.
    BindVolume {
        /// The volume as it will be.
        volume: Arc<Object>,
        claim: Key,
        /// How long it is waited for.
        patience: Duration,
    },
    /// Lets somebody make a volume for a claim on a node.
    Provision {
        /// The claim as it will be.
        claim: Arc<Object>,
        /// How long it is waited for.
        patience: Duration,
    },
    /// Lets a pod use a claim of devices.
    Claim {
        claim: Key,
        uid: Str,
        /// The devices that it gets; none if it has them.
        allocation: Option<Value>,
        pod: Arc<Pod>,
    },
}

/// Assumes what steps will do.
pub(crate) fn assume(steps: &[Step], world: &mut World) {
    for step in steps {
        match step {
            Step::BindVolume { volume, .. } => world.storage.assume_volume(volume.clone()),
            Step::Provision { claim, .. } => world.storage.assume_claim(claim.clone()),
            Step::Claim {
                uid,
                allocation: Some(allocation),
                ..
            } => world.devices.assume(uid, allocation),
            Step::Claim { .. } => {}
        }
    }
}

/// Forgets what steps would have done.
pub(crate) fn forget(steps: &[Step], world: &mut World) {
    for step in steps {
        match step {
            Step::BindVolume { volume, .. } => world.storage.forget_volume(volume.name()),
            Step::Provision { claim, .. } => world.storage.forget_claim(&claim.key()),
            Step::Claim { uid, .. } => world.devices.forget(uid),
        }
    }
}

/// Does what is to be done before a pod is bound.
#[derive(Clone)]
pub(crate) struct Doer {
    api: Api,
    clock: Clock,
    claims: Lister<Object>,
}

impl Doer {
    pub(crate) fn new(api: Api, clock: Clock, informers: &Factory) -> Doer {
        Doer {
            api,
            clock,
            claims: informers.objects(&PERSISTENT_VOLUME_CLAIMS).lister(),
        }
    }

    /// Does all steps, and waits until what others have to do is done.
    pub(crate) async fn carry_out(&self, steps: &[Step]) -> Result<(), String> {
        let mut promises = Vec::with_capacity(steps.len());
        for step in steps {
            promises.extend(self.write(step).await.map_err(|error| {
                let plugin = if matches!(step, Step::Claim { .. }) {
                    "DynamicResources"
                } else {
                    "VolumeBinding"
                };
                format!("running PreBind plugin \"{plugin}\": {}", message(error))
            })?);
        }
        if promises.is_empty() {
            return Ok(());
        }
        let waiting = self.wait(&promises).await;
        waiting.map_err(|error| {
            format!("running PreBind plugin \"VolumeBinding\": binding volumes: {error}")
        })
    }

    async fn write(&self, step: &Step) -> Result<Option<Promise>, kube::Error> {
        Ok(Some(match step {
            Step::Claim {
                claim,
                allocation,
                pod,
                ..
            } => {
                self.claim(claim, allocation.as_ref(), pod).await?;
                return Ok(None);
            }
            Step::BindVolume {
                volume,
                claim,
                patience,
            } => {
                self.api.update(&PERSISTENT_VOLUMES, volume).await?;
                Promise {
                    claim: claim.clone(),
                    node: None,
                    since: Version::default(),
                    patience: *patience,
                }
            }
            Step::Provision { claim, patience } => {
                let written = self.api.update(&PERSISTENT_VOLUME_CLAIMS, claim).await?;
                let node = claim.annotation(SELECTED_NODE).map(String::from);
                let since = Version::parse(written.version());
                Promise {
                    claim: claim.key(),
                    node,
                    since,
                    patience: *patience,
                }
            }
        }))
    }

    /// Gives a claim its devices, and the pod the claim. Whoever else writes it at the same time is waited for.
    async fn claim(
        &self,
        key: &Key,
        allocation: Option<&Value>,
        pod: &Pod,
    ) -> Result<(), kube::Error> {
        let mut tries = 0;
        loop {
            let outcome = self.try_claim(key, allocation, pod).await;
            tries += 1;
            match outcome {
                Err(error) if is_conflict(&error) && tries < MOST_TRIES => {}
                outcome => return outcome,
            }
        }
    }

    async fn try_claim(
        &self,
        key: &Key,
        allocation: Option<&Value>,
        pod: &Pod,
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
            let Pod { name, uid, .. } = pod;
            consumers.push(value!({"resource": "pods", "name": name, "uid": uid}));
        }
        self.api
            .update_status(&RESOURCE_CLAIMS, &claim)
            .await
            .map(drop)
    }

    /// Gives back the claims of devices that were written for a pod which is not bound after all.
    ///
    /// Kubernetes: a claim keeps its devices; whoever cleans up claims frees them, or the pod finds them again.
    pub(crate) async fn undo(&self, steps: &[Step]) {
        for step in steps {
            let Step::Claim {
                claim, uid, pod, ..
            } = step
            else {
                continue;
            };
            // The answer to our write may have been lost, so that every claim is asked for.
            let change = value!({
                "metadata": {"uid": uid},
                "status": {"reservedFor": [{"$patch": "delete", "uid": (&pod.uid)}]}
            });
            let written = self
                .api
                .patch(&RESOURCE_CLAIMS, claim, "status", Patch::Strategic, &change)
                .await;
            if let Err(error) = written.map(drop)
                && !is_not_found(&error)
            {
                // The next try of the pod comes here again, if it fails.
                tracing::warn!(%claim, %error, "a claim is still reserved for a pod that is not bound");
            }
        }
    }

    async fn wait(&self, promises: &[Promise]) -> Result<(), String> {
        let patience = promises
            .iter()
            .map(|promise| promise.patience)
            .max()
            .unwrap_or_default();
        let all_kept = async {
            loop {
                sleep(LOOK_EVERY).await;
                let kept: Vec<bool> = promises
                    .iter()
                    .map(|promise| self.is_kept(promise))
                    .collect::<Result<_, _>>()?;
                if !kept.contains(&false) {
                    return Ok(());
                }
            }
        };
        timeout(patience, all_kept)
            .await
            .unwrap_or_else(|_| Err("context deadline exceeded".into()))
    }

    /// Whether a claim has its volume; an error if it will not get one on this node.
    fn is_kept(&self, promise: &Promise) -> Result<bool, String> {
        let Promise {
            claim: key,
            node,
            since,
            ..
        } = promise;
        let claim = self.claims.by_key(key).map_err(|error| error.to_string())?;
        let claim = claim.ok_or_else(|| {
            format!("failed to check provisioning pvc: could not find v1.PersistentVolumeClaim \"{key}\"")
        })?;
        // The cache may not know yet what we wrote.
        if Version::parse(claim.version()) < *since {
            return Ok(false);
        }
        if node.is_some() && claim.annotation(SELECTED_NODE) != node.as_deref() {
            return Err(format!("provisioning failed for PVC \"{}\"", key.name()));
        }
        Ok(is_bound(&claim))
    }
}

/// A claim that will have a volume.
struct Promise {
    claim: Key,
    /// The node on which it is made; none if it is there.
    node: Option<String>,
    /// The version in which we said so.
    since: Version,
    /// How long it is waited for.
    patience: Duration,
}
