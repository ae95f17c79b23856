//! Deployments.

use mizzen_object::validate::field;
use mizzen_object::{Action, HookContext, Path, Violations};
use mizzen_value::Value;

use super::workload::{
    changed_template_warnings, drop_disabled, name_warning, share_number, validate_at_most_all,
    validate_collisions, validate_counts, validate_immutable, validate_parts, validate_replicas,
    validate_share,
};
use crate::Behaviour;
use mizzen_apiextensions::KindStrategy;
use mizzen_component_helpers::number;
use mizzen_core_kinds::pod::{self, Options};

pub(super) const ROLLBACK: &str = "deprecated.deployment.rollback.to";

pub(super) const BEHAVIOUR: Behaviour = Behaviour::of::<DeploymentStrategy>();

pub(super) struct DeploymentStrategy;

impl KindStrategy for DeploymentStrategy {
    fn default(deployment: &mut Value) {
        let spec = deployment.entry("spec");
        spec.set_default("replicas", 1);
        let strategy = spec.entry("strategy");
        strategy.set_default("type", "RollingUpdate");
        if strategy["type"].str() == "RollingUpdate" {
            let update = strategy.entry("rollingUpdate");
            update.set_default("maxUnavailable", "25%");
            update.set_default("maxSurge", "25%");
        }
        spec.set_default("revisionHistoryLimit", 10);
        spec.set_default("progressDeadlineSeconds", 600);
        pod::default_template(spec.entry("template"));
    }

    /// Kubernetes: a number inside upstream, an annotation outside (pkg/apis/apps/v1/conversion.go).
    fn normalize(deployment: &mut Value) -> Result<(), String> {
        let text = match deployment["metadata"]["annotations"].get(ROLLBACK) {
            None => return Ok(()),
            Some(text) => text.str().to_owned(),
        };
        let annotations = deployment.entry("metadata").entry("annotations");
        if text.is_empty() {
            annotations.remove(ROLLBACK);
            return Ok(());
        }
        let revision = number::parse("ParseInt", &text).map_err(|why| {
            format!("failed to parse annotation[{ROLLBACK}]={text} as int64: {why}")
        })?;
        annotations.set(ROLLBACK, revision.to_string());
        Ok(())
    }

    fn prepare(new: &mut Value, old: Option<&Value>, context: &HookContext) {
        if context.action != Action::Status {
            return drop_disabled(new, old);
        }
        match old.and_then(|old| old["metadata"].get("labels")) {
            Some(labels) => new.entry("metadata").set("labels", labels.clone()),
            None => drop(new.entry("metadata").remove("labels")),
        }
    }

    fn validate(
        new: &Value,
        old: Option<&Value>,
        context: &HookContext,
        violations: &mut Violations,
    ) {
        if let (Action::Status, Some(old)) = (context.action, old) {
            return validate_status(new, old, violations);
        }
        let (spec, path) = (&new["spec"], Path::new("spec"));
        field::non_negative(spec["replicas"].int(), &path.child("replicas"), violations);
        validate_replicas(
            spec,
            &Options::of(old.map(|old| &old["spec"]["template"])),
            &path,
            violations,
        );
        let strategy = &spec["strategy"];
        let strategy_path = path.child("strategy");
        let (update, place) = (
            &strategy["rollingUpdate"],
            strategy_path.child("rollingUpdate"),
        );
        match strategy["type"].str() {
            "Recreate" if !update.is_null() => {
                violations.forbidden(
                    place,
                    "may not be specified when strategy `type` is 'Recreate'",
                );
            }
            "Recreate" => {}
            "RollingUpdate" => {
                for key in ["maxUnavailable", "maxSurge"] {
                    validate_share(&update[key], &place.child(key), violations);
                }
                let (unavailable, place) =
                    (&update["maxUnavailable"], place.child("maxUnavailable"));
                if share_number(unavailable) == 0 && share_number(&update["maxSurge"]) == 0 {
                    violations.invalid(
                        place,
                        unavailable.clone(),
                        "may not be 0 when `maxSurge` is 0",
                    );
                }
                validate_at_most_all(unavailable, &place, violations);
            }
            _ => {
                let shown = pod::form("DeploymentStrategy", strategy);
                violations.not_supported(strategy_path, shown, &["Recreate", "RollingUpdate"]);
            }
        }
        validate_counts(
            spec,
            &["minReadySeconds", "revisionHistoryLimit"],
            &path,
            violations,
        );
        let rollback = new["metadata"]["annotations"][ROLLBACK]
            .str()
            .parse()
            .unwrap_or(0);
        let place = path.child("rollback");
        field::non_negative(rollback, &place.child("version"), violations);
        let place = path.child("progressDeadlineSeconds");
        if let Some(seconds) = spec["progressDeadlineSeconds"].as_int() {
            field::non_negative(seconds, &place, violations);
            if seconds <= spec["minReadySeconds"].int() {
                violations.invalid(place, seconds, "must be greater than minReadySeconds");
            }
        }
        if let Some(old) = old {
            validate_immutable(
                &spec["selector"],
                &old["spec"]["selector"],
                &path.child("selector"),
                violations,
            );
        }
    }

    fn warnings(new: &Value, old: Option<&Value>, context: &HookContext) -> Vec<String> {
        let is_annotated =
            old.is_some_and(|old| old["metadata"]["annotations"] != new["metadata"]["annotations"]);
        let mut warnings = name_warning(new, old);
        if context.action != Action::Status {
            warnings.extend(changed_template_warnings(
                new,
                old.filter(|_| !is_annotated),
            ));
        }
        warnings
    }
}

fn validate_status(new: &Value, old: &Value, violations: &mut Violations) {
    const COUNTS: [&str; 8] = [
        "observedGeneration",
        "replicas",
        "updatedReplicas",
        "readyReplicas",
        "availableReplicas",
        "unavailableReplicas",
        "terminatingReplicas",
        "collisionCount",
    ];
    let (status, path) = (&new["status"], Path::new("status"));
    validate_counts(status, &COUNTS, &path, violations);
    let parts = ["updatedReplicas", "readyReplicas", "availableReplicas"];
    validate_parts(
        status,
        &parts,
        ("replicas", "status.replicas"),
        &path,
        violations,
    );
    validate_parts(
        status,
        &["availableReplicas"],
        ("readyReplicas", "readyReplicas"),
        &path,
        violations,
    );
    validate_collisions(new, old, &path, violations);
}
