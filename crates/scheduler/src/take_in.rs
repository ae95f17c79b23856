//! What becomes of a letter?

use std::sync::Arc;

use mizzen_sdk::{Key, Object, Resource};
use mizzen_value::Str;

use crate::HashMap;
use crate::happening::{Happening, NodeChange, PodChange};
use crate::inbox::Letter;
use crate::meter::Outcome;
use crate::model::{NodeFacts, Pod};
use crate::plugin::{Name, Names};
use crate::profile::Profile;
use crate::reserve;
use crate::scheduler::{Failure, Flight, Scheduler};
use crate::world::World;

impl Scheduler {
    /// Takes in what happened.
    pub(crate) fn take_in(&mut self, letter: Letter) {
        match letter {
            Letter::Pod(pod) if self.world.cache.pod(&pod.uid).is_some() => self.change_placed(pod),
            Letter::Pod(pod) if pod.is_placed() => self.take_in_placed(pod),
            Letter::Pod(pod) => self.take_in_waiting(pod),
            Letter::PodGone(uid) => self.forget_pod(&uid),
            Letter::Node(facts) => self.take_in_node(*facts),
            Letter::NodeGone(name) => {
                if let Some(old) = self.world.cache.remove_node(&name) {
                    let change = NodeChange::DELETE;
                    self.wake(
                        &Happening::Node {
                            old: Some(&old),
                            new: None,
                            change,
                        },
                        |_| true,
                    );
                }
            }
            Letter::Object(resource, key, object) => self.take_in_object(resource, &key, object),
            Letter::Synced => self.is_synced = true,
            Letter::Bound { uid, outcome } => self.bound(&uid, outcome),
            Letter::Preempted { uid, done } => self.queue.release(&uid, done),
            Letter::Reported { uid } => self.reports.done(&uid),
        }
    }

    /// A pod that is somewhere, or is assumed to be, changed.
    fn change_placed(&mut self, pod: Arc<Pod>) {
        let Some(old) = self.world.cache.pod(&pod.uid).cloned() else {
            return;
        };
        if self.world.cache.is_assumed(&pod.uid) {
            if pod.is_placed() {
                self.take_in_placed(pod);
            } else {
                self.change_assumed(&old, pod);
            }
            return;
        }
        self.world.cache.set_pod(pod.clone());
        let change = PodChange::between(&old, &pod);
        self.wake(
            &Happening::Pod {
                old: Some(&old),
                new: Some(&pod),
                change,
            },
            |_| true,
        );
    }

    /// A pod that is on its way to its node changed; if it shall go, its place is free.
    fn change_assumed(&mut self, old: &Pod, pod: Arc<Pod>) {
        let leaves = pod.is_going && !old.is_going;
        if let Some(flight) = self.flight.get_mut(&pod.uid) {
            flight.waiting.pod = pod.clone();
        }
        if leaves {
            self.world.cache.forget(&pod.uid);
            let change = PodChange::DELETE;
            self.wake(
                &Happening::Pod {
                    old: Some(old),
                    new: None,
                    change,
                },
                |_| true,
            );
        }
    }

    /// A pod is somewhere now.
    fn take_in_placed(&mut self, pod: Arc<Pod>) {
        self.queue.remove(&pod.uid);
        self.world.cache.set_pod(pod.clone());
        self.wake(
            &Happening::Pod {
                old: None,
                new: Some(&pod),
                change: PodChange::ADD,
            },
            |_| true,
        );
    }

    /// A pod that is nowhere came or changed.
    fn take_in_waiting(&mut self, pod: Arc<Pod>) {
        let Some(profile) = self.profiles.get(&pod.scheduler).cloned() else {
            return;
        };
        if let Some(flight) = self.flight.get_mut(&pod.uid) {
            flight.waiting.pod = pod;
            return;
        }
        let Some(old) = self.queue.get(&pod.uid).map(|waiting| waiting.pod.clone()) else {
            let gate = gate(&profile, &pod, &self.world);
            return self.queue.add(pod, gate);
        };
        self.queue.replace(&pod);
        let change = PodChange::between(&old, &pod);
        let uid = pod.uid.clone();
        self.wake(
            &Happening::Pod {
                old: Some(&old),
                new: Some(&pod),
                change,
            },
            |other| other.uid == uid,
        );
        if !old.nominated.is_empty() && old.nominated != pod.nominated {
            self.lost_prospect(&old);
        }
    }

