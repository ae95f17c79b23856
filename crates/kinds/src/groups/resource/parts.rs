//! Names, selectors and configurations that claims, classes and slices share.

use mizzen_object::validate::{field, meta, names};
use mizzen_object::{Path, Violations};
use mizzen_value::{Value, json};

use super::expression;
use mizzen_apiextensions::rules;

/// Every item of a list that is not too long.
pub(super) fn each(
    list: &[Value],
    max: usize,
    path: &Path,
    violations: &mut Violations,
    validate: impl Fn(&Value, &Path, &mut Violations),
) -> bool {
    if list.len() > max {
        violations.too_many(path, list.len(), max);
        return false;
    }
    for (index, item) in list.iter().enumerate() {
        validate(item, &path.index(index), violations);
    }
    true
}

/// Every item of a list that is not too long, and then whether each is there once.
pub(super) fn each_once(
    list: &[Value],
    max: usize,
    path: &Path,
    violations: &mut Violations,
    validate: impl Fn(&Value, &Path, &mut Violations),
    key: impl Fn(&Value) -> Value,
) {
    if !each(list, max, path, violations, validate) {
        return;
    }
    let keys: Vec<Value> = list.iter().map(key).collect();
    for index in (0..keys.len()).filter(|index| keys[..*index].contains(&keys[*index])) {
        violations.duplicate(path.index(index), keys[index].clone());
    }
}

/// The name of an item, by which items differ.
pub(super) fn name(item: &Value) -> Value {
    item["name"].str().into()
}

/// The name of a driver, in either case.
pub(super) fn driver(name: &str, path: &Path, violations: &mut Violations) {
    crate::groups::storage::driver_name(name, path, violations);
}

/// The name of a pool: subdomains and slashes.
pub(super) fn pool(name: &str, path: &Path, violations: &mut Violations) {
    if name.is_empty() {
        return violations.required(path, "");
    }
    if name.len() > 253 {
        violations.too_long(path, 253);
    }
    for part in name.split('/') {
        rules::text(part, names::is_dns1123_subdomain, path, violations);
    }
}

/// The name of a device, a request or a counter.
pub(super) fn label(name: &str, path: &Path, violations: &mut Violations) {
    rules::text(name, names::is_dns1123_label, path, violations);
}

/// A name, perhaps with a domain: `model`, `gpu.example.com/model`.
pub(super) fn qualified_name(name: &str, path: &Path, violations: &mut Violations) {
    match name.split('/').collect::<Vec<_>>()[..] {
        [id] => identifier(id, path, violations),
        [domain, id] => {
            match domain {
                "" => violations.invalid(path, "", "the domain must not be empty"),
                domain => driver(domain, path, violations),
            }
            match id {
                "" => violations.invalid(path, "", "the name must not be empty"),
                id => identifier(id, path, violations),
            }
        }
        _ => {}
    }
}

/// A name with a domain.
pub(super) fn fully_qualified_name(name: &str, path: &Path, violations: &mut Violations) {
    qualified_name(name, path, violations);
    if !name.contains('/') {
        let detail = "a fully qualified name must be a domain and a name separated by a slash";
        violations.invalid(path, name, detail);
    }
}

fn identifier(id: &str, path: &Path, violations: &mut Violations) {
    if id.len() > 32 {
        violations.too_long(path, 32);
    }
    rules::text(id, names::is_c_identifier, path, violations);
}

/// The id of a share of a device.
pub(super) fn share_id(id: &str, path: &Path, violations: &mut Violations) {
    let is_uuid = |id: &str| {
        let groups: Vec<usize> = id.split('-').map(str::len).collect();
        groups == [8, 4, 4, 4, 12]
            && id
                .bytes()
                .all(|byte| byte == b'-' || byte.is_ascii_hexdigit())
    };
    if !is_uuid(id) {
        let problem = if id.len() == 36 {
            "invalid UUID format".into()
        } else {
            format!("invalid UUID length: {}", id.len())
        };
        violations.invalid(path, id, &format!("error validating uid: {problem}"));
    } else if id.bytes().any(|byte| byte.is_ascii_uppercase()) {
        let detail = "uid must be in RFC 4122 normalized form, `xxxxxxxx-xxxx-xxxx-xxxx-xxxxxxxxxxxx` with lowercase \
                      hexadecimal characters";
        violations.invalid(path, id, detail);
    }
}

const MAX_SELECTORS: usize = 32;
const MAX_EXPRESSION: usize = 10 * 1024;

