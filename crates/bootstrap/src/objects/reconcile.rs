//! Updates of stored roles and bindings: missing rules and subjects are added, and none is removed.
//!
//! Kubernetes: an object with the annotation `rbac.authorization.kubernetes.io/autoupdate: "false"` is not changed.

use mizzen_authorization::rbac::PolicyRule;
use mizzen_value::{Str, Value};

/// The stored object with the missing rules, subjects and metadata; none if nothing is missing.
pub(super) fn reconcile(stored: &Value, wanted: &Value) -> Option<Value> {
    let annotations = &stored["metadata"]["annotations"];
    if annotations["rbac.authorization.kubernetes.io/autoupdate"].str() == "false" {
        return None;
    }
    let mut object = stored.clone();
    for field in ["labels", "annotations"] {
        for (key, text) in wanted["metadata"][field].entries() {
            object
                .entry("metadata")
                .entry(field)
                .set_default(key, text.clone());
        }
    }
    let rules = |object: &Value| {
        object["rules"]
            .list()
            .iter()
            .map(PolicyRule::new)
            .collect::<Vec<_>>()
    };
    let (own_rules, wanted_rules) = (rules(&object), rules(wanted));
    let parts = wanted_rules.iter().flat_map(PolicyRule::parts);
    for missing in parts.filter(|part| !own_rules.iter().any(|rule| rule.covers(part))) {
        object.entry("rules").make_list().push(to_value(&missing));
    }
    let identity = |subject: &Value| {
        ["kind", "namespace", "name"].map(|field| subject[field].str().to_owned())
    };
    for subject in wanted["subjects"].list() {
        let mut own = object["subjects"].list().iter();
        if !own.any(|own| identity(own) == identity(subject)) {
            object.entry("subjects").make_list().push(subject.clone());
        }
    }
    (object != *stored).then_some(object)
}

fn to_value(rule: &PolicyRule) -> Value {
    let fields = [
        ("verbs", &rule.verbs),
        ("apiGroups", &rule.groups),
        ("resources", &rule.resources),
        ("resourceNames", &rule.names),
        ("nonResourceURLs", &rule.urls),
    ];
    let mut value = Value::object();
    for (field, texts) in fields.into_iter().filter(|(_, texts)| !texts.is_empty()) {
        value.set(
            field,
            texts
                .iter()
                .map(|text: &Str| text.into())
                .collect::<Vec<Value>>(),
        );
    }
    value
}

#[cfg(test)]
mod tests {
    use super::*;
    use mizzen_value::json::{parse, to_string};

    #[track_caller]
    fn check(stored: &str, wanted: &str, expected: Option<&str>) {
        let (stored, wanted) = (
            parse(stored.as_bytes()).unwrap(),
            parse(wanted.as_bytes()).unwrap(),
        );
        assert_eq!(
            reconcile(&stored, &wanted)
                .map(|object| to_string(&object))
                .as_deref(),
            expected
        );
    }

    #[test]
    fn covered_rules_are_not_added() {
        let wanted = r#"{"rules":[{"verbs":["get"],"apiGroups":[""],"resources":["pods"]}]}"#;
        check(
            r#"{"rules":[{"verbs":["*"],"apiGroups":["*"],"resources":["*"]}]}"#,
            wanted,
            None,
        );
    }

    #[test]
    fn missing_rules_and_subjects_are_added() {
        check(
            r#"{"rules":[{"verbs":["get"],"apiGroups":[""],"resources":["x"]}]}"#,
            r#"{"rules":[{"verbs":["get","list"],"apiGroups":[""],"resources":["x"]}]}"#,
            Some(
                r#"{"rules":[{"verbs":["get"],"apiGroups":[""],"resources":["x"]},{"verbs":["list"],"apiGroups":[""],"resources":["x"]}]}"#,
            ),
        );
        check(
            r#"{"subjects":[{"kind":"User","name":"a"}]}"#,
            r#"{"subjects":[{"kind":"User","name":"b"}]}"#,
            Some(r#"{"subjects":[{"kind":"User","name":"a"},{"kind":"User","name":"b"}]}"#),
        );
    }

    #[test]
    fn an_object_without_auto_update_is_not_changed() {
        check(
            r#"{"metadata":{"annotations":{"rbac.authorization.kubernetes.io/autoupdate":"false"}}}"#,
            r#"{"rules":[{"verbs":["get"],"apiGroups":[""],"resources":["x"]}]}"#,
            None,
        );
    }
}
