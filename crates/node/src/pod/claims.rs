//! The PersistentVolumeClaims of a pod, and what they are bound to.
//!
//! Kubernetes: the messages are those of pkg/kubelet/volumemanager/populator.
//!
//! Invariant: pure. Claims and volumes that were read are passed in.

use mizzen_value::{Str, Value};

use super::references::Found;
use super::spec;

/// The finalizer of a claim that pods use.
const PROTECTION: &str = "kubernetes.io/pvc-protection";

/// A claim as it was read.
#[derive(Debug, Default, PartialEq)]
pub struct ReadClaim {
    /// The claim.
    pub claim: Value,
    /// The volume that it names; null if it names none.
    pub volume: Value,
    /// Whether the node affinity of the volume matches the node.
    pub allows_node: bool,
}

/// The PersistentVolume behind a volume of a pod.
#[derive(Debug, Clone, PartialEq)]
pub struct ClaimedVolume {
    /// Its name.
    pub name: Str,
    /// Its specification, which has the source.
    pub source: Value,
    /// Whether the pod may only read.
    pub is_read_only: bool,
    /// Whether the node affinity of the volume matches the node.
    pub allows_node: bool,
}

/// The name of the claim behind a volume of a pod, if there is one. Kubernetes: that of an ephemeral
/// volume follows from the names (component-helpers/storage/ephemeral).
pub fn claim_name(pod: &Value, volume: &Value) -> Option<Str> {
    match (&volume["persistentVolumeClaim"], &volume["ephemeral"]) {
        (Value::Null, Value::Null) => None,
        (Value::Null, _) => {
            let names = [&pod["metadata"], volume].map(|named| named["name"].str());
            Some(names.join("-").into())
        }
        (claim, _) => Some(claim["claimName"].str().into()),
    }
}

/// How containers use a volume.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct VolumeUse {
    is_mounted: bool,
    is_device: bool,
}

impl VolumeUse {
    fn of(pod: &Value, volume: &Value) -> VolumeUse {
        let is_in = |field: &str| {
            let containers = spec::containers(pod).map(|(_, container)| container);
            let mut uses = containers.flat_map(|container| container[field].list());
            uses.any(|one| one["name"] == volume["name"])
        };
        VolumeUse {
            is_mounted: is_in("volumeMounts"),
            is_device: is_in("volumeDevices"),
        }
    }
}

/// The volumes of a pod with claims that containers use, and the names of the claims.
pub fn claimed_volumes(pod: &Value) -> impl Iterator<Item = (&Value, Str)> {
    let volumes = pod["spec"]["volumes"].list().iter();
    let claimed = volumes.filter_map(|volume| Some((volume, claim_name(pod, volume)?)));
    claimed.filter(|(volume, _)| {
        let used = VolumeUse::of(pod, volume);
        used.is_mounted || used.is_device
    })
}

/// Why the claim behind a volume cannot be used.
pub(super) fn claim_problem(
    pod: &Value,
    volume: &Value,
    name: &str,
    found: &Found,
) -> Option<String> {
    let namespace = pod["metadata"]["namespace"].str();
    let of_claim = |why: String| Some(format!("error processing PVC {namespace}/{name}: {why}"));
    let read = match found {
        Ok(contents) => contents.claim.as_ref()?,
        Err(why) => return of_claim(why.clone()),
    };
    if let Some(why) = read.unbound() {
        return of_claim(why.into());
    }
    if !volume["ephemeral"].is_null() && !is_owned(&read.claim, pod) {
        let pod = pod["metadata"]["name"].str();
        return Some(format!(
            "PVC {namespace}/{name} was not created for pod {namespace}/{pod} (pod is not owner)"
        ));
    }
    if let Some(why) = read.mismatch() {
        return of_claim(why);
    }
    mode_problem(
        volume["name"].str(),
        &read.volume,
        VolumeUse::of(pod, volume),
    )
}

fn is_owned(claim: &Value, pod: &Value) -> bool {
    let mut owners = claim["metadata"]["ownerReferences"].list().iter();
    owners.any(|owner| owner["controller"].bool() && owner["uid"] == pod["metadata"]["uid"])
}

/// Why a volume cannot be used in its mode. This node maps no block devices.
fn mode_problem(name: &str, volume: &Value, used: VolumeUse) -> Option<String> {
    let mode = match volume["spec"]["volumeMode"].str() {
        "" => "Filesystem",
        mode => mode,
    };
    let wrong = |field: &str| {
        Some(format!(
            "volume {name} has volumeMode {mode}, but is specified in {field}"
        ))
    };
    match (used, mode) {
        (
            VolumeUse {
                is_mounted: true, ..
            },
            "Block",
        ) => wrong("volumeMounts"),
        (
            VolumeUse {
                is_device: true, ..
            },
            "Filesystem",
        ) => wrong("volumeDevices"),
        (_, "Block") => Some(format!(
            "volume {name} has volumeMode Block, which is not supported by this node"
        )),
        _ => None,
    }
}

/// The message of the event about volumes that cannot be processed. Kubernetes:
/// pkg/kubelet/volumemanager, `WaitForAttachAndMount`.
pub(crate) fn cannot_process(volumes: &[Str], why: &str) -> String {
    let volumes = volumes.join(" ");
    format!(
        "Unable to attach or mount volumes: unmounted volumes=[{volumes}], unattached volumes=[], \
         failed to process volumes=[{volumes}]: {why}"
    )
}

