//! Validation of object metadata.
//!
//! Kubernetes: the validations run more than once, and each run reports. On create the kind's own
//! rules come first, and only if they pass [`object_meta`] runs again with
//! [`NameRule::PathSegment`]. On update [`object_meta`] (again with `PathSegment`) and
//! [`object_meta_update`] come first, whatever the kind; then the kind's own rules run
//! [`object_meta_update`] once more, and some kinds [`object_meta`], too. Built-in kinds add
//! [`finalizer_names`] after each run of their own.

use std::collections::BTreeSet;

use super::{field, names};
use crate::kind::NameRule;
use crate::violation::{Path, Violations};
use mizzen_value::Value;

/// The maximum size of all annotations of an object, in bytes.
pub const ANNOTATIONS_SIZE: usize = 256 * 1024;

/// Validates metadata, independent of the old object.
pub fn object_meta(
    meta: &Value,
    namespaced: bool,
    rule: NameRule,
    path: &Path,
    violations: &mut Violations,
) {
    let generate_name = meta["generateName"].str();
    if !generate_name.is_empty() {
        let wrong = names::is_name(rule, generate_name, true);
        field::all(
            wrong,
            generate_name,
            &path.child("generateName"),
            violations,
        );
    }
    name(meta["name"].str(), rule, &path.child("name"), violations);
    namespace(
        meta["namespace"].str(),
        namespaced,
        &path.child("namespace"),
        violations,
    );
    field::non_negative(
        meta["generation"].int(),
        &path.child("generation"),
        violations,
    );
    labels(&meta["labels"], &path.child("labels"), violations);
    annotations(&meta["annotations"], &path.child("annotations"), violations);
    owner_references(
        &meta["ownerReferences"],
        &path.child("ownerReferences"),
        violations,
    );
    finalizers(&meta["finalizers"], &path.child("finalizers"), violations);
    managed_fields(
        &meta["managedFields"],
        &path.child("managedFields"),
        violations,
    );
}

/// [`object_meta`] and [`finalizer_names`]: a built-in kind's validation of its own metadata.
pub fn native_object_meta(
    meta: &Value,
    namespaced: bool,
    rule: NameRule,
    violations: &mut Violations,
) {
    let path = Path::new("metadata");
    object_meta(meta, namespaced, rule, &path, violations);
    finalizer_names(meta, &path, violations);
}

/// [`object_meta_update`] and [`finalizer_names`]: a built-in kind's validation of changes of its
/// own metadata.
pub fn native_object_meta_update(new: &Value, old: &Value, violations: &mut Violations) {
    let path = Path::new("metadata");
    object_meta_update(new, old, &path, violations);
    finalizer_names(new, &path, violations);
}

/// Validates changes of metadata.
pub fn object_meta_update(new: &Value, old: &Value, path: &Path, violations: &mut Violations) {
    if !old["deletionTimestamp"].is_null() {
        no_new_finalizers(
            &new["finalizers"],
            &old["finalizers"],
            &path.child("finalizers"),
            violations,
        );
    }
    if new["resourceVersion"].str().is_empty() {
        violations.invalid(
            path.child("resourceVersion"),
            "",
            "must be specified for an update",
        );
    }
    if new["generation"].int() < old["generation"].int() {
        violations.invalid(
            path.child("generation"),
            new["generation"].int(),
            "must not be decremented",
        );
    }
    for name in ["name", "namespace", "uid"] {
        field::immutable_text(&new[name], &old[name], &path.child(name), violations);
    }
    for name in [
        "creationTimestamp",
        "deletionTimestamp",
        "deletionGracePeriodSeconds",
    ] {
        field::immutable(&new[name], &old[name], &path.child(name), violations);
    }
    labels(&new["labels"], &path.child("labels"), violations);
    annotations(&new["annotations"], &path.child("annotations"), violations);
    owner_references(
        &new["ownerReferences"],
        &path.child("ownerReferences"),
        violations,
    );
    managed_fields(
        &new["managedFields"],
        &path.child("managedFields"),
        violations,
    );
}

/// Validates keys and values of labels.
pub fn labels(labels: &Value, path: &Path, violations: &mut Violations) {
    for (key, value) in labels.entries() {
        label_name(key, path, violations);
        field::all(
            names::is_label_value(value.str()),
            value.str(),
            path,
            violations,
        );
    }
}

/// Validates the key of a label.
pub fn label_name(key: &str, path: &Path, violations: &mut Violations) {
    field::all(names::is_label_key(key), key, path, violations);
}

/// Validates keys of annotations, ignoring case, and their total size.
pub fn annotations(annotations: &Value, path: &Path, violations: &mut Violations) {
    for (key, _) in annotations.entries() {
        field::all(
            names::is_label_key(&key.to_lowercase()),
            key,
            path,
            violations,
        );
    }
    let size: usize = annotations
        .entries()
        .map(|(key, value)| key.len() + value.str().len())
        .sum();
    if size > ANNOTATIONS_SIZE {
        violations.too_long(path, ANNOTATIONS_SIZE);
    }
}

