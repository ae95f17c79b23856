//! The pod failure policy (`spec.podFailurePolicy`).

use mizzen_sdk::Object;
use mizzen_value::Value;

/// The action for a failed pod.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum FailurePolicyAction {
    /// With the message of the condition.
    FailJob(String),
    FailIndex,
    Ignore,
    /// The default if no rule matches.
    Count,
}

impl FailurePolicyAction {
    /// Whether the failure counts towards backoffLimit.
    pub(super) fn is_counted(&self) -> bool {
        *self != FailurePolicyAction::Ignore
    }
}

/// The action for the failed `pod`.
pub(super) fn match_pod_failure_policy(job: &Value, pod: &Object) -> FailurePolicyAction {
    matched_rule(job, pod).unwrap_or(FailurePolicyAction::Count)
}

/// The action of the rule that matches the failed `pod`, as the rule has it.
pub(super) fn matched_failure_action(job: &Value, pod: &Object) -> Option<&'static str> {
    Some(match matched_rule(job, pod)? {
        FailurePolicyAction::FailJob(_) => "FailJob",
        FailurePolicyAction::FailIndex => "FailIndex",
        FailurePolicyAction::Ignore => "Ignore",
        FailurePolicyAction::Count => "Count",
    })
}

fn matched_rule(job: &Value, pod: &Object) -> Option<FailurePolicyAction> {
    let rules = job["spec"]["podFailurePolicy"]["rules"].list().iter();
    rules
        .enumerate()
        .find_map(|(place, rule)| apply(rule, place, pod))
}

fn apply(rule: &Value, place: usize, pod: &Object) -> Option<FailurePolicyAction> {
    let cause = match &rule["onExitCodes"] {
        Value::Null => {
            let is_pattern = |condition: &&Value| {
                let mut patterns = rule["onPodConditions"].list().iter();
                patterns.any(|it| {
                    it["type"] == condition["type"] && it["status"] == condition["status"]
                })
            };
            let condition = pod["status"]["conditions"].list().iter().find(is_pattern)?;
            let kind = condition["type"].str();
            format!(
                "Pod {}/{} has condition {kind}",
                pod.namespace(),
                pod.name()
            )
        }
        codes => exit_cause(codes, pod)?,
    };
    match rule["action"].str() {
        "FailJob" => Some(FailurePolicyAction::FailJob(format!(
            "{cause} matching FailJob rule at index {place}"
        ))),
        "FailIndex" => Some(FailurePolicyAction::FailIndex),
        "Ignore" => Some(FailurePolicyAction::Ignore),
        "Count" => Some(FailurePolicyAction::Count),
        _ => None,
    }
}

/// The message for the first container with a matching exit code.
fn exit_cause(codes: &Value, pod: &Object) -> Option<String> {
    let is_match = |status: &&Value| {
        let Some(code) = exit_code(status).filter(|code| *code != 0) else {
            return false;
        };
        let container = codes["containerName"].as_str();
        let is_listed = codes["values"].list().contains(&Value::Int(code));
        container.is_none_or(|name| name == status["name"].str())
            && match codes["operator"].str() {
                "In" => is_listed,
                "NotIn" => !is_listed,
                _ => false,
            }
    };
    let statuses =
        ["containerStatuses", "initContainerStatuses"].map(|kind| pod["status"][kind].list());
    let matching = statuses.into_iter().flatten().find(is_match)?;
    let (name, code) = (matching["name"].str(), exit_code(matching)?);
    let (namespace, pod) = (pod.namespace(), pod.name());
    Some(format!(
        "Container {name} for pod {namespace}/{pod} failed with exit code {code}"
    ))
}

fn exit_code(status: &Value) -> Option<i64> {
    let terminated = &status["state"]["terminated"];
    (!terminated.is_null()).then(|| terminated["exitCode"].int())
}

#[cfg(test)]
mod tests {
    use mizzen_value::value;

    use super::*;

    #[track_caller]
    fn check(rules: Value, expect: FailurePolicyAction) {
        let ended = |name: &str, code: i64| value!({"name": name, "state": {"terminated": {"exitCode": code}}});
        let done = ended("fine", 0);
        let broken = ended("main", 42);
        let running = value!({"name": "other", "state": {}});
        let init = ended("init", 7);
        let pod = Object::from(value!({
            "metadata": {"namespace": "ns", "name": "p"},
            "status": {
                "containerStatuses": [done, running, broken],
                "initContainerStatuses": [init],
                "conditions": [{"type": "Ready", "status": "False"}, {"type": "DisruptionTarget", "status": "True"}],
            },
        }));
        let job = value!({"spec": {"podFailurePolicy": {"rules": rules}}});
        assert_eq!(match_pod_failure_policy(&job, &pod), expect);
    }

    #[test]
    fn exit_codes_lead_to_an_action() {
        let fails = |codes: Value| value!([{"action": "FailJob", "onExitCodes": codes}]);
        let because = |cause: &str| {
            FailurePolicyAction::FailJob(format!(
                "Container {cause} matching FailJob rule at index 0"
            ))
        };
        let main = "main for pod ns/p failed with exit code 42";
        check(
            fails(value!({"operator": "In", "values": [42, 43]})),
            because(main),
        );
        check(
            fails(value!({"operator": "NotIn", "values": [1]})),
            because(main),
        );
        check(
            fails(value!({"operator": "NotIn", "values": [42, 7]})),
            FailurePolicyAction::Count,
        );
        check(
            fails(value!({"operator": "In", "values": [0]})),
            FailurePolicyAction::Count,
        );
        check(
            fails(value!({"operator": "In", "values": [42], "containerName": "fine"})),
            FailurePolicyAction::Count,
        );
        let init = "init for pod ns/p failed with exit code 7";
        check(
            fails(value!({"operator": "In", "values": [7]})),
            because(init),
        );
    }

    #[test]
    fn conditions_lead_to_an_action() {
        let rule = |action: &str, status: &str| {
            let pattern = value!({"type": "DisruptionTarget", "status": status});
            value!([{"action": "Count", "onExitCodes": {"operator": "In", "values": [1]}},
                    {"action": action, "onPodConditions": [pattern]}])
        };
        let message = "Pod ns/p has condition DisruptionTarget matching FailJob rule at index 1";
        check(
            rule("FailJob", "True"),
            FailurePolicyAction::FailJob(message.into()),
        );
        check(rule("Ignore", "True"), FailurePolicyAction::Ignore);
        check(rule("FailIndex", "True"), FailurePolicyAction::FailIndex);
        check(rule("Ignore", "False"), FailurePolicyAction::Count);
    }

    #[test]
    fn the_first_rule_that_fits_counts() {
        let codes = || value!({"operator": "In", "values": [42]});
        let (first, second) = (codes(), codes());
        check(
            value!([{"action": "Ignore", "onExitCodes": first}, {"action": "FailJob", "onExitCodes": second}]),
            FailurePolicyAction::Ignore,
        );
    }
}