    /// A pod that waited will not be on the node that was nominated for it.
    fn lost_prospect(&mut self, old: &Pod) {
        let change = PodChange::DELETE;
        let priority = old.priority;
        self.wake(
            &Happening::Pod {
                old: Some(old),
                new: None,
                change,
            },
            |other| other.priority <= priority,
        );
    }

    fn forget_pod(&mut self, uid: &str) {
        if let Some(flight) = self.flight.remove(uid) {
            reserve::forget(&flight.steps, &mut self.world);
        }
        if let Some(old) = self.world.cache.remove_pod(uid) {
            let change = PodChange::DELETE;
            self.wake(
                &Happening::Pod {
                    old: Some(&old),
                    new: None,
                    change,
                },
                |_| true,
            );
        }
        let waited = self
            .queue
            .remove(uid)
            .filter(|pod| !pod.nominated.is_empty());
        if let Some(old) = waited {
            self.lost_prospect(&old);
        }
    }

    fn take_in_node(&mut self, facts: NodeFacts) {
        let name = facts.name.clone();
        let old = self.world.cache.set_node(facts);
        let Some(new) = self.world.cache.find(&name).map(|node| node.facts.clone()) else {
            return;
        };
        let change = old
            .as_ref()
            .map_or(NodeChange::ADD, |old| NodeChange::between(old, &new));
        if change != NodeChange::NONE {
            self.wake(
                &Happening::Node {
                    old: old.as_deref(),
                    new: Some(&new),
                    change,
                },
                |_| true,
            );
        }
    }

    fn take_in_object(&mut self, resource: &Resource, key: &Key, object: Option<Arc<Object>>) {
        let cache = &mut self.world.cache;
        match (&*resource.kind, object.as_deref()) {
            ("Namespace", namespace) => cache.set_namespace(key, namespace),
            ("Service", service) => cache.owners.set_service(key, service),
            ("ReplicationController", maker) => {
                cache.owners.set_maker("ReplicationController", key, maker)
            }
            ("ReplicaSet", maker) => cache.owners.set_maker("ReplicaSet", key, maker),
            ("StatefulSet", maker) => cache.owners.set_maker("StatefulSet", key, maker),
            ("PodDisruptionBudget", Some(budget)) => {
                self.world.budgets.insert(key.clone(), budget.clone());
            }
            ("PodDisruptionBudget", None) => drop(self.world.budgets.remove(key)),
            _ => self.take_in_storage(&resource.kind, key, object),
        }
    }

    fn take_in_storage(&mut self, kind: &str, key: &Key, object: Option<Arc<Object>>) {
        let World {
            storage, devices, ..
        } = &mut self.world;
        let new = object.clone();
        let old = match kind {
            "PersistentVolumeClaim" => storage.set_claim(key, object),
            "PersistentVolume" => storage.set_volume(key.name(), object),
            "StorageClass" => set(&mut storage.classes, key.name().into(), object),
            "CSINode" => set(&mut storage.csi_nodes, key.name().into(), object),
            "CSIDriver" => set(&mut storage.csi_drivers, key.name().into(), object),
            "VolumeAttachment" => set(&mut storage.attachments, key.name().into(), object),
            "CSIStorageCapacity" => set(&mut storage.capacities, key.clone(), object),
            "ResourceClaim" => devices.set_claim(key, object),
            "ResourceSlice" => set(&mut devices.slices, key.name().into(), object),
            "DeviceClass" => set(&mut devices.classes, key.name().into(), object),
            _ => return,
        };
        let (old, new) = (old.as_deref(), new.as_deref());
        let happening = match kind {
            "PersistentVolumeClaim" => Happening::Claim { old, new },
            "PersistentVolume" => Happening::Volume { old, new },
            "StorageClass" => Happening::StorageClass { old, new },
            "CSINode" => Happening::CsiNode { old, new },
            "CSIDriver" => Happening::CsiDriver { old, new },
            "VolumeAttachment" => Happening::Attachment { new },
            "ResourceClaim" => Happening::ResourceClaim { old, new },
            "ResourceSlice" => Happening::ResourceSlice { new },
            "DeviceClass" => Happening::DeviceClass { old, new },
            _ => Happening::Capacity { old, new },
        };
        self.wake(&happening, |_| true);
    }