/// Expressions that choose devices.
pub(super) fn selectors(selectors: &Value, path: &Path, violations: &mut Violations) {
    each(
        selectors.list(),
        MAX_SELECTORS,
        path,
        violations,
        |selector, path, violations| {
            let path = path.child("cel");
            match selector.get("cel") {
                None => violations.required(path, ""),
                Some(cel) if cel["expression"].str().len() > MAX_EXPRESSION => {
                    violations.too_long(path.child("expression"), MAX_EXPRESSION);
                }
                Some(cel) => expression::validate(
                    cel["expression"].str(),
                    &path.child("expression"),
                    violations,
                ),
            }
        },
    );
}

/// What is passed on to a driver. `stored` parameters may be longer than new ones.
pub(super) fn configuration(
    configuration: &Value,
    stored: bool,
    path: &Path,
    violations: &mut Violations,
) {
    let path = path.child("opaque");
    let Some(opaque) = configuration.get("opaque") else {
        return violations.required(path, "");
    };
    driver(opaque["driver"].str(), &path.child("driver"), violations);
    raw(
        &opaque["parameters"],
        stored,
        &path.child("parameters"),
        violations,
    );
}

const MAX_RAW: usize = 10 * 1024;

/// A JSON object of anybody's.
pub(super) fn raw(value: &Value, stored: bool, path: &Path, violations: &mut Violations) {
    if value.is_null() {
        violations.required(path, "");
    } else if !stored && json::to_string(value).len() > MAX_RAW {
        violations.too_long(path, MAX_RAW);
    } else if value.as_map().is_none() {
        violations.invalid(path, "<value omitted>", "must be a valid JSON object");
    }
}

const EFFECTS: [&str; 3] = ["NoExecute", "NoSchedule", "None"];

/// Something about a device that keeps users away.
pub(super) fn taint(taint: &Value, path: &Path, violations: &mut Violations) {
    meta::label_name(taint["key"].str(), &path.child("key"), violations);
    rules::text(
        taint["value"].str(),
        names::is_label_value,
        &path.child("value"),
        violations,
    );
    match taint["effect"].str() {
        "" => violations.required(path.child("effect"), ""),
        effect => field::one_of(effect, &EFFECTS, &path.child("effect"), violations),
    }
}

/// A taint that does not matter to a request.
pub(super) fn toleration(toleration: &Value, path: &Path, violations: &mut Violations) {
    if !toleration["key"].is_empty() {
        meta::label_name(toleration["key"].str(), &path.child("key"), violations);
    }
    let value = toleration["value"].str();
    match toleration["operator"].str() {
        "Exists" if !value.is_empty() => {
            violations.invalid(
                path.child("value"),
                value,
                "must be empty for operator `Exists`",
            );
        }
        "Exists" => {}
        "Equal" => rules::text(
            value,
            names::is_label_value,
            &path.child("value"),
            violations,
        ),
        "" => violations.required(path.child("operator"), ""),
        other => violations.not_supported(path.child("operator"), other, &["Equal", "Exists"]),
    }
    if !toleration["effect"].is_empty() {
        field::one_of(
            toleration["effect"].str(),
            &EFFECTS,
            &path.child("effect"),
            violations,
        );
    }
}

const MAX_CONDITIONS: usize = 4;

/// Conditions for which binding waits, and those that make it fail. Both are there, or neither.
pub(super) fn binding_conditions(device: &Value, path: &Path, violations: &mut Violations) {
    let (wait, fail) = (
        path.child("bindingConditions"),
        path.child("bindingFailureConditions"),
    );
    let (waiting, failing) = (
        &device["bindingConditions"],
        &device["bindingFailureConditions"],
    );
    for (list, path) in [(waiting, &wait), (failing, &fail)] {
        each(
            list.list(),
            MAX_CONDITIONS,
            path,
            violations,
            |item, path, violations| {
                meta::label_name(item.str(), path, violations);
            },
        );
    }
    let repeated = |list: &[Value], index: usize| list[..index].contains(&list[index]);
    for index in (0..waiting.list().len()).filter(|index| repeated(waiting.list(), *index)) {
        violations.duplicate(wait.index(index), waiting[index].str());
    }
    for (index, condition) in failing.items().enumerate() {
        if repeated(failing.list(), index) {
            violations.duplicate(fail.index(index), condition.str());
        }
        if waiting.list().contains(condition) {
            let detail = "bindingFailureConditions must not overlap with bindingConditions";
            violations.invalid(fail.index(index), condition.str(), detail);
        }
    }
    if waiting.is_empty() && !failing.is_empty() {
        let detail = "bindingConditions are required to use bindingFailureConditions";
        violations.invalid(wait, waiting.clone(), detail);
    }
    if failing.is_empty() && !waiting.is_empty() {
        let detail = "bindingFailureConditions are required to use bindingConditions";
        violations.invalid(fail, failing.clone(), detail);
    }
}
