//! What others add to the API.

use expect_test::expect;

use super::check;

#[test]
fn a_webhook_is_completed_and_checked() {
    let kind = "admissionregistration.k8s.io/v1 MutatingWebhookConfiguration";
    let webhook = r#"{"webhooks":[{"name":"a.b.c","clientConfig":{"service":{"name":"s","namespace":"n"}},"sideEffects":"None","admissionReviewVersions":["v1"],
        "rules":[{"operations":["*"],"apiGroups":[""],"apiVersions":["v1"],"resources":["pods"]}]}]}"#;
    check(
        kind,
        webhook,
        expect![[r#"
        {"metadata":{},"webhooks":[{"name":"a.b.c","clientConfig":{"service":{"namespace":"n","name":"s","port":443}},"rules":[{"operations":["*"],"apiGroups":[""],"apiVersions":["v1"],"resources":["pods"],"scope":"*"}],"failurePolicy":"Fail","matchPolicy":"Equivalent","namespaceSelector":{},"objectSelector":{},"sideEffects":"None","timeoutSeconds":10,"admissionReviewVersions":["v1"],"reinvocationPolicy":"Never"}]}
    "#]],
    );
    let webhook = r#"{"webhooks":[{"name":"a.b","clientConfig":{"url":"http://u@h?q"},"admissionReviewVersions":["v9"],
        "rules":[{"operations":["*","CREATE"],"apiGroups":[""],"apiVersions":[""],"resources":["pods/*","pods/log"]}]}]}"#;
    check(
        kind,
        webhook,
        expect![[r#"
        webhooks[0].name: Invalid value: "a.b": should be a domain with at least three segments separated by dots
        webhooks[0].rules[0].operations: Invalid value: ["*","CREATE"]: if '*' is present, must not specify other operations
        webhooks[0].rules[0].apiVersions[0]: Required value
        webhooks[0].rules[0].resources[1]: Invalid value: "pods/log": if 'pods/*' is present, must not specify pods/log
        webhooks[0].sideEffects: Required value: must specify one of None, NoneOnDryRun
        webhooks[0].clientConfig.url: Invalid value: "http": 'https' is the only allowed URL scheme; desired format: https://host[/path]
        webhooks[0].clientConfig.url: Invalid value: "u": user information is not permitted in the URL
        webhooks[0].clientConfig.url: Invalid value: "q": query parameters are not permitted in the URL
        webhooks[0].admissionReviewVersions: Invalid value: ["v9"]: must include at least one of v1, v1beta1
    "#]],
    );
}

#[test]
fn a_policy_has_something_to_do() {
    check(
        "admissionregistration.k8s.io/v1 ValidatingAdmissionPolicy",
        r#"{"spec":{"matchConstraints":{}}}"#,
        expect![[r#"
        spec.matchConstraints.resourceRules: Required value
        spec.validations: Required value: validations or auditAnnotations must contain at least one item
        spec.auditAnnotations: Required value: validations or auditAnnotations must contain at least one item
    "#]],
    );
    check(
        "admissionregistration.k8s.io/v1 MutatingAdmissionPolicy",
        r#"{"spec":{"mutations":[{}]}}"#,
        expect![[r#"
        spec.matchConstraints: Required value
        spec.mutations[0].patchType: Required value
        spec.reinvocationPolicy: Required value
    "#]],
    );
    let binding = r#"{"spec":{"policyName":"p","validationActions":["Deny","Warn"],"paramRef":{"name":"n","selector":{}}}}"#;
    check(
        "admissionregistration.k8s.io/v1 ValidatingAdmissionPolicyBinding",
        binding,
        expect![[r#"
        spec.paramRef.name: Forbidden: name and selector are mutually exclusive
        spec.paramRef.selector: Forbidden: name and selector are mutually exclusive
        spec.paramRef.parameterNotFoundAction: Required value
        spec.validationActions: Invalid value: ["Deny","Warn"]: must not contain both Deny and Warn (repeating the same validation failure information in the API response and headers serves no purpose)
    "#]],
    );
}

#[test]
fn a_definition_gets_names_and_a_stored_version() {
    let kind = "apiextensions.k8s.io/v1 CustomResourceDefinition";
    let definition = r#"{"metadata":{"name":"foos.a.b"},"spec":{"group":"a.b","scope":"Cluster","names":{"plural":"foos","kind":"Foo"},
        "versions":[{"name":"v1","served":true,"storage":true,"schema":{"openAPIV3Schema":{"type":"object"}}}]}}"#;
    check(
        kind,
        definition,
        expect![[r#"
        {"metadata":{"name":"foos.a.b"},"spec":{"group":"a.b","names":{"plural":"foos","singular":"foo","kind":"Foo","listKind":"FooList"},"scope":"Cluster","versions":[{"name":"v1","served":true,"storage":true,"schema":{"openAPIV3Schema":{"type":"object"}}}],"conversion":{"strategy":"None"}},"status":{"conditions":null,"acceptedNames":{"plural":"","kind":""},"storedVersions":["v1"]}}
    "#]],
    );
    let definition = r#"{"metadata":{"name":"foos"},"spec":{"group":"a.k8s.io","names":{"plural":"Foos","kind":"Foo","listKind":"Foo"},
        "versions":[{"name":"v1","subresources":{"scale":{"specReplicasPath":"x"}}}],"conversion":{"strategy":"Webhook"}}}"#;
    check(
        kind,
        definition,
        expect![[r#"
        metadata.name: Invalid value: "foos": must be spec.names.plural+"."+spec.group
        spec.scope: Required value
        spec.versions[0].schema.openAPIV3Schema: Required value
        spec.versions: Invalid value: [{"Name":"v1","Served":false,"Storage":false,"Deprecated":false,"DeprecationWarning":null,"Schema":null,"Subresources":null,"AdditionalPrinterColumns":null,"SelectableFields":null}]: must have exactly one version marked as storage version
        spec.names.plural: Invalid value: "Foos": a DNS-1035 label must consist of lower case alphanumeric characters or '-', start with an alphabetic character, and end with an alphanumeric character (e.g. 'my-name',  or 'abc-123', regex used for validation is '[a-z]([-a-z0-9]*[a-z0-9])?')
        spec.names.listKind: Invalid value: "Foo": kind and listKind may not be the same
        spec.subresources.scale.specReplicasPath: Invalid value: "x": must be a simple json path starting with .
        spec.subresources.scale.statusReplicasPath: Required value
        spec.conversion.webhookClientConfig: Required value: required when strategy is set to Webhook
        spec.conversion.conversionReviewVersions: Required value
        status.storedVersions: Invalid value: null: must have at least one stored version
        metadata.annotations[api-approved.kubernetes.io]: Required value: protected groups must have approval annotation "api-approved.kubernetes.io", see https://github.com/kubernetes/enhancements/pull/1111
    "#]],
    );
}

#[test]
fn a_local_service_is_available_at_once() {
    let kind = "apiregistration.k8s.io/v1 APIService";
    let service = r#"{"metadata":{"name":"v1.g"},"spec":{"group":"g","version":"v1","groupPriorityMinimum":1,"versionPriority":1}}"#;
    check(
        kind,
        service,
        expect![[r#"
        {"metadata":{"name":"v1.g"},"spec":{"group":"g","version":"v1","groupPriorityMinimum":1,"versionPriority":1},"status":{"conditions":[{"type":"Available","status":"True","lastTransitionTime":"2024-01-01T00:00:00Z","reason":"Local","message":"Local APIServices are always available"}]}}
    "#]],
    );
    check(
        kind,
        r#"{"metadata":{"name":"x"},"spec":{"group":"g","service":{}}}"#,
        expect![[r#"
        metadata.name: Invalid value: "x": must be `spec.version+"."+spec.group`: ".g"
        spec.version: Invalid value: "": a DNS-1035 label must consist of lower case alphanumeric characters or '-', start with an alphabetic character, and end with an alphanumeric character (e.g. 'my-name',  or 'abc-123', regex used for validation is '[a-z]([-a-z0-9]*[a-z0-9])?')
        spec.groupPriorityMinimum: Invalid value: 0: must be positive and less than 20000
        spec.versionPriority: Invalid value: 0: must be positive and less than 1000
        spec.service.namespace: Required value
        spec.service.name: Required value
    "#]],
    );
}
