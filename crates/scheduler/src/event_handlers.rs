//! Event handlers of the scheduling loop: they update the cluster state and requeue pods that an
//! event may help.

use std::sync::Arc;

use mizzen_sdk::{Key, Object, ResourceType};
use mizzen_value::Str;
use tokio::time::Instant;

use crate::HashMap;
use crate::bind::BindFailure;
use crate::cluster_event::{ClusterEvent, NodeAction, PodAction};
use crate::cluster_state::ClusterState;
use crate::events::SchedulerMessage;
use crate::metrics::AttemptResult;
use crate::model::{NodeFacts, PodInfo};
use crate::plugin::{Name, PluginNames};
use crate::profile::Profile;
use crate::reserve;
use crate::scheduler::{BindingPod, Scheduler};

impl Scheduler {
    /// Handles one message.
    pub(crate) fn on_message(&mut self, message: SchedulerMessage) {
        match message {
            SchedulerMessage::Pod(pod) if self.cluster.cache.pod(&pod.uid).is_some() => {
                self.update_assigned_pod_in_cache(pod)
            }
            SchedulerMessage::Pod(pod) if pod.is_assigned() => self.add_assigned_pod_to_cache(pod),
            SchedulerMessage::Pod(pod) => self.add_or_update_pod_in_scheduling_queue(pod),
            SchedulerMessage::PodGone(uid) => self.delete_pod(&uid),
            SchedulerMessage::Node(facts) => self.on_node(*facts),
            SchedulerMessage::NodeGone(name) => {
                if let Some(old) = self.cluster.cache.remove_node(&name) {
                    self.on_event(&ClusterEvent::Node {
                        old: Some(&old),
                        new: None,
                        change: NodeAction::DELETE,
                    });
                }
            }
            SchedulerMessage::Object(resource, key, object) => {
                self.on_object(resource, &key, object)
            }
            SchedulerMessage::Synced => self.is_synced = true,
            SchedulerMessage::Bound { uid, outcome } => self.on_bound(&uid, outcome),
            SchedulerMessage::Preempted { uid, done } => self.queue.release(&uid, done),
            SchedulerMessage::Reported { uid } => self.status_writer.done(&uid),
        }
    }

    /// An assigned or assumed pod was updated.
    fn update_assigned_pod_in_cache(&mut self, pod: Arc<PodInfo>) {
        let Some(old) = self.cluster.cache.pod(&pod.uid).cloned() else {
            return;
        };
        if self.cluster.cache.is_assumed(&pod.uid) {
            if pod.is_assigned() {
                self.add_assigned_pod_to_cache(pod);
            } else {
                self.update_assumed_pod(&old, pod);
            }
            return;
        }
        self.cluster.cache.set_pod(pod.clone());
        self.on_event(&ClusterEvent::pod_updated(&old, &pod));
    }

    /// A pod in its binding cycle was updated. If it is being deleted, its resources are free.
    fn update_assumed_pod(&mut self, old: &PodInfo, pod: Arc<PodInfo>) {
        let leaves = pod.is_terminating && !old.is_terminating;
        if let Some(binding_pod) = self.binding_pods.get_mut(&pod.uid) {
            binding_pod.queued_pod.pod = pod.clone();
        }
        if leaves {
            self.cluster.cache.forget_assumed(&pod.uid);
            self.on_event(&ClusterEvent::pod_deleted(old));
        }
    }

    /// A pod was assigned.
    fn add_assigned_pod_to_cache(&mut self, pod: Arc<PodInfo>) {
        self.queue.remove(&pod.uid);
        self.cluster.cache.set_pod(pod.clone());
        self.on_event(&ClusterEvent::pod_added(&pod));
    }

    /// An unassigned pod was added or updated.
    fn add_or_update_pod_in_scheduling_queue(&mut self, pod: Arc<PodInfo>) {
        let Some(profile) = self.profiles.get(&pod.scheduler).cloned() else {
            return;
        };
        if let Some(binding_pod) = self.binding_pods.get_mut(&pod.uid) {
            binding_pod.queued_pod.pod = pod;
            return;
        }
        let Some(old) = self
            .queue
            .get(&pod.uid)
            .map(|queued_pod| queued_pod.pod.clone())
        else {
            let gate = profile.run_pre_enqueue(&pod, &self.cluster);
            return self.queue.add(pod, gate);
        };
        self.queue.update(&pod);
        self.move_all_to_active_or_backoff(&ClusterEvent::pod_updated(&old, &pod), |other| {
            other.uid == pod.uid
        });
        if !old.nominated_node.is_empty() && old.nominated_node != pod.nominated_node {
            self.on_nomination_lost(&old);
        }
    }

