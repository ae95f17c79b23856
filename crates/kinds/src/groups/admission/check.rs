//! Validation of the expressions of an admission policy.

use mizzen_cel::is_identifier;
use mizzen_object::validate::names;
use mizzen_object::{Path, Violations};
use mizzen_value::Value;

use super::matching;
use mizzen_apiextensions::expression::{ExpressionCompiler, ExpressionResult, ExpressionVariables};
use mizzen_apiextensions::{internal, rules};

/// A policy's expressions, validated in order: later ones use the variables that earlier ones declare.
pub(super) struct Expressions {
    pub compiler: ExpressionCompiler,
    /// Of those that decide.
    pub scope: ExpressionVariables,
}

const MAX_ANNOTATIONS: usize = 20;
const MAX_VALUE_EXPRESSION: usize = 5 * 1024;

impl Expressions {
    pub(super) fn of(spec: &Value) -> Expressions {
        let compiler = if spec["variables"].is_empty() {
            ExpressionCompiler::default()
        } else {
            ExpressionCompiler::composing()
        };
        let params = spec.get("paramKind").is_some();
        Expressions {
            compiler,
            scope: ExpressionVariables {
                params,
                authorizer: true,
                patches: false,
            },
        }
    }

    /// Kubernetes: unchanged match conditions are not validated again.
    pub(super) fn validate_conditions(
        &self,
        spec: &Value,
        old: Option<&Value>,
        path: &Path,
        violations: &mut Violations,
    ) {
        let same = |name: &str| old.is_some_and(|old| old["spec"][name] == spec[name]);
        if !(same("paramKind") && same("matchConditions")) {
            let conditions = spec["matchConditions"].list();
            let path = path.child("matchConditions");
            matching::validate_conditions(conditions, self.scope, &path, violations);
        }
    }

    pub(super) fn validate_variables(
        &mut self,
        spec: &Value,
        path: &Path,
        violations: &mut Violations,
    ) {
        for (index, variable) in spec["variables"].items().enumerate() {
            self.validate_variable(variable, &path.child("variables").index(index), violations);
        }
    }

    fn validate_variable(&mut self, variable: &Value, path: &Path, violations: &mut Violations) {
        let (name, text) = (variable["name"].str(), variable["expression"].str());
        if name.trim().is_empty() {
            violations.required(path.child("name"), "name is not specified");
        } else if !is_identifier(name) {
            violations.invalid(path.child("name"), name, "must be a valid CEL identifier");
        }
        let place = path.child("expression");
        if text.trim().is_empty() {
            violations.required(place, "expression is not specified");
        } else if let Err(refusal) = self.compiler.declare(name, text, self.scope) {
            refusal.tell(text, &place, violations);
        }
    }

    pub(super) fn validate_validation(
        &self,
        validation: &Value,
        path: &Path,
        violations: &mut Violations,
    ) {
        let text = validation["expression"].str();
        if text.trim().is_empty() {
            violations.required(path.child("expression"), "expression is not specified");
        } else {
            self.check(
                text,
                self.scope,
                ExpressionResult::Bool,
                &path.child("expression"),
                violations,
            );
        }
        let (text, place) = (
            validation["messageExpression"].str(),
            path.child("messageExpression"),
        );
        if !text.trim().is_empty() {
            let scope = ExpressionVariables {
                authorizer: false,
                ..self.scope
            };
            self.check(text, scope, ExpressionResult::Text, &place, violations);
        } else if !text.is_empty() {
            violations.invalid(place, text, "must be non-empty if specified");
        }
        let (text, place) = (validation["message"].str(), path.child("message"));
        if !text.is_empty() && text.trim().is_empty() {
            violations.invalid(place, text, "must be non-empty if specified");
        } else if text.trim().contains(['\n', '\r']) {
            violations.invalid(place, text, "must not contain line breaks");
        }
        let reasons = ["Forbidden", "Invalid", "RequestEntityTooLarge"];
        rules::optional_word(
            &validation["reason"],
            &reasons,
            &path.child("reason"),
            violations,
        );
    }

