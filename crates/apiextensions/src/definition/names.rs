//! Validation of a CustomResourceDefinition's group, names and API approval.

use mizzen_object::validate::names;
use mizzen_object::{Path, Violations};
use mizzen_value::{Value, json};

use crate::client::ParsedUrl;

/// A definition is called after its plural and group.
pub(super) fn validate_name(definition: &Value, violations: &mut Violations) {
    let (name, spec) = (definition["metadata"]["name"].str(), &definition["spec"]);
    let required = format!("{}.{}", spec["names"]["plural"].str(), spec["group"].str());
    let prefix = definition["metadata"]["generateName"].str();
    for (field, said) in [("generateName", prefix), ("name", name)] {
        if !said.is_empty() && said != required {
            let metadata = Path::new("metadata");
            violations.invalid(
                metadata.child(field),
                said,
                "must be spec.names.plural+\".\"+spec.group",
            );
        }
    }
}

/// A group is a domain.
pub(super) fn validate_group(group: &str, path: &Path, violations: &mut Violations) {
    let wrong = names::is_dns1123_subdomain(group);
    if group.is_empty() {
        violations.required(path, "");
    } else if !wrong.is_empty() {
        violations.invalid(path, group, &wrong.join(","));
    } else if !group.contains('.') {
        violations.invalid(path, group, "should be a domain with at least one dot");
    }
}

/// The names that are given or accepted.
pub(super) fn validate_names(names: &Value, path: &Path, violations: &mut Violations) {
    for name in ["plural", "singular"] {
        let label = names[name].str();
        let wrong = names::is_dns1035_label(label);
        if !label.is_empty() && !wrong.is_empty() {
            violations.invalid(path.child(name), label, &wrong.join(","));
        }
    }
    for name in ["kind", "listKind"] {
        let kind = names[name].str();
        let wrong = names::is_dns1035_label(&kind.to_lowercase());
        if !kind.is_empty() && !wrong.is_empty() {
            let detail = format!(
                "may have mixed case, but should otherwise match: {}",
                wrong.join(",")
            );
            violations.invalid(path.child(name), kind, &detail);
        }
    }
    validate_labels(
        names["shortNames"].list(),
        &path.child("shortNames"),
        violations,
    );
    let list_kind = names["listKind"].str();
    if !list_kind.is_empty() && names["kind"].str() == list_kind {
        violations.invalid(
            path.child("listKind"),
            list_kind,
            "kind and listKind may not be the same",
        );
    }
    validate_labels(
        names["categories"].list(),
        &path.child("categories"),
        violations,
    );
}

fn validate_labels(labels: &[Value], path: &Path, violations: &mut Violations) {
    for (index, label) in labels.iter().enumerate() {
        let wrong = names::is_dns1035_label(label.str());
        if !wrong.is_empty() {
            violations.invalid(path.index(index), label.str(), &wrong.join(","));
        }
    }
}

const APPROVED: &str = "api-approved.kubernetes.io";
const RULES: &str = "see https://github.com/kubernetes/enhancements/pull/1111";

#[derive(PartialEq)]
enum Approval {
    Missing,
    Bypassed,
    Given,
    Invalid,
}

impl Approval {
    fn of(definition: &Value) -> Approval {
        match definition["metadata"]["annotations"][APPROVED].str() {
            "" => Approval::Missing,
            reason if reason.starts_with("unapproved") => Approval::Bypassed,
            url if ParsedUrl::parse(url)
                .is_ok_and(|url| !url.scheme.is_empty() && !url.host.is_empty()) =>
            {
                Approval::Given
            }
            _ => Approval::Invalid,
        }
    }
}

fn is_protected(group: &str) -> bool {
    let domains = ["k8s.io", "kubernetes.io"];
    domains
        .iter()
        .any(|domain| group == *domain || group.ends_with(&format!(".{domain}")))
}

/// The status, reason and message of the condition that says whether Kubernetes' community agreed to a group in
/// one of its domains; none for other groups.
pub fn approval_condition(definition: &Value) -> Option<(&'static str, &'static str, String)> {
    if !is_protected(definition["spec"]["group"].str()) {
        return None;
    }
    let said = definition["metadata"]["annotations"][APPROVED].str();
    let demand = format!("protected groups must have approval annotation \"{APPROVED}\"");
    Some(match Approval::of(definition) {
        Approval::Missing => ("False", "MissingAnnotation", format!("{demand}, {RULES}")),
        Approval::Bypassed => (
            "False",
            "UnapprovedAnnotation",
            format!("not approved: {}", json::quote(said)),
        ),
        Approval::Given => ("True", "ApprovedAnnotation", format!("approved in {said}")),
        Approval::Invalid => (
            "False",
            "InvalidAnnotation",
            format!("{demand} with either a URL or a reason starting with \"unapproved\", {RULES}"),
        ),
    })
}

/// Groups under Kubernetes' own domains need an API approval annotation.
pub(super) fn validate_approval(
    definition: &Value,
    old: Option<&Value>,
    violations: &mut Violations,
) {
    let protected = is_protected(definition["spec"]["group"].str());
    let approval = Approval::of(definition);
    if !protected || old.is_some_and(|old| Approval::of(old) == approval) {
        return;
    }
    let metadata = Path::new("metadata");
    let path = metadata.child("annotations");
    let demand = format!("protected groups must have approval annotation \"{APPROVED}\"");
    match approval {
        Approval::Missing => violations.required(path.key(APPROVED), &format!("{demand}, {RULES}")),
        Approval::Invalid => {
            let detail = format!(
                "{demand} with either a URL or a reason starting with \"unapproved\", {RULES}"
            );
            violations.invalid(
                path.key(APPROVED),
                definition["metadata"]["annotations"][APPROVED].str(),
                &detail,
            );
        }
        Approval::Given | Approval::Bypassed => {}
    }
}
