//! Does another pod have the volume that only one can have?

use std::sync::Arc;

use mizzen_value::Str;

use super::{Check, Filter, Name, Ready, Refusal};
use crate::cache::Node;
use crate::happening::Happening;
use crate::model::{Disk, Pod};
use crate::world::World;

pub(crate) struct VolumeRestrictions;

/// What only one can have.
#[derive(Clone)]
struct Exclusive {
    namespace: Str,
    disks: Box<[Disk]>,
    /// Claims that only one pod may use.
    claims: Vec<Str>,
    /// How many other pods use them.
    n_users: i64,
}

impl Filter for VolumeRestrictions {
    fn name(&self) -> Name {
        Name::VolumeRestrictions
    }

    fn prepare(&self, pod: &Arc<Pod>, world: &mut World) -> Ready {
        let mut claims = Vec::new();
        for claim in pod.volumes.claims.iter().filter(|claim| !claim.ephemeral) {
            let Some(object) = world.storage.claim(&pod.namespace, &claim.name) else {
                let reason = format!("persistentvolumeclaim \"{}\" not found", claim.name);
                return Ready::Refuse(Refusal::for_good(Name::VolumeRestrictions, reason));
            };
            let modes = object["spec"]["accessModes"].list();
            if modes.iter().any(|mode| mode.str() == "ReadWriteOncePod") {
                claims.push(claim.name.clone());
            }
        }
        let used = claims
            .iter()
            .filter(|claim| world.cache.n_users(&pod.namespace, claim) > 0);
        let n_users = used.count() as i64;
        if pod.volumes.disks.is_empty() && n_users == 0 {
            return Ready::Skip;
        }
        let (namespace, disks) = (pod.namespace.clone(), pod.volumes.disks.clone());
        Ready::Check(Box::new(Exclusive {
            namespace,
            disks,
            claims,
            n_users,
        }))
    }

    fn wakes(&self, pod: &Pod, happening: &Happening, _world: &World) -> bool {
        match happening {
            Happening::Node {
                old: None,
                new: Some(_),
                ..
            } => true,
            Happening::Claim {
                old: None,
                new: Some(claim),
            } => {
                let uses = |name: &str| {
                    pod.volumes
                        .claims
                        .iter()
                        .any(|one| !one.ephemeral && one.name == name)
                };
                claim.namespace() == pod.namespace && uses(claim.name())
            }
            Happening::Pod {
                old: Some(gone),
                new: None,
                ..
            } => {
                let shares = gone.volumes.claims.iter().filter(|one| !one.ephemeral);
                let mut shares = shares.filter(|one| pod.volumes.claims.contains(one));
                gone.namespace == pod.namespace
                    && (clash(&pod.volumes.disks, &gone.volumes.disks) || shares.next().is_some())
            }
            _ => false,
        }
    }
}

fn clash(disks: &[Disk], others: &[Disk]) -> bool {
    disks
        .iter()
        .any(|disk| others.iter().any(|other| disk.clashes(other)))
}

impl Check for Exclusive {
    fn check(&self, node: &Node, _world: &World) -> Option<Refusal> {
        let name = Name::VolumeRestrictions;
        if !self.disks.is_empty()
            && node
                .pods
                .iter()
                .any(|pod| clash(&self.disks, &pod.volumes.disks))
        {
            return Some(Refusal::for_now(name, "node(s) had no available disk"));
        }
        let reason = "node(s) unavailable due to PersistentVolumeClaim with ReadWriteOncePod access mode already in-use by another pod";
        (self.n_users > 0).then(|| Refusal::for_now(name, reason))
    }

    fn imagine(&mut self, pod: &Pod, _node: &Node, by: i64, _world: &World) {
        let uses = pod
            .volumes
            .claims
            .iter()
            .filter(|claim| !claim.ephemeral && self.claims.contains(&claim.name));
        if pod.namespace == self.namespace {
            self.n_users += by * uses.count() as i64;
        }
    }

    fn copy(&self) -> Box<dyn Check> {
        Box::new(self.clone())
    }
}