    pub(super) fn validate_annotations(
        &self,
        policy: &Value,
        path: &Path,
        violations: &mut Violations,
    ) {
        let annotations = policy["spec"]["auditAnnotations"].list();
        if annotations.len() > MAX_ANNOTATIONS {
            let shown: Vec<Value> = annotations
                .iter()
                .map(|item| internal::shown("AuditAnnotation", item))
                .collect();
            let detail = format!("must not have more than {MAX_ANNOTATIONS} auditAnnotations");
            violations.invalid(path, shown, &detail);
        }
        for (index, annotation) in annotations.iter().enumerate() {
            let (key, path) = (annotation["key"].str(), path.index(index));
            // An annotation's key follows the policy's name.
            let policy = policy["metadata"]["name"].str();
            match policy {
                "" => violations.invalid(
                    path.child("key"),
                    key,
                    "requires metadata.name be non-empty",
                ),
                name => rules::text(
                    &format!("{name}/{key}"),
                    names::is_qualified_name,
                    &path.child("key"),
                    violations,
                ),
            }
            self.validate_annotation(annotation, &path, violations);
            if annotations[..index]
                .iter()
                .any(|earlier| earlier["key"] == annotation["key"])
            {
                violations.duplicate(path.child("key"), key);
            }
        }
    }

    fn validate_annotation(&self, annotation: &Value, path: &Path, violations: &mut Violations) {
        let (text, place) = (
            annotation["valueExpression"].str(),
            path.child("valueExpression"),
        );
        match text.trim() {
            "" => violations.required(place, "valueExpression is not specified"),
            text if text.len() > MAX_VALUE_EXPRESSION => {
                violations.required(
                    place,
                    &format!("must not exceed {MAX_VALUE_EXPRESSION} bytes in length"),
                );
            }
            trimmed => {
                if let Err(refusal) =
                    self.compiler
                        .compile(trimmed, self.scope, ExpressionResult::TextOrNull)
                {
                    refusal.tell(text, &place, violations);
                }
            }
        }
    }

    pub(super) fn validate_mutation(
        &self,
        mutation: &Value,
        path: &Path,
        violations: &mut Violations,
    ) {
        let (wanted, other, result) = match mutation["patchType"].str() {
            "JSONPatch" => ("jsonPatch", "applyConfiguration", ExpressionResult::Patch),
            "ApplyConfiguration" => ("applyConfiguration", "jsonPatch", ExpressionResult::Object),
            "" => return violations.required(path.child("patchType"), ""),
            word => {
                let allowed = ["ApplyConfiguration", "JSONPatch"];
                return violations.not_supported(path.child("patchType"), word, &allowed);
            }
        };
        let patch_type = mutation["patchType"].str();
        let place = path.child(wanted);
        match mutation
            .get(wanted)
            .map(|patch| patch["expression"].str().trim())
        {
            None => violations.required(
                place,
                &format!("must be specified when patchType is {patch_type}"),
            ),
            Some("") => violations.required(place.child("expression"), ""),
            Some(text) => {
                let scope = ExpressionVariables {
                    patches: true,
                    ..self.scope
                };
                self.check(text, scope, result, &place.child("expression"), violations);
            }
        }
        if mutation.get(other).is_some() {
            let detail = format!("must not be specified when patchType is {patch_type}");
            violations.invalid(path.child(other), format!("{{{other}}}"), &detail);
        }
    }

    fn check(
        &self,
        text: &str,
        scope: ExpressionVariables,
        wanted: ExpressionResult,
        path: &Path,
        violations: &mut Violations,
    ) {
        if let Err(refusal) = self.compiler.compile(text, scope, wanted) {
            refusal.tell(text, path, violations);
        }
    }
}
