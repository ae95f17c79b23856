//! FlowSchemas.

use mizzen_object::validate::names;
use mizzen_object::{Action, HookContext, Path, Violations};
use mizzen_value::{Value, value};

use super::validate_conditions;
use crate::Behaviour;
use mizzen_apiextensions::KindStrategy;
use mizzen_apiextensions::{internal, rules};

pub(super) const SCHEMA: Behaviour = Behaviour::of::<FlowSchemaStrategy>();

pub(super) struct FlowSchemaStrategy;

impl KindStrategy for FlowSchemaStrategy {
    fn default(schema: &mut Value) {
        let spec = schema.entry("spec");
        if spec["matchingPrecedence"].is_empty() {
            spec.set("matchingPrecedence", 1000);
        }
    }

    fn validate(
        schema: &Value,
        _: Option<&Value>,
        context: &HookContext,
        violations: &mut Violations,
    ) {
        if context.action != Action::Status {
            let (name, spec, path) = (
                schema["metadata"]["name"].str(),
                &schema["spec"],
                Path::new("spec"),
            );
            let precedence = spec["matchingPrecedence"].int();
            let place = path.child("matchingPrecedence");
            match precedence {
                ..=0 => violations.invalid(place, precedence, "must be a positive value"),
                10_001.. => violations.invalid(place, precedence, "must not be greater than 10000"),
                1 if name != "exempt" => {
                    violations.invalid(
                        place,
                        precedence,
                        "only the schema named 'exempt' may have matchingPrecedence 1",
                    );
                }
                _ => {}
            }
            let method = &spec["distinguisherMethod"];
            if !method.is_null() && !matches!(method["type"].str(), "ByNamespace" | "ByUser") {
                let shown = internal::shown("Typed", method);
                violations.not_supported(
                    path.child("distinguisherMethod").child("type"),
                    shown,
                    &["ByNamespace", "ByUser"],
                );
            }
            let level = path.child("priorityLevelConfiguration");
            match spec["priorityLevelConfiguration"]["name"].str() {
                "" => violations.required(level.child("name"), "must reference a priority level"),
                name => rules::text(
                    name,
                    names::is_dns1123_subdomain,
                    &level.child("name"),
                    violations,
                ),
            }
            for (index, rule) in spec["rules"].items().enumerate() {
                validate_rule(rule, &path.child("rules").index(index), violations);
            }
            if mandatory(name).is_some_and(|mandatory| mandatory != *spec) {
                let detail = format!("spec of '{name}' must equal the fixed value");
                violations.invalid(path, internal::shown("FlowSchemaSpec", spec), &detail);
            }
        }
        validate_conditions(schema["status"]["conditions"].list(), violations);
    }
}

/// The mandatory flow schemas, whose specs are fixed.
fn mandatory(name: &str) -> Option<Value> {
    let (precedence, method, groups): (_, _, &[&str]) = match name {
        "exempt" => (1, None, &["system:masters"]),
        "catch-all" => (
            10_000,
            Some("ByUser"),
            &["system:unauthenticated", "system:authenticated"],
        ),
        _ => return None,
    };
    let subject = |group: &&str| value!({"kind": "Group", "group": {"name": (*group)}});
    let subjects: Vec<Value> = groups.iter().map(subject).collect();
    let mut spec = value!({
        "priorityLevelConfiguration": {"name": name},
        "matchingPrecedence": precedence,
        "rules": [{
            "subjects": subjects,
            "resourceRules": [{
                "verbs": ["*"],
                "apiGroups": ["*"],
                "resources": ["*"],
                "clusterScope": true,
                "namespaces": ["*"],
            }],
            "nonResourceRules": [{"verbs": ["*"], "nonResourceURLs": ["*"]}],
        }],
    });
    if let Some(method) = method {
        spec.set("distinguisherMethod", value!({"type": method}));
    }
    Some(spec)
}

