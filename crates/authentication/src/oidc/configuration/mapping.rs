//! Decodes and validates claim mappings and validation rules.

use std::collections::HashSet;

use mizzen_object::validate::names::domain_prefixed_path;
use mizzen_object::{Path, Violations};
use mizzen_value::{Str, Value};

use super::super::claim_mappings::{ClaimMappings, ClaimSource, ValidationRule};
use super::super::expression::{ClaimExpression, ExpressionInput};

/// Reads `claimValidationRules`.
pub(super) fn read_claim_rules(
    rules: &[Value],
    mappings: &mut ClaimMappings,
    path: &Path,
    violations: &mut Violations,
) {
    let (mut claims, mut expressions) = (HashSet::new(), HashSet::new());
    for (at, rule) in rules.iter().enumerate() {
        let path = path.index(at);
        let [claim, wanted, text, message] =
            ["claim", "requiredValue", "expression", "message"].map(|field| rule[field].str());
        match (claim, text) {
            ("", "") => violations.required(path, "claim or expression is required"),
            ("", _) => {
                if !wanted.is_empty() {
                    let detail = "may not be specified when expression is set";
                    violations.invalid(path.child("requiredValue"), wanted, detail);
                }
                let rule = (text, message, ExpressionInput::Claims);
                let rule = compile_rule(rule, &mut expressions, &path, violations);
                mappings.claim_rules.extend(rule);
            }
            (_, "") => {
                if !message.is_empty() {
                    let detail = "may not be specified when claim is set";
                    violations.invalid(path.child("message"), message, detail);
                }
                if !claims.insert(claim) {
                    violations.duplicate(path.child("claim"), claim);
                }
                mappings.required.push((claim.into(), wanted.into()));
            }
            _ => violations.invalid(path, claim, "claim and expression can't both be set"),
        }
    }
}

/// Reads `userValidationRules`.
pub(super) fn read_user_rules(
    rules: &[Value],
    path: &Path,
    violations: &mut Violations,
) -> Vec<ValidationRule> {
    let mut expressions = HashSet::new();
    let read = |(at, rule): (usize, &Value)| {
        let (text, message, path) = (
            rule["expression"].str(),
            rule["message"].str(),
            path.index(at),
        );
        if text.is_empty() {
            violations.required(path.child("expression"), "");
            return None;
        }
        let text = text.to_owned();
        let rule = (text.as_str(), message, ExpressionInput::User);
        compile_rule(rule, &mut expressions, &path, violations)
    };
    rules.iter().enumerate().filter_map(read).collect()
}

/// Compiles a rule of an expression, a message and an input; none if it is invalid or a duplicate.
fn compile_rule(
    (text, message, input): (&str, &str, ExpressionInput),
    seen: &mut HashSet<String>,
    path: &Path,
    violations: &mut Violations,
) -> Option<ValidationRule> {
    let path = path.child("expression");
    if !seen.insert(text.to_owned()) {
        violations.duplicate(path, text);
        return None;
    }
    let expression = compile(text, input, true, &path, violations)?;
    Some(ValidationRule {
        expression,
        message: message.into(),
    })
}

fn compile(
    text: &str,
    sees: ExpressionInput,
    is_rule: bool,
    path: &Path,
    violations: &mut Violations,
) -> Option<ClaimExpression> {
    let compiled = ClaimExpression::compile(text, sees, is_rule);
    compiled
        .map_err(|problem| violations.invalid(path, text, &problem))
        .ok()
}

/// Reads `claimMappings`.
pub(super) fn read_mappings(
    said: &Value,
    mappings: &mut ClaimMappings,
    path: &Path,
    violations: &mut Violations,
) {
    let (username, groups) = (path.child("username"), path.child("groups"));
    mappings.username = read_prefixed_claim(&said["username"], true, &username, violations);
    mappings.groups = read_prefixed_claim(&said["groups"], false, &groups, violations);
    let (claim, text) = (said["uid"]["claim"].str(), said["uid"]["expression"].str());
    let place = path.child("uid");
    mappings.uid = match (claim, text) {
        ("", "") => None,
        ("", text) => {
            let compiled = compile(
                text,
                ExpressionInput::Claims,
                false,
                &place.child("expression"),
                violations,
            );
            compiled.map(|expression| ClaimSource::Expression(Box::new(expression)))
        }
        (claim, "") => Some(ClaimSource::Claim {
            claim: claim.into(),
            prefix: Str::default(),
        }),
        _ => {
            violations.invalid(place, "", "claim and expression can't both be set");
            None
        }
    };
    mappings.extra = read_extra(said["extra"].list(), &path.child("extra"), violations);
    mappings.check_email(said, path, violations);
}

