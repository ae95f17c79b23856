//! ReplicationControllers.

use mizzen_object::validate::field;
use mizzen_object::{Action, HookContext, Path, Violations};
use mizzen_value::{Str, Value};

use crate::{Behaviour, pod};
use mizzen_apiextensions::KindStrategy;

pub(super) const BEHAVIOUR: Behaviour = Behaviour::of::<ReplicationControllerStrategy>();

pub(super) struct ReplicationControllerStrategy;

impl KindStrategy for ReplicationControllerStrategy {
    fn default(controller: &mut Value) {
        let spec = controller.entry("spec");
        spec.set_default("replicas", 1);
        if spec["template"].is_null() {
            return;
        }
        pod::default_template(spec.entry("template"));
        let labels = spec["template"]["metadata"]["labels"].clone();
        if labels.is_null() {
            return;
        }
        if spec["selector"].is_empty() {
            spec.set("selector", labels.clone());
        }
        if controller["metadata"]["labels"].is_empty() {
            controller.entry("metadata").set("labels", labels);
        }
    }

    fn prepare(controller: &mut Value, old: Option<&Value>, context: &HookContext) {
        let has_template = !controller["spec"]["template"].is_null();
        if context.action != Action::Status && has_template {
            let old = old.map(|old| &old["spec"]["template"]);
            pod::drop_disabled(controller.entry("spec").entry("template"), old);
        }
    }

    fn validate(
        controller: &Value,
        old: Option<&Value>,
        context: &HookContext,
        violations: &mut Violations,
    ) {
        if context.action == Action::Status {
            return status(&controller["status"], violations);
        }
        let (spec, path) = (&controller["spec"], Path::new("spec"));
        field::non_negative(
            spec["minReadySeconds"].int(),
            &path.child("minReadySeconds"),
            violations,
        );
        if spec["selector"].is_empty() {
            violations.required(path.child("selector"), "");
        }
        field::non_negative(spec["replicas"].int(), &path.child("replicas"), violations);
        let old_template = old.map(|old| &old["spec"]["template"]);
        template(spec, old_template, &path.child("template"), violations);
        if let Some(old) = old {
            for (key, value) in old["metadata"]["annotations"].entries() {
                let Some((NON_CONVERTIBLE, name)) =
                    key.split_once('/').filter(|(_, name)| !name.contains('/'))
                else {
                    continue;
                };
                let selector = &controller["spec"]["selector"];
                if !name.contains("selector") {
                    let shown = mizzen_object::show(value);
                    let message = format!("Not found: {shown}: unknown non-convertible field");
                    violations.push(mizzen_object::ViolationReason::NotFound, name, message);
                } else if *selector != old["spec"]["selector"] {
                    let path = Path::new("spec");
                    violations.invalid(
                        path.child("selector"),
                        selector.clone(),
                        "cannot update non-convertible selector",
                    );
                }
            }
        }
    }

    /// Kubernetes: on update the warnings are about the old template.
    fn warnings(controller: &Value, old: Option<&Value>, context: &HookContext) -> Vec<String> {
        let path = Path::new("spec");
        let path = path.child("template");
        let generation = |controller: &Value| controller["metadata"]["generation"].int();
        match (context.action, old) {
            (Action::Create, _) => {
                let name = controller["metadata"]["name"].str();
                let mut warnings =
                    pod::name_warning(name, "this is used in Pod names and hostnames");
                warnings.extend(pod::template_warnings(
                    &controller["spec"]["template"],
                    &path,
                ));
                warnings
            }
            (Action::Update, Some(old)) if generation(old) != generation(controller) => {
                pod::template_warnings(&old["spec"]["template"], &path)
            }
            _ => Vec::new(),
        }
    }

    /// `status.replicas` is selectable as `0` when it is not set.
    fn selectable(controller: &Value, field: &str) -> Option<Str> {
        (field == "status.replicas")
            .then(|| controller["status"]["replicas"].int().to_string().into())
    }
}

/// What a conversion could not carry over is kept in annotations that start so.
const NON_CONVERTIBLE: &str = "non-convertible.kubernetes.io";

