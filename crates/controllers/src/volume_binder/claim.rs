//! Decides how a claim is synced.

use std::sync::Arc;

use mizzen_sdk::Object;
use mizzen_sdk::event::Note;

use super::legacy;
use super::matching::volume_mismatch;
use super::names::{
    BIND_COMPLETED, BOUND_BY_CONTROLLER, SELECTED_NODE, class, has_annotation, has_class, is_for,
};

/// What the decision for a claim depends on.
#[derive(Default)]
pub(super) struct ClaimContext {
    /// The volume of `spec.volumeName`.
    pub named: Option<Arc<Object>>,
    /// The best matching volume, if it names none.
    pub best: Option<Object>,
    /// Its storage class.
    pub class: Option<Arc<Object>>,
    /// The default storage class.
    pub default_class: Option<String>,
    /// The names of unscheduled pods that use it.
    pub waiting_pods: Vec<String>,
}

/// What to do with a claim.
#[derive(Debug, PartialEq)]
pub(super) enum ClaimBindingPlan {
    Bind(Object),
    /// Set it Pending, with an event.
    Pending(Option<Note>),
    /// Set it Lost, with an event.
    Lost(Note),
    /// Assign the default storage class.
    AssignClass(String),
    /// An external provisioner creates its volume.
    Provision(String),
    /// Only record an event.
    RecordEvent(Note),
}

/// Whether the class has volumeBindingMode WaitForFirstConsumer.
pub(super) fn is_delayed(class: Option<&Object>) -> bool {
    class.is_some_and(|class| class["volumeBindingMode"].str() == "WaitForFirstConsumer")
}

pub(super) fn plan_claim(claim: &Object, world: &ClaimContext) -> ClaimBindingPlan {
    match (
        has_annotation(claim, BIND_COMPLETED),
        claim["spec"]["volumeName"].str(),
    ) {
        (true, "") => lost(
            "ClaimLost",
            "Bound claim has lost reference to PersistentVolume. Data on the volume is lost!",
        ),
        (true, _) => plan_bound_claim(claim, world.named.as_deref()),
        (false, "") => world.plan_unbound_claim(claim),
        (false, _) => plan_named_claim(claim, world.named.as_deref()),
    }
}

fn lost(reason: &str, message: &str) -> ClaimBindingPlan {
    ClaimBindingPlan::Lost(Note::warning(reason, "", message))
}

/// A claim that was bound before.
fn plan_bound_claim(claim: &Object, volume: Option<&Object>) -> ClaimBindingPlan {
    let Some(volume) = volume else {
        return lost(
            "ClaimLost",
            "Bound claim has lost its PersistentVolume. Data on the volume is lost!",
        );
    };
    let holder = &volume["spec"]["claimRef"];
    if holder.is_null() || holder["uid"].str() == claim.uid() {
        return ClaimBindingPlan::Bind(volume.clone());
    }
    lost(
        "ClaimMisbound",
        "Two claims are bound to the same volume, this one is bound incorrectly",
    )
}

/// A claim with `spec.volumeName`.
fn plan_named_claim(claim: &Object, volume: Option<&Object>) -> ClaimBindingPlan {
    let Some(volume) = volume else {
        return ClaimBindingPlan::Pending(None);
    };
    if volume["spec"]["claimRef"].is_null() {
        return match volume_mismatch(claim, volume) {
            None => ClaimBindingPlan::Bind(volume.clone()),
            Some(why) => {
                let message = format!("Cannot bind to requested volume {:?}: {why}", volume.name());
                ClaimBindingPlan::Pending(Some(Note::warning("VolumeMismatch", "", message)))
            }
        };
    }
    if is_for(volume, claim) {
        return ClaimBindingPlan::Bind(volume.clone());
    }
    let message = format!(
        "volume {:?} already bound to a different claim.",
        volume.name()
    );
    let note = Note::warning("FailedBinding", "", message);
    match has_annotation(claim, BOUND_BY_CONTROLLER) {
        false => ClaimBindingPlan::Pending(Some(note)),
        true => ClaimBindingPlan::RecordEvent(note),
    }
}

impl ClaimContext {
    /// A claim without `spec.volumeName`.
    fn plan_unbound_claim(&self, claim: &Object) -> ClaimBindingPlan {
        if let Some(best) = &self.best {
            return ClaimBindingPlan::Bind(best.clone());
        }
        if let Some(default) = self.default_class.as_ref().filter(|_| !has_class(claim)) {
            return ClaimBindingPlan::AssignClass(default.clone());
        }
        if is_delayed(self.class.as_deref()) && !has_annotation(claim, SELECTED_NODE) {
            let (reason, message) = match &self.waiting_pods[..] {
                [] => (
                    "WaitForFirstConsumer",
                    "waiting for first consumer to be created before binding".into(),
                ),
                [pod] => (
                    "WaitForPodScheduled",
                    format!("waiting for pod {pod} to be scheduled"),
                ),
                pods => (
                    "WaitForPodScheduled",
                    format!("waiting for pods {} to be scheduled", pods.join(",")),
                ),
            };
            return ClaimBindingPlan::Pending(Some(Note::normal(reason, "", message)));
        }
        match class(claim) {
            "" => {
                let message =
                    "no persistent volumes available for this claim and no storage class is set";
                ClaimBindingPlan::Pending(Some(Note::normal("FailedBinding", "", message)))
            }
            name => self.provision(name),
        }
    }

