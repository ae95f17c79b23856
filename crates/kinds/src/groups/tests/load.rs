//! Tests of autoscaling, disruption budgets and flow control.

use expect_test::expect;

use super::{check, check_status};

#[test]
fn a_lease_loses_what_coordinated_election_would_use() {
    let lease = r#"{"spec":{"strategy":"OldestEmulationVersion","preferredHolder":"x","leaseTransitions":1}}"#;
    check(
        "coordination.k8s.io/v1 Lease",
        lease,
        expect![[r#"
        {"metadata":{},"spec":{"leaseTransitions":1}}
    "#]],
    );
    check(
        "coordination.k8s.io/v1 Lease",
        r#"{"spec":{"leaseDurationSeconds":0,"leaseTransitions":-1}}"#,
        expect![[r#"
        spec.leaseDurationSeconds: Invalid value: 0: must be greater than 0
        spec.leaseTransitions: Invalid value: -1: must be greater than or equal to 0
    "#]],
    );
}

#[test]
fn system_priorities_belong_to_the_system() {
    let kind = "scheduling.k8s.io/v1 PriorityClass";
    check(
        kind,
        r#"{"metadata":{"name":"system-x"},"value":1}"#,
        expect![[r#"
        metadata.name: Forbidden: priority class names with 'system-' prefix are reserved for system use only. error: system-x is not a known system priority class
    "#]],
    );
    check(
        kind,
        r#"{"metadata":{"name":"system-node-critical"},"value":1}"#,
        expect![[r#"
        metadata.name: Forbidden: priority class names with 'system-' prefix are reserved for system use only. error: value of system-node-critical PriorityClass must be 2000001000
    "#]],
    );
    check(
        kind,
        r#"{"metadata":{"name":"x"},"value":2000000000,"preemptionPolicy":"Maybe"}"#,
        expect![[r#"
        value: Forbidden: maximum allowed value of a user defined priority is 1000000000
        preemptionPolicy: Unsupported value: "Maybe": supported values: "PreemptLowerPriority", "Never"
    "#]],
    );
}

#[test]
fn a_budget_has_one_bound() {
    let kind = "policy/v1 PodDisruptionBudget";
    check(
        kind,
        r#"{"spec":{"minAvailable":"200%","maxUnavailable":-1}}"#,
        expect![[r#"
        spec: Invalid value: {"MinAvailable":"200%","Selector":null,"MaxUnavailable":-1,"UnhealthyPodEvictionPolicy":null}: minAvailable and maxUnavailable cannot be both set
        spec.minAvailable: Invalid value: "200%": must not be greater than 100%
        spec.maxUnavailable: Invalid value: -1: must be greater than or equal to 0
    "#]],
    );
    check_status(
        kind,
        r#"{"spec":{},"status":{"expectedPods":-1}}"#,
        r#"{"spec":{}}"#,
        expect![[r#"
        status.expectedPods: Invalid value: -1: must be greater than or equal to 0
    "#]],
    );
}

#[test]
fn an_autoscaler_of_version_1_is_checked_as_it_is_stored() {
    let autoscaler = r#"{"spec":{"scaleTargetRef":{"kind":"Deployment","name":"d"},"minReplicas":3,"maxReplicas":2,"targetCPUUtilizationPercentage":0}}"#;
    check(
        "autoscaling/v1 HorizontalPodAutoscaler",
        autoscaler,
        expect![[r#"
        spec.maxReplicas: Invalid value: 2: must be greater than or equal to `minReplicas`
        spec.scaleTargetRef.apiVersion: Invalid value: "": apiVersion must specify API group
        spec.metrics[0].resource.target.averageUtilization: Invalid value: 0: must be greater than 0
    "#]],
    );
}

#[test]
fn fields_that_v1_lacks_are_kept_in_annotations() {
    let autoscaler = r#"{"metadata":{"annotations":{"autoscaling.alpha.kubernetes.io/metrics":"[{\"type\":\"Pods\",\"pods\":{\"metricName\":\"m\",\"targetAverageValue\":\"1000m\"}}]"}},
        "spec":{"scaleTargetRef":{"apiVersion":"apps/v1","kind":"Deployment","name":"d"},"maxReplicas":2}}"#;
    check(
        "autoscaling/v1 HorizontalPodAutoscaler",
        autoscaler,
        expect![[r#"
        {"apiVersion":"autoscaling/v1","metadata":{"annotations":{"autoscaling.alpha.kubernetes.io/metrics":"[{\"type\":\"Pods\",\"pods\":{\"metricName\":\"m\",\"targetAverageValue\":\"1\"}}]"}},"spec":{"scaleTargetRef":{"kind":"Deployment","name":"d","apiVersion":"apps/v1"},"minReplicas":1,"maxReplicas":2},"status":{"currentReplicas":0,"desiredReplicas":0}}
    "#]],
    );
}
