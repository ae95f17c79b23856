//! Which pod does a template ask for?

use mizzen_object::owner_references;
use mizzen_sdk::Object;
use mizzen_sdk::resource::Resource;
use mizzen_value::{Value, value};

/// The pod that `owner` makes from a template. It has no name of its own yet, only the beginning of one.
pub(crate) fn pod(template: &Value, owner: &Object, kind: &Resource) -> Object {
    let mut metadata =
        value!({"generateName": (prefix(owner.name())), "namespace": (owner.namespace())});
    for field in ["labels", "annotations", "finalizers"] {
        if !template["metadata"][field].is_empty() {
            metadata.set(field, template["metadata"][field].clone());
        }
    }
    metadata.set("ownerReferences", vec![controller_reference(owner, kind)]);
    let spec = template["spec"].clone();
    Object(value!({"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec}))
}

/// The reference by which an object says that `owner` controls it, and that `owner` must not go before it.
pub(crate) fn controller_reference(owner: &Object, kind: &Resource) -> Value {
    owner_references::controller_reference(owner, &kind.api_version(), &kind.kind)
}

/// A dash makes names prettier, if there is room for it.
fn prefix(name: &str) -> String {
    const LONGEST: usize = 253;
    if name.len() > LONGEST {
        name.into()
    } else {
        format!("{name}-")
    }
}

#[cfg(test)]
mod tests {
    use mizzen_sdk::resource::REPLICA_SETS;
    use mizzen_value::json;

    use super::*;

    #[test]
    fn a_pod_has_what_its_template_says_and_who_owns_it() {
        let template = value!({
            "metadata": {"labels": {"app": "a"}, "annotations": {"k": "v"}, "finalizers": ["f"], "name": "ignored"},
            "spec": {"containers": []}
        });
        let owner = Object(value!({"metadata": {"name": "web", "namespace": "shop", "uid": "u"}}));
        let expect = r#"{"apiVersion":"v1","kind":"Pod","metadata":{"generateName":"web-","namespace":"shop","labels":{"app":"a"},"annotations":{"k":"v"},"finalizers":["f"],"ownerReferences":[{"apiVersion":"apps/v1","kind":"ReplicaSet","name":"web","uid":"u","controller":true,"blockOwnerDeletion":true}]},"spec":{"containers":[]}}"#;
        assert_eq!(
            json::to_string(&pod(&template, &owner, &REPLICA_SETS)),
            expect
        );
    }

    #[test]
    fn names_that_leave_no_room_get_no_dash() {
        assert_eq!(prefix("web"), "web-");
        assert_eq!(prefix(&"a".repeat(253)).len(), 254);
        assert_eq!(prefix(&"a".repeat(254)).len(), 254);
    }
}
