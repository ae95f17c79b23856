//! What do all kinds that run pods have in common?

use mizzen_object::validate::{field, names, selector};
use mizzen_object::{Path, Violations};
use mizzen_value::Value;
use mizzen_value::json;

use crate::pod::{self, Options};

/// A selector that has been looked at.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Selector<'a> {
    /// It is missing, and selects nothing.
    Nothing,
    /// It cannot be understood.
    Unclear,
    /// It selects what it says.
    Clear(&'a Value),
}

impl<'a> Selector<'a> {
    /// Looks at a selector.
    pub(crate) fn of(selector: &'a Value) -> Selector<'a> {
        if selector.is_null() {
            return Selector::Nothing;
        }
        let mut violations = Violations::default();
        selector::label_selector(
            selector,
            selector::SelectorOptions::default(),
            &Path::new(""),
            &mut violations,
        );
        if violations.is_empty() {
            Selector::Clear(selector)
        } else {
            Selector::Unclear
        }
    }

    /// Whether it selects what has these labels.
    pub(crate) fn selects(self, labels: &Value) -> bool {
        let Selector::Clear(selector) = self else {
            return false;
        };
        let mut labels_match = selector["matchLabels"]
            .entries()
            .map(|(key, value)| labels.get(key) == Some(value));
        labels_match.all(|matches| matches)
            && selector["matchExpressions"]
                .list()
                .iter()
                .all(|expression| meets(expression, labels))
    }
}

fn meets(expression: &Value, labels: &Value) -> bool {
    let label = labels.get(expression["key"].str());
    let listed = || label.is_some_and(|label| expression["values"].list().contains(label));
    match expression["operator"].str() {
        "In" => listed(),
        "NotIn" => !listed(),
        "Exists" => label.is_some(),
        _ => label.is_none(),
    }
}

/// A selector that must be there and select something in particular. `kind` is the word for who has it.
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

/// Who selects everything would take what others have made.
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

/// What is made from the template must be selected.
pub(crate) fn validate_selected(
    selector: Selector,
    template: &Value,
    path: &Path,
    violations: &mut Violations,
) {
    let labels = &template["metadata"]["labels"];
    if !matches!(selector, Selector::Unclear) && !selector.selects(labels) {
        let path = path.child("metadata");
        violations.invalid(
            path.child("labels"),
            labels.clone(),
            "`selector` does not match template `labels`",
        );
    }
}

/// The template of pods that run for ever. `kind` is the word for who has it.
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
        Selector::of(&spec["selector"]),
        &spec["template"],
        path.child("template"),
    );
    if let Selector::Unclear = selector {
        return violations.invalid(place, spec["selector"].clone(), "invalid label selector");
    }
    validate_selected(selector, template, &path, violations);
    pod::validate_template_with(template, options, &path, violations);
    validate_lasting(template, "ReplicaSet", &path, violations);
}

/// Numbers that are not below zero, where they are given.
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

/// Numbers that are parts of another. `whole` is the other's name in messages.
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

/// How often a name was taken already. It only grows.
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

/// A number of pods, or a share of them.
pub(super) fn validate_share(share: &Value, path: &Path, violations: &mut Violations) {
    match share.as_str() {
        Some(text) => field::all(names::is_percent(text), text, path, violations),
        None => field::non_negative(share.int(), path, violations),
    }
}

/// A share is not more than all.
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

/// A field that never changes, shown in the API's form.
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

/// What is unwise in a template of which something has changed.
pub(super) fn changed_template_warnings(new: &Value, old: Option<&Value>) -> Vec<String> {
    if old.is_some_and(|old| old["spec"] == new["spec"]) {
        return Vec::new();
    }
    let path = Path::new("spec");
    pod::template_warnings(&new["spec"]["template"], &path.child("template"))
}

/// What is unwise in the name of something that gives it to its pods.
pub(super) fn name_warning(new: &Value, old: Option<&Value>) -> Vec<String> {
    match old {
        None => pod::name_warning(
            new["metadata"]["name"].str(),
            "this is used in Pod names and hostnames",
        ),
        Some(_) => Vec::new(),
    }
}

/// Clears what is switched off in a template of pods.
pub(super) fn drop_disabled(new: &mut Value, old: Option<&Value>) {
    pod::drop_disabled(
        new.entry("spec").entry("template"),
        old.map(|old| &old["spec"]["template"]),
    );
}

#[cfg(test)]
mod tests {
    use mizzen_value::json;

    use super::Selector;

    #[track_caller]
    fn check(selector: &str, labels: &str, selects: bool) {
        let [selector, labels] =
            [selector, labels].map(|text| json::parse(text.as_bytes()).unwrap());
        assert_eq!(
            Selector::of(&selector).selects(&labels),
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
