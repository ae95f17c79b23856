//! Which rules does the server itself apply before an object is stored?

use mizzen_object::validate::{condition, field, names};
use mizzen_object::{Action, Context, Path, Value, Violations};

use super::matching::{self, FAILURE_POLICIES, REINVOCATION_POLICIES};
use crate::Behaviour;
use crate::groups::{internal, rules};

pub(super) const VALIDATING: Behaviour =
    Behaviour { default, validate: validate_validating, ..Behaviour::NONE };
pub(super) const MUTATING: Behaviour = Behaviour { default, validate: validate_mutating, ..Behaviour::NONE };

fn default(policy: &mut Value) {
    let spec = policy.entry("spec");
    spec.set_default("failurePolicy", "Fail");
    if let Some(constraints) = spec.get_mut("matchConstraints") {
        matching::default_resources(constraints);
    }
}

fn validate_validating(policy: &Value, old: Option<&Value>, context: &Context, violations: &mut Violations) {
    if context.action == Action::Status {
        return validate_status(&policy["status"], violations);
    }
    let (spec, path) = (&policy["spec"], Path::new("spec"));
    validate_matching(spec, &path, violations);
    validate_conditions_and_variables(spec, old, &path, violations);
    if spec["validations"].is_empty() && spec["auditAnnotations"].is_empty() {
        for name in ["validations", "auditAnnotations"] {
            let detail = "validations or auditAnnotations must contain at least one item";
            violations.required(path.child(name), detail);
        }
    }
    for (index, validation) in spec["validations"].list().iter().enumerate() {
        validate_validation(validation, &path.child("validations").index(index), violations);
    }
    validate_annotations(policy, &path.child("auditAnnotations"), violations);
}

fn validate_mutating(policy: &Value, old: Option<&Value>, _context: &Context, violations: &mut Violations) {
    let (spec, path) = (&policy["spec"], Path::new("spec"));
    validate_matching(spec, &path, violations);
    matching::validate_mutating_operations(
        &spec["matchConstraints"],
        &path.child("matchConstraints"),
        violations,
    );
    validate_conditions_and_variables(spec, old, &path, violations);
    if spec["mutations"].is_empty() {
        violations.required(path.child("mutations"), "mutations must contain at least one item");
    }
    for (index, mutation) in spec["mutations"].list().iter().enumerate() {
        validate_mutation(mutation, &path.child("mutations").index(index), violations);
    }
    match spec["reinvocationPolicy"].str() {
        "" => violations.required(path.child("reinvocationPolicy"), ""),
        policy => {
            field::one_of(policy, &REINVOCATION_POLICIES, &path.child("reinvocationPolicy"), violations)
        }
    }
}

fn validate_matching(spec: &Value, path: &Path, violations: &mut Violations) {
    match spec["failurePolicy"].as_str() {
        None => violations.required(path.child("failurePolicy"), ""),
        Some(policy) => field::one_of(policy, &FAILURE_POLICIES, &path.child("failurePolicy"), violations),
    }
    if let Some(kind) = spec.get("paramKind") {
        validate_param_kind(kind, &path.child("paramKind"), violations);
    }
    let (constraints, path) = (&spec["matchConstraints"], path.child("matchConstraints"));
    if constraints.is_null() {
        return violations.required(path, "");
    }
    matching::validate_resources(constraints, &path, violations);
    if constraints["resourceRules"].is_empty() {
        violations.required(path.child("resourceRules"), "");
    }
}

fn validate_param_kind(kind: &Value, path: &Path, violations: &mut Violations) {
    let place = path.child("apiVersion");
    match kind["apiVersion"].str() {
        "" => violations.required(place, ""),
        text => validate_api_version(text, &place, violations),
    }
    match kind["kind"].str() {
        "" => violations.required(path.child("kind"), ""),
        name => {
            let wrong = names::is_dns1035_label(&name.to_lowercase());
            if !wrong.is_empty() {
                let detail = format!("may have mixed case, but should otherwise match: {}", wrong.join(","));
                violations.invalid(path.child("kind"), name, &detail);
            }
        }
    }
}

fn validate_api_version(text: &str, path: &Path, violations: &mut Violations) {
    let (group, version) = match text.split('/').collect::<Vec<_>>()[..] {
        [version] => ("", version),
        [group, version] => (group, version),
        _ => return violations.invalid(path, text, &format!("unexpected GroupVersion string: {text}")),
    };
    let wrong = names::is_dns1123_subdomain(group);
    if !group.is_empty() && !wrong.is_empty() {
        violations.invalid(path, group, &wrong.join(","));
    }
    let wrong = names::is_dns1035_label(version);
    if version.is_empty() {
        violations.invalid(path, text, "version must be specified");
    } else if !wrong.is_empty() {
        violations.invalid(path, version, &wrong.join(","));
    }
}

/// Kubernetes: conditions that did not change are not looked at again.
fn validate_conditions_and_variables(
    spec: &Value,
    old: Option<&Value>,
    path: &Path,
    violations: &mut Violations,
) {
    let same = |name: &str| old.is_some_and(|old| old["spec"][name] == spec[name]);
    if !(same("paramKind") && same("matchConditions")) {
        let conditions = spec["matchConditions"].list();
        matching::validate_conditions(conditions, &path.child("matchConditions"), violations);
    }
    for (index, variable) in spec["variables"].list().iter().enumerate() {
        validate_variable(variable, &path.child("variables").index(index), violations);
    }
}

