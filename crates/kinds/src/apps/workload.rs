//! Validation and defaults that all workload kinds share.

use mizzen_object::validate::{field, names, selector};
use mizzen_object::{Path, Violations};
use mizzen_value::Value;
use mizzen_value::json;

use mizzen_core_kinds::pod::{self, Options};

/// A label selector after validation.
#[derive(Debug, Clone, Copy)]
pub(crate) enum WorkloadSelector<'a> {
    /// It is missing, and selects nothing.
    Nothing,
    /// It is invalid.
    Unclear,
    /// It is valid.
    Clear(&'a Value),
}

impl<'a> WorkloadSelector<'a> {
    /// Validates a selector.
    pub(crate) fn of(selector: &'a Value) -> WorkloadSelector<'a> {
        if selector.is_null() {
            return WorkloadSelector::Nothing;
        }
        let mut violations = Violations::default();
        selector::label_selector(
            selector,
            selector::SelectorOptions::default(),
            &Path::new(""),
            &mut violations,
        );
        if violations.is_empty() {
            WorkloadSelector::Clear(selector)
        } else {
            WorkloadSelector::Unclear
        }
    }

    /// Whether it selects what has these labels.
    pub(crate) fn selects(self, labels: &Value) -> bool {
        let WorkloadSelector::Clear(selector) = self else {
            return false;
        };
        let mut labels_match = selector["matchLabels"]
            .entries()
            .map(|(key, value)| labels.get(key) == Some(value));
        labels_match.all(|matches| matches)
            && selector["matchExpressions"].items().all(|expression| {
                let label = labels.get(expression["key"].str());
                let listed =
                    || label.is_some_and(|label| expression["values"].list().contains(label));
                match expression["operator"].str() {
                    "In" => listed(),
                    "NotIn" => !listed(),
                    "Exists" => label.is_some(),
                    _ => label.is_none(),
                }
            })
    }
}

/// A required selector, not empty. `kind` is its owner's kind in messages.
pub(super) fn validate_selector(
    selector: &Value,
    kind: &str,
    path: &Path,
    violations: &mut Violations,
) {
    if selector.is_null() {
        return violations.required(path, "");
    }
    selector::label_selector(
        selector,
        selector::SelectorOptions::default(),
        path,
        violations,
    );
    validate_not_empty(selector, kind, path, violations);
}

/// A selector must not be empty: it would match the pods of other controllers.
pub(super) fn validate_not_empty(
    selector: &Value,
    kind: &str,
    path: &Path,
    violations: &mut Violations,
) {
    if !selector.is_null() && selector::is_empty(selector) {
        violations.invalid(
            path,
            selector.clone(),
            &format!("empty selector is invalid for {kind}"),
        );
    }
}

/// The selector must match the labels of the template.
pub(crate) fn validate_selected(
    selector: WorkloadSelector,
    template: &Value,
    path: &Path,
    violations: &mut Violations,
) {
    let labels = &template["metadata"]["labels"];
    if !matches!(selector, WorkloadSelector::Unclear) && !selector.selects(labels) {
        let path = path.child("metadata");
        violations.invalid(
            path.child("labels"),
            labels.clone(),
            "`selector` does not match template `labels`",
        );
    }
}

/// The template of pods that do not complete. `kind` is its owner's kind in messages.
pub(super) fn validate_lasting(
    template: &Value,
    kind: &str,
    path: &Path,
    violations: &mut Violations,
) {
    let (spec, path) = (&template["spec"], path.child("spec"));
    field::one_of(
        spec["restartPolicy"].str(),
        &["Always"],
        &path.child("restartPolicy"),
        violations,
    );
    if !spec["activeDeadlineSeconds"].is_null() {
        let detail = format!("activeDeadlineSeconds in {kind} is not Supported");
        violations.forbidden(path.child("activeDeadlineSeconds"), &detail);
    }
}

/// Selector and template of kinds that keep a number of equal pods.
pub(super) fn validate_replicas(
    spec: &Value,
    options: &Options,
    path: &Path,
    violations: &mut Violations,
) {
    let place = path.child("selector");
    validate_selector(&spec["selector"], "deployment", &place, violations);
    let (selector, template, path) = (
        WorkloadSelector::of(&spec["selector"]),
        &spec["template"],
        path.child("template"),
    );
    if let WorkloadSelector::Unclear = selector {
        return violations.invalid(place, spec["selector"].clone(), "invalid label selector");
    }
    validate_selected(selector, template, &path, violations);
    pod::validate_template_with(template, options, &path, violations);
    validate_lasting(template, "ReplicaSet", &path, violations);
}

/// Numbers that must not be negative.
pub(crate) fn validate_counts(
    holder: &Value,
    keys: &[&str],
    path: &Path,
    violations: &mut Violations,
) {
    for key in keys {
        field::non_negative(holder[*key].int(), &path.child(key), violations);
    }
}

/// Numbers that must not exceed another field, which is given with its name in messages.
pub(super) fn validate_parts(
    status: &Value,
    parts: &[&str],
    (whole, shown): (&str, &str),
    path: &Path,
    violations: &mut Violations,
) {
    for part in parts
        .iter()
        .filter(|part| status[**part].int() > status[whole].int())
    {
        let detail = format!("cannot be greater than {shown}");
        violations.invalid(path.child(part), status[*part].int(), &detail);
    }
}

/// The collision count must not decrease.
pub(super) fn validate_collisions(
    new: &Value,
    old: &Value,
    path: &Path,
    violations: &mut Violations,
) {
    let [new, old] = [new, old].map(|object| object["status"]["collisionCount"].as_int());
    if old.is_some_and(|old| new.is_none_or(|new| new < old)) {
        violations.invalid(
            path.child("collisionCount"),
            new.unwrap_or(0),
            "cannot be decremented",
        );
    }
}

/// A number of pods or a percentage.
pub(super) fn validate_share(share: &Value, path: &Path, violations: &mut Violations) {
    match share.as_str() {
        Some(text) => field::all(names::is_percent(text), text, path, violations),
        None => field::non_negative(share.int(), path, violations),
    }
}

/// A percentage is at most 100.
pub(super) fn validate_at_most_all(share: &Value, path: &Path, violations: &mut Violations) {
    if percent(share).is_some_and(|percent| percent > 100) {
        violations.invalid(path, share.clone(), "must not be greater than 100%");
    }
}

/// The number, of pods or of percent.
pub(super) fn share_number(share: &Value) -> i64 {
    percent(share).unwrap_or_else(|| {
        share
            .as_int()
            .unwrap_or_else(|| share.str().parse().unwrap_or(0))
    })
}

fn percent(share: &Value) -> Option<i64> {
    let text = share
        .as_str()
        .filter(|text| names::is_percent(text).is_empty())?;
    Some(text.trim_end_matches('%').parse().unwrap_or(i64::MAX))
}

/// An immutable field, shown in the API's form.
pub(super) fn validate_immutable(
    new: &Value,
    old: &Value,
    path: &Path,
    violations: &mut Violations,
) {
    if new != old {
        violations.invalid_shown(path, &json::to_string(new), field::IMMUTABLE);
    }
}

/// Warnings for a template, if the spec changed.
pub(super) fn changed_template_warnings(new: &Value, old: Option<&Value>) -> Vec<String> {
    if old.is_some_and(|old| old["spec"] == new["spec"]) {
        return Vec::new();
    }
    let path = Path::new("spec");
    pod::template_warnings(&new["spec"]["template"], &path.child("template"))
}

/// Warns of a name that is invalid as a host name of pods.
pub(super) fn name_warning(new: &Value, old: Option<&Value>) -> Vec<String> {
    match old {
        None => pod::name_warning(
            new["metadata"]["name"].str(),
            "this is used in Pod names and hostnames",
        ),
        Some(_) => Vec::new(),
    }
}

/// Drops disabled fields of a pod template.
pub(super) fn drop_disabled(new: &mut Value, old: Option<&Value>) {
    pod::drop_disabled(
        new.entry("spec").entry("template"),
        old.map(|old| &old["spec"]["template"]),
    );
}

#[cfg(test)]
mod tests {
    use mizzen_value::json;

