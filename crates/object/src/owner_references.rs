//! Owner references in an object's metadata.
//!
//! Kubernetes: apimachinery/pkg/apis/meta/v1/controller_ref.go. Validation allows at most one
//! controller.

use mizzen_value::Value;
use mizzen_value::value;

/// The owner reference of the controller of an object.
pub fn controller_of(object: &Value) -> Option<&Value> {
    object["metadata"]["ownerReferences"]
        .list()
        .iter()
        .find(|owner| owner["controller"].bool())
}

/// Whether the object with this uid controls an object.
pub fn is_controlled_by(object: &Value, uid: &str) -> bool {
    controller_of(object).is_some_and(|owner| owner["uid"].str() == uid)
}

/// The owner reference that makes `owner` the controller of an object, with `blockOwnerDeletion`.
pub fn controller_reference(owner: &Value, api_version: &str, kind: &str) -> Value {
    value!({
        "apiVersion": api_version,
        "kind": kind,
        "name": (owner["metadata"]["name"].str()),
        "uid": (owner["metadata"]["uid"].str()),
        "controller": true,
        "blockOwnerDeletion": true,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use mizzen_value::json;

    #[test]
    fn at_most_one_owner_controls() {
        let cases = [
            ("[]", None),
            (r#"[{"uid":"a"}]"#, None),
            (r#"[{"uid":"a","controller":false}]"#, None),
            (r#"[{"uid":"a"},{"uid":"b","controller":true}]"#, Some("b")),
        ];
        for (owners, expected) in cases {
            let text = format!(r#"{{"metadata":{{"ownerReferences":{owners}}}}}"#);
            let object = json::parse(text.as_bytes()).unwrap();
            let found = controller_of(&object).map(|owner| owner["uid"].str());
            assert_eq!(found, expected, "{owners}");
            assert_eq!(is_controlled_by(&object, "b"), expected.is_some());
            assert!(!is_controlled_by(&object, "a"));
        }
        assert_eq!(controller_of(&Value::Null), None);
    }

    #[test]
    fn the_reference_of_a_controller_names_it() {
        let owner = json::parse(br#"{"metadata":{"name":"web","uid":"u"}}"#).unwrap();
        let reference = controller_reference(&owner, "apps/v1", "ReplicaSet");
        let mut owned = Value::object();
        owned
            .entry("metadata")
            .set("ownerReferences", vec![reference.clone()]);
        assert!(is_controlled_by(&owned, "u"));
        assert_eq!(
            json::to_string(&reference),
            r#"{"apiVersion":"apps/v1","kind":"ReplicaSet","name":"web","uid":"u","controller":true,"blockOwnerDeletion":true}"#
        );
    }
}
