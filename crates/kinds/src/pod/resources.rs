//! How much of what may a container use?

use std::collections::BTreeMap;

use mizzen_object::quantity::Quantity;
use mizzen_object::validate::{field, names};
use mizzen_object::{Path, Reason, Str, Value, Violations, show};

use super::{Options, is_sidecar};
use crate::core::resources::COUNTED;

/// What all containers together use at most, sidecars and the steps before the start counted right.
pub(super) fn aggregate(spec: &Value, list: &str) -> BTreeMap<Str, Quantity> {
    let mut total = BTreeMap::new();
    for container in spec["containers"].list() {
        add(&mut total, &amounts(container, list));
    }
    let (mut sidecars, mut highest) = (BTreeMap::new(), BTreeMap::new());
    for container in spec["initContainers"].list() {
        let mut own = amounts(container, list);
        if is_sidecar(container) {
            add(&mut total, &own);
            add(&mut sidecars, &own);
            own.clone_from(&sidecars);
        } else {
            add(&mut own, &sidecars);
        }
        raise(&mut highest, &own);
    }
    raise(&mut total, &highest);
    total
}

type Amounts = BTreeMap<Str, Quantity>;

fn amounts(container: &Value, list: &str) -> Amounts {
    let entries = container["resources"][list].entries();
    entries
        .map(|(name, amount)| (name.into(), Quantity::of(amount.str())))
        .collect()
}

fn add(sum: &mut Amounts, more: &Amounts) {
    for (name, amount) in more {
        sum.entry(name.clone())
            .and_modify(|sum| *sum = sum.add(amount))
            .or_insert(*amount);
    }
}

fn raise(highest: &mut Amounts, other: &Amounts) {
    for (name, amount) in other {
        highest
            .entry(name.clone())
            .and_modify(|highest| *highest = *amount.max(highest))
            .or_insert(*amount);
    }
}

pub(super) fn is_huge_page(name: &str) -> bool {
    name.starts_with("hugepages-")
}

/// Whether a pod as a whole may ask for it.
pub(super) fn is_for_pods(name: &str) -> bool {
    matches!(name, "cpu" | "memory") || is_huge_page(name)
}

/// Whether it is Kubernetes' own: without a domain, or with Kubernetes'.
pub(super) fn is_native(name: &str) -> bool {
    !name.contains('/') || name.contains("kubernetes.io/")
}

/// Whether more of it may be promised than there is.
fn is_elastic(name: &str) -> bool {
    is_native(name) && !is_huge_page(name)
}

/// Whether it is somebody else's, and could be named in a quota.
pub fn is_extended(name: &str) -> bool {
    !is_native(name)
        && !name.starts_with("requests.")
        && names::is_qualified_name(&format!("requests.{name}")).is_empty()
}

const MEASURED: [&str; 11] = [
    "cpu",
    "memory",
    "ephemeral-storage",
    "storage",
    "requests.cpu",
    "requests.memory",
    "requests.ephemeral-storage",
    "requests.storage",
    "limits.cpu",
    "limits.memory",
    "limits.ephemeral-storage",
];

fn is_standard(name: &str) -> bool {
    COUNTED.contains(&name)
        || MEASURED.contains(&name)
        || is_huge_page(name)
        || name.starts_with("requests.hugepages-")
}

/// The name of any resource.
pub(crate) fn validate_name(name: &str, path: &Path, violations: &mut Violations) {
    let wrong = names::is_qualified_name(name);
    if wrong.is_empty() && !name.contains('/') && !is_standard(name) {
        violations.invalid(
            path,
            name,
            "must be a standard resource type or fully qualified",
        );
    }
    field::all(wrong, name, path, violations);
}

/// The name of a resource that a container can use.
fn validate_container_name(name: &str, path: &Path, violations: &mut Violations) {
    validate_name(name, path, violations);
    let is_known = matches!(name, "cpu" | "memory" | "ephemeral-storage") || is_huge_page(name);
    if !name.contains('/') && !is_known {
        violations.invalid(path, name, "must be a standard resource for containers");
    } else if name.contains('/') && !is_native(name) && !is_extended(name) {
        violations.invalid(path, name, "doesn't follow extended resource name standard");
    }
}

/// The name of a resource that a pod as a whole can use.
fn validate_pod_name(name: &str, path: &Path, violations: &mut Violations) {
    let known = violations.0.len();
    validate_name(name, path, violations);
    if violations.0.len() == known && !is_for_pods(name) {
        violations.not_supported(path, name, &["cpu", "hugepages-", "memory"]);
    }
}

