//! Tests of removed versions: their defaults and their error messages.

use expect_test::{Expect, expect};
use mizzen_object::Action;
use mizzen_value::json;

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
    let status = r#"{"status":{"disruptionsAllowed":-1,"currentHealthy":0,"desiredHealthy":0,"expectedPods":0}}"#;
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
    for kind in [
        "ValidatingWebhookConfiguration",
        "MutatingWebhookConfiguration",
    ] {
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
        check(
            &kind,
            &format!(r#"{{"webhooks":[{twice},{twice}]}}"#),
            expect,
        );
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
    let both = definition(&format!(
        "\"version\":\"v2\",{columns},{}",
        versions(&format!(",{columns}"), "")
    ));
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
    let binding =
        r#"{"roleRef":{"kind":"Role","name":"a"},"subjects":[{"kind":"User","name":"b"}]}"#;
    check(
        "rbac.authorization.k8s.io/v1beta1 RoleBinding",
        binding,
        expect![[r#"
        {"metadata":{},"subjects":[{"kind":"User","apiGroup":"rbac.authorization.k8s.io","name":"b"}],"roleRef":{"apiGroup":"rbac.authorization.k8s.io","kind":"Role","name":"a"}}
    "#]],
    );
}

/// A signed thing, empty inside.
const REQUEST: &str = "LS0tLS1CRUdJTiBDRVJUSUZJQ0FURSBSRVFVRVNULS0tLS0KTUFZd0FEQUFBd0E9Ci0tLS0tRU5EIENFUlRJRklDQVRFIFJFUVVFU1QtLS0tLQo=";
const TEMPLATE: &str = r#""template":{"metadata":{"labels":{"app":"a"}},"spec":{"containers":[{"name":"c","image":"i"}]}}"#;

#[track_caller]
fn check_defaults(kind: &str, spec: &str, fields: &[&str], expect: Expect) {
    let (api_version, name) = kind.split_once(' ').unwrap();
    let object = format!(r#"{{"metadata":{{"name":"a"}},"spec":{{{spec}}}}}"#);
    let outcome = super::run(
        Action::Create,
        super::kind(api_version, name),
        &object,
        None,
    );
    let object = json::parse(outcome.as_bytes()).expect("an object");
    let shown = |path: &&str| format!("{path}: {}\n", json::to_string(object.at(path)));
    expect.assert_eq(&fields.iter().map(shown).collect::<String>());
}

#[test]
fn a_deployment_has_the_defaults_of_its_version() {
    let fields = [
        "metadata.labels",
        "spec.selector",
        "spec.strategy",
        "spec.revisionHistoryLimit",
        "spec.progressDeadlineSeconds",
    ];
    check_defaults(
        "extensions/v1beta1 Deployment",
        TEMPLATE,
        &fields,
        expect![[r#"
        metadata.labels: {"app":"a"}
        spec.selector: {"matchLabels":{"app":"a"}}
        spec.strategy: {"type":"RollingUpdate","rollingUpdate":{"maxUnavailable":1,"maxSurge":1}}
        spec.revisionHistoryLimit: 2147483647
        spec.progressDeadlineSeconds: 2147483647
    "#]],
    );
    check_defaults(
        "apps/v1beta1 Deployment",
        TEMPLATE,
        &fields,
        expect![[r#"
        metadata.labels: {"app":"a"}
        spec.selector: {"matchLabels":{"app":"a"}}
        spec.strategy: {"type":"RollingUpdate","rollingUpdate":{"maxUnavailable":"25%","maxSurge":"25%"}}
        spec.revisionHistoryLimit: 2
        spec.progressDeadlineSeconds: 600
    "#]],
    );
    let selected = format!(r#"{TEMPLATE},"selector":{{"matchLabels":{{"app":"a"}}}}"#);
    check_defaults(
        "apps/v1beta2 Deployment",
        &selected,
        &fields,
        expect![[r#"
        metadata.labels: null
        spec.selector: {"matchLabels":{"app":"a"}}
        spec.strategy: {"type":"RollingUpdate","rollingUpdate":{"maxUnavailable":"25%","maxSurge":"25%"}}
        spec.revisionHistoryLimit: 10
        spec.progressDeadlineSeconds: 600
    "#]],
    );
}

#[test]
fn pods_of_the_first_versions_are_replaced_when_they_are_deleted() {
    let fields = [
        "metadata.labels",
        "metadata.annotations",
        "spec.selector",
        "spec.updateStrategy",
    ];
    check_defaults(
        "extensions/v1beta1 DaemonSet",
        TEMPLATE,
        &fields,
        expect![[r#"
        metadata.labels: {"app":"a"}
        metadata.annotations: null
        spec.selector: {"matchLabels":{"app":"a"}}
        spec.updateStrategy: {"type":"OnDelete"}
    "#]],
    );
    check_defaults(
        "apps/v1beta1 StatefulSet",
        TEMPLATE,
        &fields,
        expect![[r#"
        metadata.labels: {"app":"a"}
        metadata.annotations: null
        spec.selector: {"matchLabels":{"app":"a"}}
        spec.updateStrategy: {"type":"OnDelete"}
    "#]],
    );
    let selected = format!(r#"{TEMPLATE},"selector":{{"matchLabels":{{"app":"a"}}}}"#);
    check_defaults(
        "apps/v1beta2 StatefulSet",
        &selected,
        &fields,
        expect![[r#"
        metadata.labels: null
        metadata.annotations: null
        spec.selector: {"matchLabels":{"app":"a"}}
        spec.updateStrategy: {"type":"RollingUpdate","rollingUpdate":{"partition":0}}
    "#]],
    );
    check_defaults(
        "apps/v1beta2 DaemonSet",
        &selected,
        &fields,
        expect![[r#"
        metadata.labels: null
        metadata.annotations: {"deprecated.daemonset.template.generation":"1"}
        spec.selector: {"matchLabels":{"app":"a"}}
        spec.updateStrategy: {"type":"RollingUpdate","rollingUpdate":{"maxUnavailable":1,"maxSurge":0}}
    "#]],
    );
}

#[test]
fn a_workload_without_a_selector_is_refused_from_v1beta2_on() {
    let object = format!(r#"{{"metadata":{{"name":"a"}},"spec":{{{TEMPLATE}}}}}"#);
    check(
        "apps/v1beta2 ReplicaSet",
        &object,
        expect![[r#"
        spec.selector: Required value
        spec.template.metadata.labels: Invalid value: {"app":"a"}: `selector` does not match template `labels`
    "#]],
    );
    let fields = ["metadata.labels", "spec.selector", "spec.replicas"];
    check_defaults(
        "extensions/v1beta1 ReplicaSet",
        TEMPLATE,
        &fields,
        expect![[r#"
        metadata.labels: {"app":"a"}
        spec.selector: {"matchLabels":{"app":"a"}}
        spec.replicas: 1
    "#]],
    );
}

#[test]
fn a_selector_could_change_before_v1beta2() {
    let workload = |app: &str| {
        let selector = r#""selector":{"matchLabels":{"app":"a"}}"#;
        let text = format!(
            r#"{{"metadata":{{"name":"a","resourceVersion":"1"}},"spec":{{{TEMPLATE},{selector}}}}}"#
        );
        text.replace(r#""app":"a""#, &format!(r#""app":"{app}""#))
    };
    let outcome = |version: &str, kind: &str| {
        super::run(
            Action::Update,
            super::kind(version, kind),
            &workload("b"),
            Some(&workload("a")),
        )
    };
    for kind in ["Deployment", "ReplicaSet", "DaemonSet"] {
        let (old, new) = (
            outcome("extensions/v1beta1", kind),
            outcome("apps/v1beta2", kind),
        );
        assert!(old.starts_with('{'), "{old}");
        assert!(new.starts_with("spec.selector: Invalid value"), "{new}");
    }
    let old = outcome("apps/v1beta1", "Deployment");
    assert!(old.starts_with('{'), "{old}");
}

#[test]
fn an_autoscaler_keeps_what_its_version_has_no_field_for_in_annotations() {
    let v2beta1 = "autoscaling/v2beta1 HorizontalPodAutoscaler";
    let target = r#""scaleTargetRef":{"kind":"Deployment","name":"a","apiVersion":"apps/v1"},"maxReplicas":3"#;
    check(
        v2beta1,
        &format!(r#"{{"spec":{{{target}}}}}"#),
        expect![[r#"
        {"metadata":{},"spec":{"scaleTargetRef":{"kind":"Deployment","name":"a","apiVersion":"apps/v1"},"minReplicas":1,"maxReplicas":3,"metrics":[{"type":"Resource","resource":{"name":"cpu","targetAverageUtilization":80}}]},"status":{"currentReplicas":0,"desiredReplicas":0,"currentMetrics":null,"conditions":null}}
    "#]],
    );
    let metrics = r#""metrics":[{"type":"External","external":{"metricName":"q","targetValue":"3"}},
        {"type":"Pods","pods":{"metricName":"p","targetAverageValue":"10"}}]"#;
    check(
        v2beta1,
        &format!(r#"{{"spec":{{{target},{metrics}}}}}"#),
        expect![[r#"
        {"metadata":{},"spec":{"scaleTargetRef":{"kind":"Deployment","name":"a","apiVersion":"apps/v1"},"minReplicas":1,"maxReplicas":3,"metrics":[{"type":"External","external":{"metricName":"q","targetValue":"3"}},{"type":"Pods","pods":{"metricName":"p","targetAverageValue":"10"}}]},"status":{"currentReplicas":0,"desiredReplicas":0,"currentMetrics":null,"conditions":null}}
    "#]],
    );
    let v2beta2 = "autoscaling/v2beta2 HorizontalPodAutoscaler";
    let tolerant = format!(
        r#"{{"metadata":{{"annotations":{{"autoscaling.alpha.kubernetes.io/scale-up-tolerance":"100m"}}}},"spec":{{{target},"behavior":{{}}}}}}"#
    );
    check(
        v2beta2,
        &tolerant,
        expect![[r#"
        {"metadata":{"annotations":{"autoscaling.alpha.kubernetes.io/scale-up-tolerance":"100m"}},"spec":{"scaleTargetRef":{"kind":"Deployment","name":"a","apiVersion":"apps/v1"},"minReplicas":1,"maxReplicas":3,"metrics":[{"type":"Resource","resource":{"name":"cpu","target":{"type":"Utilization","averageUtilization":80}}}],"behavior":{"scaleUp":{"stabilizationWindowSeconds":0,"selectPolicy":"Max","policies":[{"type":"Pods","value":4,"periodSeconds":15},{"type":"Percent","value":100,"periodSeconds":15}]},"scaleDown":{"selectPolicy":"Max","policies":[{"type":"Percent","value":100,"periodSeconds":15}]}}},"status":{"currentReplicas":0,"desiredReplicas":0,"currentMetrics":null,"conditions":null}}
    "#]],
    );
}

#[test]
fn a_slice_has_the_zone_and_the_node_in_its_topology() {
    let slice = r#"{"addressType":"IPv4","endpoints":[
        {"addresses":["10.0.0.1"],"nodeName":"n","topology":{"topology.kubernetes.io/zone":"z","rack":"7"}},
        {"addresses":["10.0.0.2"],"topology":{"kubernetes.io/hostname":"h"}}],"ports":[{"port":80}]}"#;
    check(
        "discovery.k8s.io/v1beta1 EndpointSlice",
        slice,
        expect![[r#"
        {"metadata":{},"addressType":"IPv4","endpoints":[{"addresses":["10.0.0.1"],"conditions":{},"topology":{"kubernetes.io/hostname":"n","rack":"7","topology.kubernetes.io/zone":"z"},"nodeName":"n"},{"addresses":["10.0.0.2"],"conditions":{},"topology":{"kubernetes.io/hostname":"h"}}],"ports":[{"name":"","protocol":"TCP","port":80}]}
    "#]],
    );
}

#[test]
fn a_level_has_shares_in_every_version() {
    let limited = r#""type":"Limited","limited":{"limitResponse":{"type":"Reject"}}"#;
    let [v1beta1, v1beta2] = ["v1beta1", "v1beta2"].map(|version| {
        format!("flowcontrol.apiserver.k8s.io/{version} PriorityLevelConfiguration")
    });
    check_defaults(
        &v1beta1,
        limited,
        &["spec.limited"],
        expect![[r#"
        spec.limited: {"assuredConcurrencyShares":30,"limitResponse":{"type":"Reject"},"lendablePercent":0}
    "#]],
    );
    check_defaults(
        &v1beta2,
        limited,
        &["spec.limited"],
        expect![[r#"
        spec.limited: {"assuredConcurrencyShares":30,"limitResponse":{"type":"Reject"},"lendablePercent":0}
    "#]],
    );
    let v1beta3 = "flowcontrol.apiserver.k8s.io/v1beta3 PriorityLevelConfiguration";
    check_defaults(
        v1beta3,
        limited,
        &["metadata.annotations", "spec.limited"],
        expect![[r#"
        metadata.annotations: null
        spec.limited: {"nominalConcurrencyShares":30,"limitResponse":{"type":"Reject"},"lendablePercent":0}
    "#]],
    );
    let zero = r#"{"metadata":{"name":"a","annotations":{"flowcontrol.k8s.io/v1beta3-preserve-zero-concurrency-shares":""}},
        "spec":{"type":"Limited","limited":{"limitResponse":{"type":"Reject"}}}}"#;
    check(
        v1beta3,
        zero,
        expect![[r#"
        {"metadata":{"name":"a","annotations":{"flowcontrol.k8s.io/v1beta3-preserve-zero-concurrency-shares":""}},"spec":{"type":"Limited","limited":{"nominalConcurrencyShares":0,"limitResponse":{"type":"Reject"},"lendablePercent":0}},"status":{}}
    "#]],
    );
}

#[test]
fn a_request_of_v1beta1_needs_no_signer_and_may_use_anything() {
    let request = format!(r#"{{"spec":{{"request":"{REQUEST}","usages":["fun","fun"]}}}}"#);
    check(
        "certificates.k8s.io/v1beta1 CertificateSigningRequest",
        &request,
        expect![[r#"
        {"metadata":{},"spec":{"request":"LS0tLS1CRUdJTiBDRVJUSUZJQ0FURSBSRVFVRVNULS0tLS0KTUFZd0FEQUFBd0E9Ci0tLS0tRU5EIENFUlRJRklDQVRFIFJFUVVFU1QtLS0tLQo=","signerName":"kubernetes.io/legacy-unknown","usages":["fun","fun"],"username":"jane"},"status":{}}
    "#]],
    );
    check(
        "certificates.k8s.io/v1 CertificateSigningRequest",
        &request,
        expect![[r#"
        spec.usages[0]: Unsupported value: "fun": supported values: "any", "cert sign", "client auth", "code signing", "content commitment", "crl sign", "data encipherment", "decipher only", "digital signature", "email protection", "encipher only", "ipsec end system", "ipsec tunnel", "ipsec user", "key agreement", "key encipherment", "microsoft sgc", "netscape sgc", "ocsp signing", "s/mime", "server auth", "signing", "timestamping"
        spec.usages[1]: Unsupported value: "fun": supported values: "any", "cert sign", "client auth", "code signing", "content commitment", "crl sign", "data encipherment", "decipher only", "digital signature", "email protection", "encipher only", "ipsec end system", "ipsec tunnel", "ipsec user", "key agreement", "key encipherment", "microsoft sgc", "netscape sgc", "ocsp signing", "s/mime", "server auth", "signing", "timestamping"
        spec.usages[1]: Duplicate value: "fun"
        spec.signerName: Required value
    "#]],
    );
}

#[test]
fn an_event_of_v1beta1_may_lack_what_v1_wants() {
    let event = r#"{"metadata":{"namespace":"default"},"eventTime":null,"note":"n","regarding":{"kind":"Pod"}}"#;
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

#[test]
fn a_review_of_v1beta1_names_its_groups_in_the_singular() {
    let review = r#"{"spec":{"group":["a"],"nonResourceAttributes":{"path":"/","verb":"get"}}}"#;
    check(
        "authorization.k8s.io/v1beta1 SubjectAccessReview",
        review,
        expect![[r#"
        {"metadata":{},"spec":{"nonResourceAttributes":{"path":"/","verb":"get"},"group":["a"]},"status":{"allowed":false}}
    "#]],
    );
}
