//! Tests of API extension: webhooks, policies, CustomResourceDefinitions, APIServices.

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
fn a_webhook_that_says_nothing_is_left_out() {
    let kind = "apiextensions.k8s.io/v1 CustomResourceDefinition";
    let definition = r#"{"metadata":{"name":"foos.a.b"},"spec":{"group":"a.b","scope":"Cluster","names":{"plural":"foos","kind":"Foo"},
        "versions":[{"name":"v1","served":true,"storage":true,"schema":{"openAPIV3Schema":{"type":"object"}}}],
        "conversion":{"strategy":"None","webhook":{}}}}"#;
    check(
        kind,
        definition,
        expect![[r#"
        {"metadata":{"name":"foos.a.b"},"spec":{"group":"a.b","names":{"plural":"foos","singular":"foo","kind":"Foo","listKind":"FooList"},"scope":"Cluster","versions":[{"name":"v1","served":true,"storage":true,"schema":{"openAPIV3Schema":{"type":"object"}}}],"conversion":{"strategy":"None"}},"status":{"conditions":null,"acceptedNames":{"plural":"","kind":""},"storedVersions":["v1"]}}
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

/// A definition with one version that has this schema.
pub(super) fn definition(schema: &str, more: &str) -> String {
    format!(
        r#"{{"metadata":{{"name":"foos.example.com"}},"spec":{{"group":"example.com","scope":"Namespaced",
            "names":{{"plural":"foos","kind":"Foo"}},
            "versions":[{{"name":"v1","served":true,"storage":true,"schema":{{"openAPIV3Schema":{schema}}}{more}}}]}}}}"#
    )
}

#[track_caller]
fn check_schema(schema: &str, expect: expect_test::Expect) {
    check(
        "apiextensions.k8s.io/v1 CustomResourceDefinition",
        &definition(schema, ""),
        expect,
    );
}

