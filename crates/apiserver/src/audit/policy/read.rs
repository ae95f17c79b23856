//! From a file to rules. What upstream refuses is refused in its words.

use mizzen_object::validate::names;
use mizzen_object::{Path, Str, Value, Violations};

use super::rule::{Resources, Rule};
use super::{Level, Policy, Stage, Stages, Verdict};

/// Why a policy cannot be gone by.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct PolicyError(String);

const API_VERSION: &str = "audit.k8s.io/v1";
/// What is said of a policy as a whole, and of what form: a text, a list of texts, a truth.
const POLICY: [(&str, Form); 6] = [
    ("kind", Form::Text),
    ("apiVersion", Form::Text),
    ("metadata", Form::Any),
    ("rules", Form::List),
    ("omitStages", Form::Texts),
    ("omitManagedFields", Form::Truth),
];
const RULE: [(&str, Form); 9] = [
    ("level", Form::Text),
    ("users", Form::Texts),
    ("userGroups", Form::Texts),
    ("verbs", Form::Texts),
    ("resources", Form::List),
    ("namespaces", Form::Texts),
    ("nonResourceURLs", Form::Texts),
    ("omitStages", Form::Texts),
    ("omitManagedFields", Form::Truth),
];
const RESOURCES: [(&str, Form); 3] = [
    ("group", Form::Text),
    ("resources", Form::Texts),
    ("resourceNames", Form::Texts),
];

/// The form of a field.
#[derive(Debug, Clone, Copy)]
enum Form {
    Any,
    Text,
    Texts,
    List,
    Truth,
}

impl Policy {
    /// Reads and checks a policy.
    pub fn read(document: &Value) -> Result<Policy, PolicyError> {
        let (version, kind) = (document["apiVersion"].str(), document["kind"].str());
        if version != API_VERSION || kind != "Policy" {
            return Err(PolicyError(format!(
                "expected the kind Policy of {API_VERSION}, found \"{kind}\" of \"{version}\""
            )));
        }
        check_forms(document)?;
        if let Some(problem) = violations(document).in_one() {
            return Err(PolicyError(problem));
        }
        if document["rules"].list().is_empty() {
            return Err(PolicyError("loaded illegal policy with 0 rules".into()));
        }
        Ok(Policy {
            rules: document["rules"]
                .list()
                .iter()
                .map(|rule| read_rule(document, rule))
                .collect(),
        })
    }
}

fn read_rule(policy: &Value, rule: &Value) -> Rule {
    let level = level(rule["level"].str()).unwrap_or(Level::None);
    let omits = rule["omitManagedFields"]
        .as_bool()
        .unwrap_or(policy["omitManagedFields"].bool());
    let omitted = stages(&policy["omitStages"]).and(stages(&rule["omitStages"]));
    Rule {
        verdict: Verdict {
            level,
            omitted,
            omits_managed_fields: omits,
        },
        users: texts(&rule["users"]),
        groups: texts(&rule["userGroups"]),
        verbs: texts(&rule["verbs"]),
        resources: rule["resources"]
            .list()
            .iter()
            .map(read_resources)
            .collect(),
        namespaces: texts(&rule["namespaces"]),
        pages: texts(&rule["nonResourceURLs"]),
    }
}

fn read_resources(resources: &Value) -> Resources {
    Resources {
        group: resources["group"].str().into(),
        resources: texts(&resources["resources"]),
        names: texts(&resources["resourceNames"]),
    }
}

fn texts(list: &Value) -> Vec<Str> {
    list.list().iter().map(|text| text.str().into()).collect()
}

fn level(word: &str) -> Option<Level> {
    Level::ALL.into_iter().find(|level| level.word() == word)
}

fn stage(word: &str) -> Option<Stage> {
    Stage::ALL.into_iter().find(|stage| stage.word() == word)
}

fn stages(list: &Value) -> Stages {
    list.list()
        .iter()
        .filter_map(|word| stage(word.str()))
        .fold(Stages::default(), Stages::with)
}

/// Refuses fields of a wrong form; of fields that nobody knows it warns, as upstream does.
fn check_forms(policy: &Value) -> Result<(), PolicyError> {
    check_fields(policy, &POLICY, "")?;
    for (at, rule) in policy["rules"].list().iter().enumerate() {
        let path = format!("rules[{at}]");
        check_fields(rule, &RULE, &path)?;
        for (at, resources) in rule["resources"].list().iter().enumerate() {
            check_fields(resources, &RESOURCES, &format!("{path}.resources[{at}]"))?;
        }
    }
    Ok(())
}

fn check_fields(node: &Value, known: &[(&str, Form)], path: &str) -> Result<(), PolicyError> {
    let Value::Map(_) = node else {
        return Err(PolicyError(format!("{path}: expected a map")));
    };
    for (field, value) in node.entries() {
        let path = if path.is_empty() {
            field.to_owned()
        } else {
            format!("{path}.{field}")
        };
        match known.iter().find(|(name, _)| *name == field) {
            None => tracing::warn!(field = %path, "the audit policy has a field that nobody knows"),
            Some((_, form)) => form
                .check(value)
                .map_err(|wanted| PolicyError(format!("{path}: expected {wanted}")))?,
        }
    }
    Ok(())
}

impl Form {
    fn check(self, value: &Value) -> Result<(), &'static str> {
        let is_text = |value: &Value| value.as_str().is_some();
        let is_list = matches!(value, Value::List(_));
        let (fits, wanted) = match self {
            Form::Any => (true, "anything"),
            Form::Text => (is_text(value), "a text"),
            Form::Texts => (
                is_list && value.list().iter().all(is_text),
                "a list of texts",
            ),
            Form::List => (is_list, "a list"),
            Form::Truth => (value.as_bool().is_some(), "true or false"),
        };
        if fits || value.is_null() {
            Ok(())
        } else {
            Err(wanted)
        }
    }
}

fn violations(policy: &Value) -> Violations {
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
        word if level(word).is_none() => {
            violations.not_supported(path.child("level"), word, &Level::ALL.map(Level::word));
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

/// Kubernetes: the path says nothing of which item of the list it is (apis/audit/validation/validation.go).
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
        if stage(word.str()).is_none() {
            let why = format!(
                "allowed stages are {}",
                Stage::ALL.map(Stage::word).join(",")
            );
            violations.invalid(path.index(at), word.str(), &why);
        }
    }
}
