//! A ControllerRevision: a patch that restores a pod template, a number that orders it, and a name
//! with its hash.

use mizzen_sdk::Object;
use mizzen_value::{Value, json, value};

use crate::common::hash::safe_encode;

/// The label of a StatefulSet's revision with its hash.
pub(crate) const HASH_LABEL: &str = "controller.kubernetes.io/hash";

/// How much of the owner's name is used in the names of its revisions.
const NAME_LENGTH: usize = 223;

/// The patch that restores the template of `owner`, as a revision's `data` has it.
///
/// Invariant: its members are sorted, as Go writes maps. The server compares the text, and clients
/// that patch a revision write it in that order.
pub(crate) fn template_patch(owner: &Object) -> Value {
    let mut template = owner.at("spec.template").clone();
    template.set("$patch", "replace");
    sort_members(&mut template);
    value!({"spec": {"template": template}})
}

/// The template that a revision restores.
pub(crate) fn template(revision: &Object) -> Value {
    let mut template = revision.at("data.spec.template").clone();
    template.remove("$patch");
    template
}

/// Whether a revision has the same data as `patch`. Nulls are ignored: older servers wrote
/// `creationTimestamp: null` into every template.
pub(crate) fn equals_patch(revision: &Object, patch: &Value) -> bool {
    revision["data"] == *patch || without_nulls(&revision["data"]) == *patch
}

fn without_nulls(value: &Value) -> Value {
    match value {
        Value::Map(map) => {
            let members = map.iter().filter(|(_, value)| !value.is_null());
            Value::Map(
                members
                    .map(|(key, value)| (key, without_nulls(value)))
                    .collect(),
            )
        }
        Value::List(list) => Value::List(list.iter().map(without_nulls).collect()),
        other => other.clone(),
    }
}

/// The hash of a patch: FNV-1 over its text and the collision count.
pub(crate) fn hash(patch: &Value, n_collisions: i64) -> String {
    let text = json::to_string(patch) + &n_collisions.to_string();
    let fnv = text.bytes().fold(2_166_136_261_u32, |hash, byte| {
        hash.wrapping_mul(16_777_619) ^ u32::from(byte)
    });
    safe_encode(&fnv.to_string())
}

/// Sorts the members of every map.
fn sort_members(value: &mut Value) {
    match value {
        Value::Map(map) => {
            map.sort();
            map.values_mut().for_each(sort_members);
        }
        Value::List(list) => list.iter_mut().for_each(sort_members),
        _ => {}
    }
}

/// The name of a revision.
pub(crate) fn name(owner: &str, hash: &str) -> String {
    format!("{}-{hash}", owner.get(..NAME_LENGTH).unwrap_or(owner))
}

/// A new revision of `owner`, with the labels of its template and its annotations.
pub(crate) fn new_revision(
    owner: &Object,
    reference: Value,
    name: &str,
    hash: (&str, &str),
    number: i64,
) -> Object {
    let mut labels = owner.at("spec.template.metadata.labels").clone();
    labels.set(hash.0, hash.1);
    let mut revision = value!({
        "apiVersion": "apps/v1",
        "kind": "ControllerRevision",
        "metadata": {"name": name, "namespace": (owner.namespace()), "labels": labels, "ownerReferences": [reference]},
        "data": (template_patch(owner)),
        "revision": number,
    });
    let annotations = &owner["metadata"]["annotations"];
    if !annotations.is_empty() {
        revision
            .entry("metadata")
            .set("annotations", annotations.clone());
    }
    Object(revision)
}

/// The sort key of revisions: number, creation time, name.
pub(crate) fn sort_key(revision: &Object) -> (i64, i64, String) {
    (
        revision["revision"].int(),
        revision.created(),
        revision.name().into(),
    )
}

/// The number of the next revision; `revisions` is sorted.
pub(crate) fn next_number<R: AsRef<Object>>(revisions: &[R]) -> i64 {
    revisions
        .last()
        .map_or(1, |last| last.as_ref()["revision"].int() + 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn owner(template: &str) -> Object {
        let spec = json::parse(template.as_bytes()).expect("JSON");
        Object(value!({
            "metadata": {"name": "s", "namespace": "n", "uid": "u", "annotations": {"a": "1"}},
            "spec": {"template": spec},
        }))
    }

    /// A template as the server writes it, with its members in the order of Go's types.
    const TEMPLATE: &str = r#"{"metadata": {"labels": {"v": "2", "app": "a"}}, "spec": {"containers": [{"name": "c",
        "image": "busybox", "resources": {}, "terminationMessagePath": "/dev/termination-log",
        "terminationMessagePolicy": "File", "imagePullPolicy": "Always"}], "restartPolicy": "Always",
        "terminationGracePeriodSeconds": 30, "dnsPolicy": "ClusterFirst", "securityContext": {},
        "schedulerName": "golden-none"}}"#;

    #[track_caller]
    fn check_hash(template: &str, n_collisions: i64, expect: &str) {
        assert_eq!(
            hash(&template_patch(&owner(template)), n_collisions),
            expect
        );
    }

    #[test]
    fn a_hash_is_what_kubernetes_makes_of_the_same_template() {
        check_hash(TEMPLATE, 0, "5bf8967bbb");
    }

    #[test]
    fn a_collision_changes_the_hash() {
        check_hash(TEMPLATE, 1, "5bf8967bbc");
    }

    #[test]
    fn a_patch_and_the_template_that_it_restores_are_one() {
        let owner = owner(TEMPLATE);
        let revision = new_revision(&owner, value!({"uid": "u"}), "s-1", (HASH_LABEL, "1"), 3);
        assert_eq!(template(&revision), *owner.at("spec.template"));
        assert!(equals_patch(&revision, &template_patch(&owner)));
    }

    #[test]
    fn nulls_do_not_change_a_revision() {
        let old =
            owner(&TEMPLATE.replacen("{\"labels\"", "{\"creationTimestamp\": null, \"labels\"", 1));
        let revision = new_revision(&old, Value::Null, "s-1", (HASH_LABEL, "1"), 1);
        assert!(equals_patch(&revision, &template_patch(&owner(TEMPLATE))));
        assert!(!equals_patch(
            &revision,
            &template_patch(&owner(&TEMPLATE.replace("busybox", "nginx")))
        ));
    }

    #[test]
    fn a_draft_has_the_labels_of_the_template_and_the_annotations_of_its_owner() {
        let revision = new_revision(
            &owner(TEMPLATE),
            value!({"uid": "u"}),
            "s-x",
            (HASH_LABEL, "x"),
            3,
        );
        let expect = value!({
            "name": "s-x", "namespace": "n", "labels": {"v": "2", "app": "a", "controller.kubernetes.io/hash": "x"},
            "ownerReferences": [{"uid": "u"}], "annotations": {"a": "1"},
        });
        assert_eq!(revision["metadata"], expect);
        assert_eq!(revision["revision"].int(), 3);
    }

    #[test]
    fn a_long_name_is_cut_to_leave_room_for_the_hash() {
        assert_eq!(name(&"n".repeat(240), "h").len(), 225);
        assert_eq!(name("web", "h"), "web-h");
    }
}