    /// A queued pod lost its nomination, so its nominated resources are free.
    fn on_nomination_lost(&mut self, old: &PodInfo) {
        let priority = old.priority;
        self.move_all_to_active_or_backoff(&ClusterEvent::pod_deleted(old), |other| {
            other.priority <= priority
        });
    }

    fn delete_pod(&mut self, uid: &str) {
        self.waiting_pods.cancel(uid);
        if let Some(binding_pod) = self.binding_pods.remove(uid) {
            reserve::forget(&binding_pod.steps, &mut self.cluster);
        }
        if let Some(old) = self.cluster.cache.remove_pod(uid) {
            self.on_event(&ClusterEvent::pod_deleted(&old));
        }
        if let Some(old) = self.queue.remove(uid)
            && !old.nominated_node.is_empty()
        {
            self.on_nomination_lost(&old);
        }
    }

    fn on_node(&mut self, facts: NodeFacts) {
        let name = facts.name.clone();
        let old = self.cluster.cache.set_node(facts);
        let Some(new) = self
            .cluster
            .cache
            .node_by_name(&name)
            .map(|node| node.facts.clone())
        else {
            return;
        };
        let change = old
            .as_ref()
            .map_or(NodeAction::ADD, |old| NodeAction::between(old, &new));
        if change != NodeAction::NONE {
            self.on_event(&ClusterEvent::Node {
                old: old.as_deref(),
                new: Some(&new),
                change,
            });
        }
    }

    fn on_object(&mut self, resource: &ResourceType, key: &Key, object: Option<Arc<Object>>) {
        let cache = &mut self.cluster.cache;
        match (&*resource.kind, object.as_deref()) {
            ("Namespace", namespace) => cache.set_namespace(key, namespace),
            ("Service", service) => cache.default_selectors.set_service(key, service),
            ("ReplicationController", controller) => {
                cache
                    .default_selectors
                    .set_controller("ReplicationController", key, controller)
            }
            ("ReplicaSet", controller) => {
                cache
                    .default_selectors
                    .set_controller("ReplicaSet", key, controller)
            }
            ("StatefulSet", controller) => {
                cache
                    .default_selectors
                    .set_controller("StatefulSet", key, controller)
            }
            ("PodDisruptionBudget", Some(budget)) => {
                self.cluster.budgets.insert(key.clone(), budget.clone());
            }
            ("PodDisruptionBudget", None) => drop(self.cluster.budgets.remove(key)),
            _ => self.on_storage_object(&resource.kind, key, object),
        }
    }

    fn on_storage_object(&mut self, kind: &str, key: &Key, object: Option<Arc<Object>>) {
        let ClusterState {
            storage, devices, ..
        } = &mut self.cluster;
        let new = object.clone();
        let old = match kind {
            "PersistentVolumeClaim" => storage.set_claim(key, object),
            "PersistentVolume" => storage.set_volume(key.name(), object),
            "StorageClass" => replace_object(&mut storage.classes, key.name().into(), object),
            "CSINode" => replace_object(&mut storage.csi_nodes, key.name().into(), object),
            "CSIDriver" => replace_object(&mut storage.csi_drivers, key.name().into(), object),
            "VolumeAttachment" => {
                replace_object(&mut storage.attachments, key.name().into(), object)
            }
            "CSIStorageCapacity" => replace_object(&mut storage.capacities, key.clone(), object),
            "ResourceClaim" => devices.set_claim(key, object),
            "ResourceSlice" => replace_object(&mut devices.slices, key.name().into(), object),
            "DeviceClass" => replace_object(&mut devices.classes, key.name().into(), object),
            _ => return,
        };
        let (old, new) = (old.as_deref(), new.as_deref());
        let event = match kind {
            "PersistentVolumeClaim" => ClusterEvent::PersistentVolumeClaim { old, new },
            "PersistentVolume" => ClusterEvent::PersistentVolume { old, new },
            "StorageClass" => ClusterEvent::StorageClass { old, new },
            "CSINode" => ClusterEvent::CsiNode { old, new },
            "CSIDriver" => ClusterEvent::CsiDriver { old, new },
            "VolumeAttachment" => ClusterEvent::VolumeAttachment { old, new },
            "ResourceClaim" => ClusterEvent::ResourceClaim { old, new },
            "ResourceSlice" => ClusterEvent::ResourceSlice { old, new },
            "DeviceClass" => ClusterEvent::DeviceClass { old, new },
            _ => ClusterEvent::CsiStorageCapacity { old, new },
        };
        self.on_event(&event);
    }

