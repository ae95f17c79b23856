//! policy: what may a disruption budget demand?

use mizzen_object::validate::{condition, field};
use mizzen_object::{Action, Context, Path, Value, Violations, value};

use super::{internal, rules};
use crate::Behaviour;

pub(super) fn behaviour(kind: &str) -> Behaviour {
    match kind {
        "PodDisruptionBudget" => {
            Behaviour { default: default_budget, validate: validate_budget, ..Behaviour::NONE }
        }
        _ => Behaviour::NONE,
    }
}

/// With this key v1beta1 told "selects all" from "selects none".
const V1BETA1_KEY: &str = "pdb.kubernetes.io/deprecated-v1beta1-empty-selector-match";

/// Kubernetes: pkg/apis/policy/v1/conversion.go strips v1beta1's key where a user combined it with other terms.
fn default_budget(budget: &mut Value) {
    let Some(selector) = budget.at_mut("spec.selector") else {
        return;
    };
    let matches_none = value!({"matchExpressions": [{"key": V1BETA1_KEY, "operator": "Exists"}]});
    let Some(Value::List(expressions)) =
        selector.get("matchExpressions").filter(|_| *selector != matches_none).cloned()
    else {
        return;
    };
    let kept: Vec<Value> = expressions.into_iter().filter(|term| term["key"].str() != V1BETA1_KEY).collect();
    selector.set("matchExpressions", kept);
}

fn validate_budget(budget: &Value, old: Option<&Value>, context: &Context, violations: &mut Violations) {
    match context.action {
        Action::Status => validate_status(&budget["status"], violations),
        Action::Create | Action::Update => {
            validate_spec(&budget["spec"], old.map(|old| &old["spec"]), violations)
        }
    }
}

fn validate_spec(spec: &Value, old: Option<&Value>, violations: &mut Violations) {
    let path = Path::new("spec");
    if spec.get("minAvailable").is_some() && spec.get("maxUnavailable").is_some() {
        let detail = "minAvailable and maxUnavailable cannot be both set";
        violations.invalid(path, internal::shown("PodDisruptionBudgetSpec", spec), detail);
    }
    for field in ["minAvailable", "maxUnavailable"] {
        if let Some(amount) = spec.get(field) {
            rules::count_or_percent(amount, &path.child(field), violations);
        }
    }
    let selector = old.map(|old| &old["selector"]);
    rules::selector(&spec["selector"], selector, &path.child("selector"), violations);

    let field = "unhealthyPodEvictionPolicy";
    rules::optional_word(&spec[field], &["AlwaysAllow", "IfHealthyBudget"], &path.child(field), violations);
}

fn validate_status(status: &Value, violations: &mut Violations) {
    let path = Path::new("status");
    condition::conditions(&status["conditions"], &path.child("conditions"), violations);
    for field in ["disruptionsAllowed", "currentHealthy", "desiredHealthy", "expectedPods"] {
        field::non_negative(status[field].int(), &path.child(field), violations);
    }
}
