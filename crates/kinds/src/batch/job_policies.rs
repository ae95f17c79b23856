//! Validation of a Job's pod failure, success and pod replacement policies.

use mizzen_object::validate::field;
use mizzen_object::{Path, ViolationReason, Violations};
use mizzen_value::Value;

use super::indexes;
use mizzen_core_kinds::fields::qualified_name;
use mizzen_core_kinds::pod;

/// The policies of a job.
pub(super) fn validate(spec: &Value, path: &Path, violations: &mut Violations) {
    let place = path.child("podFailurePolicy");
    let (rules, rules_path) = (
        spec["podFailurePolicy"]["rules"].list(),
        place.child("rules"),
    );
    if rules.len() > 20 {
        violations.too_many(rules_path, rules.len(), 20);
    }
    for (index, rule) in rules.iter().enumerate() {
        validate_failure_rule(rule, spec, &rules_path.index(index), violations);
    }
    let (policy, place) = (&spec["successPolicy"], path.child("successPolicy"));
    if !policy.is_null() && spec["completionMode"].str() != "Indexed" {
        violations.invalid(
            place,
            pod::form("SuccessPolicy", policy),
            "requires indexed completion mode",
        );
    } else if !policy.is_null() {
        let (rules, path) = (spec["successPolicy"]["rules"].list(), place.child("rules"));
        if rules.is_empty() {
            let detail = "at least one rules must be specified when the successPolicy is specified";
            violations.required(path, detail);
        }
        if rules.len() > 20 {
            violations.too_many(path, rules.len(), 20);
        }
        for (index, rule) in rules.iter().enumerate() {
            validate_success_rule(
                rule,
                spec["completions"].int(),
                &path.index(index),
                violations,
            );
        }
    }
    let Some(policy) = spec["podReplacementPolicy"].as_str() else {
        return;
    };
    let allowed: &[&str] = if spec["podFailurePolicy"].is_null() {
        &["Failed", "TerminatingOrFailed"]
    } else {
        &["Failed"]
    };
    field::one_of(
        policy,
        allowed,
        &path.child("podReplacementPolicy"),
        violations,
    );
}

fn validate_failure_rule(rule: &Value, spec: &Value, path: &Path, violations: &mut Violations) {
    let actions = ["Count", "FailIndex", "FailJob", "Ignore"];
    match rule["action"].str() {
        "" => violations.required(path.child("action"), &valid(&actions)),
        "FailIndex" if spec["backoffLimitPerIndex"].is_null() => {
            let detail = "requires the backoffLimitPerIndex to be set";
            violations.invalid(path.child("action"), "FailIndex", detail);
        }
        action => field::one_of(action, &actions, &path.child("action"), violations),
    }
    let (codes, conditions) = (&rule["onExitCodes"], rule["onPodConditions"].list());
    if !codes.is_null() {
        validate_codes(
            codes,
            &spec["template"]["spec"],
            &path.child("onExitCodes"),
            violations,
        );
    }
    let place = path.child("onPodConditions");
    if conditions.len() > 20 {
        violations.too_many(place, conditions.len(), 20);
    }
    for (index, pattern) in conditions.iter().enumerate() {
        let path = place.index(index);
        let kind = pattern["type"].str();
        qualified_name(kind, &path.child("type"), violations);
        let statuses = ["False", "True", "Unknown"];
        match pattern["status"].str() {
            "" => violations.required(path.child("status"), &valid(&statuses)),
            status => field::one_of(status, &statuses, &path.child("status"), violations),
        }
    }
    let detail = match (codes.is_null(), conditions.is_empty()) {
        (false, false) => "specifying both OnExitCodes and OnPodConditions is not supported",
        (true, true) => "specifying one of OnExitCodes and OnPodConditions is required",
        _ => return,
    };
    violations.push(
        ViolationReason::Invalid,
        path,
        format!("Invalid value: {detail}"),
    );
}

/// Words as Go prints a list of them.
fn valid(words: &[&str]) -> String {
    let quoted: Vec<String> = words.iter().map(|word| format!("\"{word}\"")).collect();
    format!("valid values: [{}]", quoted.join(" "))
}

fn validate_codes(codes: &Value, pod: &Value, path: &Path, violations: &mut Violations) {
    match codes["operator"].str() {
        "" => violations.required(path.child("operator"), &valid(&["In", "NotIn"])),
        operator => field::one_of(
            operator,
            &["In", "NotIn"],
            &path.child("operator"),
            violations,
        ),
    }
    if let Some(name) = codes["containerName"].as_str() {
        let mut containers = ["containers", "initContainers"]
            .into_iter()
            .flat_map(|list| pod[list].list());
        if !containers.any(|container| container["name"].str() == name) {
            let detail = "must be one of the container or initContainer names in the pod template";
            violations.invalid(path.child("containerName"), name, detail);
        }
    }
    let (values, place) = (codes["values"].list(), path.child("values"));
    match values.len() {
        0 => violations.invalid(
            place,
            codes["values"].clone(),
            "at least one value is required",
        ),
        1..=255 => {}
        n_values => violations.too_many(place, n_values, 255),
    }
    for (index, code) in values.iter().enumerate() {
        if codes["operator"].str() == "In" && code.int() == 0 {
            violations.invalid(place.index(index), 0, "must not be 0 for the In operator");
        }
        if values[..index].contains(code) {
            violations.duplicate(place.index(index), code.clone());
        }
    }
    if !values.is_sorted_by_key(Value::int) {
        violations.invalid(place, codes["values"].clone(), "must be ordered");
    }
}

fn validate_success_rule(rule: &Value, completions: i64, path: &Path, violations: &mut Violations) {
    let (count, list) = (
        rule["succeededCount"].as_int(),
        rule["succeededIndexes"].as_str(),
    );
    if count.is_none() && list.is_none() {
        violations.required(
            path,
            "at least one of succeededCount or succeededIndexes must be specified",
        );
    }
    let n_indexes = list.map(|list| {
        // How many indexes there are in a list.
        const LONGEST: usize = 64 * 1024;
        if list.len() > LONGEST {
            violations.too_long(path.child("succeededIndexes"), LONGEST);
        }
        indexes::count(list, completions).unwrap_or_else(|problem| {
            violations.invalid(
                path.child("succeededIndexes"),
                list,
                &format!("error parsing succeededIndexes: {problem}"),
            );
            0
        })
    });
    let Some(count) = count else { return };
    let path = path.child("succeededCount");
    field::non_negative(count, &path, violations);
    let limits = [
        (Some(completions), "the number of specified completions"),
        (
            n_indexes,
            "the number of indexes in the specified succeededIndexes field",
        ),
    ];
    for (limit, what) in limits {
        if let Some(limit) = limit.filter(|limit| count > *limit) {
            violations.invalid(
                path,
                count,
                &format!("must be less than or equal to {limit} ({what})"),
            );
        }
    }
}
