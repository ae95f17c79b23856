//! The pods of a StatefulSet: how they are created, and their state.

use mizzen_component_helpers::pod_state::is_terminal;
use mizzen_sdk::Object;
use mizzen_sdk::resource::STATEFUL_SETS;
use mizzen_value::Value;

use super::{identity, storage};
use crate::common::{pod, template};

/// The label with the pod's revision.
const REVISION_LABEL: &str = "controller-revision-hash";

/// A revision of the set.
#[derive(Debug, Clone)]
pub(super) struct SetRevision {
    pub name: String,
    pub template: Value,
}

/// The revision of a pod; empty if it has no label.
pub(super) fn revision(pod: &Object) -> &str {
    pod.label(REVISION_LABEL).unwrap_or_default()
}

/// A new pod. Below the partition it has the current revision, otherwise the update revision.
pub(super) fn new_versioned_pod(
    set: &Object,
    current: &SetRevision,
    update: &SetRevision,
    ordinal: i64,
) -> Object {
    let revision = if uses_current_revision(set, ordinal) {
        current
    } else {
        update
    };
    let mut pod = template::pod_from_template(&revision.template, set, &STATEFUL_SETS);
    identity::update_identity(set, &mut pod, ordinal);
    let name = pod.name().to_string();
    let spec = pod.entry("spec");
    spec.set("hostname", name);
    spec.set("subdomain", set.at("spec.serviceName").str());
    storage::update_storage(set, &mut pod, ordinal);
    pod.entry("metadata")
        .entry("labels")
        .set(REVISION_LABEL, &revision.name);
    pod
}

/// Whether a new pod gets the current revision.
fn uses_current_revision(set: &Object, ordinal: i64) -> bool {
    let strategy = &set["spec"]["updateStrategy"];
    let start = identity::ordinals(set).start;
    match strategy["rollingUpdate"].as_map() {
        Some(rolling) => ordinal < start + rolling.get("partition").map_or(0, Value::int),
        None => {
            strategy["type"].str() == "RollingUpdate"
                && ordinal < start + set.at("status.currentReplicas").int()
        }
    }
}

/// Whether the pod exists on the server, which sets the phase.
pub(super) fn is_made(pod: &Object) -> bool {
    !phase(pod).is_empty()
}

pub(super) fn is_finished(pod: &Object) -> bool {
    is_terminal(pod)
}

pub(super) fn is_pending(pod: &Object) -> bool {
    phase(pod) == "Pending"
}

/// Whether the pod is running and ready.
pub(super) fn is_ready(pod: &Object) -> bool {
    phase(pod) == "Running" && pod::is_ready(pod)
}

fn phase(pod: &Object) -> &str {
    pod["status"]["phase"].str()
}

#[cfg(test)]
mod tests {
    use mizzen_value::value;

    use super::*;

    fn revision(name: &str) -> SetRevision {
        let template =
            value!({"metadata": {"labels": {"app": "a", "v": name}}, "spec": {"containers": []}});
        SetRevision {
            name: name.into(),
            template,
        }
    }

    fn set(strategy: Value) -> Object {
        Object(value!({
            "metadata": {"name": "web", "namespace": "n", "uid": "u"},
            "spec": {"serviceName": "svc", "replicas": 3, "ordinals": {"start": 10}, "updateStrategy": strategy},
            "status": {"currentReplicas": 1},
        }))
    }

    #[track_caller]
    fn check_revision(strategy: Value, ordinal: i64, expect: &str) {
        let pod = new_versioned_pod(&set(strategy), &revision("old"), &revision("new"), ordinal);
        assert_eq!(
            (super::revision(&pod), pod.label("v")),
            (expect, Some(expect))
        );
    }

    #[test]
    fn a_pod_below_the_partition_is_of_the_current_revision() {
        let partition = || value!({"type": "RollingUpdate", "rollingUpdate": {"partition": 2}});
        check_revision(partition(), 11, "old");
        check_revision(partition(), 12, "new");
    }

    #[test]
    fn without_a_partition_the_counted_pods_are_of_the_current_revision() {
        check_revision(value!({"type": "RollingUpdate"}), 10, "old");
        check_revision(value!({"type": "RollingUpdate"}), 11, "new");
    }

    #[test]
    fn on_delete_every_new_pod_is_of_the_update_revision() {
        check_revision(value!({"type": "OnDelete"}), 10, "new");
    }

    #[test]
    fn a_new_pod_has_its_identity() {
        let pod = new_versioned_pod(
            &set(value!({"type": "OnDelete"})),
            &revision("old"),
            &revision("new"),
            10,
        );
        let labels = value!({
            "app": "a", "v": "new", "statefulset.kubernetes.io/pod-name": "web-10",
            "apps.kubernetes.io/pod-index": "10", "controller-revision-hash": "new",
        });
        assert_eq!(pod["metadata"]["labels"], labels);
        assert_eq!(
            (pod.at("metadata.generateName").str(), pod.name()),
            ("web-", "web-10")
        );
        assert_eq!(
            (
                pod.at("spec.hostname").str(),
                pod.at("spec.subdomain").str()
            ),
            ("web-10", "svc")
        );
        assert!(pod.is_controlled_by("u"));
    }
}
