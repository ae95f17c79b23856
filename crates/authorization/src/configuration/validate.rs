//! Validates an AuthorizationConfiguration and builds an [`Authorization`] of it.

use std::collections::HashSet;
use std::path::Path as File;
use std::sync::Arc;
use std::time::Duration;
use std::{fs, io};

use mizzen_object::validate::names;
use mizzen_object::{Path, Violations};
use mizzen_outgoing::WebhookKubeconfig;
use mizzen_value::{Value, json, time};

use super::{
    Authorization, AuthorizationConfigurationError, AuthorizerConfiguration, AuthorizerType, MODES,
};
use crate::webhook::{FailurePolicy, MatchConditions, SubjectAccessReviewVersion, WebhookSettings};

/// The maximum time-out of a webhook.
const MAX_TIMEOUT: i64 = 30_000_000_000;
/// The default cache durations.
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
            ValidatedAuthorizer::new(value, &path.index(index), &mut seen, &mut violations)
        })
        .collect();
    if let Some(why) = violations.aggregate() {
        return Err(AuthorizationConfigurationError(why));
    }
    let authorizers: Vec<ValidatedAuthorizer> = read.into_iter().flatten().collect();
    let wrong_names = authorizers.iter().filter(|it| it.webhook.is_none());
    let wrong_names = wrong_names.filter_map(|ValidatedAuthorizer { word, name, .. }| {
        let default = word.to_ascii_lowercase();
        let problem = || format!("expected name {default} for authorizer {word} instead of {name}");
        (default != *name).then(problem)
    });
    if let Some(error) = AuthorizationConfigurationError::from_problems(wrong_names.collect()) {
        return Err(error);
    }
    authorizers
        .into_iter()
        .map(ValidatedAuthorizer::load)
        .collect::<Result<_, _>>()
        .map(Authorization)
}

/// A valid authorizer, before its files are loaded.
struct ValidatedAuthorizer<'a> {
    word: &'a str,
    name: &'a str,
    webhook: Option<ValidatedWebhook<'a>>,
}

struct ValidatedWebhook<'a> {
    settings: &'a Value,
    conditions: MatchConditions,
}

/// The types and names of earlier authorizers.
#[derive(Default)]
struct SeenAuthorizers<'a> {
    words: HashSet<&'a str>,
    names: HashSet<&'a str>,
}

impl<'a> SeenAuthorizers<'a> {
    fn check_name(&mut self, name: &'a str, path: &Path, violations: &mut Violations) {
        let problems = names::is_dns1123_subdomain(name);
        if name.is_empty() {
            violations.required(path.child("name"), "");
        } else if self.names.contains(name) {
            violations.duplicate(path.child("name"), name);
        } else if !problems.is_empty() {
            let detail = format!("authorizer name is invalid: {}", problems.join(", "));
            violations.invalid(path.child("name"), name, &detail);
        }
        self.names.insert(name);
    }
}

impl<'a> ValidatedAuthorizer<'a> {
    /// None if the authorizer is invalid.
    fn new(
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
        seen.check_name(name, path, violations);
        let webhook = match (word, value.get("webhook")) {
            ("Webhook", None) => {
                violations.required(path.child("webhook"), "required when type=Webhook");
                return None;
            }
            ("Webhook", Some(settings)) => Some(ValidatedWebhook::new(settings, path, violations)),
            (_, Some(_)) => {
                violations.invalid(
                    path.child("webhook"),
                    "non-null",
                    "may only be specified when type=Webhook",
                );
                return None;
            }
            _ => None,
        };
        Some(ValidatedAuthorizer {
            word,
            name,
            webhook,
        })
    }
}

impl<'a> ValidatedWebhook<'a> {
    /// Kubernetes: paths of webhook fields do not contain `webhook`
    /// (apis/apiserver/validation/validation.go).
    fn new(settings: &'a Value, path: &Path, violations: &mut Violations) -> ValidatedWebhook<'a> {
        let durations = [
            ("timeout", 0, MAX_TIMEOUT, "must be > 0s and <= 30s"),
            ("authorizedTTL", AUTHORIZED, i64::MAX, "must be > 0s"),
            ("unauthorizedTTL", UNAUTHORIZED, i64::MAX, "must be > 0s"),
        ];
        for (name, default, max, detail) in durations {
            match duration_field(settings, name, default) {
                0 => violations.required(path.child(name), ""),
                nanos if nanos < 0 || nanos > max => {
                    violations.invalid(path.child(name), time::duration_text(nanos), detail);
                }
                _ => {}
            }
        }
        let versions = ["v1", "v1beta1"];
        check_enum(
            settings,
            "subjectAccessReviewVersion",
            &versions,
            path,
            violations,
        );
        let name = "matchConditionSubjectAccessReviewVersion";
        match settings[name].str() {
            "" if settings["matchConditions"].list().is_empty() => {}
            "" => violations.required(
                path.child(name),
                "required if match conditions are specified",
            ),
            _ => check_enum(settings, name, &["v1"], path, violations),
        }
        check_enum(
            settings,
            "failurePolicy",
            &["NoOpinion", "Deny"],
            path,
            violations,
        );
        check_connection(
            &settings["connectionInfo"],
            &path.child("connectionInfo"),
            violations,
        );
        let expressions = settings["matchConditions"].list().iter();
        let expressions: Vec<&str> = expressions.map(|it| it["expression"].str()).collect();
        let conditions =
            MatchConditions::compile(&expressions, &path.child("matchConditions"), violations);
        ValidatedWebhook {
            settings,
            conditions,
        }
    }
}

/// The nanoseconds of a duration; `default` if it is missing or zero.
fn duration_field(webhook: &Value, name: &str, default: i64) -> i64 {
    let said = webhook[name]
        .as_str()
        .and_then(|text| time::duration_nanos(text).ok());
    said.filter(|nanos| *nanos != 0).unwrap_or(default)
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
            // Kubernetes: meant for other servers that ask this one; upstream rejects it less
            // clearly.
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
