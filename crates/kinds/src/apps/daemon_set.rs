//! DaemonSets.

use mizzen_object::validate::selector;
use mizzen_object::{Action, HookContext, Path, Violations};
use mizzen_value::Value;

use super::workload::{
    WorkloadSelector, changed_template_warnings, drop_disabled, share_number, validate_at_most_all,
    validate_collisions, validate_counts, validate_immutable, validate_lasting, validate_not_empty,
    validate_selected, validate_share,
};
use crate::Behaviour;
use mizzen_apiextensions::KindStrategy;
use mizzen_component_helpers::number;
use mizzen_core_kinds::pod::{self, Options};

/// Kubernetes: how often the template has changed, which was a field once and is an annotation now
/// (pkg/apis/apps/v1/conversion.go).
pub(super) const GENERATION: &str = "deprecated.daemonset.template.generation";

pub(super) const BEHAVIOUR: Behaviour = Behaviour::of::<DaemonSetStrategy>();

pub(super) struct DaemonSetStrategy;

impl KindStrategy for DaemonSetStrategy {
    fn default(set: &mut Value) {
        // Kubernetes: a number inside upstream, an annotation outside; unset it is zero.
        set.entry("metadata")
            .entry("annotations")
            .set_default(GENERATION, "0");
        default_spec(set);
    }

    fn normalize(set: &mut Value) -> Result<(), String> {
        match set["metadata"]["annotations"].get(GENERATION) {
            Some(text) => number::parse("ParseInt", text.str()).map(drop),
            None => Ok(()),
        }
    }

    fn prepare(new: &mut Value, old: Option<&Value>, context: &HookContext) {
        let generation = |set: &Value| {
            set["metadata"]["annotations"][GENERATION]
                .str()
                .parse()
                .unwrap_or(0_i64)
        };
        let generation = match old {
            None => generation(new).max(1),
            Some(old) if context.action == Action::Status => generation(old),
            Some(old) => {
                drop_disabled(new, Some(old));
                generation(old) + i64::from(new["spec"]["template"] != old["spec"]["template"])
            }
        };
        if old.is_none() {
            drop_disabled(new, None);
        }
        new.entry("metadata")
            .entry("annotations")
            .set(GENERATION, generation.to_string());
    }

    fn validate(
        new: &Value,
        old: Option<&Value>,
        context: &HookContext,
        violations: &mut Violations,
    ) {
        if let (Action::Status, Some(old)) = (context.action, old) {
            const COUNTS: [&str; 9] = [
                "currentNumberScheduled",
                "numberMisscheduled",
                "desiredNumberScheduled",
                "numberReady",
                "observedGeneration",
                "updatedNumberScheduled",
                "numberAvailable",
                "numberUnavailable",
                "collisionCount",
            ];
            let path = Path::new("status");
            validate_counts(&new["status"], &COUNTS, &path, violations);
            validate_collisions(new, old, &path, violations);
            return;
        }
        let (spec, path) = (&new["spec"], Path::new("spec"));
        if let Some(old) = old {
            validate_immutable(
                &spec["selector"],
                &old["spec"]["selector"],
                &path.child("selector"),
                violations,
            );
        }
        let options = Options::of(old.map(|old| &old["spec"]["template"]));
        let old_selector = old.map_or(&Value::Null, |old| &old["spec"]["selector"]);
        let any_values = options.any_selector_values || selector::has_invalid_value(old_selector);
        let (selector, place) = (&spec["selector"], path.child("selector"));
        let selector_options = selector::SelectorOptions {
            any_values,
            ..Default::default()
        };
        selector::label_selector(selector, selector_options, &place, violations);
        validate_selected(
            WorkloadSelector::of(selector),
            &spec["template"],
            &path.child("template"),
            violations,
        );
        validate_not_empty(selector, "daemonset", &place, violations);
        let (template, place) = (&spec["template"], path.child("template"));
        pod::validate_template_with(template, &options, &place, violations);
        validate_lasting(template, "DaemonSet", &place, violations);
        validate_counts(spec, &["minReadySeconds"], &path, violations);
        let strategy = &spec["updateStrategy"];
        let update_strategy_path = path.child("updateStrategy");
        let (update, place) = (
            &strategy["rollingUpdate"],
            update_strategy_path.child("rollingUpdate"),
        );
        match strategy["type"].str() {
            "OnDelete" => {}
            "RollingUpdate" if update.is_null() => violations.required(place, ""),
            "RollingUpdate" => validate_rolling(update, &place, violations),
            _ => {
                let shown = pod::form("DaemonSetUpdateStrategy", strategy);
                violations.not_supported(
                    update_strategy_path,
                    shown,
                    &["RollingUpdate", "OnDelete"],
                );
            }
        }
        validate_counts(spec, &["revisionHistoryLimit"], &path, violations);
    }

    /// Warns only when the template changes.
    fn warnings(new: &Value, old: Option<&Value>, context: &HookContext) -> Vec<String> {
        let is_same = old.is_some_and(|old| old["spec"]["template"] == new["spec"]["template"]);
        if is_same || context.action == Action::Status {
            Vec::new()
        } else {
            changed_template_warnings(new, None)
        }
    }
}

pub(super) fn default_spec(set: &mut Value) {
    let spec = set.entry("spec");
    let strategy = spec.entry("updateStrategy");
    strategy.set_default("type", "RollingUpdate");
    if strategy["type"].str() == "RollingUpdate" {
        let update = strategy.entry("rollingUpdate");
        update.set_default("maxUnavailable", 1);
        update.set_default("maxSurge", 0);
    }
    // Kubernetes: a number that is not set is zero in the internal type and is written as zero.
    pod::with(strategy, "rollingUpdate", |update| {
        update.set_default("maxUnavailable", 0);
        update.set_default("maxSurge", 0);
    });
    spec.set_default("revisionHistoryLimit", 10);
    pod::default_template(spec.entry("template"));
}

/// A node has too few pods for a while or too many, one of the two.
fn validate_rolling(update: &Value, path: &Path, violations: &mut Violations) {
    let keys = ["maxUnavailable", "maxSurge"];
    for key in keys {
        validate_share(&update[key], &path.child(key), violations);
    }
    for key in keys {
        validate_at_most_all(&update[key], &path.child(key), violations);
    }
    match keys.map(|key| share_number(&update[key]) != 0) {
        [true, true] => {
            let detail = "may not be set when maxUnavailable is non-zero";
            violations.invalid(path.child("maxSurge"), update["maxSurge"].clone(), detail);
        }
        [false, false] => violations.required(
            path.child("maxUnavailable"),
            "cannot be 0 when maxSurge is 0",
        ),
        _ => {}
    }
}
