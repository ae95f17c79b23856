//! Validation of a Job's spec.

use mizzen_object::validate::{field, names, selector};
use mizzen_object::{Path, Violations};
use mizzen_value::Value;

use super::job_policies;
use crate::apps::{WorkloadSelector, validate_counts, validate_selected};
use mizzen_core_kinds::pod::{self, Options};

/// A job of its own, which has a selector.
pub(super) fn validate(spec: &Value, options: &Options, path: &Path, violations: &mut Violations) {
    validate_template(spec, options, path, violations);
    if spec["selector"].is_null() {
        violations.required(path.child("selector"), "");
    }
    let any_values = options.any_selector_values;
    let selector_options = selector::SelectorOptions {
        any_values,
        ..Default::default()
    };
    selector::label_selector(
        &spec["selector"],
        selector_options,
        &path.child("selector"),
        violations,
    );
    validate_selected(
        WorkloadSelector::of(&spec["selector"]),
        &spec["template"],
        &path.child("template"),
        violations,
    );
}

/// A job, or the template of one.
pub(super) fn validate_template(
    spec: &Value,
    options: &Options,
    path: &Path,
    violations: &mut Violations,
) {
    const COUNTS: [&str; 7] = [
        "parallelism",
        "completions",
        "activeDeadlineSeconds",
        "backoffLimit",
        "ttlSecondsAfterFinished",
        "backoffLimitPerIndex",
        "maxFailedIndexes",
    ];
    validate_counts(spec, &COUNTS, path, violations);
    if !spec["maxFailedIndexes"].is_null() && spec["backoffLimitPerIndex"].is_null() {
        violations.required(
            path.child("backoffLimitPerIndex"),
            "when maxFailedIndexes is specified",
        );
    }
    if let Some(manager) = spec["managedBy"].as_str() {
        names::domain_prefixed_path(manager, &path.child("managedBy"), violations);
        if manager.len() > 63 {
            violations.too_long(path.child("managedBy"), 63);
        }
    }
    match spec["completionMode"].as_str() {
        Some("Indexed") => validate_indexed(spec, path, violations),
        None | Some("NonIndexed") => {
            for key in ["backoffLimitPerIndex", "maxFailedIndexes"] {
                if let Some(number) = spec[key].as_int() {
                    violations.invalid(path.child(key), number, "requires indexed completion mode");
                }
            }
        }
        Some(other) => {
            let modes = ["NonIndexed", "Indexed"];
            violations.not_supported(path.child("completionMode"), other, &modes);
        }
    }
    job_policies::validate(spec, path, violations);
    let place = path.child("template");
    pod::validate_template_with(&spec["template"], options, &place, violations);
    // A job ends, so its pods do.
    let policy = spec["template"]["spec"]["restartPolicy"].str();
    let path = place.child("spec");
    let path = path.child("restartPolicy");
    match policy {
        "" | "Always" => violations.required(path, r#"valid values: "OnFailure", "Never""#),
        "Never" => {}
        "OnFailure" if spec["podFailurePolicy"].is_null() => {}
        "OnFailure" => {
            let detail = r#"only "Never" is supported when podFailurePolicy is specified"#;
            violations.invalid(path, policy, detail);
        }
        _ => violations.not_supported(path, policy, &["OnFailure", "Never"]),
    }
}

/// The list of what is done and what has failed has a limit.
fn validate_indexed(spec: &Value, path: &Path, violations: &mut Violations) {
    let [completions, parallelism, failed] =
        ["completions", "parallelism", "maxFailedIndexes"].map(|key| spec[key].as_int());
    if completions.is_none() {
        violations.required(path.child("completions"), "when completion mode is Indexed");
    }
    let mut limit = |key: &str, number: Option<i64>, max: i64, detail: &str| {
        if let Some(number) = number.filter(|number| *number > max) {
            violations.invalid(path.child(key), number, detail);
        }
    };
    let detail = "must be less than or equal to 100000 when completion mode is Indexed";
    limit("parallelism", parallelism, 100_000, detail);
    let all = completions.unwrap_or(i64::MAX);
    limit(
        "maxFailedIndexes",
        failed,
        all,
        "must be less than or equal to completions",
    );
    limit(
        "maxFailedIndexes",
        failed,
        100_000,
        "must be less than or equal to 100000",
    );
    if all <= 100_000 || completions.is_none() || spec["backoffLimitPerIndex"].is_null() {
        return;
    }
    if failed.is_none() {
        let detail = "must be specified when completions is above 100000";
        violations.required(path.child("maxFailedIndexes"), detail);
    }
    let detail = "must be less than or equal to 10000 when completions are above 100000 and used with backoff limit \
                  per index";
    for (key, number) in [("parallelism", parallelism), ("maxFailedIndexes", failed)] {
        if let Some(number) = number.filter(|number| *number > 10_000) {
            violations.invalid(path.child(key), number, detail);
        }
    }
}

/// What may change in a job: little, once it has begun.
pub(super) fn validate_update(new: &Value, old: &Value, path: &Path, violations: &mut Violations) {
    let (new_spec, old_spec) = (&new["spec"], &old["spec"]);
    // An indexed job can grow and shrink, all at once.
    if new_spec["completionMode"].str() != "Indexed" {
        validate_immutable(new_spec, old_spec, "completions", path, violations);
    } else {
        let completions = &new_spec["completions"];
        if *completions != old_spec["completions"]
            && !completions.is_null()
            && *completions != new_spec["parallelism"]
        {
            let detail = format!(
                "can only be modified in tandem with {}",
                path.child("parallelism")
            );
            violations.invalid(path.child("completions"), completions.clone(), &detail);
        }
    }
    validate_immutable(new_spec, old_spec, "selector", path, violations);
    // A job that is suspended and has no pods may get pods of another size, in other places.
    let new = &new_spec["template"];
    let mut was = old["spec"]["template"].clone();
    let is_idle = is_idle(old);
    if is_idle {
        let spec = was.entry("spec");
        for key in ["nodeSelector", "tolerations", "schedulingGates"] {
            copy(spec, &new["spec"], key);
        }
        let (affinity, was_affine) = (&new["spec"]["affinity"], !spec["affinity"].is_null());
        if !affinity.is_null() || was_affine {
            copy(spec.entry("affinity"), affinity, "nodeAffinity");
        }
        if affinity.is_null() && spec["affinity"].is_empty() {
            spec.remove("affinity");
        }
        for key in ["annotations", "labels"] {
            copy(was.entry("metadata"), &new["metadata"], key);
        }
    }
    if is_idle {
        for list in ["containers", "initContainers"] {
            let new = new["spec"][list].list();
            let was = was
                .entry("spec")
                .get_mut(list)
                .map(Value::list_mut)
                .unwrap_or_default();
            let is_as_long = was.len() == new.len();
            let pairs = was
                .iter_mut()
                .zip(new)
                .filter(|(was, new)| is_as_long && was["name"] == new["name"]);
            for (was, new) in pairs {
                copy(was, new, "resources");
            }
        }
        if !pod::same(&new["spec"], &was["spec"]) {
            violations.invalid(
                path.child("template").child("spec"),
                pod::form("PodSpec", &new["spec"]),
                field::IMMUTABLE,
            );
        }
    } else if !pod::same(new, &was) {
        violations.invalid(
            path.child("template"),
            pod::form("PodTemplateSpec", new),
            field::IMMUTABLE,
        );
    }
    let keys = [
        "completionMode",
        "podFailurePolicy",
        "backoffLimitPerIndex",
        "managedBy",
        "successPolicy",
    ];
    for key in keys {
        validate_immutable(new_spec, old_spec, key, path, violations);
    }
}

fn validate_immutable(
    new: &Value,
    old: &Value,
    key: &str,
    path: &Path,
    violations: &mut Violations,
) {
    let (new, old) = (&new[key], &old[key]);
    if new == old {
        return;
    }
    let shown = match key {
        _ if new.is_null() => Value::Null,
        "podFailurePolicy" => pod::form("PodFailurePolicy", new),
        "successPolicy" => pod::form("SuccessPolicy", new),
        _ => new.clone(),
    };
    violations.invalid(path.child(key), shown, field::IMMUTABLE);
}

fn is_idle(job: &Value) -> bool {
    let status = &job["status"];
    let has_stopped =
        status["startTime"].is_null() || super::job_status::is_true(status, "Suspended");
    job["spec"]["suspend"].bool() && has_stopped && status["active"].int() == 0
}

fn copy(to: &mut Value, from: &Value, key: &str) {
    match from.get(key) {
        Some(value) => to.set(key, value.clone()),
        None => drop(to.remove(key)),
    }
}