    use super::WorkloadSelector;

    #[track_caller]
    fn check(selector: &str, labels: &str, selects: bool) {
        let [selector, labels] =
            [selector, labels].map(|text| json::parse(text.as_bytes()).unwrap());
        assert_eq!(
            WorkloadSelector::of(&selector).selects(&labels),
            selects,
            "{selector:?}"
        );
    }

    #[test]
    fn a_selector_selects_what_meets_all_of_it() {
        check("null", "{}", false);
        check("{}", "null", true);
        check(r#"{"matchLabels":{"a":"b"}}"#, r#"{"a":"b","c":"d"}"#, true);
        check(r#"{"matchLabels":{"a":"b"}}"#, r#"{"a":"c"}"#, false);
        check(
            r#"{"matchExpressions":[{"key":"a","operator":"NotIn","values":["b"]}]}"#,
            "{}",
            true,
        );
        check(
            r#"{"matchExpressions":[{"key":"a","operator":"In","values":["b"]}]}"#,
            r#"{"a":"b"}"#,
            true,
        );
        check(
            r#"{"matchExpressions":[{"key":"a","operator":"DoesNotExist"}]}"#,
            r#"{"a":"b"}"#,
            false,
        );
        check(
            r#"{"matchExpressions":[{"key":"a","operator":"Exists"}]}"#,
            r#"{"a":"b"}"#,
            true,
        );
    }
}
