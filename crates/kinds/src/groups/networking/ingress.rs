//! Which hosts and paths lead to which backend, and who serves them?

use mizzen_object::validate::{field, ip, names};
use mizzen_object::{Action, Context, Path, Violations};
use mizzen_value::Value;

use crate::Behaviour;
use mizzen_apiextensions::rules;

pub(super) const INGRESS: Behaviour = Behaviour {
    validate: validate_ingress,
    warnings: ingress_warnings,
    ..Behaviour::NONE
};
pub(super) const CLASS: Behaviour = Behaviour {
    default: default_class,
    validate: validate_class,
    ..Behaviour::NONE
};

const CLASS_ANNOTATION: &str = "kubernetes.io/ingress.class";

/// How a version calls its fields, and what it forgives.
pub(super) struct Dialect {
    pub default_backend: &'static str,
    pub service_name: &'static str,
    pub port_name: &'static str,
    pub port_number: &'static str,
    /// Rules for hosts with a `*` and names of secrets are not looked at.
    pub lenient: bool,
}

const V1: Dialect = Dialect {
    default_backend: "defaultBackend",
    service_name: "service.name",
    port_name: "service.port.name",
    port_number: "service.port.number",
    lenient: false,
};

fn validate_ingress(
    ingress: &Value,
    old: Option<&Value>,
    context: &Context,
    violations: &mut Violations,
) {
    validate_in(&V1, ingress, old, context, violations);
}

/// Checks a stored Ingress in the words of the version in which it was sent.
pub(super) fn validate_in(
    dialect: &Dialect,
    ingress: &Value,
    old: Option<&Value>,
    context: &Context,
    violations: &mut Violations,
) {
    if context.action == Action::Status {
        return validate_status(ingress, old, violations);
    }
    validate_spec(
        dialect,
        &ingress["spec"],
        old.map(|old| &old["spec"]),
        violations,
    );
    if context.action == Action::Create {
        validate_class_annotation(ingress, violations);
    }
}

fn validate_class_annotation(ingress: &Value, violations: &mut Violations) {
    let annotation = ingress["metadata"]["annotations"][CLASS_ANNOTATION].as_str();
    let class = ingress["spec"]["ingressClassName"].as_str();
    if let (Some(annotation), Some(class)) = (annotation, class)
        && annotation != class
    {
        let path = Path::new("annotations");
        let detail = "must match `ingressClassName` when both are specified";
        violations.invalid(path.child(CLASS_ANNOTATION), annotation, detail);
    }
}

fn validate_spec(
    dialect: &Dialect,
    spec: &Value,
    old: Option<&Value>,
    violations: &mut Violations,
) {
    let path = Path::new("spec");
    if spec["rules"].is_empty() && spec["defaultBackend"].is_null() {
        let detail = format!(
            "either `{}` or `rules` must be specified",
            dialect.default_backend
        );
        violations.invalid(path, spec["rules"].clone(), &detail);
    }
    if let Some(backend) = spec.get("defaultBackend") {
        validate_backend(
            dialect,
            backend,
            &path.child(dialect.default_backend),
            violations,
        );
    }
    let skip_wildcards = dialect.lenient || old.is_some_and(has_invalid_wildcard_rule);
    for (index, rule) in spec["rules"].list().iter().enumerate() {
        validate_rule(
            dialect,
            rule,
            &path.child("rules").index(index),
            skip_wildcards,
            violations,
        );
    }
    let skip_secrets = dialect.lenient || old.is_some_and(has_invalid_secret);
    for (index, tls) in spec["tls"].list().iter().enumerate() {
        validate_tls(
            tls,
            &path.child("tls").index(index),
            skip_secrets,
            violations,
        );
    }
    if let Some(class) = spec["ingressClassName"].as_str() {
        rules::text(
            class,
            names::is_dns1123_subdomain,
            &path.child("ingressClassName"),
            violations,
        );
    }
}

/// Kubernetes: what older versions let through may stay, so an update looks at the old object first.
fn has_invalid_wildcard_rule(spec: &Value) -> bool {
    spec["rules"]
        .list()
        .iter()
        .filter(|rule| rule["host"].str().contains('*'))
        .any(|rule| {
            let mut violations = Violations::default();
            validate_http(&V1, &rule["http"], &Path::new(""), &mut violations);
            !violations.is_empty()
        })
}

fn has_invalid_secret(spec: &Value) -> bool {
    spec["tls"]
        .list()
        .iter()
        .any(|tls| !secret_name(tls["secretName"].str()).is_empty())
}

