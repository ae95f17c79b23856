//! Tests of authentication, authorization, certificates and events.

use expect_test::expect;

use super::{check, check_update};

const BINDING: &str = "rbac.authorization.k8s.io/v1 RoleBinding";

#[test]
fn a_binding_knows_the_groups_of_users_and_roles() {
    let binding = r#"{"roleRef":{"kind":"Role","name":"r"},"subjects":[{"kind":"User","name":"u"},{"kind":"ServiceAccount","name":"s"}]}"#;
    check(
        BINDING,
        binding,
        expect![[r#"
        {"metadata":{},"subjects":[{"kind":"User","apiGroup":"rbac.authorization.k8s.io","name":"u"},{"kind":"ServiceAccount","name":"s"}],"roleRef":{"apiGroup":"rbac.authorization.k8s.io","kind":"Role","name":"r"}}
    "#]],
    );
}

#[test]
fn a_binding_cannot_be_turned_to_another_role() {
    let old = r#"{"roleRef":{"kind":"Role","name":"r"}}"#;
    check_update(
        BINDING,
        r#"{"roleRef":{"kind":"Role","name":"other"}}"#,
        old,
        expect![[r#"
        roleRef: Invalid value: {"APIGroup":"rbac.authorization.k8s.io","Kind":"Role","Name":"other"}: cannot change roleRef
    "#]],
    );
}

#[test]
fn a_role_says_what_may_be_done_to_what() {
    let role = r#"{"rules":[{"verbs":[],"resources":["x"]},{"verbs":["get"],"nonResourceURLs":["/x"],"apiGroups":[""]}]}"#;
    check(
        "rbac.authorization.k8s.io/v1 Role",
        role,
        expect![[r#"
        rules[0].verbs: Required value: verbs must contain at least one value
        rules[0].apiGroups: Required value: resource rules must supply at least one api group
        rules[1].nonResourceURLs: Invalid value: ["/x"]: namespaced rules cannot apply to non-resource URLs
        rules[1].nonResourceURLs: Invalid value: ["/x"]: rules cannot apply to both regular resources and non-resource URLs
    "#]],
    );
    let role = r#"{"aggregationRule":{"clusterRoleSelectors":[{"matchExpressions":[{"key":"k","operator":"Near"}]}]}}"#;
    check(
        "rbac.authorization.k8s.io/v1 ClusterRole",
        role,
        expect![[r#"
        aggregationRule.clusterRoleSelectors[0].matchExpressions[0].operator: Invalid value: "Near": not a valid selector operator
        aggregationRule.clusterRoleSelectors[0]: Invalid value: null: invalid label selector.
    "#]],
    );
}

#[test]
fn a_signing_request_names_its_user() {
    let kind = "certificates.k8s.io/v1 CertificateSigningRequest";
    let request = r#"{"spec":{"request":"LS0tLS1CRUdJTiBDRVJUSUZJQ0FURSBSRVFVRVNULS0tLS0KTUFZd0FEQUFBd0E9Ci0tLS0tRU5EIENFUlRJRklDQVRFIFJFUVVFU1QtLS0tLQo=","signerName":"a.b/c","usages":["any"],"username":"me","groups":["x"]}}"#;
    check(
        kind,
        request,
        expect![[r#"
        {"metadata":{},"spec":{"request":"LS0tLS1CRUdJTiBDRVJUSUZJQ0FURSBSRVFVRVNULS0tLS0KTUFZd0FEQUFBd0E9Ci0tLS0tRU5EIENFUlRJRklDQVRFIFJFUVVFU1QtLS0tLQo=","signerName":"a.b/c","usages":["any"],"username":"jane"},"status":{}}
    "#]],
    );
    check(
        kind,
        r#"{"spec":{"request":"YWJj","usages":["any","any"],"signerName":"a/b"}}"#,
        expect![[r#"
        spec.request: Invalid value: "YWJj": PEM block type must be CERTIFICATE REQUEST
        spec.usages[1]: Duplicate value: "any"
        spec.signerName: Invalid value: "a": should be a domain with at least two segments separated by dots
    "#]],
    );
}

#[test]
fn an_event_is_stored_under_older_names() {
    let event = r#"{"metadata":{"namespace":"n"},"eventTime":"2024-01-01T00:00:00.000000Z","reportingController":"c","reportingInstance":"i","action":"a","reason":"r","regarding":{"namespace":"n"},"note":"x","type":"Normal"}"#;
    check(
        "events.k8s.io/v1 Event",
        event,
        expect![[r#"
        {"metadata":{"namespace":"n"},"eventTime":"2024-01-01T00:00:00.000000Z","reportingController":"c","reportingInstance":"i","action":"a","reason":"r","regarding":{"namespace":"n"},"note":"x","type":"Normal","deprecatedSource":{},"deprecatedFirstTimestamp":null,"deprecatedLastTimestamp":null}
    "#]],
    );
    check(
        "events.k8s.io/v1 Event",
        r#"{"metadata":{"namespace":"n"},"deprecatedCount":1}"#,
        expect![[r#"
        involvedObject.namespace: Invalid value: "": does not match event.namespace
        eventTime: Required value
        type: Invalid value: "": has invalid value: 
        count: Invalid value: "": needs to be unset
    "#]],
    );
}

#[test]
fn a_question_about_access_is_about_one_thing() {
    let review = r#"{"metadata":{"name":"x"},"spec":{}}"#;
    check(
        "authorization.k8s.io/v1 SubjectAccessReview",
        review,
        expect![[r#"
        spec.resourceAttributes: Invalid value: null: exactly one of nonResourceAttributes or resourceAttributes must be specified
        spec.user: Invalid value: "": at least one of user or group must be specified
        metadata: Invalid value: {"name":"x"}: must be empty
    "#]],
    );
}