    /// A pod was bound, or has to be tried again.
    fn bound(&mut self, uid: &str, outcome: Result<(), String>) {
        let Some(Flight {
            waiting,
            began,
            steps,
        }) = self.flight.remove(uid)
        else {
            return;
        };
        let (profile, took) = (&waiting.pod.scheduler, began.elapsed());
        let Err(error) = outcome else {
            self.meter.attempt(Outcome::Scheduled, profile, took);
            let first = waiting.first_attempt.unwrap_or(began);
            return self.meter.bound(waiting.attempts, first.elapsed());
        };
        self.meter.attempt(Outcome::Error, profile, took);
        reserve::forget(&steps, &mut self.world);
        let forgotten = self.world.cache.forget(uid);
        if let Some(old) = &forgotten {
            let change = PodChange::DELETE;
            self.wake(
                &Happening::Pod {
                    old: Some(old),
                    new: None,
                    change,
                },
                |_| true,
            );
        }
        // Whoever else bound it, it is placed.
        if forgotten.is_none() && self.world.cache.pod(uid).is_some() {
            return;
        }
        if let Some(profile) = self.profiles.get(&waiting.pod.scheduler).cloned() {
            self.fail(&profile, waiting, Failure::Error(error));
        }
    }

    /// Lets pods be tried again that something may have helped.
    pub(crate) fn wake(&mut self, happening: &Happening, concerns: impl Fn(&Pod) -> bool) {
        let (profiles, world) = (&self.profiles, &self.world);
        let helps = |pod: &Pod, rejectors| {
            concerns(pod) && helps(profiles, world, pod, rejectors, happening)
        };
        self.queue.wake(happening.interests(), helps, |pod| {
            gate_of(profiles, world, pod)
        });
    }

    /// Lets pods be tried again that have waited long enough.
    pub(crate) fn flush(&mut self) {
        let (profiles, world) = (&self.profiles, &self.world);
        self.queue.flush(|pod| gate_of(profiles, world, pod));
    }
}

/// Follows an object. What it was before.
fn set<K: std::hash::Hash + Eq>(
    known: &mut HashMap<K, Arc<Object>>,
    key: K,
    object: Option<Arc<Object>>,
) -> Option<Arc<Object>> {
    match object {
        Some(object) => known.insert(key, object),
        None => known.remove(&key),
    }
}

/// Who does not let a pod be tried.
fn gate(profile: &Profile, pod: &Pod, world: &World) -> Option<Name> {
    profile.gate(pod, world)
}

fn gate_of(profiles: &HashMap<Str, Arc<Profile>>, world: &World, pod: &Pod) -> Option<Name> {
    profiles
        .get(&pod.scheduler)
        .and_then(|profile| gate(profile, pod, world))
}

/// Whether something that happened can help a pod, as those see it who rejected it.
fn helps(
    profiles: &HashMap<Str, Arc<Profile>>,
    world: &World,
    pod: &Pod,
    rejectors: Names,
    happening: &Happening,
) -> bool {
    let Some(profile) = profiles.get(&pod.scheduler) else {
        return false;
    };
    let ungated = || match happening {
        Happening::Pod {
            new: Some(new),
            change,
            ..
        } => change.has(PodChange::GATES) && new.uid == pod.uid,
        _ => false,
    };
    let mut asked = profile
        .filters
        .iter()
        .filter(|filter| rejectors.has(filter.name()));
    rejectors.has(Name::Extender)
        || (rejectors.has(Name::SchedulingGates) && ungated())
        || asked.any(|filter| {
            happening.helps_unasked(filter.name()) || filter.wakes(pod, happening, world)
        })
}
