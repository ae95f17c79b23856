//! Workloads in the versions before apps/v1: other defaults, and fields that are annotations now.
//!
//! apps/v1beta2 has the fields and defaults of apps/v1. Objects are prepared and validated as apps/v1.
//!
//! Kubernetes: pkg/apis/apps/v1beta1, pkg/apis/extensions/v1beta1 (defaults.go), and pkg/apis/apps/v1/conversion.go.

use mizzen_value::{Value, value};

use super::deployment::DeploymentStrategy;
use super::replica_set::ReplicaSetStrategy;
use super::stateful_set::StatefulSetStrategy;
use super::{daemon_set, deployment, replica_set, stateful_set};
use crate::Behaviour;
use mizzen_apiextensions::KindStrategy;
use mizzen_core_kinds::pod;

/// Means "no limit" where extensions/v1beta1 had no default.
const NO_LIMIT: i64 = i32::MAX as i64;

pub(crate) fn deployment_v1beta1() -> Behaviour {
    Behaviour {
        default: |deployment| {
            default_labels(deployment);
            deployment
                .entry("spec")
                .set_default("revisionHistoryLimit", 2);
            DeploymentStrategy::default(deployment);
        },
        ..deployment_with_rollback()
    }
}

pub(crate) fn deployment_extensions() -> Behaviour {
    Behaviour {
        default: |deployment| {
            default_labels(deployment);
            let spec = deployment.entry("spec");
            spec.set_default("revisionHistoryLimit", NO_LIMIT);
            spec.set_default("progressDeadlineSeconds", NO_LIMIT);
            let strategy = spec.entry("strategy");
            if matches!(strategy["type"].str(), "" | "RollingUpdate") {
                let update = strategy.entry("rollingUpdate");
                update.set_default("maxUnavailable", 1);
                update.set_default("maxSurge", 1);
            }
            DeploymentStrategy::default(deployment);
        },
        ..deployment_with_rollback()
    }
}

pub(crate) fn stateful_set_v1beta1() -> Behaviour {
    Behaviour {
        default: |set| {
            default_labels(set);
            default_on_delete(set);
            StatefulSetStrategy::default(set);
        },
        ..stateful_set::BEHAVIOUR
    }
}

pub(crate) fn replica_set_extensions() -> Behaviour {
    Behaviour {
        default: |set| {
            default_labels(set);
            ReplicaSetStrategy::default(set);
        },
        validate: |new, old, context, violations| {
            let old = old.map(|old| reselected(old, new));
            (replica_set::BEHAVIOUR.validate)(new, old.as_ref(), context, violations);
        },
        ..replica_set::BEHAVIOUR
    }
}

pub(crate) fn daemon_set_extensions() -> Behaviour {
    Behaviour {
        default: |set| {
            default_labels(set);
            default_on_delete(set);
            daemon_set::default_spec(set);
        },
        normalize: |_| Ok(()),
        validate: |new, old, context, violations| {
            let old = old.map(|old| reselected(old, new));
            (daemon_set::BEHAVIOUR.validate)(new, old.as_ref(), context, violations);
        },
        to_stored: |set| {
            let generation = set
                .entry("spec")
                .remove("templateGeneration")
                .unwrap_or_default();
            set.entry("metadata")
                .entry("annotations")
                .set(daemon_set::GENERATION, generation.int().to_string());
        },
        from_stored: |set| {
            let Some(generation) = take_annotation(set, daemon_set::GENERATION) else {
                return;
            };
            set.entry("spec").set(
                "templateGeneration",
                generation.str().parse().unwrap_or(0_i64),
            );
        },
        ..daemon_set::BEHAVIOUR
    }
}

/// A Deployment that has `spec.rollbackTo` where apps/v1 has an annotation.
fn deployment_with_rollback() -> Behaviour {
    Behaviour {
        normalize: |_| Ok(()),
        validate: |new, old, context, violations| {
            let old = old.map(|old| reselected(old, new));
            (deployment::BEHAVIOUR.validate)(new, old.as_ref(), context, violations);
        },
        to_stored: |deployment| {
            let rollback = deployment
                .entry("spec")
                .remove("rollbackTo")
                .filter(|rollback| !rollback.is_null());
            match rollback {
                Some(rollback) => {
                    let revision = rollback["revision"].int().to_string();
                    deployment
                        .entry("metadata")
                        .entry("annotations")
                        .set(deployment::ROLLBACK, revision);
                }
                None => pod::with(deployment, "metadata.annotations", |annotations| {
                    annotations.remove(deployment::ROLLBACK);
                }),
            }
        },
        from_stored: |deployment| {
            let Some(revision) = take_annotation(deployment, deployment::ROLLBACK) else {
                return;
            };
            let rollback = value!({"revision": (revision.str().parse().unwrap_or(0_i64))});
            deployment.entry("spec").set("rollbackTo", rollback);
        },
        ..deployment::BEHAVIOUR
    }
}

/// The old object as if it had always had the new selector. Kubernetes: these versions let a selector change
/// (strategy.go of v1.15).
fn reselected(old: &Value, new: &Value) -> Value {
    let mut old = old.clone();
    old.entry("spec")
        .set("selector", new["spec"]["selector"].clone());
    old
}

/// Selector and labels default to the labels of the template.
fn default_labels(workload: &mut Value) {
    let labels = workload["spec"]["template"]["metadata"]["labels"].clone();
    if labels.is_null() {
        return;
    }
    if workload["metadata"]["labels"].is_empty() {
        workload.entry("metadata").set("labels", labels.clone());
    }
    workload
        .entry("spec")
        .set_default("selector", value!({"matchLabels": labels}));
}

/// Pods are replaced when they are deleted, not by a rolling update.
fn default_on_delete(workload: &mut Value) {
    let strategy = workload.entry("spec").entry("updateStrategy");
    if strategy["type"].is_empty() {
        strategy.set("type", "OnDelete");
    }
}

fn take_annotation(object: &mut Value, name: &str) -> Option<Value> {
    object.at_mut("metadata.annotations")?.remove(name)
}
