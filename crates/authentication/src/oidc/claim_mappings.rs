//! Maps claims to a user, and checks the validation rules of claims and user.

use mizzen_cel as cel;
use mizzen_object::{CREDENTIAL_ID, User};
use mizzen_value::{Str, Value, json};

use super::expression::{ClaimExpression, EvaluationData};

/// The claim mappings and validation rules of an issuer.
#[derive(Debug, Default)]
pub(super) struct ClaimMappings {
    pub username: Option<ClaimSource>,
    pub groups: Option<ClaimSource>,
    pub uid: Option<ClaimSource>,
    /// Keys and their value expressions.
    pub extra: Vec<(Str, ClaimExpression)>,
    /// Claims with a required value.
    pub required: Vec<(Str, Str)>,
    pub claim_rules: Vec<ValidationRule>,
    pub user_rules: Vec<ValidationRule>,
}

/// Where an attribute of the user comes from.
#[derive(Debug)]
pub(super) enum ClaimSource {
    /// A claim, with a prefix.
    Claim {
        claim: Str,
        prefix: Str,
    },
    Expression(Box<ClaimExpression>),
}

/// A validation rule and its message.
#[derive(Debug)]
pub(super) struct ValidationRule {
    pub expression: ClaimExpression,
    pub message: Str,
}

impl ClaimMappings {
    /// The user of verified claims. The error is for logs.
    pub(super) fn map_user(&self, claims: &Value) -> Result<User, String> {
        // Distributed claims are not fetched, so a user with distributed groups is rejected.
        if let Some(ClaimSource::Claim { claim, .. }) = &self.groups
            && claims.get(claim).is_none()
            && claims["_claim_names"].get(claim).is_some()
        {
            return Err("oidc: could not expand distributed claims: they are not supported".into());
        }
        let prepared = EvaluationData::new(claims);
        let user = User {
            name: self.name(claims, &prepared)?,
            groups: self.groups(claims, &prepared)?,
            uid: self.uid(claims, &prepared)?,
            extra: self.extra(claims, &prepared)?,
        };
        for (claim, wanted) in &self.required {
            if claims.get(claim).is_none() {
                return Err(format!(
                    "oidc: required claim {claim} not present in ID token"
                ));
            }
            let found = claim_text(claims, claim)
                .map_err(|why| format!("oidc: parse claim {claim}: {why}"))?;
            if wanted != found {
                return Err(format!(
                    "oidc: required claim {claim} value does not match. Got = {found}, want = {wanted}"
                ));
            }
        }
        check_validation_rules(&self.claim_rules, &prepared).map_err(|problem| {
            format!("oidc: error evaluating claim validation expression: {problem}")
        })?;
        if !self.user_rules.is_empty() {
            check_validation_rules(&self.user_rules, &EvaluationData::from_user(&user)).map_err(
                |problem| format!("oidc: error evaluating user info validation rule: {problem}"),
            )?;
        }
        Ok(user)
    }

    fn name(&self, claims: &Value, prepared: &EvaluationData) -> Result<Str, String> {
        const WHERE: &str = "oidc: error evaluating username claim expression";
        match &self.username {
            Some(ClaimSource::Claim { claim, prefix }) => {
                let name = claim_text(claims, claim).map_err(|why| {
                    format!("oidc: parse username claims {}: {why}", json::quote(claim))
                })?;
                // Kubernetes: `email_verified` may be missing, but not false.
                match claims.get("email_verified").filter(|_| claim == "email") {
                    None | Some(Value::Null) | Some(Value::Bool(true)) => {}
                    Some(Value::Bool(false)) => return Err("oidc: email not verified".into()),
                    Some(other) => {
                        let why = mismatch(other, "bool");
                        return Err(format!("oidc: parse 'email_verified' claim: {why}"));
                    }
                }
                Ok(format!("{prefix}{name}").into())
            }
            Some(ClaimSource::Expression(expression)) => {
                let name = evaluate_text(expression, prepared, "username", WHERE)?;
                match name.is_empty() {
                    true => Err("oidc: empty username via CEL expression is not allowed".into()),
                    false => Ok(name),
                }
            }
            None => Err("oidc: nobody says where the username is".into()),
        }
    }

    fn groups(&self, claims: &Value, prepared: &EvaluationData) -> Result<Vec<Str>, String> {
        match &self.groups {
            Some(ClaimSource::Claim { claim, prefix }) => {
                let Some(found) = claims.get(claim) else {
                    return Ok(Vec::new());
                };
                let groups = claimed_texts(found).map_err(|why| {
                    format!("oidc: parse groups claim {}: {why}", json::quote(claim))
                })?;
                Ok(groups
                    .into_iter()
                    .map(|group| format!("{prefix}{group}").into())
                    .collect())
            }
            Some(ClaimSource::Expression(expression)) => expression
                .evaluate(prepared, string_list)
                .and_then(|texts| texts)
                .map_err(|why| format!("oidc: error evaluating group claim expression: {why}")),
            None => Ok(Vec::new()),
        }
    }

