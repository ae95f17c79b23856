//! coordination.k8s.io: Leases.

use mizzen_object::validate::field;
use mizzen_object::{HookContext, Path, Violations};
use mizzen_value::Value;

use crate::Behaviour;
use mizzen_apiextensions::KindStrategy;

pub(super) fn behaviour(kind: &str) -> Behaviour {
    match kind {
        "Lease" => Behaviour::of::<LeaseStrategy>(),
        _ => Behaviour::NONE,
    }
}

pub(super) struct LeaseStrategy;

impl KindStrategy for LeaseStrategy {
    /// Kubernetes: coordinated leader election is off by default, so its fields are dropped unless already in use.
    fn prepare(lease: &mut Value, old: Option<&Value>, _: &HookContext) {
        for field in ["strategy", "preferredHolder"] {
            if old.is_none_or(|old| old["spec"][field].is_null()) {
                lease.entry("spec").remove(field);
            }
        }
    }

    fn validate(lease: &Value, _: Option<&Value>, _: &HookContext, violations: &mut Violations) {
        let (spec, path) = (&lease["spec"], Path::new("spec"));
        if let Some(seconds) = spec["leaseDurationSeconds"]
            .as_int()
            .filter(|seconds| *seconds <= 0)
        {
            violations.invalid(
                path.child("leaseDurationSeconds"),
                seconds,
                "must be greater than 0",
            );
        }
        field::non_negative(
            spec["leaseTransitions"].int(),
            &path.child("leaseTransitions"),
            violations,
        );
    }
}