fn template(spec: &Value, old: Option<&Value>, path: &Path, violations: &mut Violations) {
    let template = &spec["template"];
    if template.is_null() {
        return violations.required(path, "");
    }
    let labels = &template["metadata"]["labels"];
    if spec["selector"]
        .entries()
        .any(|(key, value)| labels[key] != *value)
    {
        let message = "`selector` does not match template `labels`";
        violations.invalid(
            path.child("metadata").child("labels"),
            labels.clone(),
            message,
        );
    }
    pod::validate_template(template, old, path, violations);
    let (spec, path) = (&template["spec"], path.child("spec"));
    field::one_of(
        spec["restartPolicy"].str(),
        &["Always"],
        &path.child("restartPolicy"),
        violations,
    );
    if !spec["activeDeadlineSeconds"].is_null() {
        let message = "activeDeadlineSeconds in ReplicationController is not Supported";
        violations.forbidden(path.child("activeDeadlineSeconds"), message);
    }
}

fn status(status: &Value, violations: &mut Violations) {
    let path = Path::new("status");
    let count = |name: &str| status[name].int();
    for name in [
        "replicas",
        "fullyLabeledReplicas",
        "readyReplicas",
        "availableReplicas",
        "observedGeneration",
    ] {
        field::non_negative(count(name), &path.child(name), violations);
    }
    for name in ["fullyLabeledReplicas", "readyReplicas", "availableReplicas"] {
        if count(name) > count("replicas") {
            violations.invalid(
                path.child(name),
                count(name),
                "cannot be greater than status.replicas",
            );
        }
    }
    let available = count("availableReplicas");
    if available > count("readyReplicas") {
        violations.invalid(
            path.child("availableReplicas"),
            available,
            "cannot be greater than readyReplicas",
        );
    }
}

#[cfg(test)]
mod tests {
    use super::super::check::check;
    use super::*;

    const TEMPLATE: &str =
        r#"{"metadata":{"labels":{"a":"b"}},"spec":{"containers":[{"name":"c","image":"i"}]}}"#;

    #[test]
    fn labels_of_the_template_are_the_selector() {
        check(BEHAVIOUR)
            .create(&format!(
                r#"{{"metadata":{{"name":"r"}},"spec":{{"template":{TEMPLATE}}}}}"#
            ))
            .has("spec.selector", r#"{"a":"b"}"#)
            .has("metadata.labels", r#"{"a":"b"}"#)
            .has("spec.replicas", "1")
            .refused(&[]);
    }

    #[test]
    fn a_selector_and_a_template_are_needed() {
        let refused = |spec: &str, expected: &[&str]| {
            check(BEHAVIOUR)
                .create(&format!(r#"{{"spec":{spec}}}"#))
                .refused(expected);
        };
        refused(
            "{}",
            &[
                "spec.selector: Required value",
                "spec.template: Required value",
            ],
        );
        refused(
            &format!(
                r#"{{"selector":{{"a":"z"}},"replicas":-1,"minReadySeconds":-1,"template":{TEMPLATE}}}"#
            ),
            &[
                "spec.minReadySeconds: Invalid value: -1: must be greater than or equal to 0",
                "spec.replicas: Invalid value: -1: must be greater than or equal to 0",
                r#"spec.template.metadata.labels: Invalid value: {"a":"b"}: `selector` does not match template `labels`"#,
            ],
        );
        let once = TEMPLATE.replace(
            r#""spec":{"#,
            r#""spec":{"restartPolicy":"Never","activeDeadlineSeconds":5,"#,
        );
        refused(
            &format!(r#"{{"template":{once}}}"#),
            &[
                r#"spec.template.spec.restartPolicy: Unsupported value: "Never": supported values: "Always""#,
                "spec.template.spec.activeDeadlineSeconds: Forbidden: activeDeadlineSeconds in",
            ],
        );
    }

    #[test]
    fn counts_fit_together() {
        check(BEHAVIOUR)
            .status(r#"{"status":{"replicas":1,"readyReplicas":2,"availableReplicas":3}}"#, "{}")
            .refused(&[
                "status.readyReplicas: Invalid value: 2: cannot be greater than status.replicas",
                "status.availableReplicas: Invalid value: 3: cannot be greater than status.replicas",
                "status.availableReplicas: Invalid value: 3: cannot be greater than readyReplicas",
            ]);
    }
}
