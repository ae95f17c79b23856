//! Does a configuration make sense? All that does not is told, and otherwise an [`Authorization`] is made of it.

use std::collections::HashSet;
use std::path::Path as File;
use std::sync::Arc;
use std::time::Duration;
use std::{fs, io};

use mizzen_object::validate::names;
use mizzen_object::{Path, Violations};
use mizzen_value::{Value, json, time};

use super::{
    Authorization, AuthorizationConfigurationError, AuthorizerConfiguration, AuthorizerType, MODES,
};
use crate::authorization::webhook::{
    FailurePolicy, MatchConditions, SubjectAccessReviewVersion, WebhookSettings,
};
use crate::delegate::kubeconfig::WebhookKubeconfig;

/// The longest time that a webhook may take.
const MAX_TIMEOUT: i64 = 30_000_000_000;
/// How long answers are kept if nobody says.
const AUTHORIZED: i64 = 300_000_000_000;
const UNAUTHORIZED: i64 = 30_000_000_000;

pub(super) fn validate_configuration(
    document: &Value,
) -> Result<Authorization, AuthorizationConfigurationError> {
    let mut violations = Violations::default();
    let entries = document["authorizers"].list();
    let path = Path::new("authorizers");
    if entries.is_empty() {
        violations.required(path, "at least one authorization mode must be defined");
    }
    let mut seen = SeenAuthorizers::default();
    let read = entries.iter().enumerate();
    let read: Vec<Option<ValidatedAuthorizer>> = read
        .map(|(index, value)| {
            validate_authorizer(value, &path.index(index), &mut seen, &mut violations)
        })
        .collect();
    if let Some(why) = violations.in_one() {
        return Err(AuthorizationConfigurationError(why));
    }
    let drafts: Vec<ValidatedAuthorizer> = read.into_iter().flatten().collect();
    check_names(&drafts)?;
    drafts
        .into_iter()
        .map(ValidatedAuthorizer::load)
        .collect::<Result<_, _>>()
        .map(Authorization)
}

/// An entry that makes sense by itself.
struct ValidatedAuthorizer<'a> {
    word: &'a str,
    name: &'a str,
    webhook: Option<ValidatedWebhook<'a>>,
}

struct ValidatedWebhook<'a> {
    settings: &'a Value,
    conditions: MatchConditions,
}

/// What other entries have said before.
#[derive(Default)]
struct SeenAuthorizers<'a> {
    words: HashSet<&'a str>,
    names: HashSet<&'a str>,
}

fn validate_authorizer<'a>(
    value: &'a Value,
    path: &Path,
    seen: &mut SeenAuthorizers<'a>,
    violations: &mut Violations,
) -> Option<ValidatedAuthorizer<'a>> {
    let (word, name) = (value["type"].str(), value["name"].str());
    if word.is_empty() {
        violations.required(path.child("type"), "");
        return None;
    }
    if !MODES.contains(&word) {
        violations.not_supported(path.child("type"), word, &MODES);
        return None;
    }
    if !seen.words.insert(word) && word != "Webhook" {
        violations.duplicate(path.child("type"), word);
        return None;
    }
    check_name(name, path, seen, violations);
    let webhook = value.get("webhook");
    match (word, webhook) {
        ("Webhook", None) => {
            violations.required(path.child("webhook"), "required when type=Webhook");
            None
        }
        ("Webhook", Some(settings)) => {
            let conditions = check_webhook(settings, path, violations);
            Some(ValidatedAuthorizer {
                word,
                name,
                webhook: Some(ValidatedWebhook {
                    settings,
                    conditions,
                }),
            })
        }
        (_, Some(_)) => {
            violations.invalid(
                path.child("webhook"),
                "non-null",
                "may only be specified when type=Webhook",
            );
            None
        }
        _ => Some(ValidatedAuthorizer {
            word,
            name,
            webhook: None,
        }),
    }
}