    fn uid(&self, claims: &Value, prepared: &EvaluationData) -> Result<Str, String> {
        const WHERE: &str = "oidc: error evaluating uid claim expression";
        match &self.uid {
            Some(ClaimSource::Claim { claim, .. }) => claim_text(claims, claim)
                .map(Str::from)
                .map_err(|why| format!("oidc: parse uid claim {}: {why}", json::quote(claim))),
            Some(ClaimSource::Expression(expression)) => {
                evaluate_text(expression, prepared, "uid", WHERE)
            }
            None => Ok(Str::default()),
        }
    }

    fn extra(&self, claims: &Value, prepared: &EvaluationData) -> Result<Value, String> {
        let mut extra = Value::object();
        if let Some(id) = claims["jti"].as_str().filter(|id| !id.is_empty()) {
            let id = Value::from(format!("JTI={id}"));
            extra.set(CREDENTIAL_ID, vec![id]);
        }
        for (key, expression) in &self.extra {
            let failed = |why: String| {
                format!(
                    "oidc: error evaluating extra claim expression: {}: {why}",
                    expression.text
                )
            };
            let texts = expression
                .evaluate(prepared, string_list)?
                .map_err(failed)?;
            if !texts.is_empty() {
                extra.set(key, texts.into_iter().map(Value::from).collect::<Vec<_>>());
            }
        }
        Ok(if extra.is_empty() { Value::Null } else { extra })
    }
}

fn check_validation_rules(rules: &[ValidationRule], about: &EvaluationData) -> Result<(), String> {
    for ValidationRule {
        expression,
        message,
    } in rules
    {
        match expression.evaluate(about, |value| value.as_bool())? {
            Some(true) => {}
            Some(false) => {
                return Err(format!(
                    "validation expression '{}' failed: {message}",
                    expression.text
                ));
            }
            None => return Err("validation expression must return a boolean".into()),
        }
    }
    Ok(())
}

impl EvaluationData {
    /// The user as expressions see it.
    fn from_user(user: &User) -> EvaluationData {
        let mut shown = Value::object();
        shown.set("username", &user.name);
        shown.set("uid", &user.uid);
        shown.set(
            "groups",
            user.groups.iter().map(Value::from).collect::<Vec<_>>(),
        );
        let extra = if user.extra.is_null() {
            Value::object()
        } else {
            user.extra.clone()
        };
        shown.set("extra", extra);
        EvaluationData::new(&shown)
    }
}

/// The text of a claim. Kubernetes: `null` is empty, as Go decodes it.
fn claim_text<'a>(claims: &'a Value, claim: &str) -> Result<&'a str, String> {
    match claims.get(claim) {
        None => Err("claim not present".into()),
        Some(Value::Null) => Ok(""),
        Some(found) => found.as_str().ok_or_else(|| mismatch(found, "string")),
    }
}

/// The strings of a claim that is one string or a list.
fn claimed_texts(found: &Value) -> Result<Vec<Str>, String> {
    let read = |item: &Value| match item {
        Value::Null => Some(Str::default()),
        item => item.as_str().map(Str::from),
    };
    match found {
        Value::Null => Ok(Vec::new()),
        Value::List(items) => items
            .iter()
            .map(read)
            .collect::<Option<_>>()
            .ok_or_else(|| mismatch(found, "string")),
        other => other
            .as_str()
            .map(|one| vec![one.into()])
            .ok_or_else(|| mismatch(found, "string")),
    }
}

fn mismatch(found: &Value, wanted: &str) -> String {
    format!(
        "json: cannot unmarshal {} into Go value of type {wanted}",
        found.go_word()
    )
}

fn evaluate_text(
    expression: &ClaimExpression,
    prepared: &EvaluationData,
    what: &str,
    place: &str,
) -> Result<Str, String> {
    let found = expression.evaluate(prepared, |value| value.as_str().map(Str::from));
    let found = found.map_err(|why| format!("{place}: {why}"))?;
    found.ok_or_else(|| format!("{place}: {what} claim expression must return a string"))
}

/// The strings of a value that is a string, a list of strings, or null. Empty ones are dropped.
fn string_list(value: &cel::Value) -> Result<Vec<Str>, String> {
    let refused = || "expression must return a string or a list of strings".to_string();
    let texts: Vec<Str> = match value {
        cel::Value::Null => Vec::new(),
        cel::Value::String(text) => vec![text.to_str()],
        cel::Value::List(list) => {
            let read = |item: cel::Outcome| item.ok()?.as_str().map(Str::from);
            list.iter()
                .map(read)
                .collect::<Option<_>>()
                .ok_or_else(refused)?
        }
        _ => return Err(refused()),
    };
    Ok(texts.into_iter().filter(|text| !text.is_empty()).collect())
}