fn secret_name(name: &str) -> Vec<String> {
    if name.is_empty() {
        Vec::new()
    } else {
        names::is_dns1123_subdomain(name)
    }
}

fn host(name: &str) -> Vec<String> {
    if name.contains('*') {
        names::is_wildcard_dns1123_subdomain(name)
    } else {
        names::is_dns1123_subdomain(name)
    }
}

fn validate_tls(tls: &Value, path: &Path, skip_secrets: bool, violations: &mut Violations) {
    for (index, name) in tls["hosts"].list().iter().enumerate() {
        rules::text(
            name.str(),
            host,
            &path.child("hosts").index(index),
            violations,
        );
    }
    if !skip_secrets {
        rules::text(
            tls["secretName"].str(),
            secret_name,
            &path.child("secretName"),
            violations,
        );
    }
}

fn validate_rule(
    dialect: &Dialect,
    rule: &Value,
    path: &Path,
    skip_wildcards: bool,
    violations: &mut Violations,
) {
    let name = rule["host"].str();
    if !name.is_empty() {
        refuse_ip(name, &path.child("host"), violations);
        rules::text(name, host, &path.child("host"), violations);
    }
    if !(name.contains('*') && skip_wildcards) {
        validate_http(dialect, &rule["http"], &path.child("http"), violations);
    }
}

fn refuse_ip(name: &str, path: &Path, violations: &mut Violations) {
    if ip::parse_sloppy(name).is_some() {
        violations.invalid(path, name, "must be a DNS name, not an IP address");
    }
}

fn validate_http(dialect: &Dialect, http: &Value, path: &Path, violations: &mut Violations) {
    if http.is_null() {
        return;
    }
    let path = path.child("paths");
    if http["paths"].is_empty() {
        violations.required(path, "");
    }
    for (index, entry) in http["paths"].list().iter().enumerate() {
        validate_path(dialect, entry, &path.index(index), violations);
    }
}

fn validate_path(dialect: &Dialect, entry: &Value, path: &Path, violations: &mut Violations) {
    let Some(path_type) = entry["pathType"].as_str() else {
        return violations.required(path.child("pathType"), "pathType must be specified");
    };
    let (text, place) = (entry["path"].str(), &path.child("path"));
    match path_type {
        "Exact" | "Prefix" => {
            must_be_absolute(text, place, violations);
            must_be_clean(text, place, violations);
        }
        "ImplementationSpecific" if text.is_empty() => {}
        "ImplementationSpecific" => must_be_absolute(text, place, violations),
        other => {
            let allowed = ["Exact", "ImplementationSpecific", "Prefix"];
            violations.not_supported(path.child("pathType"), other, &allowed);
        }
    }
    validate_backend(
        dialect,
        &entry["backend"],
        &path.child("backend"),
        violations,
    );
}

fn must_be_absolute(text: &str, path: &Path, violations: &mut Violations) {
    if !text.starts_with('/') {
        violations.invalid(path, text, "must be an absolute path");
    }
}

fn must_be_clean(text: &str, path: &Path, violations: &mut Violations) {
    for sequence in ["//", "/./", "/../", "%2f", "%2F"] {
        if text.contains(sequence) {
            violations.invalid(path, text, &format!("must not contain '{sequence}'"));
        }
    }
    for suffix in ["/..", "/."] {
        if text.ends_with(suffix) {
            violations.invalid(path, text, &format!("cannot end with '{suffix}'"));
        }
    }
}

fn validate_backend(dialect: &Dialect, backend: &Value, path: &Path, violations: &mut Violations) {
    match (backend.get("resource"), backend.get("service")) {
        (Some(_), Some(_)) => {
            violations.invalid(path, "", "cannot set both resource and service backends")
        }
        (Some(resource), None) => validate_reference(resource, &path.child("resource"), violations),
        (None, Some(service)) => validate_service(dialect, service, path, violations),
        (None, None) => violations.invalid(path, "", "resource or service backend is required"),
    }
}

fn validate_service(dialect: &Dialect, service: &Value, path: &Path, violations: &mut Violations) {
    let place = path.child(dialect.service_name);
    rules::required_text(
        &service["name"],
        names::is_dns1123_label,
        &place,
        violations,
    );
    let (name, number) = (
        service["port"]["name"].str(),
        service["port"]["number"].int(),
    );
    match (name, number) {
        ("", 0) => violations.required(path, "port name or number is required"),
        ("", number) => rules::port(number, &path.child(dialect.port_number), violations),
        (name, 0) => rules::text(
            name,
            names::is_port_name,
            &path.child(dialect.port_name),
            violations,
        ),
        _ => violations.invalid(path, "", "cannot set both port name & port number"),
    }
}