/// Finalizers of a built-in kind must be standard ones, or have a domain.
pub fn finalizer_names(meta: &Value, path: &Path, violations: &mut Violations) {
    let path = path.child("finalizers");
    for (index, finalizer) in meta["finalizers"].list().iter().enumerate() {
        finalizer_name(finalizer.str(), &path.index(index), violations);
    }
}

/// A finalizer must be a standard one, or have a domain.
pub fn finalizer_name(name: &str, path: &Path, violations: &mut Violations) {
    if !name.contains('/') && !["kubernetes", ORPHAN, FOREGROUND].contains(&name) {
        violations.invalid(
            path,
            name,
            "name is neither a standard finalizer name nor is it fully qualified",
        );
    }
}

const ORPHAN: &str = "orphan";
const FOREGROUND: &str = "foregroundDeletion";
const MANAGER_LENGTH: usize = 128;
const SUBRESOURCE_LENGTH: usize = 256;

fn name(name: &str, rule: NameRule, path: &Path, violations: &mut Violations) {
    if name.is_empty() {
        violations.required(path, "name or generateName is required");
    } else {
        field::all(names::is_name(rule, name, false), name, path, violations);
    }
}

fn namespace(namespace: &str, namespaced: bool, path: &Path, violations: &mut Violations) {
    match (namespaced, namespace) {
        (true, "") => violations.required(path, ""),
        (true, _) => field::all(
            names::is_dns1123_label(namespace),
            namespace,
            path,
            violations,
        ),
        (false, "") => {}
        (false, _) => violations.forbidden(path, "not allowed on this type"),
    }
}

fn owner_references(owners: &Value, path: &Path, violations: &mut Violations) {
    let mut controller: Option<String> = None;
    for owner in owners.list() {
        let (api_version, kind) = (owner["apiVersion"].str(), owner["kind"].str());
        if version(api_version).is_empty() {
            violations.invalid(
                path.child("apiVersion"),
                api_version,
                "version must not be empty",
            );
        }
        for name in ["kind", "name", "uid"] {
            if owner[name].str().is_empty() {
                violations.invalid(path.child(name), "", "must not be empty");
            }
        }
        // Events are numerous and short-lived: they cannot be owners.
        if (api_version, kind) == ("v1", "Event") {
            violations.invalid(
                path,
                owner.clone(),
                "/v1, Kind=Event is disallowed from being an owner",
            );
        }
        if !owner["controller"].bool() {
            continue;
        }
        let current = format!("{}/{}", owner["kind"].str(), owner["name"].str());
        match &controller {
            None => controller = Some(current),
            Some(first) => violations.invalid(
                path,
                owners.clone(),
                &format!(
                    "Only one reference can have Controller set to true. Found \"true\" in references for {first} \
                     and {current}"
                ),
            ),
        }
    }
}

/// The version in `group/version`; empty if there are more parts.
fn version(api_version: &str) -> &str {
    match api_version.split_once('/') {
        None => api_version,
        Some((_, rest)) if rest.contains('/') => "",
        Some((_, version)) => version,
    }
}

fn finalizers(finalizers: &Value, path: &Path, violations: &mut Violations) {
    for finalizer in finalizers.list() {
        field::all(
            names::is_label_key(finalizer.str()),
            finalizer.str(),
            path,
            violations,
        );
    }
    let has = |name| {
        finalizers
            .list()
            .iter()
            .any(|finalizer| finalizer.str() == name)
    };
    if has(ORPHAN) && has(FOREGROUND) {
        let message = format!("finalizer {ORPHAN} and {FOREGROUND} cannot be both set");
        violations.invalid(path, finalizers.clone(), &message);
    }
}

fn no_new_finalizers(new: &Value, old: &Value, path: &Path, violations: &mut Violations) {
    let extra: BTreeSet<&str> = new
        .list()
        .iter()
        .filter(|finalizer| !old.list().contains(finalizer))
        .map(Value::str)
        .collect();
    if !extra.is_empty() {
        let quoted: Vec<String> = extra.into_iter().map(mizzen_value::json::quote).collect();
        let message =
            "no new finalizers can be added if the object is being deleted, found new finalizers";
        violations.forbidden(
            path,
            &format!("{message} []string{{{}}}", quoted.join(", ")),
        );
    }
}

