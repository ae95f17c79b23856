//! ResourceClaims and ResourceClaimTemplates.

use mizzen_object::validate::{field, meta, names};
use mizzen_object::{Action, HookContext, Path, Violations};
use mizzen_value::Value;

use super::{parts, status};
use crate::Behaviour;
use mizzen_apiextensions::KindStrategy;
use mizzen_apiextensions::{internal, rules};

pub(super) const CLAIM: Behaviour = Behaviour {
    default: |claim| default_spec(claim.entry("spec")),
    ..Behaviour::of::<ResourceClaimStrategy>()
};
pub(super) const TEMPLATE: Behaviour = Behaviour {
    default: |template| default_spec(template.entry("spec").entry("spec")),
    ..Behaviour::of::<ResourceClaimTemplateStrategy>()
};

pub(super) struct ResourceClaimStrategy;

impl KindStrategy for ResourceClaimStrategy {
    fn prepare(claim: &mut Value, old: Option<&Value>, context: &HookContext) {
        if let Some(old) = old.filter(|_| context.action == Action::Status) {
            status::drop_deallocated(claim, old);
        }
    }

    fn validate(
        claim: &Value,
        old: Option<&Value>,
        context: &HookContext,
        violations: &mut Violations,
    ) {
        let (spec, path) = (&claim["spec"], Path::new("spec"));
        match (context.action, old) {
            (Action::Status, Some(old)) => status::validate(claim, old, violations),
            (_, Some(old)) => {
                let shown = |spec: &Value| internal::shown("ResourceClaimSpec", spec);
                field::immutable(&shown(spec), &shown(&old["spec"]), &path, violations);
            }
            (_, None) => validate_spec(spec, &path, violations),
        }
    }
}

pub(super) struct ResourceClaimTemplateStrategy;

impl KindStrategy for ResourceClaimTemplateStrategy {
    fn validate(
        template: &Value,
        old: Option<&Value>,
        _: &HookContext,
        violations: &mut Violations,
    ) {
        let (spec, path) = (&template["spec"], Path::new("spec"));
        // A claim that is made from a template gets labels and annotations from it, and nothing else.
        let metadata = &spec["metadata"];
        let place = path.child("metadata");
        meta::annotations(
            &metadata["annotations"],
            &place.child("annotations"),
            violations,
        );
        meta::labels(&metadata["labels"], &place.child("labels"), violations);
        for (name, value) in metadata.entries() {
            if !matches!(name, "labels" | "annotations") && !value.is_empty() {
                let name = if name == "uid" { "uID" } else { name };
                violations.forbidden(place.child(name), "cannot be set");
            }
        }
        validate_spec(&spec["spec"], &path.child("spec"), violations);
        if let Some(old) = old {
            field::immutable(
                &shown_template(spec),
                &shown_template(&old["spec"]),
                &path,
                violations,
            );
        }
    }
}

pub(super) fn default_spec(spec: &mut Value) {
    for request in spec
        .at_mut("devices.requests")
        .into_iter()
        .flat_map(Value::list_mut)
    {
        if let Some(exactly) = request.get_mut("exactly") {
            default_request(exactly);
        }
        request
            .get_mut("firstAvailable")
            .into_iter()
            .flat_map(Value::list_mut)
            .for_each(default_request);
    }
}

fn default_request(request: &mut Value) {
    if request["allocationMode"].is_empty() {
        request.set("allocationMode", "ExactCount");
    }
    if request["allocationMode"].str() == "ExactCount" && request["count"].is_empty() {
        request.set("count", 1);
    }
}

/// Kubernetes: the metadata of the internal type is inlined, and keeps the API's names.
fn shown_template(spec: &Value) -> Value {
    let mut shown = spec["metadata"].clone();
    shown.set("Spec", internal::shown("ResourceClaimSpec", &spec["spec"]));
    shown
}

const MAX_REQUESTS: usize = 32;
const MAX_ALTERNATIVES: usize = 8;

