//! rbac.authorization.k8s.io: roles and role bindings.

use mizzen_object::validate::{field, names};
use mizzen_object::{HookContext, Path, Violations};
use mizzen_value::Value;

use crate::Behaviour;
use mizzen_apiextensions::KindStrategy;
use mizzen_apiextensions::{internal, rules};

const GROUP: &str = "rbac.authorization.k8s.io";

pub(super) fn behaviour(version: &str, kind: &str) -> Behaviour {
    let behaviour = match kind {
        "Role" => Behaviour::of::<RoleStrategy>(),
        "ClusterRole" => Behaviour::of::<ClusterRoleStrategy>(),
        "RoleBinding" => Behaviour::of::<RoleBindingStrategy>(),
        "ClusterRoleBinding" => Behaviour::of::<ClusterRoleBindingStrategy>(),
        _ => return Behaviour::NONE,
    };
    match (version, kind) {
        ("v1alpha1", "RoleBinding" | "ClusterRoleBinding") => Behaviour {
            default: |binding| default_role(binding.entry("roleRef")),
            to_stored: |binding| {
                let subjects = binding.get_mut("subjects").into_iter();
                subjects
                    .flat_map(Value::list_mut)
                    .for_each(subject_to_stored);
            },
            ..behaviour
        },
        _ => behaviour,
    }
}

/// Converts a subject of v1alpha1, which may be in etcd: it has an API version instead of a group, and the user `*` is
/// every authenticated user. Kubernetes: rbac/v1alpha1/conversion.go.
fn subject_to_stored(subject: &mut Value) {
    let api_version = subject.remove("apiVersion").unwrap_or_default();
    let group = match subject["kind"].str() {
        "ServiceAccount" => "",
        "User" | "Group" => GROUP,
        _ => match api_version.str().split_once('/') {
            Some((group, version)) if !version.contains('/') => group,
            _ => "",
        },
    };
    subject.set("apiGroup", group);
    if subject["kind"].str() == "User" && subject["name"].str() == "*" {
        subject.set("kind", "Group");
        subject.set("name", "system:authenticated");
    }
}

pub(super) struct RoleStrategy;

impl KindStrategy for RoleStrategy {
    fn validate(role: &Value, _: Option<&Value>, _: &HookContext, violations: &mut Violations) {
        validate_rules(role, true, violations);
    }
}

pub(super) struct ClusterRoleStrategy;

impl KindStrategy for ClusterRoleStrategy {
    fn validate(role: &Value, old: Option<&Value>, _: &HookContext, violations: &mut Violations) {
        validate_rules(role, false, violations);
        let Some(aggregation) = role.get("aggregationRule") else {
            return;
        };
        let path = Path::new("aggregationRule");
        let path = path.child("clusterRoleSelectors");
        let selectors = aggregation["clusterRoleSelectors"].list();
        if selectors.is_empty() {
            violations.required(
                path,
                "at least one clusterRoleSelector required if aggregationRule is non-nil",
            );
        }
        let lenient = old.is_some_and(|role| {
            // Kubernetes: a selector that was stored before label values were checked may stay.
            role.at("aggregationRule.clusterRoleSelectors")
                .items()
                .any(rules::is_bad_selector)
        });
        for (index, selector) in selectors.iter().enumerate() {
            let path = path.index(index);
            rules::lenient_selector(selector, lenient, &path, violations);
            if rules::is_bad_selector(selector) {
                violations.invalid(path, Value::Null, "invalid label selector.");
            }
        }
    }
}

pub(super) struct RoleBindingStrategy;

impl KindStrategy for RoleBindingStrategy {
    fn default(binding: &mut Value) {
        default_binding(binding)
    }

    fn validate(
        binding: &Value,
        old: Option<&Value>,
        _: &HookContext,
        violations: &mut Violations,
    ) {
        validate_any_binding(binding, old, &["Role", "ClusterRole"], violations);
    }
}

pub(super) struct ClusterRoleBindingStrategy;

