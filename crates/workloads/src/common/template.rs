//! Pods from pod templates.

use mizzen_object::owner_references;
use mizzen_sdk::Object;
use mizzen_sdk::resource::ResourceType;
use mizzen_value::{Value, value};

/// The pod that `owner` creates from a template, with a generateName.
pub(crate) fn pod_from_template(template: &Value, owner: &Object, kind: &ResourceType) -> Object {
    let mut metadata =
        value!({"generateName": (generate_name(owner.name())), "namespace": (owner.namespace())});
    for field in ["labels", "annotations", "finalizers"] {
        if !template["metadata"][field].is_empty() {
            metadata.set(field, template["metadata"][field].clone());
        }
    }
    metadata.set("ownerReferences", vec![controller_reference(owner, kind)]);
    let spec = template["spec"].clone();
    Object(value!({"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec}))
}

/// The controller reference to `owner`, with blockOwnerDeletion.
pub(crate) fn controller_reference(owner: &Object, kind: &ResourceType) -> Value {
    owner_references::controller_reference(owner, &kind.api_version(), &kind.kind)
}

/// An ObjectReference with uid and resourceVersion.
pub fn object_reference(object: &Object, kind: &ResourceType) -> Value {
    value!({
        "kind": (&*kind.kind),
        "namespace": (object.namespace()),
        "name": (object.name()),
        "uid": (object.uid()),
        "apiVersion": (kind.api_version()),
        "resourceVersion": (object.version()),
    })
}

/// The generateName of an owner's objects: a dash follows the name, if it fits.
pub fn generate_name(name: &str) -> String {
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
    fn a_pod_has_its_template_and_the_controller_reference() {
        let template = value!({
            "metadata": {"labels": {"app": "a"}, "annotations": {"k": "v"}, "finalizers": ["f"], "name": "ignored"},
            "spec": {"containers": []}
        });
        let owner = Object(value!({"metadata": {"name": "web", "namespace": "shop", "uid": "u"}}));
        let expect = r#"{"apiVersion":"v1","kind":"Pod","metadata":{"generateName":"web-","namespace":"shop","labels":{"app":"a"},"annotations":{"k":"v"},"finalizers":["f"],"ownerReferences":[{"apiVersion":"apps/v1","kind":"ReplicaSet","name":"web","uid":"u","controller":true,"blockOwnerDeletion":true}]},"spec":{"containers":[]}}"#;
        assert_eq!(
            json::to_string(&pod_from_template(&template, &owner, &REPLICA_SETS)),
            expect
        );
    }

    #[test]
    fn long_names_get_no_dash() {
        assert_eq!(generate_name("web"), "web-");
        assert_eq!(generate_name(&"a".repeat(253)).len(), 254);
        assert_eq!(generate_name(&"a".repeat(254)).len(), 254);
    }
}
