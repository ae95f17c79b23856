//! ReplicaSets.

use mizzen_object::{Action, HookContext, Path, Violations};
use mizzen_value::{Str, Value};

use super::workload::{
    changed_template_warnings, drop_disabled, name_warning, validate_counts, validate_immutable,
    validate_parts, validate_replicas,
};
use crate::Behaviour;
use mizzen_apiextensions::KindStrategy;
use mizzen_core_kinds::pod::{self, Options};

pub(super) const BEHAVIOUR: Behaviour = Behaviour::of::<ReplicaSetStrategy>();

pub(super) struct ReplicaSetStrategy;

impl KindStrategy for ReplicaSetStrategy {
    fn default(set: &mut Value) {
        let spec = set.entry("spec");
        spec.set_default("replicas", 1);
        pod::default_template(spec.entry("template"));
    }

    fn prepare(new: &mut Value, old: Option<&Value>, context: &HookContext) {
        if context.action != Action::Status {
            drop_disabled(new, old);
        }
    }

    fn validate(
        new: &Value,
        old: Option<&Value>,
        context: &HookContext,
        violations: &mut Violations,
    ) {
        if context.action == Action::Status {
            let status = &new["status"];

            const COUNTS: [&str; 6] = [
                "replicas",
                "fullyLabeledReplicas",
                "readyReplicas",
                "availableReplicas",
                "observedGeneration",
                "terminatingReplicas",
            ];
            let path = Path::new("status");
            validate_counts(status, &COUNTS, &path, violations);
            let parts = ["fullyLabeledReplicas", "readyReplicas", "availableReplicas"];
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
            return;
        }
        let (spec, path) = (&new["spec"], Path::new("spec"));
        validate_counts(spec, &["replicas", "minReadySeconds"], &path, violations);
        validate_replicas(
            spec,
            &Options::of(old.map(|old| &old["spec"]["template"])),
            &path,
            violations,
        );
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
        let mut warnings = name_warning(new, old);
        if context.action != Action::Status {
            warnings.extend(changed_template_warnings(new, old));
        }
        warnings
    }

    fn selectable(set: &Value, field: &str) -> Option<Str> {
        (field == "status.replicas").then(|| set["status"]["replicas"].int().to_string().into())
    }
}