impl ReadClaim {
    /// Why the claim is of no use yet.
    fn unbound(&self) -> Option<&'static str> {
        let (metadata, claim) = (&self.claim["metadata"], &self.claim);
        let mut finalizers = metadata["finalizers"].list().iter();
        let is_protected = finalizers.any(|one| one.str() == PROTECTION);
        if !metadata["deletionTimestamp"].is_null() && !is_protected {
            return Some("PVC is being deleted");
        }
        if claim["status"]["phase"].str() != "Bound" {
            return Some("PVC is not bound");
        }
        let has_name = !claim["spec"]["volumeName"].is_empty();
        (!has_name).then_some("PVC has empty pvc.Spec.VolumeName")
    }

    /// Why the volume is not that of the claim.
    fn mismatch(&self) -> Option<String> {
        let name = self.claim["spec"]["volumeName"].str();
        if self.volume.is_null() {
            return Some(format!(
                "failed to fetch PV {name} from API server: persistentvolumes {name:?} not found"
            ));
        }
        let (reference, uid) = (
            &self.volume["spec"]["claimRef"],
            self.claim["metadata"]["uid"].str(),
        );
        if reference.is_null() {
            return Some(format!(
                "found PV object {name} but it has a nil pv.Spec.ClaimRef indicating it is not yet bound to the claim"
            ));
        }
        let holder = reference["uid"].str();
        (holder != uid).then(|| {
            format!(
                "found PV object {name} but its pv.Spec.ClaimRef.UID {holder} does not point to claim.UID {uid}"
            )
        })
    }

    /// Whether the claim is bound, so that it is not read again.
    pub fn is_bound(&self) -> bool {
        self.unbound().is_none() && self.mismatch().is_none()
    }

    /// The volume as a pod uses it.
    pub(super) fn claimed(&self, volume: &Value) -> ClaimedVolume {
        ClaimedVolume {
            name: self.volume["metadata"]["name"].str().into(),
            source: self.volume["spec"].clone(),
            is_read_only: volume["persistentVolumeClaim"]["readOnly"].bool(),
            allows_node: self.allows_node,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use mizzen_value::{value, yaml};

    use super::super::references::Contents;
    use super::*;

    const CLAIM: &str =
        "{metadata: {name: c, uid: u}, spec: {volumeName: v}, status: {phase: Bound}}";
    const VOLUME: &str = "{metadata: {name: v}, spec: {claimRef: {uid: u}, local: {path: /x}}}";

    #[track_caller]
    fn check(claim: &str, volume: &str, source: &str, wanted: Option<&str>) {
        let read = |text: &str| yaml::read(text.as_bytes()).unwrap().value;
        let pod = read(&format!(
            "{{metadata: {{name: p, namespace: ns, uid: pod}}, spec: {{volumes: [{{name: c, {source}}}], \
             containers: [{{name: x, volumeMounts: [{{name: c}}]}}]}}}}"
        ));
        let contents = Contents {
            claim: Some(ReadClaim {
                claim: read(claim),
                volume: read(volume),
                allows_node: true,
            }),
            ..Contents::default()
        };
        let found = Ok(Arc::new(contents));
        let (volume, name) = claimed_volumes(&pod).next().unwrap();
        let problem = claim_problem(&pod, volume, &name, &found);
        assert_eq!(problem.as_deref(), wanted);
    }

    #[test]
    fn a_claim_that_cannot_be_used_is_explained_as_upstream_does() {
        let direct = "persistentVolumeClaim: {claimName: c}";
        check(CLAIM, VOLUME, direct, None);
        let unbound = CLAIM.replace("Bound", "Pending");
        let why = "error processing PVC ns/c: PVC is not bound";
        check(&unbound, "null", direct, Some(why));
        let why = "error processing PVC ns/c: failed to fetch PV v from API server: persistentvolumes \"v\" not found";
        check(CLAIM, "null", direct, Some(why));
        let other = VOLUME.replace("uid: u", "uid: w");
        let why = "error processing PVC ns/c: found PV object v but its pv.Spec.ClaimRef.UID w does not point to claim.UID u";
        check(CLAIM, &other, direct, Some(why));
        let going = CLAIM.replace("uid: u", "uid: u, deletionTimestamp: now");
        let why = "error processing PVC ns/c: PVC is being deleted";
        check(&going, VOLUME, direct, Some(why));
        let block = VOLUME.replace("local", "volumeMode: Block, local");
        let why = "volume c has volumeMode Block, but is specified in volumeMounts";
        check(CLAIM, &block, direct, Some(why));
    }

    #[test]
    fn the_claim_of_an_ephemeral_volume_belongs_to_its_pod() {
        let why = "PVC ns/p-c was not created for pod ns/p (pod is not owner)";
        check(CLAIM, VOLUME, "ephemeral: {}", Some(why));
        let owned = CLAIM.replace(
            "uid: u",
            "uid: u, ownerReferences: [{uid: pod, controller: true}]",
        );
        check(&owned, VOLUME, "ephemeral: {}", None);
    }

    #[test]
    fn a_claim_that_no_container_uses_is_not_needed() {
        let pod = value!({ "spec": { "volumes": [
            { "name": "v", "persistentVolumeClaim": { "claimName": "c" } },
        ] } });
        assert!(claimed_volumes(&pod).next().is_none());
    }
}