    fn provision(&self, name: &str) -> ClaimBindingPlan {
        let failed = |why: String| {
            ClaimBindingPlan::RecordEvent(Note::warning("ProvisioningFailed", "", why))
        };
        let Some(class) = &self.class else {
            return failed(format!("storageclass.storage.k8s.io {name:?} not found"));
        };
        let provisioner = class["provisioner"].str();
        match legacy::csi_driver(provisioner) {
            Some(driver) => ClaimBindingPlan::Provision(driver.into()),
            None if legacy::is_external(provisioner) => {
                ClaimBindingPlan::Provision(provisioner.into())
            }
            None => failed(legacy::unsupported_plugin(provisioner)),
        }
    }
}

/// The event of a claim that waits for an external provisioner.
pub(super) fn provisioning(provisioner: &str) -> Note {
    let message = format!(
        "Waiting for a volume to be created either by the external provisioner '{provisioner}' or manually by the \
         system administrator. If volume creation is delayed, please verify that the provisioner is running and \
         correctly registered."
    );
    Note::normal("ExternalProvisioning", "", message)
}

/// The default storage class: the newest that has the annotation, of several the first by name.
pub(super) fn default_class<'a>(classes: impl Iterator<Item = &'a Object>) -> Option<&'a Object> {
    const MARKS: [&str; 2] = [
        "storageclass.kubernetes.io/is-default-class",
        "storageclass.beta.kubernetes.io/is-default-class",
    ];
    let says_so = |class: &&Object| {
        MARKS
            .iter()
            .any(|mark| class.annotation(mark) == Some("true"))
    };
    classes.filter(says_so).min_by(|one, other| {
        other
            .created()
            .cmp(&one.created())
            .then_with(|| one.name().cmp(other.name()))
    })
}

/// The names of the unscheduled pods among those that use a claim.
pub(super) fn unscheduled_pods<'a>(pods: impl Iterator<Item = &'a Object>) -> Vec<String> {
    let waits = |pod: &&Object| {
        pod["spec"]["nodeName"].str().is_empty()
            && !mizzen_component_helpers::pod_state::is_terminal(pod)
    };
    pods.filter(waits)
        .map(|pod: &Object| pod.name().to_string())
        .collect()
}

#[cfg(test)]
mod tests {
    use mizzen_value::{Value, value};

    use super::*;
    use crate::volume_binder::names::annotate;

    fn claim(spec: Value, annotations: &[&str]) -> Object {
        let mut claim = Object(
            value!({"metadata": {"namespace": "ns", "name": "c", "uid": "u"}, "spec": spec}),
        );
        annotations
            .iter()
            .for_each(|name| annotate(&mut claim, name, "yes"));
        claim
    }

    fn volume(holder: Value) -> Option<Arc<Object>> {
        let mut volume = Object(value!({"metadata": {"name": "v"}}));
        volume.entry("spec").set("claimRef", holder);
        Some(Arc::new(volume))
    }

    fn class(provisioner: &str, mode: &str) -> Option<Arc<Object>> {
        Some(Arc::new(Object(
            value!({"provisioner": provisioner, "volumeBindingMode": mode}),
        )))
    }

    #[track_caller]
    fn check(claim: Object, world: ClaimContext, wanted: &str) {
        let say = |note: &Note| {
            format!(
                "{} {}: {}",
                note.severity.as_str(),
                note.reason,
                note.message
            )
        };
        let seen = match plan_claim(&claim, &world) {
            ClaimBindingPlan::Bind(volume) => format!("bind {}", volume.name()),
            ClaimBindingPlan::Pending(note) => {
                format!("pending {}", note.as_ref().map(say).unwrap_or_default())
            }
            ClaimBindingPlan::Lost(note) => format!("lost {}", say(&note)),
            ClaimBindingPlan::AssignClass(name) => format!("class {name}"),
            ClaimBindingPlan::Provision(name) => format!("provision {name}"),
            ClaimBindingPlan::RecordEvent(note) => say(&note),
        };
        assert_eq!(seen, wanted);
    }

