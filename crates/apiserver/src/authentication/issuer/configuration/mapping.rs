//! What is made of claims, as a configuration says it, and what is wrong with that.

use std::collections::HashSet;

use mizzen_object::validate::names::domain_prefixed_path;
use mizzen_object::{Path, Violations};
use mizzen_value::{Str, Value};

use super::super::expression::{Expression, Sees};
use super::super::user::{Mapping, Rule, Source};

/// Reads what must hold of claims.
pub(super) fn read_claim_rules(
    rules: &[Value],
    mapping: &mut Mapping,
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
                let rule = rule_of(
                    text,
                    message,
                    Sees::Claims,
                    &mut expressions,
                    &path,
                    violations,
                );
                mapping.claim_rules.extend(rule);
            }
            (_, "") => {
                if !message.is_empty() {
                    let detail = "may not be specified when claim is set";
                    violations.invalid(path.child("message"), message, detail);
                }
                if !claims.insert(claim) {
                    violations.duplicate(path.child("claim"), claim);
                }
                mapping.required.push((claim.into(), wanted.into()));
            }
            _ => violations.invalid(path, claim, "claim and expression can't both be set"),
        }
    }
}

/// Reads what must hold of users.
pub(super) fn user_rules(rules: &[Value], path: &Path, violations: &mut Violations) -> Vec<Rule> {
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
        rule_of(
            &text,
            message,
            Sees::User,
            &mut expressions,
            &path,
            violations,
        )
    };
    rules.iter().enumerate().filter_map(read).collect()
}

fn rule_of(
    text: &str,
    message: &str,
    sees: Sees,
    seen: &mut HashSet<String>,
    path: &Path,
    violations: &mut Violations,
) -> Option<Rule> {
    let path = path.child("expression");
    if !seen.insert(text.to_owned()) {
        violations.duplicate(path, text);
        return None;
    }
    let expression = compile(text, sees, true, &path, violations)?;
    Some(Rule {
        expression,
        message: message.into(),
    })
}

fn compile(
    text: &str,
    sees: Sees,
    is_rule: bool,
    path: &Path,
    violations: &mut Violations,
) -> Option<Expression> {
    let compiled = Expression::compile(text, sees, is_rule);
    compiled
        .map_err(|problem| violations.invalid(path, text, &problem))
        .ok()
}

/// Reads where users are found in claims.
pub(super) fn read_mappings(
    said: &Value,
    mapping: &mut Mapping,
    path: &Path,
    violations: &mut Violations,
) {
    let (username, groups) = (path.child("username"), path.child("groups"));
    mapping.username = prefixed(&said["username"], true, &username, violations);
    mapping.groups = prefixed(&said["groups"], false, &groups, violations);
    let (claim, text) = (said["uid"]["claim"].str(), said["uid"]["expression"].str());
    let place = path.child("uid");
    mapping.uid = match (claim, text) {
        ("", "") => None,
        ("", text) => {
            let compiled = compile(
                text,
                Sees::Claims,
                false,
                &place.child("expression"),
                violations,
            );
            compiled.map(|expression| Source::Expression(Box::new(expression)))
        }
        (claim, "") => Some(Source::Claim {
            claim: claim.into(),
            prefix: Str::default(),
        }),
        _ => {
            violations.invalid(place, "", "claim and expression can't both be set");
            None
        }
    };
    mapping.extra = extra(said["extra"].list(), &path.child("extra"), violations);
    check_email(said, mapping, path, violations);
}

fn prefixed(
    said: &Value,
    is_required: bool,
    path: &Path,
    violations: &mut Violations,
) -> Option<Source> {
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
                Sees::Claims,
                false,
                &path.child("expression"),
                violations,
            );
            let kept = compiled.filter(|_| prefix.is_none());
            kept.map(|expression| Source::Expression(Box::new(expression)))
        }
        (claim, "") => {
            if prefix.is_none() {
                let detail = "prefix is required when claim is set. It can be set to an empty string to disable prefixing";
                violations.required(path.child("prefix"), detail);
            }
            let prefix = prefix.map(Value::str).unwrap_or_default().into();
            Some(Source::Claim {
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

fn extra(said: &[Value], path: &Path, violations: &mut Violations) -> Vec<(Str, Expression)> {
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
        if is_reserved(key) {
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
        let compiled = compile(text, Sees::Claims, false, &place, violations);
        extra.extend(compiled.map(|expression| (Str::from(key), expression)));
    }
    extra
}

fn is_reserved(key: &str) -> bool {
    let domain = key
        .split_once('/')
        .map(|(domain, _)| domain)
        .unwrap_or_default();
    ["kubernetes.io", "k8s.io"].iter().any(|reserved| {
        domain
            .strip_suffix(reserved)
            .is_some_and(|rest| rest.is_empty() || rest.ends_with('.'))
    })
}

/// Who is named by an address must have shown that it is theirs.
fn check_email(said: &Value, mapping: &Mapping, path: &Path, violations: &mut Violations) {
    let Some(Source::Expression(username)) = &mapping.username else {
        return;
    };
    let rules = mapping.claim_rules.iter().map(|rule| &rule.expression);
    let mut others = rules.chain(mapping.extra.iter().map(|(_, expression)| expression));
    let verified = |expression: &Expression| expression.looks_at("email_verified");
    if username.looks_at("email") && !verified(username) && !others.any(verified) {
        violations.invalid(
            path.child("username").child("expression"),
            said["username"]["expression"].str(),
            "claims.email_verified must be used in claimMappings.username.expression or claimMappings.extra[*].valueExpression or claimValidationRules[*].expression when claims.email is used in claimMappings.username.expression",
        );
    }
}