fn validate_rule(rule: &Value, path: &Path, violations: &mut Violations) {
    if rule["subjects"].is_empty() {
        violations.required(
            path.child("subjects"),
            "subjects must contain at least one value",
        );
    }
    for (index, subject) in rule["subjects"].items().enumerate() {
        validate_subject(subject, &path.child("subjects").index(index), violations);
    }
    if rule["resourceRules"].is_empty() && rule["nonResourceRules"].is_empty() {
        violations.required(
            path,
            "at least one of resourceRules and nonResourceRules has to be non-empty",
        );
    }
    for (index, rule) in rule["resourceRules"].items().enumerate() {
        let path = path.child("resourceRules");
        let path = path.index(index);
        validate_verbs(&rule["verbs"], &path.child("verbs"), violations);
        for (name, one, many) in [
            ("apiGroups", "api group", "api groups"),
            ("resources", "resource", "resources"),
        ] {
            if rule[name].is_empty() {
                violations.required(
                    path.child(name),
                    &format!("resource rules must supply at least one {one}"),
                );
            }
            validate_wildcard(&rule[name], many, &path.child(name), violations);
        }
        let (namespaces, path) = (&rule["namespaces"], path.child("namespaces"));
        if namespaces.is_empty() && !rule["clusterScope"].bool() {
            let detail =
                "resource rules that are not cluster scoped must supply at least one namespace";
            violations.required(path, detail);
        } else if has_wildcard(namespaces) {
            validate_wildcard(namespaces, "namespaces", &path, violations);
        } else {
            for (index, namespace) in namespaces.items().enumerate() {
                for message in names::is_dns1123_label(namespace.str()) {
                    let detail = format!(
                        "each member of this list must be '*' or a DNS-1123 label; {message}"
                    );
                    violations.invalid(path.index(index), namespace.str(), &detail);
                }
            }
        }
    }
    for (index, rule) in rule["nonResourceRules"].items().enumerate() {
        let path = path.child("nonResourceRules");
        let path = path.index(index);
        validate_verbs(&rule["verbs"], &path.child("verbs"), violations);
        let (urls, path) = (&rule["nonResourceURLs"], path.child("nonResourceURLs"));
        if urls.is_empty() {
            violations.required(path, "nonResourceURLs must contain at least one value");
        } else if has_wildcard(urls) {
            validate_wildcard(urls, "non-resource URLs", &path, violations);
        } else {
            for (index, url) in urls.items().enumerate() {
                let url = url.str();
                let n_stars = url.matches('*').count();
                let url_error = match url {
                    "" => Some("must not be empty"),
                    "/" => None,
                    url if !url.starts_with('/') => Some("must start with slash"),
                    url if url.contains(' ') => Some("must not contain white-space"),
                    url if url.contains("//") => Some("must not contain double slash"),
                    url if n_stars > 1 || n_stars == 1 && !url.ends_with("/*") => {
                        Some("wildcard can only do suffix matching")
                    }
                    _ => None,
                };
                if let Some(detail) = url_error {
                    violations.invalid(path.index(index), url, detail);
                }
            }
        }
    }
}

/// The kinds of subject and the field of each, in the order in which they are spoken of.
const SUBJECTS: [(&str, &str); 3] = [
    ("ServiceAccount", "serviceAccount"),
    ("User", "user"),
    ("Group", "group"),
];

fn validate_subject(subject: &Value, path: &Path, violations: &mut Violations) {
    let kind = subject["kind"].str();
    let Some((_, field)) = SUBJECTS.into_iter().find(|(name, _)| *name == kind) else {
        return violations.not_supported(
            path.child("kind"),
            kind,
            &["Group", "ServiceAccount", "User"],
        );
    };
    match subject.get(field) {
        None => violations.required(
            path.child(field),
            &format!("{field} is required when subject kind is '{kind}'"),
        ),
        Some(account) if field == "serviceAccount" => {
            let path = path.child(field);
            if account["name"].str() != "*" {
                rules::required_text(
                    &account["name"],
                    names::is_dns1123_subdomain,
                    &path.child("name"),
                    violations,
                );
            }
            match account["namespace"].str() {
                "" => violations.required(
                    path.child("namespace"),
                    "must specify namespace for service account",
                ),
                namespace => rules::text(
                    namespace,
                    names::is_dns1123_label,
                    &path.child("namespace"),
                    violations,
                ),
            }
        }
        Some(named) if named["name"].is_empty() => {
            violations.required(path.child(field).child("name"), "")
        }
        Some(_) => {}
    }
    for (other, field) in SUBJECTS.into_iter().filter(|(other, _)| *other != kind) {
        if subject.get(field).is_some() {
            let detail = format!("{field} is forbidden when subject kind is not '{other}'");
            violations.forbidden(path.child(field), &detail);
        }
    }
}

const VERBS: [&str; 9] = [
    "create",
    "delete",
    "deletecollection",
    "get",
    "list",
    "patch",
    "proxy",
    "update",
    "watch",
];

fn validate_verbs(verbs: &Value, path: &Path, violations: &mut Violations) {
    if verbs.is_empty() {
        violations.required(path, "verbs must contain at least one value");
    } else if has_wildcard(verbs) {
        validate_wildcard(verbs, "verbs", path, violations);
    } else if verbs.items().any(|verb| !VERBS.contains(&verb.str())) {
        violations.not_supported(path, verbs.clone(), &VERBS);
    }
}

fn has_wildcard(list: &Value) -> bool {
    list.items().any(|item| item.str() == "*")
}

/// A star stands alone.
fn validate_wildcard(list: &Value, things: &str, path: &Path, violations: &mut Violations) {
    if has_wildcard(list) && list.list().len() > 1 {
        let detail = format!("if '*' is present, must not specify other {things}");
        violations.invalid(path, list.clone(), &detail);
    }
}
