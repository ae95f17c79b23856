//! Validation of resource requirements.

use mizzen_object::{Path, ViolationReason, Violations, show};
use mizzen_value::Value;
use mizzen_value::quantity::Quantity;

use super::Options;
use crate::fields::dns_label;
use crate::resources;
use mizzen_component_helpers::pod_resources::{ResourceField, aggregate_spec, is_pod_level};
use mizzen_component_helpers::resource_names::{is_huge_page, is_overcommit_allowed};

/// Whether there are huge pages that are not a whole number of pages.
pub(super) fn has_odd_huge_pages(amounts: &Value) -> bool {
    amounts
        .entries()
        .any(|(name, amount)| is_huge_page(name) && !is_whole_pages(name, amount))
}

fn is_whole_pages(name: &str, amount: &Value) -> bool {
    let page = name
        .strip_prefix("hugepages-")
        .and_then(|size| Quantity::parse(size).ok());
    let Some(page) = page.filter(|page| *page > Quantity::default() && page.is_whole()) else {
        return false;
    };
    Quantity::parse_or_zero(amount.str()).value() % page.value() == 0
}

/// What a container asks for. `claims` are the names of the pod's claims.
pub(super) fn validate_container(
    resources: &Value,
    claims: &[&str],
    options: &Options,
    path: &Path,
    violations: &mut Violations,
) {
    validate_requirements(
        resources,
        resources::container_name,
        claims,
        options,
        path,
        violations,
    );
}

/// What the machinery around the containers uses.
pub(super) fn validate_overhead(
    overhead: &Value,
    options: &Options,
    path: &Path,
    violations: &mut Violations,
) {
    let resources = mizzen_value::value!({"limits": (overhead.clone())});
    validate_container(&resources, &[], options, path, violations);
}

fn validate_requirements(
    resources: &Value,
    validate_name: fn(&str, &Path, &mut Violations),
    claims: &[&str],
    options: &Options,
    path: &Path,
    violations: &mut Violations,
) {
    for list in ["limits", "requests"] {
        let list_path = path.child(list);
        for (name, amount) in resources[list].entries() {
            let place = list_path.key(name);
            validate_name(name, &place, violations);
            resources::amount(name, amount, &place, violations);
            if list == "requests" {
                let limit = &resources["limits"][name];
                let (requested, limited) = (
                    Quantity::parse_or_zero(amount.str()),
                    Quantity::parse_or_zero(limit.str()),
                );
                let (limit, place) = (limit.str(), path.child("requests"));
                if limit.is_empty() {
                    if !is_overcommit_allowed(name) {
                        let detail = "Limit must be set for non overcommitable resources";
                        violations.required(path.child("limits"), detail);
                    }
                } else if requested != limited && !is_overcommit_allowed(name) {
                    violations.invalid(
                        place,
                        amount.clone(),
                        &format!("must be equal to {name} limit of {limit}"),
                    );
                } else if requested > limited {
                    violations.invalid(
                        place,
                        amount.clone(),
                        &format!("must be less than or equal to {name} limit of {limit}"),
                    );
                }
            }
            if is_huge_page(name) && !options.any_huge_pages && !is_whole_pages(name, amount) {
                let detail = format!(
                    "{} is not positive integer multiple of {name}",
                    amount.str()
                );
                violations.invalid(place, amount.clone(), &detail);
            }
        }
    }
    let names = || {
        ["limits", "requests"]
            .into_iter()
            .flat_map(|list| resources[list].entries())
            .map(|(name, _)| name)
    };
    if names().any(is_huge_page) && !names().any(|name| matches!(name, "cpu" | "memory")) {
        violations.forbidden(path, "HugePages require cpu or memory");
    }
    validate_claims(
        &resources["claims"],
        claims,
        &path.child("claims"),
        violations,
    );
}

/// A container may name each claim of its pod once, as a whole or request by request.
fn validate_claims(wanted: &Value, claims: &[&str], path: &Path, violations: &mut Violations) {
    let mut seen: Vec<(&str, &str)> = Vec::new();
    for (index, claim) in wanted.items().enumerate() {
        let place = path.index(index);
        let (name, request) = (claim["name"].str(), claim["request"].str());
        if name.is_empty() {
            violations.required(place, "");
            continue;
        }
        if seen.contains(&(name, "")) {
            violations.duplicate(place, name);
        } else {
            if !request.is_empty() {
                dns_label(request, &place.child("request"), violations);
            }
            if seen.contains(&(name, request)) {
                violations.duplicate(place, format!("{name}/{request}"));
            } else if request.is_empty() {
                for _ in seen.iter().filter(|(other, _)| *other == name) {
                    violations.duplicate(place, name);
                }
            }
            if !seen.contains(&(name, request)) {
                seen.push((name, request));
            }
        }
        if !claims.contains(&name) {
            let mut known = claims.to_vec();
            known.sort_unstable();
            known.dedup();
            let known = if known.is_empty() {
                " which is empty".into()
            } else {
                format!(": {}", known.join(", "))
            };
            let unknown_claim = format!(
                "Not found: {}: must be one of the names in pod.spec.resourceClaims{known}",
                show(&name.into())
            );
            violations.push(ViolationReason::NotFound, place, unknown_claim);
        }
    }
}

/// What a pod as a whole asks for, beside what its containers do.
pub(super) fn validate_pod(
    spec: &Value,
    claims: &[&str],
    options: &Options,
    path: &Path,
    violations: &mut Violations,
) {
    let resources = &spec["resources"];
    if resources.is_null() {
        return;
    }
    if spec["os"]["name"].str() == "windows" {
        return violations.forbidden(path, "may not be set for a windows pod");
    }
    if !resources["claims"].is_null() {
        violations.forbidden(
            path.child("claims"),
            "claims may not be set for Resources at pod-level",
        );
    }
    validate_requirements(
        resources,
        |name, path, violations| {
            // The name of a resource that a pod as a whole can use.
            let known = violations.0.len();
            resources::name(name, path, violations);
            if violations.0.len() == known && !is_pod_level(name) {
                violations.not_supported(path, name, &["cpu", "hugepages-", "memory"]);
            }
        },
        claims,
        options,
        path,
        violations,
    );
    validate_sums(spec, ResourceField::Requests, path, violations);
    validate_sums(spec, ResourceField::Limits, path, violations);
    let path = path.child("containers");
    for (index, container) in spec["containers"].items().enumerate() {
        for (name, limit) in container["resources"]["limits"].entries() {
            let whole = &spec["resources"]["limits"][name];
            if !whole.is_null()
                && Quantity::parse_or_zero(limit.str()) > Quantity::parse_or_zero(whole.str())
            {
                let detail = format!(
                    "must be less than or equal to pod limits of {}",
                    whole.str()
                );
                violations.invalid(
                    path.index(index).key(name).child("limits"),
                    limit.clone(),
                    &detail,
                );
            }
        }
    }
}

/// The whole must be enough for its parts. Of limits, only those count that cannot be shared.
fn validate_sums(spec: &Value, field: ResourceField, path: &Path, violations: &mut Violations) {
    let list = field.name();
    for (name, sum) in aggregate_spec(spec, field) {
        let whole = &spec["resources"][list][name.as_str()];
        let counts = list == "requests" || is_huge_page(&name);
        if counts && !whole.is_null() && sum > Quantity::parse_or_zero(whole.str()) {
            let detail =
                format!("must be greater than or equal to aggregate container {list} of {sum}");
            violations.invalid(path.child(list).key(&name), whole.clone(), &detail);
        }
    }
}
