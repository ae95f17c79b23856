//! ConfigMaps: `data` and `binaryData` share one set of keys.

use mizzen_object::validate::{field, meta, names};
use mizzen_object::{Action, HookContext, NameRule, Path, Violations};
use mizzen_value::Value;

use super::bytes;
use crate::Behaviour;
use mizzen_apiextensions::KindStrategy;

/// How many bytes all items of a config map or secret may have together.
pub(super) const MAX_SIZE: usize = 1024 * 1024;

pub(super) const BEHAVIOUR: Behaviour = Behaviour::of::<ConfigMapStrategy>();

pub(super) struct ConfigMapStrategy;

impl KindStrategy for ConfigMapStrategy {
    fn validate(
        map: &Value,
        old: Option<&Value>,
        context: &HookContext,
        violations: &mut Violations,
    ) {
        if let (Action::Update, Some(old)) = (context.action, old) {
            unchanged_when_immutable(map, old, &["data", "binaryData"], violations);
            meta::native_object_meta(&map["metadata"], true, NameRule::Subdomain, violations);
        }
        let path = Path::new("data");
        for (key, _) in map["data"].entries() {
            let path = path.key(key);
            field::all(names::is_config_map_key(key), key, &path, violations);
            if map["binaryData"].get(key).is_some() {
                violations.invalid(path, key, "duplicate of key present in binaryData");
            }
        }
        keys(&map["binaryData"], &Path::new("binaryData"), violations);
        let text: usize = map["data"]
            .entries()
            .map(|(_, value)| value.str().len())
            .sum();
        if text + size(&map["binaryData"]) > MAX_SIZE {
            // Kubernetes: the path of nothing is written as an index.
            violations.too_long("[]", MAX_SIZE);
        }
    }
}

/// The keys of items.
pub(super) fn keys(items: &Value, path: &Path, violations: &mut Violations) {
    for (key, _) in items.entries() {
        field::all(
            names::is_config_map_key(key),
            key,
            &path.key(key),
            violations,
        );
    }
}

/// The size of items that are bytes.
pub(super) fn size(items: &Value) -> usize {
    items
        .entries()
        .map(|(_, value)| bytes::len(value.str()))
        .sum()
}

/// `immutable` cannot be unset once it is true.
pub(super) fn unchanged_when_immutable(
    new: &Value,
    old: &Value,
    fields: &[&str],
    violations: &mut Violations,
) {
    if !old["immutable"].bool() {
        return;
    }
    let message = "field is immutable when `immutable` is set";
    if !new["immutable"].bool() {
        violations.forbidden("immutable", message);
    }
    for field in fields.iter().filter(|field| new[**field] != old[**field]) {
        violations.forbidden(field, message);
    }
}

#[cfg(test)]
mod tests {
    use super::super::check::check;
    use super::*;

    #[test]
    fn a_key_is_in_one_bag() {
        check(BEHAVIOUR)
            .create(r#"{"data":{"k":"v","a/b":""},"binaryData":{"k":"AA==","..":""}}"#)
            .refused(&[
                r#"data[k]: Invalid value: "k": duplicate of key present in binaryData"#,
                r#"data[a/b]: Invalid value: "a/b": a valid config key must"#,
                r#"binaryData[..]: Invalid value: "..": must not be '..'"#,
            ]);
    }

    #[test]
    fn all_items_together_have_a_limit() {
        let big = "x".repeat(MAX_SIZE);
        check(BEHAVIOUR)
            .create(&format!(r#"{{"data":{{"k":"{big}"}}}}"#))
            .refused(&[]);
        check(BEHAVIOUR)
            .create(&format!(
                r#"{{"data":{{"k":"{big}"}},"binaryData":{{"b":"AA=="}}}}"#
            ))
            .refused(&["[]: Too long: may not be more than 1048576 bytes"]);
    }

    #[test]
    fn immutable_is_for_ever() {
        let old = r#"{"metadata":{"name":"a","namespace":"b"},"data":{"k":"v"},"immutable":true}"#;
        check(BEHAVIOUR)
            .update(
                r#"{"metadata":{"name":"a","namespace":"b"},"data":{"k":"w"}}"#,
                old,
            )
            .refused(&[
                "immutable: Forbidden: field is immutable when `immutable` is set",
                "data: Forbidden: field is immutable when `immutable` is set",
            ]);
    }
}
