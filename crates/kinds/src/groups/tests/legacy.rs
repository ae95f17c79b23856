//! Versions that Kubernetes serves no more: what they take for granted, and in whose words they are refused.

use expect_test::expect;

use super::{check, check_status, check_update};

const INGRESS: &str = "networking.k8s.io/v1beta1 Ingress";
const DEFINITION: &str = "apiextensions.k8s.io/v1beta1 CustomResourceDefinition";
const BUDGET: &str = "policy/v1beta1 PodDisruptionBudget";

#[test]
fn an_ingress_is_refused_in_its_own_words() {
    check(
        INGRESS,
        r#"{"spec":{}}"#,
        expect![[r#"
        spec: Invalid value: null: either `backend` or `rules` must be specified
    "#]],
    );
    let ingress = r#"{"spec":{"backend":{"serviceName":"UP","servicePort":"-"},"rules":[{"http":{"paths":[
        {"backend":{"serviceName":"a","servicePort":70000}},{"backend":{"serviceName":"a"}},{"backend":{}}]}}]}}"#;
    check(
        INGRESS,
        ingress,
        expect![[r#"
        spec.backend.serviceName: Invalid value: "UP": a lowercase RFC 1123 label must consist of lower case alphanumeric characters or '-', and must start and end with an alphanumeric character (e.g. 'my-name',  or '123-abc', regex used for validation is '[a-z0-9]([-a-z0-9]*[a-z0-9])?')
        spec.backend.servicePort: Invalid value: "-": must contain at least one letter (a-z)
        spec.backend.servicePort: Invalid value: "-": must not begin or end with a hyphen
        spec.rules[0].http.paths[0].backend.servicePort: Invalid value: 70000: must be between 1 and 65535, inclusive
        spec.rules[0].http.paths[1].backend: Required value: port name or number is required
        spec.rules[0].http.paths[2].backend: Invalid value: "": resource or service backend is required
    "#]],
    );
}

#[test]
fn an_ingress_may_name_any_secret_and_any_wildcard() {
    let ingress = r#"{"spec":{"tls":[{"secretName":"NO"}],"rules":[{"host":"*.a.com","http":{"paths":[
        {"path":"b","backend":{"serviceName":"a","servicePort":"web"}}]}}]}}"#;
    check(
        INGRESS,
        ingress,
        expect![[r#"
        {"metadata":{},"spec":{"tls":[{"secretName":"NO"}],"rules":[{"host":"*.a.com","http":{"paths":[{"path":"b","pathType":"ImplementationSpecific","backend":{"serviceName":"a","servicePort":"web"}}]}}]},"status":{"loadBalancer":{}}}
    "#]],
    );
}

#[test]
fn an_empty_selector_of_a_budget_selects_nothing() {
    check(
        BUDGET,
        r#"{"spec":{"selector":{}}}"#,
        expect![[r#"
        {"metadata":{},"spec":{"selector":{}},"status":{"disruptionsAllowed":0,"currentHealthy":0,"desiredHealthy":0,"expectedPods":0}}
    "#]],
    );
    check(
        "policy/v1 PodDisruptionBudget",
        r#"{"spec":{"selector":{}}}"#,
        expect![[r#"
        {"metadata":{},"spec":{"selector":{}},"status":{"disruptionsAllowed":0,"currentHealthy":0,"desiredHealthy":0,"expectedPods":0}}
    "#]],
    );
}

#[test]
fn the_status_of_a_budget_is_believed() {
    let status =
        r#"{"status":{"disruptionsAllowed":-1,"currentHealthy":0,"desiredHealthy":0,"expectedPods":0}}"#;
    check_status(
        BUDGET,
        status,
        r#"{"spec":{}}"#,
        expect![[r#"
        {"metadata":{},"spec":{},"status":{"disruptionsAllowed":-1,"currentHealthy":0,"desiredHealthy":0,"expectedPods":0}}
    "#]],
    );
}

#[test]
fn a_webhook_is_ignored_when_it_fails_and_may_have_side_effects() {
    for kind in ["ValidatingWebhookConfiguration", "MutatingWebhookConfiguration"] {
        let kind = format!("admissionregistration.k8s.io/v1beta1 {kind}");
        let url = r#"{"url":"https://a.b/"}"#;
        let twice = format!(
            r#"{{"name":"a.b.c","clientConfig":{url},"rules":[{{"operations":["*"],"apiGroups":["*"],"apiVersions":["*"],"resources":["*"]}}]}}"#
        );
        let expect = match kind.contains("Validating") {
            true => expect![[r#"
                {"metadata":{},"webhooks":[{"name":"a.b.c","clientConfig":{"url":"https://a.b/"},"rules":[{"operations":["*"],"apiGroups":["*"],"apiVersions":["*"],"resources":["*"],"scope":"*"}],"failurePolicy":"Ignore","matchPolicy":"Exact","namespaceSelector":{},"objectSelector":{},"sideEffects":"Unknown","timeoutSeconds":30,"admissionReviewVersions":["v1beta1"]},{"name":"a.b.c","clientConfig":{"url":"https://a.b/"},"rules":[{"operations":["*"],"apiGroups":["*"],"apiVersions":["*"],"resources":["*"],"scope":"*"}],"failurePolicy":"Ignore","matchPolicy":"Exact","namespaceSelector":{},"objectSelector":{},"sideEffects":"Unknown","timeoutSeconds":30,"admissionReviewVersions":["v1beta1"]}]}
            "#]],
            false => expect![[r#"
                {"metadata":{},"webhooks":[{"name":"a.b.c","clientConfig":{"url":"https://a.b/"},"rules":[{"operations":["*"],"apiGroups":["*"],"apiVersions":["*"],"resources":["*"],"scope":"*"}],"failurePolicy":"Ignore","matchPolicy":"Exact","namespaceSelector":{},"objectSelector":{},"sideEffects":"Unknown","timeoutSeconds":30,"admissionReviewVersions":["v1beta1"],"reinvocationPolicy":"Never"},{"name":"a.b.c","clientConfig":{"url":"https://a.b/"},"rules":[{"operations":["*"],"apiGroups":["*"],"apiVersions":["*"],"resources":["*"],"scope":"*"}],"failurePolicy":"Ignore","matchPolicy":"Exact","namespaceSelector":{},"objectSelector":{},"sideEffects":"Unknown","timeoutSeconds":30,"admissionReviewVersions":["v1beta1"],"reinvocationPolicy":"Never"}]}
            "#]],
        };
        check(&kind, &format!(r#"{{"webhooks":[{twice},{twice}]}}"#), expect);
    }
}

#[test]
fn a_definition_needs_no_schema_and_keeps_what_it_does_not_know() {
    let names = r#""names":{"plural":"as","kind":"A"}"#;
    let definition = format!(
        r#"{{"metadata":{{"name":"as.x.k8s.io"}},"spec":{{"group":"x.k8s.io","version":"v1",{names}}}}}"#
    );
    check(
        DEFINITION,
        &definition,
        expect![[r#"
        {"metadata":{"name":"as.x.k8s.io"},"spec":{"group":"x.k8s.io","version":"v1","names":{"plural":"as","singular":"a","kind":"A","listKind":"AList"},"scope":"Namespaced","versions":[{"name":"v1","served":true,"storage":true}],"conversion":{"strategy":"None"},"preserveUnknownFields":true},"status":{"conditions":null,"acceptedNames":{"plural":"","kind":""},"storedVersions":["v1"]}}
    "#]],
    );
    let pruning = format!(
        r#"{{"metadata":{{"name":"as"}},"spec":{{"group":"x.io","version":"v1","preserveUnknownFields":false,{names}}}}}"#
    );
    check(
        DEFINITION,
        &pruning,
        expect![[r#"
        metadata.name: Invalid value: "as": must be spec.names.plural+"."+spec.group
        spec.versions[0].schema.openAPIV3Schema: Required value
    "#]],
    );
    check_update(
        DEFINITION,
        &definition,
        &definition.replace("x.k8s.io", "y.io"),
        expect![[r#"
        spec.group: Invalid value: "x.k8s.io": field is immutable
    "#]],
    );
}

#[test]
fn what_versions_share_stands_above_them() {
    let definition = |spec: &str| {
        format!(
            r#"{{"metadata":{{"name":"as.x.io"}},"spec":{{"group":"x.io","names":{{"plural":"as","kind":"A"}},{spec}}}}}"#
        )
    };
    let columns = r#""additionalPrinterColumns":[{"name":"a","type":"string","JSONPath":".a"}]"#;
    let versions = |first: &str, second: &str| {
        format!(
            r#""versions":[{{"name":"v1","served":true,"storage":true{first}}},{{"name":"v2","served":true,"storage":false{second}}}]"#
        )
    };
    let shared = definition(&format!("{columns},{}", versions("", "")));
    check(
        DEFINITION,
        &shared,
        expect![[r#"
        {"metadata":{"name":"as.x.io"},"spec":{"group":"x.io","version":"v1","names":{"plural":"as","singular":"a","kind":"A","listKind":"AList"},"scope":"Namespaced","versions":[{"name":"v1","served":true,"storage":true},{"name":"v2","served":true,"storage":false}],"additionalPrinterColumns":[{"name":"a","type":"string","JSONPath":".a"}],"conversion":{"strategy":"None"},"preserveUnknownFields":true},"status":{"conditions":null,"acceptedNames":{"plural":"","kind":""},"storedVersions":["v1"]}}
    "#]],
    );
    let both = definition(&format!("\"version\":\"v2\",{columns},{}", versions(&format!(",{columns}"), "")));
    check(
        DEFINITION,
        &both,
        expect![[r#"
        spec.additionalPrinterColumns: Forbidden: top-level and per-version additionalPrinterColumns are mutually exclusive
        spec.version: Invalid value: "v2": must match the first version in spec.versions
    "#]],
    );
    let alike = definition(&versions(&format!(",{columns}"), &format!(",{columns}")));
    check(
        DEFINITION,
        &alike,
        expect![[r#"
        spec.versions: Invalid value: [{"Name":"v1","Served":true,"Storage":true,"Deprecated":false,"DeprecationWarning":null,"Schema":null,"Subresources":null,"AdditionalPrinterColumns":[{"Name":"a","Type":"string","Format":"","Description":"","Priority":0,"JSONPath":".a"}],"SelectableFields":null},{"Name":"v2","Served":true,"Storage":false,"Deprecated":false,"DeprecationWarning":null,"Schema":null,"Subresources":null,"AdditionalPrinterColumns":[{"Name":"a","Type":"string","Format":"","Description":"","Priority":0,"JSONPath":".a"}],"SelectableFields":null}]: per-version additionalPrinterColumns may not all be set to identical values (top-level additionalPrinterColumns should be used instead)
    "#]],
    );
}

#[test]
fn a_definition_converts_by_a_webhook() {
    let conversion =
        r#"{"strategy":"Webhook","webhookClientConfig":{"service":{"namespace":"a","name":"b"}}}"#;
    let definition = format!(
        r#"{{"metadata":{{"name":"as.x.io"}},"spec":{{"group":"x.io","version":"v1","names":{{"plural":"as","kind":"A"}},
        "preserveUnknownFields":false,"validation":{{"openAPIV3Schema":{{"type":"object"}}}},"conversion":{conversion}}}}}"#
    );
    check(
        DEFINITION,
        &definition,
        expect![[r#"
        {"metadata":{"name":"as.x.io"},"spec":{"group":"x.io","version":"v1","names":{"plural":"as","singular":"a","kind":"A","listKind":"AList"},"scope":"Namespaced","validation":{"openAPIV3Schema":{"type":"object"}},"versions":[{"name":"v1","served":true,"storage":true}],"conversion":{"strategy":"Webhook","webhookClientConfig":{"service":{"namespace":"a","name":"b","port":443}},"conversionReviewVersions":["v1beta1"]},"preserveUnknownFields":false},"status":{"conditions":null,"acceptedNames":{"plural":"","kind":""},"storedVersions":["v1"]}}
    "#]],
    );
}

#[test]
fn a_binding_means_the_group_that_it_is_in() {
    let binding = r#"{"roleRef":{"kind":"Role","name":"a"},"subjects":[{"kind":"User","name":"b"}]}"#;
    check(
        "rbac.authorization.k8s.io/v1beta1 RoleBinding",
        binding,
        expect![[r#"
        {"metadata":{},"subjects":[{"kind":"User","apiGroup":"rbac.authorization.k8s.io","name":"b"}],"roleRef":{"apiGroup":"rbac.authorization.k8s.io","kind":"Role","name":"a"}}
    "#]],
    );
}

#[test]
fn an_event_of_v1beta1_may_lack_what_v1_wants() {
    let event =
        r#"{"metadata":{"namespace":"default"},"eventTime":null,"note":"n","regarding":{"kind":"Pod"}}"#;
    check(
        "events.k8s.io/v1beta1 Event",
        event,
        expect![[r#"
        {"metadata":{"namespace":"default"},"eventTime":null,"regarding":{"kind":"Pod"},"note":"n","deprecatedSource":{},"deprecatedFirstTimestamp":null,"deprecatedLastTimestamp":null}
    "#]],
    );
    check(
        "events.k8s.io/v1 Event",
        event,
        expect![[r#"
        eventTime: Required value
        type: Invalid value: "": has invalid value: 
    "#]],
    );
}
