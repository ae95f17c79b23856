//! What is there already is brought up to date: what a newer version wants is added, and nothing is taken away.
//!
//! Kubernetes: an object whose annotation says that it is not to be updated is left alone.

use mizzen_apiserver::access::rbac::Rule;
use mizzen_value::{Str, Value};

/// The stored object with all that is missing, or none if nothing is.
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
    add_rules(&mut object, wanted);
    add_subjects(&mut object, wanted);
    (object != *stored).then_some(object)
}

fn add_rules(object: &mut Value, wanted: &Value) {
    let rules = |object: &Value| {
        object["rules"]
            .list()
            .iter()
            .map(Rule::new)
            .collect::<Vec<_>>()
    };
    let (own, wanted) = (rules(object), rules(wanted));
    let parts = wanted.iter().flat_map(Rule::parts);
    for missing in parts.filter(|part| !own.iter().any(|rule| rule.covers(part))) {
        object.entry("rules").make_list().push(written(&missing));
    }
}

fn written(rule: &Rule) -> Value {
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

fn add_subjects(object: &mut Value, wanted: &Value) {
    let who = |subject: &Value| {
        ["kind", "namespace", "name"].map(|field| subject[field].str().to_owned())
    };
    for subject in wanted["subjects"].list() {
        if !object["subjects"]
            .list()
            .iter()
            .any(|own| who(own) == who(subject))
        {
            object.entry("subjects").make_list().push(subject.clone());
        }
    }
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
    fn what_is_covered_is_left_alone() {
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
    fn who_does_not_want_updates_gets_none() {
        check(
            r#"{"metadata":{"annotations":{"rbac.authorization.kubernetes.io/autoupdate":"false"}}}"#,
            r#"{"rules":[{"verbs":["get"],"apiGroups":[""],"resources":["x"]}]}"#,
            None,
        );
    }
}