    /// The binding cycle of a pod has ended.
    fn on_bound(&mut self, uid: &str, outcome: Result<(), BindFailure>) {
        let Some(BindingPod {
            queued_pod,
            attempt_started,
            steps,
            ..
        }) = self.binding_pods.remove(uid)
        else {
            return;
        };
        let (profile, took) = (&queued_pod.pod.scheduler, attempt_started.elapsed());
        let Err(error) = outcome else {
            self.metrics
                .observe_attempt(AttemptResult::Scheduled, profile, took);
            return self.metrics.observe_bound(&queued_pod, attempt_started);
        };
        let result = match &error {
            BindFailure::Rejected(_) => AttemptResult::Unschedulable,
            BindFailure::Error(_) => AttemptResult::Error,
        };
        self.metrics.observe_attempt(result, profile, took);
        reserve::forget(&steps, &mut self.cluster);
        let forgotten = self.cluster.cache.forget_assumed(uid);
        if let Some(old) = &forgotten {
            self.on_event(&ClusterEvent::pod_deleted(old));
        }
        // The pod was bound by another writer.
        if forgotten.is_none() && self.cluster.cache.pod(uid).is_some() {
            return;
        }
        if let Some(profile) = self.profiles.get(&queued_pod.pod.scheduler).cloned() {
            self.handle_scheduling_failure(&profile, queued_pod, error.into());
        }
    }

    /// Requeues the pods that an event may help.
    pub(crate) fn on_event(&mut self, event: &ClusterEvent) {
        let started = Instant::now();
        self.move_all_to_active_or_backoff(event, |_| true);
        self.metrics.observe_event(event.label(), started.elapsed());
    }

    /// Requeues the pods among those in `concerns` that an event may help.
    fn move_all_to_active_or_backoff(
        &mut self,
        event: &ClusterEvent,
        concerns: impl Fn(&PodInfo) -> bool,
    ) {
        let (profiles, cluster) = (&self.profiles, &self.cluster);
        let is_worth_requeuing = |pod: &PodInfo, unschedulable_plugins| {
            concerns(pod)
                && is_worth_requeuing(profiles, cluster, pod, unschedulable_plugins, event)
        };
        self.queue.move_all_to_active_or_backoff(
            event.label(),
            event.registered_plugins(),
            is_worth_requeuing,
            |pod| run_pre_enqueue(profiles, cluster, pod),
        );
    }

    /// Requeues the pods whose back-off or timeout has ended.
    pub(crate) fn flush(&mut self) {
        let (profiles, cluster) = (&self.profiles, &self.cluster);
        self.queue
            .flush(|pod| run_pre_enqueue(profiles, cluster, pod));
    }
}

/// Sets or removes an object. Returns the old one.
fn replace_object<K: std::hash::Hash + Eq>(
    known: &mut HashMap<K, Arc<Object>>,
    key: K,
    object: Option<Arc<Object>>,
) -> Option<Arc<Object>> {
    match object {
        Some(object) => known.insert(key, object),
        None => known.remove(&key),
    }
}

/// Runs PreEnqueue of the pod's profile.
fn run_pre_enqueue(
    profiles: &HashMap<Str, Arc<Profile>>,
    cluster: &ClusterState,
    pod: &PodInfo,
) -> Option<Name> {
    profiles
        .get(&pod.scheduler)
        .and_then(|profile| profile.run_pre_enqueue(pod, cluster))
}

/// Whether an event may make a pod schedulable, by the queueing hints of the plugins that rejected
/// it (upstream: isPodWorthRequeuing).
fn is_worth_requeuing(
    profiles: &HashMap<Str, Arc<Profile>>,
    cluster: &ClusterState,
    pod: &PodInfo,
    unschedulable_plugins: PluginNames,
    event: &ClusterEvent,
) -> bool {
    let Some(profile) = profiles.get(&pod.scheduler) else {
        return false;
    };
    let ungated = || match event {
        ClusterEvent::Pod {
            new: Some(new),
            change,
            ..
        } => change.has(PodAction::GATES) && new.uid == pod.uid,
        _ => false,
    };
    let mut rejectors = profile
        .filters
        .iter()
        .filter(|filter| unschedulable_plugins.has(filter.name()));
    // Plugins out of tree at Reserve and Permit have no queueing hint: every event may help.
    let mut later = profile.reserves.iter().chain(&profile.permits);
    unschedulable_plugins.has(Name::Extender)
        || (!event.is_unregistered_update()
            && later.any(|custom| unschedulable_plugins.has(custom.name)))
        || (unschedulable_plugins.has(Name::SchedulingGates) && ungated())
        || rejectors.any(|filter| {
            let name = filter.name();
            event.queues_without_hint(name)
                || profile.metrics.run_hint(name, event.label(), || {
                    filter.queueing_hint(pod, event, cluster)
                })
        })
}