fn check_name<'a>(
    name: &'a str,
    path: &Path,
    seen: &mut SeenAuthorizers<'a>,
    violations: &mut Violations,
) {
    let problems = names::is_dns1123_subdomain(name);
    if name.is_empty() {
        violations.required(path.child("name"), "");
    } else if seen.names.contains(name) {
        violations.duplicate(path.child("name"), name);
    } else if !problems.is_empty() {
        let detail = format!("authorizer name is invalid: {}", problems.join(", "));
        violations.invalid(path.child("name"), name, &detail);
    }
    seen.names.insert(name);
}

/// Kubernetes: paths do not say that the fields are those of `webhook` (apis/apiserver/validation/validation.go).
fn check_webhook(webhook: &Value, path: &Path, violations: &mut Violations) -> MatchConditions {
    check_duration(
        webhook,
        "timeout",
        0,
        MAX_TIMEOUT,
        "must be > 0s and <= 30s",
        path,
        violations,
    );
    check_duration(
        webhook,
        "authorizedTTL",
        AUTHORIZED,
        i64::MAX,
        "must be > 0s",
        path,
        violations,
    );
    check_duration(
        webhook,
        "unauthorizedTTL",
        UNAUTHORIZED,
        i64::MAX,
        "must be > 0s",
        path,
        violations,
    );
    check_enum(
        webhook,
        "subjectAccessReviewVersion",
        &["v1", "v1beta1"],
        path,
        violations,
    );
    check_condition_version(webhook, path, violations);
    check_enum(
        webhook,
        "failurePolicy",
        &["NoOpinion", "Deny"],
        path,
        violations,
    );
    check_connection(
        &webhook["connectionInfo"],
        &path.child("connectionInfo"),
        violations,
    );
    let expressions = webhook["matchConditions"]
        .list()
        .iter()
        .map(|condition| condition["expression"].str());
    MatchConditions::compile(
        &expressions.collect::<Vec<_>>(),
        &path.child("matchConditions"),
        violations,
    )
}

/// The nanoseconds of a span; `unsaid` if it is not there or nothing.
fn duration_field(webhook: &Value, name: &str, unsaid: i64) -> i64 {
    let said = webhook[name]
        .as_str()
        .and_then(|text| time::duration_nanos(text).ok());
    said.filter(|nanos| *nanos != 0).unwrap_or(unsaid)
}

fn check_duration(
    webhook: &Value,
    name: &str,
    unsaid: i64,
    max: i64,
    detail: &str,
    path: &Path,
    violations: &mut Violations,
) {
    match duration_field(webhook, name, unsaid) {
        0 => violations.required(path.child(name), ""),
        nanos if nanos < 0 || nanos > max => {
            violations.invalid(path.child(name), time::duration_text(nanos), detail);
        }
        _ => {}
    }
}

fn check_enum(
    webhook: &Value,
    name: &str,
    known: &[&str],
    path: &Path,
    violations: &mut Violations,
) {
    match webhook[name].str() {
        "" => violations.required(path.child(name), ""),
        word if known.contains(&word) => {}
        word => violations.not_supported(path.child(name), word, known),
    }
}

fn check_condition_version(webhook: &Value, path: &Path, violations: &mut Violations) {
    let name = "matchConditionSubjectAccessReviewVersion";
    match webhook[name].str() {
        "" if webhook["matchConditions"].list().is_empty() => {}
        "" => violations.required(
            path.child(name),
            "required if match conditions are specified",
        ),
        _ => check_enum(webhook, name, &["v1"], path, violations),
    }
}