#[test]
fn a_schema_is_structural() {
    check_schema(
        r#"{"type":"object","properties":{"spec":{"properties":{"a":{"type":"array"}}},"metadata":{"type":"object","properties":{"labels":{"type":"object"}}},
            "x":{"type":"object","x-kubernetes-embedded-resource":true}},"additionalProperties":true}"#,
        expect![[r#"
            spec.validation.openAPIV3Schema.additionalProperties: Forbidden: must not be used at the root
            spec.validation.openAPIV3Schema.properties[metadata]: Forbidden: must not specify anything other than name and generateName, but metadata is implicitly specified
            spec.validation.openAPIV3Schema.properties[spec].properties[a].items: Required value: must be specified
            spec.validation.openAPIV3Schema.properties[spec].type: Required value: must not be empty for specified object fields
            spec.validation.openAPIV3Schema.properties[x].properties: Required value: must not be empty if x-kubernetes-embedded-resource is true without x-kubernetes-preserve-unknown-fields
        "#]],
    );
    check_schema(
        r#"{"type":"object","properties":{"a":{"type":"string"}},
            "oneOf":[{"properties":{"a":{"type":"string","description":"x"},"b":{"pattern":"("}}}]}"#,
        expect![[r#"
            spec.validation.openAPIV3Schema.oneOf[0].properties[a].description: Forbidden: must be empty to be structural
            spec.validation.openAPIV3Schema.oneOf[0].properties[a].type: Forbidden: must be empty to be structural
            spec.validation.openAPIV3Schema.oneOf[0].properties[b].pattern: Invalid value: "(": must be a valid regular expression, but isn't: error parsing regexp: missing closing ): `(`
            spec.validation.openAPIV3Schema.properties[b]: Required value: because it is defined in spec.validation.openAPIV3Schema.oneOf[0].properties[b]
        "#]],
    );
    check_schema(
        r#"{"type":"object","$ref":"x","properties":{"a":{"type":"string","id":"y","uniqueItems":true}}}"#,
        expect![[r#"
            spec.validation.openAPIV3Schema.$ref: Forbidden: $ref is not supported
            spec.validation.openAPIV3Schema.properties[a].id: Forbidden: id is not supported
            spec.validation.openAPIV3Schema.properties[a].uniqueItems: Forbidden: uniqueItems cannot be set to true since the runtime complexity becomes quadratic
        "#]],
    );
    check_schema(
        r#"{"type":"object","$schema":"x"}"#,
        expect![[r#"
            spec.validation.openAPIV3Schema: Invalid value: "": OpenAPIV3Schema 'schema' is not supported
        "#]],
    );
}

#[test]
fn a_default_is_what_its_schema_demands() {
    check_schema(
        r#"{"type":"object","properties":{"a":{"type":"integer","default":"x","minimum":1},
            "b":{"type":"object","properties":{"c":{"type":"string"}},"default":{"z":1,"c":2}},
            "metadata":{"type":"object","default":{}},
            "e":{"type":"object","x-kubernetes-embedded-resource":true,"x-kubernetes-preserve-unknown-fields":true,"default":{"kind":"K","apiVersion":"v1"},
                 "properties":{"metadata":{"type":"object","default":{"labels":{"a":1}}}}}}}"#,
        expect![[r#"
            spec.validation.openAPIV3Schema.properties[a].default: Invalid value: "string":  in body must be of type integer: "string"
            spec.validation.openAPIV3Schema.properties[b].default: Invalid value: {"c":2,"z":1}: must not have unknown fields
            spec.validation.openAPIV3Schema.properties[b].default.c: Invalid value: "integer": c in body must be of type string: "integer"
            spec.validation.openAPIV3Schema.properties[e].properties[metadata].default: Invalid value: {"labels":{"a":1}}: must result in valid metadata: metadata: Invalid value: {"labels":{"a":1}}: json: cannot unmarshal number into Go struct field ObjectMeta.labels of type string
            spec.validation.openAPIV3Schema.properties[metadata].default: Forbidden: must not be set in top-level metadata
        "#]],
    );
}

#[test]
fn rules_are_written_properly() {
    check_schema(
        r#"{"type":"object","properties":{"a":{"type":"string"}},"x-kubernetes-validations":[
            {"rule":" "},{"rule":"true","message":" ","reason":"Nope"},{"rule":"a\nb","fieldPath":".b"},{"rule":"true","fieldPath":".a"}]}"#,
        expect![[r#"
            spec.validation.openAPIV3Schema.x-kubernetes-validations[0].rule: Required value: rule is not specified
            spec.validation.openAPIV3Schema.x-kubernetes-validations[1].message: Invalid value: " ": must be non-empty if specified
            spec.validation.openAPIV3Schema.x-kubernetes-validations[1].reason: Unsupported value: "Nope": supported values: "FieldValueDuplicate", "FieldValueForbidden", "FieldValueInvalid", "FieldValueRequired"
            spec.validation.openAPIV3Schema.x-kubernetes-validations[2].message: Required value: message must be specified if rule contains line breaks
            spec.validation.openAPIV3Schema.x-kubernetes-validations[2].fieldPath: Invalid value: ".b": must be a valid path
        "#]],
    );
}

#[test]
fn with_a_status_the_root_only_describes() {
    check(
        "apiextensions.k8s.io/v1 CustomResourceDefinition",
        &definition(r#"{"type":"string"}"#, r#","subresources":{"status":{}}"#),
        expect![[r#"
            spec.validation.openAPIV3Schema.type: Invalid value: "string": only "object" is allowed as the type at the root of the schema if the status subresource is enabled
            spec.validation.openAPIV3Schema.type: Invalid value: "string": must be object at the root
        "#]],
    );
}

#[test]
fn what_was_broken_before_may_stay() {
    let kind = "apiextensions.k8s.io/v1 CustomResourceDefinition";
    let broken = r#"{"type":"object","properties":{"a":{"type":"array","x-kubernetes-list-type":"set","items":{"type":"object"}},
        "b":{"type":"object","default":{"z":1}}}}"#;
    let (old, new) = (
        definition(broken, ""),
        definition(broken, r#","deprecated":true"#),
    );
    let whole = definition(r#"{"type":"object"}"#, "");
    let versioned =
        |text: &str| text.replace(r#""metadata":{"#, r#""metadata":{"resourceVersion":"1","#);
    super::check_update(
        kind,
        &versioned(&new),
        &versioned(&whole),
        expect![[r#"
            spec.validation.openAPIV3Schema.properties[b].default: Invalid value: {"z":1}: must not have unknown fields
            spec.validation.openAPIV3Schema.properties[a].items.x-kubernetes-map-type: Invalid value: null: must be atomic as item of a list with x-kubernetes-list-type=set
        "#]],
    );
    super::check_update(
        kind,
        &versioned(&new),
        &versioned(&old),
        expect![[r#"
        {"metadata":{"name":"foos.example.com","resourceVersion":"1"},"spec":{"group":"example.com","names":{"plural":"foos","singular":"foo","kind":"Foo","listKind":"FooList"},"scope":"Namespaced","versions":[{"name":"v1","served":true,"storage":true,"deprecated":true,"schema":{"openAPIV3Schema":{"type":"object","properties":{"a":{"type":"array","items":{"type":"object"},"x-kubernetes-list-type":"set"},"b":{"type":"object","default":{"z":1}}}}}}],"conversion":{"strategy":"None"}},"status":{"conditions":null,"acceptedNames":{"plural":"","kind":""},"storedVersions":["v1"]}}
    "#]],
    );
}

#[test]
fn an_unknown_format_is_a_warning() {
    check(
        "apiextensions.k8s.io/v1 CustomResourceDefinition",
        &definition(
            r#"{"type":"object","properties":{"a":{"type":"string","format":"zip"},"b":{"type":"integer","format":"int32"}}}"#,
            "",
        ),
        expect![[r#"
            {"metadata":{"name":"foos.example.com"},"spec":{"group":"example.com","names":{"plural":"foos","singular":"foo","kind":"Foo","listKind":"FooList"},"scope":"Namespaced","versions":[{"name":"v1","served":true,"storage":true,"schema":{"openAPIV3Schema":{"type":"object","properties":{"a":{"type":"string","format":"zip"},"b":{"type":"integer","format":"int32"}}}}}],"conversion":{"strategy":"None"}},"status":{"conditions":null,"acceptedNames":{"plural":"","kind":""},"storedVersions":["v1"]}}
            unrecognized format "zip"
        "#]],
    );
}

#[test]
fn a_served_kind_gets_no_unreadable_authorities() {
    let established = |bundle: &str| {
        let whole = definition(r#"{"type":"object"}"#, "").replace(
            r#""scope":"#,
            &format!(
                r#""conversion":{{"strategy":"Webhook","webhook":{{"conversionReviewVersions":["v1"],
                    "clientConfig":{{"url":"https://a/b","caBundle":"{bundle}"}}}}}},"scope":"#
            ),
        );
        let status = r#""status":{"storedVersions":["v1"],"conditions":[{"type":"Established","status":"True"}]}"#;
        whole.replace(
            r#""metadata":{"#,
            &format!(r#"{status},"metadata":{{"resourceVersion":"1","#),
        )
    };
    let kind = "apiextensions.k8s.io/v1 CustomResourceDefinition";
    super::check_update(
        kind,
        &established("eHg="),
        &established(""),
        expect![[r#"
            spec.conversion.webhookClientConfig.caBundle: Invalid value: "eHg=": unable to load root certificates: unable to parse bytes as PEM block
        "#]],
    );
    super::check_update(
        kind,
        &established("eHh4"),
        &established("eHg="),
        expect![[r#"
        {"metadata":{"name":"foos.example.com","resourceVersion":"1"},"spec":{"group":"example.com","names":{"plural":"foos","singular":"foo","kind":"Foo","listKind":"FooList"},"scope":"Namespaced","versions":[{"name":"v1","served":true,"storage":true,"schema":{"openAPIV3Schema":{"type":"object"}}}],"conversion":{"strategy":"Webhook","webhook":{"clientConfig":{"url":"https://a/b","caBundle":"eHh4"},"conversionReviewVersions":["v1"]}}},"status":{"conditions":[{"type":"Established","status":"True","lastTransitionTime":null}],"acceptedNames":{"plural":"","kind":""},"storedVersions":["v1"]}}
    "#]],
    );
}
