//! The claims and volumes of a StatefulSet's pods.

use mizzen_sdk::Object;
use mizzen_value::{Value, value};

use super::identity;

/// The names of the claims of an ordinal, one for each template.
pub(super) fn claim_names(set: &Object, ordinal: i64) -> impl Iterator<Item = String> {
    templates(set)
        .iter()
        .map(move |template| claim_name(set, template, ordinal))
}

fn claim_name(set: &Object, template: &Value, ordinal: i64) -> String {
    format!("{}-{}-{ordinal}", volume_name(template), set.name())
}

fn templates(set: &Object) -> &[Value] {
    set["spec"]["volumeClaimTemplates"].list()
}

/// The volume has the name of the claim template.
fn volume_name(template: &Value) -> &str {
    template["metadata"]["name"].str()
}

/// The claims of an ordinal, as they are created: the template with the labels of the set's
/// selector.
pub(super) fn claims(set: &Object, ordinal: i64) -> Vec<Object> {
    templates(set)
        .iter()
        .map(|template| claim(set, template, ordinal))
        .collect()
}

fn claim(set: &Object, template: &Value, ordinal: i64) -> Object {
    let mut claim = template.clone();
    claim.set("apiVersion", "v1");
    claim.set("kind", "PersistentVolumeClaim");
    let metadata = claim.entry("metadata");
    metadata.set("name", claim_name(set, template, ordinal));
    metadata.set("namespace", set.namespace());
    for (key, label) in set.at("spec.selector.matchLabels").entries() {
        metadata.entry("labels").set(key, label.clone());
    }
    Object(claim)
}

/// Whether every claim of the pod is one of its volumes.
pub(super) fn storage_matches(set: &Object, pod: &Object) -> bool {
    let Some(ordinal) = identity::ordinal(pod) else {
        return false;
    };
    let volumes = pod["spec"]["volumes"].list();
    templates(set).iter().all(|template| {
        // Kubernetes: of two volumes of one name the last counts (stateful_set_utils.go,
        // storageMatches).
        let volume = volumes
            .iter()
            .rfind(|volume| volume["name"].str() == volume_name(template));
        let name = claim_name(set, template, ordinal);
        volume.is_some_and(|volume| volume.at("persistentVolumeClaim.claimName").str() == name)
    })
}

/// Puts the pod's claims before its volumes, replacing those of the same names.
pub(super) fn update_storage(set: &Object, pod: &mut Object, ordinal: i64) {
    let claimed = |template: &Value| {
        let claim = claim_name(set, template, ordinal);
        value!({"name": (volume_name(template)), "persistentVolumeClaim": {"claimName": claim}})
    };
    let mut volumes: Vec<Value> = templates(set).iter().map(claimed).collect();
    let is_claimed = |volume: &&Value| {
        templates(set)
            .iter()
            .any(|template| volume_name(template) == volume["name"].str())
    };
    let others = pod["spec"]["volumes"]
        .list()
        .iter()
        .filter(|volume| !is_claimed(volume));
    volumes.extend(others.cloned());
    if !volumes.is_empty() {
        pod.entry("spec").set("volumes", volumes);
    }
}

#[cfg(test)]
mod tests {
    use mizzen_value::json;

    use super::*;

    fn set() -> Object {
        Object(value!({
            "metadata": {"name": "web", "namespace": "n"},
            "spec": {
                "selector": {"matchLabels": {"app": "a"}},
                "volumeClaimTemplates": [
                    {"metadata": {"name": "data", "labels": {"l": "1", "app": "x"}}, "spec": {"volumeMode": "Block"}},
                    {"metadata": {"name": "logs"}},
                ],
            },
        }))
    }

    fn pod(volumes: &str) -> Object {
        let volumes = json::parse(volumes.as_bytes()).expect("JSON");
        Object(
            value!({"metadata": {"name": "web-1", "namespace": "n"}, "spec": {"volumes": volumes}}),
        )
    }

    #[test]
    fn a_claim_is_named_by_template_set_and_ordinal() {
        assert_eq!(
            claim_names(&set(), 1).collect::<Vec<_>>(),
            ["data-web-1", "logs-web-1"]
        );
    }

    #[test]
    fn a_claim_has_the_labels_of_its_template_and_those_of_the_selector() {
        let claims = claims(&set(), 1);
        assert_eq!(
            claims[0]["metadata"]["labels"],
            value!({"l": "1", "app": "a"})
        );
        assert_eq!(claims[1]["metadata"]["labels"], value!({"app": "a"}));
        assert_eq!(
            (claims[0].namespace(), claims[0].at("spec.volumeMode").str()),
            ("n", "Block")
        );
    }

    #[test]
    fn claims_take_the_place_of_volumes_of_their_names() {
        let mut pod = pod(r#"[{"name": "tmp", "emptyDir": {}}, {"name": "data", "emptyDir": {}}]"#);
        assert!(!storage_matches(&set(), &pod));
        update_storage(&set(), &mut pod, 1);
        assert!(storage_matches(&set(), &pod));
        let expect = r#"[{"name":"data","persistentVolumeClaim":{"claimName":"data-web-1"}},{"name":"logs","persistentVolumeClaim":{"claimName":"logs-web-1"}},{"name":"tmp","emptyDir":{}}]"#;
        assert_eq!(json::to_string(&pod["spec"]["volumes"]), expect);
    }

    #[test]
    fn a_claim_of_another_ordinal_is_not_right() {
        let mut pod = pod("[]");
        update_storage(&set(), &mut pod, 2);
        assert!(!storage_matches(&set(), &pod));
    }
}