fn validate_variable(variable: &Value, path: &Path, violations: &mut Violations) {
    let name = variable["name"].str();
    if name.trim().is_empty() {
        violations.required(path.child("name"), "name is not specified");
    } else if !is_identifier(name) {
        violations.invalid(path.child("name"), name, "must be a valid CEL identifier");
    }
    if variable["expression"].str().trim().is_empty() {
        violations.required(path.child("expression"), "expression is not specified");
    }
}

const RESERVED: [&str; 21] = [
    "true",
    "false",
    "null",
    "in",
    "as",
    "break",
    "const",
    "continue",
    "else",
    "for",
    "function",
    "if",
    "import",
    "let",
    "loop",
    "package",
    "namespace",
    "return",
    "var",
    "void",
    "while",
];

fn is_identifier(name: &str) -> bool {
    let is_word = name.bytes().all(|byte| byte == b'_' || byte.is_ascii_alphanumeric());
    is_word && !name.starts_with(|char: char| char.is_ascii_digit()) && !RESERVED.contains(&name)
}

fn validate_validation(validation: &Value, path: &Path, violations: &mut Violations) {
    if validation["expression"].str().trim().is_empty() {
        violations.required(path.child("expression"), "expression is not specified");
    }
    for name in ["messageExpression", "message"] {
        let text = validation[name].str();
        if !text.is_empty() && text.trim().is_empty() {
            violations.invalid(path.child(name), text, "must be non-empty if specified");
        } else if name == "message" && text.trim().contains(['\n', '\r']) {
            violations.invalid(path.child(name), text, "must not contain line breaks");
        }
    }
    let reasons = ["Forbidden", "Invalid", "RequestEntityTooLarge"];
    rules::optional_word(&validation["reason"], &reasons, &path.child("reason"), violations);
}

const MAX_ANNOTATIONS: usize = 20;
const MAX_VALUE_EXPRESSION: usize = 5 * 1024;

fn validate_annotations(policy: &Value, path: &Path, violations: &mut Violations) {
    let name = policy["metadata"]["name"].str();
    let annotations = policy["spec"]["auditAnnotations"].list();
    if annotations.len() > MAX_ANNOTATIONS {
        let shown: Vec<Value> =
            annotations.iter().map(|item| internal::shown("AuditAnnotation", item)).collect();
        violations.invalid(
            path,
            shown,
            &format!("must not have more than {MAX_ANNOTATIONS} auditAnnotations"),
        );
    }
    for (index, annotation) in annotations.iter().enumerate() {
        let (key, path) = (annotation["key"].str(), path.index(index));
        if name.is_empty() {
            violations.invalid(path.child("key"), key, "requires metadata.name be non-empty");
        } else {
            rules::text(&format!("{name}/{key}"), names::is_qualified_name, &path.child("key"), violations);
        }
        let (length, place) =
            (annotation["valueExpression"].str().trim().len(), path.child("valueExpression"));
        if length == 0 {
            violations.required(place, "valueExpression is not specified");
        } else if length > MAX_VALUE_EXPRESSION {
            violations.required(place, &format!("must not exceed {MAX_VALUE_EXPRESSION} bytes in length"));
        }
        if annotations[..index].iter().any(|earlier| earlier["key"] == annotation["key"]) {
            violations.duplicate(path.child("key"), key);
        }
    }
}

fn validate_mutation(mutation: &Value, path: &Path, violations: &mut Violations) {
    let (wanted, other) = match mutation["patchType"].str() {
        "JSONPatch" => ("jsonPatch", "applyConfiguration"),
        "ApplyConfiguration" => ("applyConfiguration", "jsonPatch"),
        "" => return violations.required(path.child("patchType"), ""),
        word => {
            let allowed = ["ApplyConfiguration", "JSONPatch"];
            return violations.not_supported(path.child("patchType"), word, &allowed);
        }
    };
    let patch_type = mutation["patchType"].str();
    match mutation.get(wanted) {
        None => {
            let detail = format!("must be specified when patchType is {patch_type}");
            violations.required(path.child(wanted), &detail);
        }
        Some(patch) if patch["expression"].str().trim().is_empty() => {
            violations.required(path.child(wanted).child("expression"), "");
        }
        Some(_) => {}
    }
    if mutation.get(other).is_some() {
        let detail = format!("must not be specified when patchType is {patch_type}");
        violations.invalid(path.child(other), format!("{{{other}}}"), &detail);
    }
}

fn validate_status(status: &Value, violations: &mut Violations) {
    let path = Path::new("status");
    let warnings = path.child("typeChecking");
    let warnings = warnings.child("expressionWarnings");
    for (index, warning) in status.at("typeChecking.expressionWarnings").list().iter().enumerate() {
        let path = warnings.index(index);
        if warning["warning"].is_empty() {
            violations.required(path.child("warning"), "");
        }
        if warning["fieldRef"].str().trim().is_empty() {
            violations.required(path.child("fieldRef"), "");
        }
    }
    condition::conditions(&status["conditions"], &path.child("conditions"), violations);
}