fn validate_spec(spec: &Value, path: &Path, violations: &mut Violations) {
    let (devices, path) = (&spec["devices"], path.child("devices"));
    let requests = path.child("requests");
    parts::each_once(
        devices["requests"].list(),
        MAX_REQUESTS,
        &requests,
        violations,
        validate_request,
        parts::name,
    );

    let known = ClaimRequests(devices);
    let constraints = path.child("constraints");
    parts::each(
        devices["constraints"].list(),
        MAX_REQUESTS,
        &constraints,
        violations,
        |item, path, violations| {
            validate_references(item, &known, path, violations);
            let attribute = ["matchAttribute", "distinctAttribute"]
                .into_iter()
                .find(|name| item.get(name).is_some());
            match attribute {
                Some(name) => {
                    parts::fully_qualified_name(item[name].str(), &path.child(name), violations)
                }
                None => {
                    // Kubernetes: the message says the opposite of the rule.
                    let detail = "exactly one of \"matchAttribute\" or \"distinctAttribute\" is required, but multiple fields \
                          are set";
                    violations.required(path, detail);
                }
            }
        },
    );
    let configurations = path.child("config");
    parts::each(
        devices["config"].list(),
        MAX_REQUESTS,
        &configurations,
        violations,
        |item, path, violations| {
            validate_references(item, &known, path, violations);
            parts::configuration(item, false, path, violations);
        },
    );
}

fn validate_request(request: &Value, path: &Path, violations: &mut Violations) {
    parts::label(request["name"].str(), &path.child("name"), violations);
    let one_of = "exactly one of `exactly` or `firstAvailable` is required";
    match (request.get("exactly"), request["firstAvailable"].list()) {
        (None, []) => violations.required(path, one_of),
        (Some(exactly), []) => validate_device(exactly, &path.child("exactly"), violations),
        (None, alternatives) => {
            let path = path.child("firstAvailable");
            let validate = |item: &Value, path: &Path, violations: &mut Violations| {
                parts::label(item["name"].str(), &path.child("name"), violations);
                validate_device(item, path, violations);
            };
            parts::each_once(
                alternatives,
                MAX_ALTERNATIVES,
                &path,
                violations,
                validate,
                parts::name,
            );
        }
        (Some(_), _) => violations.invalid(
            path,
            Value::Null,
            &format!("{one_of}, but multiple fields are set"),
        ),
    }
}

fn validate_device(request: &Value, path: &Path, violations: &mut Violations) {
    let class = path.child("deviceClassName");
    rules::required_text(
        &request["deviceClassName"],
        names::is_dns1123_subdomain,
        &class,
        violations,
    );
    parts::selectors(&request["selectors"], &path.child("selectors"), violations);
    let count = request["count"].int();
    match request["allocationMode"].str() {
        "All" if count != 0 => {
            violations.invalid(
                path.child("count"),
                count,
                "must not be specified when allocationMode is 'All'",
            );
        }
        "ExactCount" if count <= 0 => {
            violations.invalid(path.child("count"), count, "must be greater than zero")
        }
        "All" | "ExactCount" => {}
        other => {
            violations.not_supported(path.child("allocationMode"), other, &["All", "ExactCount"])
        }
    }
    for (index, toleration) in request["tolerations"].items().enumerate() {
        parts::toleration(
            toleration,
            &path.child("tolerations").index(index),
            violations,
        );
    }
}

/// The requests of a claim, to be referred to by name.
pub(super) struct ClaimRequests<'a>(pub(super) &'a Value);

impl ClaimRequests<'_> {
    /// Whether a request, or `request/alternative`, is there.
    fn has(&self, name: &str) -> bool {
        let (request, alternative) = name.split_once('/').unwrap_or((name, ""));
        self.0["requests"]
            .items()
            .filter(|found| found["name"].str() == request)
            .any(|found| {
                alternative.is_empty()
                    || found["firstAvailable"]
                        .items()
                        .any(|found| found["name"].str() == alternative)
            })
    }

    /// Whether a reference leads to a request.
    pub(super) fn validate(&self, name: &str, path: &Path, violations: &mut Violations) {
        let detail = "must be the name of a request in the claim or the name of a request and a subrequest separated by '/'";
        let segments: Vec<&str> = name.split('/').collect();
        if segments.len() > 2 {
            return violations.invalid(path, name, detail);
        }
        for segment in segments {
            parts::label(segment, path, violations);
        }
        if !self.has(name) {
            violations.invalid(path, name, detail);
        }
    }
}

/// The requests that something is about.
pub(super) fn validate_references(
    item: &Value,
    known: &ClaimRequests,
    path: &Path,
    violations: &mut Violations,
) {
    let validate = |name: &Value, path: &Path, violations: &mut Violations| {
        known.validate(name.str(), path, violations);
    };
    let (requests, path) = (item["requests"].list(), path.child("requests"));
    parts::each_once(
        requests,
        MAX_REQUESTS,
        &path,
        violations,
        validate,
        Value::clone,
    );
}