fn read_prefixed_claim(
    said: &Value,
    is_required: bool,
    path: &Path,
    violations: &mut Violations,
) -> Option<ClaimSource> {
    let (claim, text, prefix) = (
        said["claim"].str(),
        said["expression"].str(),
        said.get("prefix"),
    );
    match (claim, text) {
        ("", "") => {
            if is_required {
                violations.required(path, "claim or expression is required");
            }
            None
        }
        ("", text) => {
            if let Some(prefix) = prefix {
                let detail = "may not be specified when expression is set";
                violations.invalid(path.child("prefix"), prefix.clone(), detail);
            }
            let compiled = compile(
                text,
                ExpressionInput::Claims,
                false,
                &path.child("expression"),
                violations,
            );
            let kept = compiled.filter(|_| prefix.is_none());
            kept.map(|expression| ClaimSource::Expression(Box::new(expression)))
        }
        (claim, "") => {
            if prefix.is_none() {
                let detail = "prefix is required when claim is set. It can be set to an empty string to disable prefixing";
                violations.required(path.child("prefix"), detail);
            }
            let prefix = prefix.map(Value::str).unwrap_or_default().into();
            Some(ClaimSource::Claim {
                claim: claim.into(),
                prefix,
            })
        }
        _ => {
            violations.invalid(path, "", "claim and expression can't both be set");
            None
        }
    }
}

fn read_extra(
    said: &[Value],
    path: &Path,
    violations: &mut Violations,
) -> Vec<(Str, ClaimExpression)> {
    let (mut seen, mut extra) = (HashSet::new(), Vec::new());
    for (at, mapping) in said.iter().enumerate() {
        let (path, key, text) = (
            path.index(at),
            mapping["key"].str(),
            mapping["valueExpression"].str(),
        );
        let place = path.child("key");
        domain_prefixed_path(key, &place, violations);
        if key != key.to_lowercase() {
            violations.invalid(place, key, "must be lowercase");
        }
        let domain = key.split_once('/').map_or("", |(domain, _)| domain);
        let is_reserved = ["kubernetes.io", "k8s.io"].iter().any(|reserved| {
            domain
                .strip_suffix(reserved)
                .is_some_and(|rest| rest.is_empty() || rest.ends_with('.'))
        });
        if is_reserved {
            let detail =
                "k8s.io, kubernetes.io and their subdomains are reserved for Kubernetes use";
            violations.invalid(place, key, detail);
        }
        if !seen.insert(key) {
            violations.duplicate(place, key);
            continue;
        }
        let place = path.child("valueExpression");
        if text.is_empty() {
            violations.required(place, "");
            continue;
        }
        let compiled = compile(text, ExpressionInput::Claims, false, &place, violations);
        extra.extend(compiled.map(|expression| (Str::from(key), expression)));
    }
    extra
}

impl ClaimMappings {
    /// A user name from `claims.email` requires that `email_verified` is checked.
    fn check_email(&self, said: &Value, path: &Path, violations: &mut Violations) {
        let Some(ClaimSource::Expression(username)) = &self.username else {
            return;
        };
        let rules = self.claim_rules.iter().map(|rule| &rule.expression);
        let mut others = rules.chain(self.extra.iter().map(|(_, expression)| expression));
        let verified = |expression: &ClaimExpression| expression.uses_claim("email_verified");
        if username.uses_claim("email") && !verified(username) && !others.any(verified) {
            violations.invalid(
                path.child("username").child("expression"),
                said["username"]["expression"].str(),
                "claims.email_verified must be used in claimMappings.username.expression or claimMappings.extra[*].valueExpression or claimValidationRules[*].expression when claims.email is used in claimMappings.username.expression",
            );
        }
    }
}