impl KindStrategy for ClusterRoleBindingStrategy {
    fn default(binding: &mut Value) {
        default_binding(binding)
    }

    fn validate(
        binding: &Value,
        old: Option<&Value>,
        _: &HookContext,
        violations: &mut Violations,
    ) {
        validate_any_binding(binding, old, &["ClusterRole"], violations);
    }
}

fn default_binding(binding: &mut Value) {
    default_role(binding.entry("roleRef"));
    for subject in binding.entry("subjects").list_mut() {
        if subject["apiGroup"].is_empty() && matches!(subject["kind"].str(), "User" | "Group") {
            subject.set("apiGroup", GROUP);
        }
    }
}

fn default_role(role: &mut Value) {
    if role["apiGroup"].is_empty() {
        role.set("apiGroup", GROUP);
    }
}

fn validate_rules(role: &Value, namespaced: bool, violations: &mut Violations) {
    let path = Path::new("rules");
    for (index, rule) in role["rules"].items().enumerate() {
        let path = path.index(index);
        if rule["verbs"].is_empty() {
            violations.required(path.child("verbs"), "verbs must contain at least one value");
        }
        let urls = &rule["nonResourceURLs"];
        if !urls.is_empty() {
            let urls = &rule["nonResourceURLs"];
            if namespaced {
                violations.invalid(
                    path.child("nonResourceURLs"),
                    urls.clone(),
                    "namespaced rules cannot apply to non-resource URLs",
                );
            }
            if ["apiGroups", "resources", "resourceNames"]
                .iter()
                .any(|field| !rule[*field].is_empty())
            {
                let detail = "rules cannot apply to both regular resources and non-resource URLs";
                violations.invalid(path.child("nonResourceURLs"), urls.clone(), detail);
            }
            continue;
        }
        if rule["apiGroups"].is_empty() {
            violations.required(
                path.child("apiGroups"),
                "resource rules must supply at least one api group",
            );
        }
        if rule["resources"].is_empty() {
            violations.required(
                path.child("resources"),
                "resource rules must supply at least one resource",
            );
        }
    }
}

fn validate_any_binding(
    binding: &Value,
    old: Option<&Value>,
    kinds: &[&str],
    violations: &mut Violations,
) {
    let (role, path) = (&binding["roleRef"], Path::new("roleRef"));
    field::one_of(
        role["apiGroup"].str(),
        &[GROUP],
        &path.child("apiGroup"),
        violations,
    );
    field::one_of(role["kind"].str(), kinds, &path.child("kind"), violations);
    rules::required_text(
        &role["name"],
        names::is_path_segment_name,
        &path.child("name"),
        violations,
    );

    let namespaced = kinds.contains(&"Role");
    let subjects = Path::new("subjects");
    for (index, subject) in binding["subjects"].items().enumerate() {
        let path = subjects.index(index);
        let name = subject["name"].str();
        if name.is_empty() {
            violations.required(path.child("name"), "");
        }
        let group = if subject["kind"].str() == "ServiceAccount" {
            ""
        } else {
            GROUP
        };
        match subject["kind"].str() {
            "ServiceAccount" => {
                if !name.is_empty() {
                    rules::text(
                        name,
                        names::is_dns1123_subdomain,
                        &path.child("name"),
                        violations,
                    );
                }
                field::one_of(
                    subject["apiGroup"].str(),
                    &[group],
                    &path.child("apiGroup"),
                    violations,
                );
                if !namespaced && subject["namespace"].is_empty() {
                    violations.required(path.child("namespace"), "");
                }
            }
            "User" | "Group" => field::one_of(
                subject["apiGroup"].str(),
                &[group],
                &path.child("apiGroup"),
                violations,
            ),
            kind => violations.not_supported(
                path.child("kind"),
                kind,
                &["ServiceAccount", "User", "Group"],
            ),
        }
    }
    if old.is_some_and(|old| old["roleRef"] != *role) {
        let shown = internal::shown("RoleRef", role);
        violations.invalid(path, shown, "cannot change roleRef");
    }
}
