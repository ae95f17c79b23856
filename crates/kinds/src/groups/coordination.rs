//! coordination.k8s.io: what may a lease say?

use mizzen_object::validate::field;
use mizzen_object::{Context, Path, Violations};
use mizzen_value::Value;

use crate::Behaviour;

pub(super) fn behaviour(kind: &str) -> Behaviour {
    match kind {
        "Lease" => Behaviour {
            prepare: prepare_lease,
            validate: validate_lease,
            ..Behaviour::NONE
        },
        _ => Behaviour::NONE,
    }
}

/// Kubernetes: coordinated leader election is off by default, so its fields are dropped unless already in use.
fn prepare_lease(lease: &mut Value, old: Option<&Value>, _context: &Context) {
    for field in ["strategy", "preferredHolder"] {
        if old.is_none_or(|old| old["spec"][field].is_null()) {
            lease.entry("spec").remove(field);
        }
    }
}

fn validate_lease(
    lease: &Value,
    _old: Option<&Value>,
    _context: &Context,
    violations: &mut Violations,
) {
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
