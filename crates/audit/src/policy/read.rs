//! Decodes and validates an audit policy. Errors read as upstream's.

use mizzen_object::config_file::{self, ConfigFileError, ConfigScheme};
use mizzen_object::validate::names;
use mizzen_object::{Path, Violations, schema};
use mizzen_value::{Str, Value};

use super::rule::{AuditRule, GroupResources};
use super::{AuditLevel, AuditPolicy, AuditStage, PolicyDecision, Stages};

/// Why a policy is invalid.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct PolicyError(String);

impl AuditPolicy {
    /// Decodes and validates a policy. Kubernetes: what a strict decoder rejects is ignored with a
    /// warning (audit/policy/reader.go).
    pub fn read(text: &[u8]) -> Result<AuditPolicy, PolicyError> {
        let file = ("policy.kinds", include_str!("policy.kinds"));
        let scheme = ConfigScheme {
            name: "pkg/audit/scheme.go:30",
            kinds: &[("audit.k8s.io/v1", "Policy")],
            types: &schema::parse([file]).expect("policy.kinds is valid"),
        };
        let decoded = scheme.decode_leniently(text).map_err(|error| {
            PolicyError(match error {
                // Kubernetes: without a version it is of the internal one.
                ConfigFileError::Missing { .. } => {
                    "unknown group version field audit.k8s.io/__internal, Kind=Policy in policy"
                        .into()
                }
                error => format!("failed decoding: {error}"),
            })
        })?;
        if let Err(error) = config_file::strict(decoded.complaints) {
            tracing::warn!(%error, "the audit policy contains errors, falling back to lenient decoding");
        }
        let document = &decoded.value;
        if let Some(problem) = validate(document).aggregate() {
            return Err(PolicyError(problem));
        }
        if document["rules"].list().is_empty() {
            return Err(PolicyError("loaded illegal policy with 0 rules".into()));
        }
        Ok(AuditPolicy {
            rules: document["rules"]
                .list()
                .iter()
                .map(|rule| AuditRule::from_value(document, rule))
                .collect(),
        })
    }
}

impl AuditRule {
    fn from_value(policy: &Value, rule: &Value) -> AuditRule {
        let level = parse_level(rule["level"].str()).unwrap_or(AuditLevel::None);
        let omits = rule["omitManagedFields"]
            .as_bool()
            .unwrap_or(policy["omitManagedFields"].bool());
        let omitted = parse_stages(&policy["omitStages"]).union(parse_stages(&rule["omitStages"]));
        AuditRule {
            decision: PolicyDecision {
                level,
                omitted,
                omits_managed_fields: omits,
            },
            users: string_list(&rule["users"]),
            groups: string_list(&rule["userGroups"]),
            verbs: string_list(&rule["verbs"]),
            resources: rule["resources"]
                .list()
                .iter()
                .map(|resources| GroupResources {
                    group: resources["group"].str().into(),
                    resources: string_list(&resources["resources"]),
                    names: string_list(&resources["resourceNames"]),
                })
                .collect(),
            namespaces: string_list(&rule["namespaces"]),
            non_resource_urls: string_list(&rule["nonResourceURLs"]),
        }
    }
}

fn string_list(list: &Value) -> Vec<Str> {
    list.list().iter().map(|text| text.str().into()).collect()
}

fn parse_level(word: &str) -> Option<AuditLevel> {
    AuditLevel::ALL
        .into_iter()
        .find(|level| level.name() == word)
}

fn parse_stage(word: &str) -> Option<AuditStage> {
    AuditStage::ALL
        .into_iter()
        .find(|stage| stage.name() == word)
}

fn parse_stages(list: &Value) -> Stages {
    list.list()
        .iter()
        .filter_map(|word| parse_stage(word.str()))
        .fold(Stages::default(), Stages::with)
}

fn validate(policy: &Value) -> Violations {
    let mut violations = Violations::default();
    check_stages(
        &policy["omitStages"],
        &Path::new("omitStages"),
        &mut violations,
    );
    let rules = Path::new("rules");
    for (at, rule) in policy["rules"].list().iter().enumerate() {
        check_rule(rule, &rules.index(at), &mut violations);
    }
    violations
}

fn check_rule(rule: &Value, path: &Path, violations: &mut Violations) {
    match rule["level"].str() {
        "" => violations.required(path.child("level"), ""),
        word if parse_level(word).is_none() => {
            violations.not_supported(
                path.child("level"),
                word,
                &AuditLevel::ALL.map(AuditLevel::name),
            );
        }
        _ => {}
    }
    let pages = path.child("nonResourceURLs");
    for (at, url) in rule["nonResourceURLs"].list().iter().enumerate() {
        check_page(url.str(), &pages.index(at), violations);
    }
    for resources in rule["resources"].list() {
        check_resources(resources, &path.child("resources"), violations);
    }
    check_stages(&rule["omitStages"], &path.child("omitStages"), violations);
    let about_objects = !rule["resources"].is_empty() || !rule["namespaces"].is_empty();
    if about_objects && !rule["nonResourceURLs"].is_empty() {
        let why = "rules cannot apply to both regular resources and non-resource URLs";
        violations.invalid(pages, rule["nonResourceURLs"].clone(), why);
    }
}

fn check_page(url: &str, path: &Path, violations: &mut Violations) {
    if url == "*" {
        return;
    }
    if !url.starts_with('/') {
        violations.invalid(
            path,
            url,
            "non-resource URL rules must begin with a '/' character",
        );
    }
    let mut before_last = url.chars();
    before_last.next_back();
    if before_last.as_str().contains('*') {
        let why = "non-resource URL wildcards '*' must be the final character of the rule";
        violations.invalid(path, url, why);
    }
}

/// Kubernetes: the path does not contain the index (apis/audit/validation/validation.go).
fn check_resources(resources: &Value, path: &Path, violations: &mut Violations) {
    let group = resources["group"].str();
    if !matches!(group, "" | "*") {
        let problems = names::is_dns1123_subdomain(group);
        if !problems.is_empty() {
            violations.invalid(path.child("group"), group, &problems.join(","));
        }
    }
    let names = &resources["resourceNames"];
    if !names.is_empty() && resources["resources"].is_empty() {
        let why = "using resourceNames requires at least one resource";
        violations.invalid(path.child("resourceNames"), names.clone(), why);
    }
}

fn check_stages(list: &Value, path: &Path, violations: &mut Violations) {
    for (at, word) in list.list().iter().enumerate() {
        if parse_stage(word.str()).is_none() {
            let why = format!(
                "allowed stages are {}",
                AuditStage::ALL.map(AuditStage::name).join(",")
            );
            violations.invalid(path.index(at), word.str(), &why);
        }
    }
}