    #[test]
    fn a_bound_claim_without_its_volume_is_lost() {
        let bound = |spec| claim(spec, &[BIND_COMPLETED]);
        let named = || bound(value!({"volumeName": "v"}));
        let gone = "lost Warning ClaimLost: Bound claim has lost";
        check(
            bound(value!({})),
            ClaimContext::default(),
            &format!("{gone} reference to PersistentVolume. Data on the volume is lost!"),
        );
        check(
            named(),
            ClaimContext::default(),
            &format!("{gone} its PersistentVolume. Data on the volume is lost!"),
        );
        check(
            named(),
            ClaimContext {
                named: volume(Value::Null),
                ..ClaimContext::default()
            },
            "bind v",
        );
        check(
            named(),
            ClaimContext {
                named: volume(value!({"uid": "u"})),
                ..ClaimContext::default()
            },
            "bind v",
        );
        let misbound = "lost Warning ClaimMisbound: Two claims are bound to the same volume, this one is bound incorrectly";
        check(
            named(),
            ClaimContext {
                named: volume(value!({"uid": "other"})),
                ..ClaimContext::default()
            },
            misbound,
        );
    }

    #[test]
    fn a_claim_that_names_a_volume_gets_that_or_waits() {
        let named = || claim(value!({"volumeName": "v", "storageClassName": "x"}), &[]);
        check(named(), ClaimContext::default(), "pending ");
        let mismatch = "pending Warning VolumeMismatch: Cannot bind to requested volume \"v\": storageClassName does not match";
        check(
            named(),
            ClaimContext {
                named: volume(Value::Null),
                ..ClaimContext::default()
            },
            mismatch,
        );
        let reserved = volume(value!({"namespace": "ns", "name": "c"}));
        check(
            named(),
            ClaimContext {
                named: reserved,
                ..ClaimContext::default()
            },
            "bind v",
        );
        let taken = || ClaimContext {
            named: volume(value!({"namespace": "ns", "name": "d"})),
            ..ClaimContext::default()
        };
        let why = "Warning FailedBinding: volume \"v\" already bound to a different claim.";
        check(named(), taken(), &format!("pending {why}"));
        check(
            claim(value!({"volumeName": "v"}), &[BOUND_BY_CONTROLLER]),
            taken(),
            why,
        );
    }

    #[test]
    fn a_claim_waits_for_its_first_consumer() {
        let fast = || claim(value!({"storageClassName": "fast"}), &[]);
        let waits = |pods: &[&str]| ClaimContext {
            class: class("example.com/p", "WaitForFirstConsumer"),
            waiting_pods: pods.iter().map(|pod| pod.to_string()).collect(),
            ..ClaimContext::default()
        };
        check(
            fast(),
            waits(&[]),
            "pending Normal WaitForFirstConsumer: waiting for first consumer to be created before binding",
        );
        check(
            fast(),
            waits(&["p"]),
            "pending Normal WaitForPodScheduled: waiting for pod p to be scheduled",
        );
        check(
            fast(),
            waits(&["p", "q"]),
            "pending Normal WaitForPodScheduled: waiting for pods p,q to be scheduled",
        );
        check(
            claim(value!({"storageClassName": "fast"}), &[SELECTED_NODE]),
            waits(&[]),
            "provision example.com/p",
        );
    }

    #[test]
    fn a_volume_is_provisioned_by_the_provisioner_of_its_class() {
        let fast = || claim(value!({"storageClassName": "fast"}), &[]);
        let by = |provisioner| ClaimContext {
            class: class(provisioner, "Immediate"),
            ..ClaimContext::default()
        };
        check(
            fast(),
            ClaimContext::default(),
            "Warning ProvisioningFailed: storageclass.storage.k8s.io \"fast\" not found",
        );
        check(fast(), by("example.com/p"), "provision example.com/p");
        check(
            fast(),
            by("kubernetes.io/gce-pd"),
            "provision pd.csi.storage.gke.io",
        );
        check(
            fast(),
            by("kubernetes.io/no-provisioner"),
            "Warning ProvisioningFailed: no volume plugin matched name: kubernetes.io/no-provisioner",
        );
    }

    #[test]
    fn a_claim_without_a_class_gets_the_default_one_later() {
        let default = || ClaimContext {
            default_class: Some("std".into()),
            ..ClaimContext::default()
        };
        check(claim(value!({}), &[]), default(), "class std");
        let none = "pending Normal FailedBinding: no persistent volumes available for this claim and no storage class is set";
        check(
            claim(value!({"storageClassName": ""}), &[]),
            default(),
            none,
        );
        check(claim(value!({}), &[]), ClaimContext::default(), none);
    }

    #[test]
    fn the_newest_default_class_wins() {
        let class = |name: &str, created: &str, says: &str| {
            let mut class =
                Object(value!({"metadata": {"name": name, "creationTimestamp": created}}));
            annotate(
                &mut class,
                "storageclass.kubernetes.io/is-default-class",
                says,
            );
            class
        };
        let classes = [
            class("old", "2024-01-01T00:00:00Z", "true"),
            class("b", "2025-01-01T00:00:00Z", "true"),
            class("a", "2025-01-01T00:00:00Z", "true"),
            class("no", "2026-01-01T00:00:00Z", "false"),
        ];
        assert_eq!(
            default_class(classes.iter()).map(|class| class.name()),
            Some("a")
        );
    }
}