fn managed_fields(entries: &Value, path: &Path, violations: &mut Violations) {
    for (index, entry) in entries.list().iter().enumerate() {
        let path = path.index(index);
        let operation = entry["operation"].str();
        if !["Apply", "Update"].contains(&operation) {
            violations.invalid(
                path.child("operation"),
                operation,
                "must be `Apply` or `Update`",
            );
        }
        let fields_type = entry["fieldsType"].str();
        if !["", "FieldsV1"].contains(&fields_type) {
            violations.invalid(path.child("fieldsType"), fields_type, "must be `FieldsV1`");
        }
        field_manager(entry["manager"].str(), &path.child("manager"), violations);
        if entry["subresource"].str().len() > SUBRESOURCE_LENGTH {
            violations.too_long(path.child("subresource"), SUBRESOURCE_LENGTH);
        }
    }
}

/// Validates the name of a field manager.
pub fn field_manager(manager: &str, path: &Path, violations: &mut Violations) {
    if manager.len() > MANAGER_LENGTH {
        violations.too_long(path, MANAGER_LENGTH);
    }
    for (at, char) in manager.char_indices().filter(|(_, char)| {
        let is_space = char.is_control() || char.is_whitespace();
        *char != ' ' && (is_space || matches!(char, '\u{ad}' | '\u{200b}'..='\u{200f}'))
    }) {
        let shown = format!(
            "invalid character U+{:04X} (at position {at})",
            u32::from(char)
        );
        violations.invalid(path, manager, &shown);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use mizzen_value::json;

    fn parse(text: &str) -> Value {
        json::parse(text.as_bytes()).unwrap()
    }

    #[track_caller]
    fn expect(violations: Violations, expected: &[&str]) {
        let found: Vec<String> = violations.0.iter().map(ToString::to_string).collect();
        let matches = found.len() == expected.len()
            && found.iter().zip(expected).all(|(a, b)| a.starts_with(b));
        assert!(matches, "{found:#?}");
    }

    #[track_caller]
    fn check(meta: &str, expected: &[&str]) {
        let mut violations = Violations::default();
        native_object_meta(&parse(meta), true, NameRule::Subdomain, &mut violations);
        expect(violations, expected);
    }

    #[track_caller]
    fn check_update(new: &str, old: &str, expected: &[&str]) {
        let mut violations = Violations::default();
        native_object_meta_update(&parse(new), &parse(old), &mut violations);
        expect(violations, expected);
    }

    #[test]
    fn a_name_or_a_prefix_is_needed() {
        check(
            r#"{"namespace":"a"}"#,
            &["metadata.name: Required value: name or generateName is required"],
        );
        check(r#"{"name":"a"}"#, &["metadata.namespace: Required value"]);
        check(
            r#"{"generateName":"Ab-","name":"Ab-x","namespace":"a"}"#,
            &[
                "metadata.generateName: Invalid value: \"Ab-\"",
                "metadata.name: Invalid value: \"Ab-x\"",
            ],
        );
    }

    #[test]
    fn finalizers_must_be_standard_or_have_a_domain() {
        check(
            r#"{"name":"a","namespace":"b","finalizers":["x","orphan","foregroundDeletion"]}"#,
            &[
                r#"metadata.finalizers: Invalid value: ["x","orphan","foregroundDeletion"]: finalizer orphan and"#,
                "metadata.finalizers[0]: Invalid value: \"x\": name is neither",
            ],
        );
    }

    #[test]
    fn an_object_has_one_controller() {
        check(
            r#"{"name":"a","namespace":"b","ownerReferences":[
                {"apiVersion":"apps/v1","kind":"A","name":"a","uid":"1","controller":true},
                {"apiVersion":"a/b/c","kind":"B","name":"b","uid":"2","controller":true}]}"#,
            &[
                "metadata.ownerReferences.apiVersion: Invalid value: \"a/b/c\": version must not be empty",
                "metadata.ownerReferences: Invalid value: [{",
            ],
        );
    }

    #[test]
    fn immutable_metadata_stays() {
        check_update(
            r#"{"name":"a","resourceVersion":"1","uid":"x","generation":1}"#,
            r#"{"name":"a","resourceVersion":"1","uid":"y","generation":2,"deletionGracePeriodSeconds":3}"#,
            &[
                "metadata.generation: Invalid value: 1: must not be decremented",
                "metadata.uid: Invalid value: \"x\": field is immutable",
                "metadata.deletionGracePeriodSeconds: Invalid value: null: field is immutable",
            ],
        );
    }

    #[test]
    fn a_terminating_object_gets_no_new_finalizers() {
        check_update(
            r#"{"resourceVersion":"1","deletionTimestamp":"t","finalizers":["a/b","a/a","a/c"]}"#,
            r#"{"deletionTimestamp":"t","finalizers":["a/c"]}"#,
            &[
                r#"metadata.finalizers: Forbidden: no new finalizers can be added if the object is being deleted, found new finalizers []string{"a/a", "a/b"}"#,
            ],
        );
    }
}