/// An amount of something. What is counted comes in whole numbers.
pub(crate) fn validate_amount(
    name: &str,
    amount: &Value,
    path: &Path,
    violations: &mut Violations,
) {
    let quantity = Quantity::of(amount.str());
    if quantity.is_negative() {
        violations.invalid(path, amount.clone(), "must be greater than or equal to 0");
    }
    if (COUNTED.contains(&name) || is_extended(name)) && quantity.milli_value() % 1000 != 0 {
        violations.invalid(path, amount.clone(), "must be an integer");
    }
}

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
    Quantity::of(amount.str()).value() % page.value() == 0
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
        validate_container_name,
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
    let resources = mizzen_object::value!({"limits": (overhead.clone())});
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
            validate_amount(name, amount, &place, violations);
            if list == "requests" {
                validate_request(name, amount, &resources["limits"][name], path, violations);
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
    validate_huge_pages(resources, path, violations);
    validate_claims(
        &resources["claims"],
        claims,
        &path.child("claims"),
        violations,
    );
}

fn validate_request(
    name: &str,
    amount: &Value,
    limit: &Value,
    path: &Path,
    violations: &mut Violations,
) {
    let (requested, limited) = (Quantity::of(amount.str()), Quantity::of(limit.str()));
    let (limit, place) = (limit.str(), path.child("requests"));
    if limit.is_empty() {
        if !is_elastic(name) {
            let detail = "Limit must be set for non overcommitable resources";
            violations.required(path.child("limits"), detail);
        }
    } else if requested != limited && !is_elastic(name) {
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

fn validate_huge_pages(resources: &Value, path: &Path, violations: &mut Violations) {
    let names = || {
        ["limits", "requests"]
            .into_iter()
            .flat_map(|list| resources[list].entries())
            .map(|(name, _)| name)
    };
    if names().any(is_huge_page) && !names().any(|name| matches!(name, "cpu" | "memory")) {
        violations.forbidden(path, "HugePages require cpu or memory");
    }
}

/// A container may name each claim of its pod once, as a whole or request by request.
fn validate_claims(wanted: &Value, claims: &[&str], path: &Path, violations: &mut Violations) {
    let mut seen: Vec<(&str, &str)> = Vec::new();
    for (index, claim) in wanted.list().iter().enumerate() {
        let place = path.index(index);
        let (name, request) = (claim["name"].str(), claim["request"].str());
        if name.is_empty() {
            violations.required(place, "");
            continue;
        }
        if seen.contains(&(name, "")) {
            violations.duplicate(place, name);
        } else {
            validate_request_name(request, &place, violations);
            validate_claim_once(name, request, &seen, &place, violations);
            if !seen.contains(&(name, request)) {
                seen.push((name, request));
            }
        }
        if !claims.contains(&name) {
            violations.push(Reason::NotFound, place, unknown_claim(name, claims));
        }
    }
}

fn validate_request_name(request: &str, path: &Path, violations: &mut Violations) {
    if !request.is_empty() {
        field::all(
            names::is_dns1123_label(request),
            request,
            &path.child("request"),
            violations,
        );
    }
}

fn validate_claim_once(
    name: &str,
    request: &str,
    seen: &[(&str, &str)],
    path: &Path,
    violations: &mut Violations,
) {
    if seen.contains(&(name, request)) {
        violations.duplicate(path, format!("{name}/{request}"));
    } else if request.is_empty() {
        for _ in seen.iter().filter(|(other, _)| *other == name) {
            violations.duplicate(path, name);
        }
    }
}

fn unknown_claim(name: &str, claims: &[&str]) -> String {
    let mut known = claims.to_vec();
    known.sort_unstable();
    known.dedup();
    let known = if known.is_empty() {
        " which is empty".into()
    } else {
        format!(": {}", known.join(", "))
    };
    format!(
        "Not found: {}: must be one of the names in pod.spec.resourceClaims{known}",
        show(&name.into())
    )
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
        validate_pod_name,
        claims,
        options,
        path,
        violations,
    );
    validate_sums(spec, "requests", path, violations);
    validate_sums(spec, "limits", path, violations);
    validate_container_limits(spec, path, violations);
}

/// The whole must be enough for its parts. Of limits, only those count that cannot be shared.
fn validate_sums(spec: &Value, list: &str, path: &Path, violations: &mut Violations) {
    for (name, sum) in aggregate(spec, list) {
        let whole = &spec["resources"][list][name.as_str()];
        let counts = list == "requests" || is_huge_page(&name);
        if counts && !whole.is_null() && sum > Quantity::of(whole.str()) {
            let detail =
                format!("must be greater than or equal to aggregate container {list} of {sum}");
            violations.invalid(path.child(list).key(&name), whole.clone(), &detail);
        }
    }
}

fn validate_container_limits(spec: &Value, path: &Path, violations: &mut Violations) {
    let path = path.child("containers");
    for (index, container) in spec["containers"].list().iter().enumerate() {
        for (name, limit) in container["resources"]["limits"].entries() {
            let whole = &spec["resources"]["limits"][name];
            if !whole.is_null() && Quantity::of(limit.str()) > Quantity::of(whole.str()) {
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
