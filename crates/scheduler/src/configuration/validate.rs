//! Validation of a configuration file. Returns every violation, in upstream's words
//! (apis/config/validation/validation.go).

use std::collections::HashSet;

use mizzen_component_helpers::resource_names::is_extended;
use mizzen_object::validate::names;
use mizzen_object::{Path, Violations};
use mizzen_value::Value;

use super::extension_points::ExtensionPoint;

/// The version of configuration files.
pub(super) const VERSION: &str = "kubescheduler.config.k8s.io/v1";
/// Plugins that were removed.
const REMOVED: [&str; 4] = [
    "AzureDiskLimits",
    "CinderLimits",
    "EBSLimits",
    "GCEPDLimits",
];

/// Validates everything but the plugins and their arguments.
pub(super) fn validate(value: &Value) -> Violations {
    let mut violations = Violations::default();
    positive(
        value,
        "parallelism",
        "should be an integer value greater than zero",
        &mut violations,
    );
    let path = Path::new("profiles");
    let profiles = value["profiles"].list();
    for (at, profile) in profiles.iter().enumerate() {
        validate_profile(
            profile,
            profiles.len() == 1,
            &path.index(at),
            &mut violations,
        );
        if profiles[..at]
            .iter()
            .any(|other| other["schedulerName"] == profile["schedulerName"])
        {
            // Kubernetes: the message prints the index of the other profile as an empty object.
            violations.duplicate(path.index(at).child("schedulerName"), Value::object());
        }
    }
    validate_sorting(profiles, &path, &mut violations);
    validate_share(
        &value["percentageOfNodesToScore"],
        &Path::new("percentageOfNodesToScore"),
        &mut violations,
    );
    positive(
        value,
        "podInitialBackoffSeconds",
        "must be greater than 0",
        &mut violations,
    );
    let initial_backoff = value["podInitialBackoffSeconds"].as_int().unwrap_or(1);
    let max_backoff = value["podMaxBackoffSeconds"].as_int().unwrap_or(10);
    if max_backoff < initial_backoff {
        let detail = "must be greater than or equal to PodInitialBackoffSeconds";
        violations.invalid("podMaxBackoffSeconds", max_backoff, detail);
    }
    validate_extenders(
        value["extenders"].list(),
        &Path::new("extenders"),
        &mut violations,
    );
    violations
}

fn positive(value: &Value, field: &str, detail: &str, violations: &mut Violations) {
    if value[field].as_int().is_some_and(|number| number <= 0) {
        violations.invalid(field, value[field].clone(), detail);
    }
}

fn validate_share(share: &Value, path: &Path, violations: &mut Violations) {
    if share
        .as_int()
        .is_some_and(|share| !(0..=100).contains(&share))
    {
        violations.invalid(path, share.clone(), "not in valid range [0-100]");
    }
}

fn validate_profile(profile: &Value, is_alone: bool, path: &Path, violations: &mut Violations) {
    let has_name =
        is_alone && profile["schedulerName"].is_null() || !profile["schedulerName"].is_empty();
    if !has_name {
        violations.required(path.child("schedulerName"), "");
    }
    let share = path.child("percentageOfNodesToScore");
    validate_share(&profile["percentageOfNodesToScore"], &share, violations);
    let plugins = path.child("plugins");
    for point in ExtensionPoint::ALL {
        let (field, place) = (point.field(), plugins.child(point.field()));
        let enabled = profile["plugins"][field]["enabled"]
            .list()
            .iter()
            .enumerate();
        enabled.for_each(|(at, one)| {
            refuse_removed(one, &place.child("enabled").index(at), violations)
        });
    }
    let (place, mut seen) = (path.child("pluginConfig"), HashSet::new());
    for (at, config) in profile["pluginConfig"].list().iter().enumerate() {
        if !seen.insert(config["name"].str()) {
            violations.duplicate(place.index(at), config["name"].clone());
        }
        refuse_removed(config, &place.index(at), violations);
    }
}

fn refuse_removed(named: &Value, path: &Path, violations: &mut Violations) {
    if REMOVED.contains(&named["name"].str()) {
        let detail = format!(
            "was invalid in version \"{VERSION}\" (KubeSchedulerConfiguration is version \"{VERSION}\")"
        );
        violations.invalid(path, named["name"].clone(), &detail);
    }
}

/// There is one queue, so all profiles must agree on its order.
fn validate_sorting(profiles: &[Value], path: &Path, violations: &mut Violations) {
    let sorting = |profile: &Value| profile["plugins"]["queueSort"].clone();
    let Some((first, others)) = profiles.split_first() else {
        return;
    };
    let n_sorts = sorting(first)["enabled"].list().len();
    if n_sorts > 1 {
        let place = format!("{}.plugins.queueSort.Enabled", path.index(0));
        violations.invalid(
            place,
            n_sorts as i64,
            "only one queue sort plugin can be enabled",
        );
    }
    for (at, other) in others
        .iter()
        .enumerate()
        .filter(|(_, other)| sorting(other) != sorting(first))
    {
        let place = format!("{}.plugins.queueSort", path.index(at + 1));
        let shown = go_plugins(&sorting(other));
        violations.invalid_shown(place, &shown, "must be the same for all profiles");
    }
}

/// A plugin set as Go prints it.
fn go_plugins(set: &Value) -> String {
    let list = |field: &str| match set[field].list() {
        [] => "null".to_string(),
        list => {
            let one = |one: &Value| {
                format!(
                    r#"{{"Name":{},"Weight":{}}}"#,
                    mizzen_object::show(&one["name"]),
                    one["weight"].int()
                )
            };
            format!("[{}]", list.iter().map(one).collect::<Vec<_>>().join(","))
        }
    };
    format!(
        r#"{{"Enabled":{},"Disabled":{}}}"#,
        list("enabled"),
        list("disabled")
    )
}

fn validate_extenders(extenders: &[Value], path: &Path, violations: &mut Violations) {
    let mut managed = HashSet::new();
    for (at, extender) in extenders.iter().enumerate() {
        let path = path.index(at);
        if !extender["prioritizeVerb"].is_empty() && extender["weight"].int() <= 0 {
            let weight = extender["weight"].int();
            violations.invalid(
                path.child("weight"),
                weight,
                "must have a positive weight applied to it",
            );
        }
        let place = path.child("managedResources");
        for (at, resource) in extender["managedResources"].list().iter().enumerate() {
            let (place, name) = (place.index(at), resource["name"].str());
            let problems = names::is_qualified_name(name);
            for problem in &problems {
                violations.invalid(place.child("name"), name, problem);
            }
            if problems.is_empty() && !is_extended(name) {
                let detail = "is an invalid extended resource name";
                violations.invalid(place.child("name"), name, detail);
            }
            if !managed.insert(name) {
                violations.invalid(
                    place.child("name"),
                    name,
                    "duplicate extender managed resource name",
                );
            }
        }
    }
    let n_binders = extenders
        .iter()
        .filter(|extender| !extender["bindVerb"].is_empty())
        .count();
    if n_binders > 1 {
        let found = format!("found {n_binders} extenders implementing bind");
        violations.invalid(path, found, "only one extender can implement bind");
    }
}