fn validate_reference(reference: &Value, path: &Path, violations: &mut Violations) {
    if let Some(group) = reference["apiGroup"].as_str() {
        rules::text(
            group,
            names::is_dns1123_subdomain,
            &path.child("apiGroup"),
            violations,
        );
    }
    for field in ["kind", "name"] {
        rules::required_text(
            &reference[field],
            names::is_path_segment_name,
            &path.child(field),
            violations,
        );
    }
}

fn validate_status(ingress: &Value, old: Option<&Value>, violations: &mut Violations) {
    let known = |address: &str| {
        let points = old
            .map(|old| old.at("status.loadBalancer.ingress").list())
            .unwrap_or_default();
        points.iter().any(|point| point["ip"].str() == address)
    };
    let path = Path::new("status");
    let path = path.child("loadBalancer");
    let path = path.child("ingress");
    for (index, point) in ingress
        .at("status.loadBalancer.ingress")
        .list()
        .iter()
        .enumerate()
    {
        let path = path.index(index);
        if let Some(address) = point["ip"].as_str().filter(|address| !known(address)) {
            rules::text(
                address,
                ip::is_ip_for_legacy_field,
                &path.child("ip"),
                violations,
            );
        }
        if let Some(hostname) = point["hostname"].as_str() {
            rules::text(
                hostname,
                names::is_dns1123_subdomain,
                &path.child("hostname"),
                violations,
            );
            refuse_ip(hostname, &path.child("hostname"), violations);
        }
    }
}

fn ingress_warnings(ingress: &Value, _old: Option<&Value>, context: &Context) -> Vec<String> {
    match context.action {
        Action::Create => class_warning(ingress).into_iter().collect(),
        Action::Update => Vec::new(),
        Action::Status => address_warnings(ingress),
    }
}

fn class_warning(ingress: &Value) -> Option<String> {
    let annotated = ingress["metadata"]["annotations"]
        .get(CLASS_ANNOTATION)
        .is_some();
    let deprecated = annotated && ingress["spec"]["ingressClassName"].is_null();
    deprecated.then(|| {
        format!("annotation \"{CLASS_ANNOTATION}\" is deprecated, please use 'spec.ingressClassName' instead")
    })
}

fn address_warnings(ingress: &Value) -> Vec<String> {
    let points = ingress
        .at("status.loadBalancer.ingress")
        .list()
        .iter()
        .enumerate();
    points
        .filter_map(|(index, point)| Some((index, point["ip"].as_str()?)))
        .filter_map(|(index, address)| {
            ip::ip_warning(format!("status.loadBalancer.ingress[{index}]"), address)
        })
        .collect()
}

fn default_class(class: &mut Value) {
    if let Some(parameters) = class.at_mut("spec.parameters") {
        parameters.set_default("scope", "Cluster");
    }
}

fn validate_class(
    class: &Value,
    old: Option<&Value>,
    _context: &Context,
    violations: &mut Violations,
) {
    let (spec, path) = (&class["spec"], Path::new("spec"));
    let controller = spec["controller"].str();
    if let Some(old) = old {
        field::immutable_text(
            &spec["controller"],
            &old["spec"]["controller"],
            &path.child("controller"),
            violations,
        );
    }
    if controller.len() > 250 {
        violations.too_long(path.child("controller"), 250);
    }
    names::domain_prefixed_path(controller, &path.child("controller"), violations);
    if let Some(parameters) = spec.get("parameters") {
        validate_reference(parameters, &path.child("parameters"), violations);
        validate_scope(parameters, &path.child("parameters"), violations);
    }
}

fn validate_scope(parameters: &Value, path: &Path, violations: &mut Violations) {
    let (namespace, place) = (parameters["namespace"].as_str(), &path.child("namespace"));
    match (parameters["scope"].as_str(), namespace) {
        (None, _) => violations.required(path.child("scope"), ""),
        (Some("Namespace"), None) => {
            violations.required(place, "`parameters.scope` is set to 'Namespace'")
        }
        (Some("Namespace"), Some(namespace)) => {
            rules::text(namespace, names::is_dns1123_label, place, violations)
        }
        (Some("Cluster"), None) => {}
        (Some("Cluster"), Some(_)) => {
            violations.forbidden(place, "`parameters.scope` is set to 'Cluster'")
        }
        (Some(scope), _) => {
            violations.not_supported(path.child("scope"), scope, &["Cluster", "Namespace"])
        }
    }
}
