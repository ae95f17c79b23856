//! Ingresses and IngressClasses.

use mizzen_object::validate::{field, ip, names};
use mizzen_object::{Action, HookContext, Path, Violations};
use mizzen_value::Value;

use crate::Behaviour;
use mizzen_apiextensions::KindStrategy;
use mizzen_apiextensions::rules;

pub(super) const INGRESS: Behaviour = Behaviour::of::<IngressStrategy>();
pub(super) const CLASS: Behaviour = Behaviour::of::<IngressClassStrategy>();

pub(super) struct IngressStrategy;

impl KindStrategy for IngressStrategy {
    fn validate(
        ingress: &Value,
        old: Option<&Value>,
        context: &HookContext,
        violations: &mut Violations,
    ) {
        validate_in(&V1, ingress, old, context, violations);
    }

    fn warnings(ingress: &Value, _: Option<&Value>, context: &HookContext) -> Vec<String> {
        match context.action {
            Action::Create => {
                let annotated = ingress["metadata"]["annotations"]
                    .get(CLASS_ANNOTATION)
                    .is_some();
                let deprecated = annotated && ingress["spec"]["ingressClassName"].is_null();
                Vec::from_iter(deprecated.then(|| {
        format!("annotation \"{CLASS_ANNOTATION}\" is deprecated, please use 'spec.ingressClassName' instead")
    }))
            }
            Action::Update => Vec::new(),
            Action::Status => {
                let points = ingress
                    .at("status.loadBalancer.ingress")
                    .items()
                    .enumerate();
                points
                    .filter_map(|(index, point)| Some((index, point["ip"].as_str()?)))
                    .filter_map(|(index, address)| {
                        ip::ip_warning(format!("status.loadBalancer.ingress[{index}]"), address)
                    })
                    .collect()
            }
        }
    }
}

pub(super) struct IngressClassStrategy;

impl KindStrategy for IngressClassStrategy {
    fn default(class: &mut Value) {
        if let Some(parameters) = class.at_mut("spec.parameters") {
            parameters.set_default("scope", "Cluster");
        }
    }

    fn validate(class: &Value, old: Option<&Value>, _: &HookContext, violations: &mut Violations) {
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
            let path = path.child("parameters");
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
    }
}

const CLASS_ANNOTATION: &str = "kubernetes.io/ingress.class";

/// How a version calls its fields, and what it forgives.
pub(super) struct IngressDialect {
    pub default_backend: &'static str,
    pub service_name: &'static str,
    pub port_name: &'static str,
    pub port_number: &'static str,
    /// Rules for wildcard hosts and secret names are not validated.
    pub lenient: bool,
}

const V1: IngressDialect = IngressDialect {
    default_backend: "defaultBackend",
    service_name: "service.name",
    port_name: "service.port.name",
    port_number: "service.port.number",
    lenient: false,
};

/// Checks a stored Ingress in the words of the version in which it was sent.
pub(super) fn validate_in(
    dialect: &IngressDialect,
    ingress: &Value,
    old: Option<&Value>,
    context: &HookContext,
    violations: &mut Violations,
) {
    if context.action == Action::Status {
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
            .items()
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
        return;
    }
    validate_spec(
        dialect,
        &ingress["spec"],
        old.map(|old| &old["spec"]),
        violations,
    );
    if context.action == Action::Create {
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
}

fn validate_spec(
    dialect: &IngressDialect,
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
    let skip_wildcards = dialect.lenient
        || old.is_some_and(|spec| {
            // Kubernetes: an update may keep what older versions accepted, so the old object is validated first.
            spec["rules"]
                .items()
                .filter(|rule| rule["host"].str().contains('*'))
                .any(|rule| {
                    let mut violations = Violations::default();
                    validate_http(&V1, &rule["http"], &Path::new(""), &mut violations);
                    !violations.is_empty()
                })
        });
    for (index, rule) in spec["rules"].items().enumerate() {
        let path = path.child("rules");
        let path = path.index(index);
        let name = rule["host"].str();
        if !name.is_empty() {
            refuse_ip(name, &path.child("host"), violations);
            rules::text(name, host, &path.child("host"), violations);
        }
        if !(name.contains('*') && skip_wildcards) {
            validate_http(dialect, &rule["http"], &path.child("http"), violations);
        }
    }
    let skip_secrets = dialect.lenient
        || old.is_some_and(|spec| {
            spec["tls"]
                .items()
                .any(|tls| !secret_name(tls["secretName"].str()).is_empty())
        });
    for (index, tls) in spec["tls"].items().enumerate() {
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
    for (index, name) in tls["hosts"].items().enumerate() {
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

fn refuse_ip(name: &str, path: &Path, violations: &mut Violations) {
    if ip::parse_sloppy(name).is_some() {
        violations.invalid(path, name, "must be a DNS name, not an IP address");
    }
}

fn validate_http(dialect: &IngressDialect, http: &Value, path: &Path, violations: &mut Violations) {
    if http.is_null() {
        return;
    }
    let path = path.child("paths");
    if http["paths"].is_empty() {
        violations.required(path, "");
    }
    for (index, entry) in http["paths"].items().enumerate() {
        let path = path.index(index);
        let Some(path_type) = entry["pathType"].as_str() else {
            violations.required(path.child("pathType"), "pathType must be specified");
            continue;
        };
        let (text, place) = (entry["path"].str(), &path.child("path"));
        match path_type {
            "Exact" | "Prefix" => {
                must_be_absolute(text, place, violations);
                for sequence in ["//", "/./", "/../", "%2f", "%2F"] {
                    if text.contains(sequence) {
                        violations.invalid(place, text, &format!("must not contain '{sequence}'"));
                    }
                }
                for suffix in ["/..", "/."] {
                    if text.ends_with(suffix) {
                        violations.invalid(place, text, &format!("cannot end with '{suffix}'"));
                    }
                }
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
}

fn must_be_absolute(text: &str, path: &Path, violations: &mut Violations) {
    if !text.starts_with('/') {
        violations.invalid(path, text, "must be an absolute path");
    }
}

fn validate_backend(
    dialect: &IngressDialect,
    backend: &Value,
    path: &Path,
    violations: &mut Violations,
) {
    match (backend.get("resource"), backend.get("service")) {
        (Some(_), Some(_)) => {
            violations.invalid(path, "", "cannot set both resource and service backends")
        }
        (Some(resource), None) => validate_reference(resource, &path.child("resource"), violations),
        (None, Some(service)) => {
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
        (None, None) => violations.invalid(path, "", "resource or service backend is required"),
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