fn check_connection(connection: &Value, path: &Path, violations: &mut Violations) {
    let file = &connection["kubeConfigFile"];
    let path_of_file = path.child("kubeConfigFile");
    match connection["type"].str() {
        "" => violations.required(path.child("type"), ""),
        "InClusterConfig" => match file.as_str() {
            Some(file) => violations.invalid(
                path_of_file,
                file,
                "can only be set when type=KubeConfigFile",
            ),
            // Kubernetes: this is for other servers, which ask this one; upstream stumbles over it.
            None => violations.invalid(
                path.child("type"),
                "InClusterConfig",
                "not allowed for kube-apiserver",
            ),
        },
        "KubeConfigFile" if file.str().is_empty() => violations.required(path_of_file, ""),
        "KubeConfigFile" => {
            if let Some(problem) = file_problem(file.str()) {
                violations.invalid(path_of_file, file.str(), &problem);
            }
        }
        word => {
            let mut shown = Value::object();
            shown.set("Type", word);
            shown.set("KubeConfigFile", file.clone());
            violations.not_supported(
                path.child("type"),
                shown,
                &["InClusterConfig", "KubeConfigFile"],
            );
        }
    }
}

fn file_problem(file: &str) -> Option<String> {
    if !File::new(file).is_absolute() {
        return Some("must be an absolute path".into());
    }
    match fs::metadata(file) {
        Err(error) => {
            let why = match error.kind() {
                io::ErrorKind::NotFound => "no such file or directory".to_owned(),
                io::ErrorKind::PermissionDenied => "permission denied".to_owned(),
                _ => error.to_string(),
            };
            Some(format!("error loading file: stat {file}: {why}"))
        }
        Ok(found) if !found.is_file() => Some("must be a regular file".into()),
        Ok(_) => None,
    }
}

/// Who needs no name of their own has the usual one.
fn check_names(drafts: &[ValidatedAuthorizer]) -> Result<(), AuthorizationConfigurationError> {
    let plain = drafts.iter().filter(|draft| draft.webhook.is_none());
    let wrong = plain.filter_map(|ValidatedAuthorizer { word, name, .. }| {
        let usual = word.to_ascii_lowercase();
        let problem = || format!("expected name {usual} for authorizer {word} instead of {name}");
        (usual != *name).then(problem)
    });
    AuthorizationConfigurationError::from_problems(wrong.collect()).map_or(Ok(()), Err)
}

impl ValidatedAuthorizer<'_> {
    fn load(self) -> Result<AuthorizerConfiguration, AuthorizationConfigurationError> {
        let ValidatedAuthorizer {
            word,
            name,
            webhook,
        } = self;
        let mode = match webhook {
            Some(webhook) => AuthorizerType::Webhook(Arc::new(webhook.load()?)),
            None => AuthorizerType::named(word)?.ok_or_else(|| {
                AuthorizationConfigurationError(format!(
                    "unknown authorization mode {} specified",
                    json::quote(word)
                ))
            })?,
        };
        Ok(AuthorizerConfiguration {
            name: name.into(),
            kind: mode,
        })
    }
}

impl ValidatedWebhook<'_> {
    fn load(self) -> Result<WebhookSettings, AuthorizationConfigurationError> {
        let ValidatedWebhook {
            settings,
            conditions,
        } = self;
        let file = settings["connectionInfo"]["kubeConfigFile"].str();
        let remote = WebhookKubeconfig::load(file.as_ref())
            .map_err(|error| AuthorizationConfigurationError(error.to_string()))?;
        let kept = |name: &str, cached: &str, unsaid: i64| match settings[cached].as_bool() {
            Some(false) => Duration::ZERO,
            _ => nanos(duration_field(settings, name, unsaid)),
        };
        Ok(WebhookSettings {
            timeout: nanos(duration_field(settings, "timeout", 0)),
            authorized_ttl: kept("authorizedTTL", "cacheAuthorizedRequests", AUTHORIZED),
            unauthorized_ttl: kept("unauthorizedTTL", "cacheUnauthorizedRequests", UNAUTHORIZED),
            version: SubjectAccessReviewVersion::named(
                settings["subjectAccessReviewVersion"].str(),
            )
            .unwrap_or_default(),
            failure_policy: match settings["failurePolicy"].str() {
                "Deny" => FailurePolicy::Deny,
                _ => FailurePolicy::NoOpinion,
            },
            remote,
            match_conditions: conditions,
        })
    }
}

fn nanos(nanos: i64) -> Duration {
    Duration::from_nanos(u64::try_from(nanos).unwrap_or_default())
}
