//! Audit annotations of admission plug-ins.

use mizzen_value::{Value, json, value};

use super::{ALL, Audited, METADATA};
use crate::peer::{Peer, Reaction};
use crate::rig::CONFIG_MAPS;

const GROUP: &str = "/apis/admissionregistration.k8s.io/v1";

/// The last event's annotations, without what was decided before admission.
fn notes(audited: &Audited) -> Value {
    let mut notes = audited.last()["annotations"].clone();
    notes.remove("authorization.k8s.io/decision");
    notes.remove("authorization.k8s.io/reason");
    notes
}

async fn configure(audited: &Audited, plural: &str, name: &str, spec: &str) {
    let text = format!(r#"{{"metadata":{{"name":"{name}"}},{spec}}}"#);
    audited
        .rig
        .post(&format!("{GROUP}/{plural}"), &text)
        .await
        .expect(201);
}

#[tokio::test(start_paused = true)]
async fn policy_violations_and_audit_annotations_are_audited() {
    let audited = Audited::by(METADATA).await;
    let rules = r#""spec":{"matchConstraints":{"resourceRules":[{"apiGroups":[""],"apiVersions":["v1"],"operations":["*"],"resources":["configmaps"]}]},"validations":[{"expression":"true"},{"expression":"object.metadata.name != 'bad'","message":"no <bad>"},{"expression":"object.metadata.name != 'bad'","message":"again"}],"auditAnnotations":[{"key":"named","valueExpression":"' it is ' + object.metadata.name"},{"key":"silent","valueExpression":"null"},{"key":"empty","valueExpression":"' '"}]}"#;
    configure(
        &audited,
        "validatingadmissionpolicies",
        "p.example.com",
        rules,
    )
    .await;
    let bound = r#""spec":{"policyName":"p.example.com","validationActions":["Audit","Warn"]}"#;
    configure(
        &audited,
        "validatingadmissionpolicybindings",
        "b.example.com",
        bound,
    )
    .await;
    audited.rig.make("good", "x").await;
    assert_eq!(
        json::to_string(&notes(&audited)),
        r#"{"p.example.com/named":"it is good"}"#
    );
    audited.rig.make("bad", "x").await;
    let notes = notes(&audited);
    assert_eq!(
        notes["validation.policy.admission.k8s.io/validation_failure"].str(),
        r#"[{"message":"no \u003cbad\u003e","policy":"p.example.com","binding":"b.example.com","expressionIndex":1,"validationActions":["Audit","Warn"]}]"#
    );
    assert_eq!(notes["p.example.com/named"].str(), "it is bad");
}

#[tokio::test(start_paused = true)]
async fn pod_security_annotations_are_audited() {
    let audited = Audited::by(METADATA).await;
    let namespace = r#"{"metadata":{"name":"n","labels":{"pod-security.kubernetes.io/audit":"restricted","pod-security.kubernetes.io/enforce":"baseline"}}}"#;
    audited
        .rig
        .post("/api/v1/namespaces", namespace)
        .await
        .expect(201);
    let pod = |more: &str| {
        format!(
            r#"{{"metadata":{{"name":"p"}},"spec":{{{more}"containers":[{{"name":"c","image":"i"}}]}}}}"#
        )
    };
    let pods = "/api/v1/namespaces/n/pods";
    audited.rig.post(pods, &pod("")).await.expect(201);
    let notes_of_one = notes(&audited);
    assert_eq!(
        notes_of_one["pod-security.kubernetes.io/enforce-policy"].str(),
        "baseline:latest"
    );
    let violations = notes_of_one["pod-security.kubernetes.io/audit-violations"]
        .str()
        .to_owned();
    let start = "would violate PodSecurity \"restricted:latest\": allowPrivilegeEscalation != false (container \"c\" must set";
    assert!(violations.starts_with(start), "{violations}");
    audited
        .rig
        .post(pods, &pod("\"hostNetwork\":true,"))
        .await
        .expect(403);
    assert!(
        notes(&audited)["pod-security.kubernetes.io/audit-violations"]
            .str()
            .contains("hostNetwork=true")
    );
    audited
        .rig
        .post("/api/v1/namespaces/default/pods", &pod(""))
        .await
        .expect(201);
    let expected = r#"{"pod-security.kubernetes.io/enforce-policy":"privileged:latest"}"#;
    assert_eq!(json::to_string(&notes(&audited)), expected);
}

/// A webhook that allows everything, and says something.
async fn webhook(response: Value) -> Peer {
    Peer::start(&["127.0.0.1"], move |request| {
        let review = json::parse(request.body()).unwrap();
        let mut response = response.clone();
        response.set("uid", review["request"]["uid"].clone());
        let mut answer = value!({ "kind": "AdmissionReview", "apiVersion": "admission.k8s.io/v1" });
        answer.set("response", response);
        Reaction::Reply(200, json::to_string(&answer))
    })
    .await
}

fn hooks(port: u16, bundle: &str) -> String {
    let rule = r#"{"apiGroups":[""],"apiVersions":["v1"],"operations":["CREATE"],"resources":["configmaps"]}"#;
    format!(
        r#""webhooks":[{{"name":"h.example.com","failurePolicy":"Ignore","clientConfig":{{"url":"https://127.0.0.1:{port}/","caBundle":"{bundle}"}},"rules":[{rule}],"admissionReviewVersions":["v1"],"sideEffects":"None","timeoutSeconds":1}}]"#
    )
}

#[tokio::test]
async fn admission_webhook_annotations_are_audited() {
    let audited = Audited::by(ALL).await;
    // [{"op":"add","path":"/data","value":{"a":"b"}}]
    let patch = "W3sib3AiOiJhZGQiLCJwYXRoIjoiL2RhdGEiLCJ2YWx1ZSI6eyJhIjoiYiJ9fV0=";
    let peer = webhook(value!({
        "allowed": true, "patchType": "JSONPatch", "patch": patch, "auditAnnotations": { "said": "hello", "a/b": "dropped" },
    }))
    .await;
    configure(
        &audited,
        "mutatingwebhookconfigurations",
        "other",
        &hooks(1, "").replace("configmaps", "pods"),
    )
    .await;
    configure(
        &audited,
        "mutatingwebhookconfigurations",
        "z",
        &hooks(peer.port, &peer.bundle()),
    )
    .await;
    audited
        .rig
        .post(CONFIG_MAPS, r#"{"metadata":{"name":"one"}}"#)
        .await
        .expect(201);
    let mut expected = value!({
        "h.example.com/said": "hello",
        "mutation.webhook.admission.k8s.io/round_0_index_1": r#"{"configuration":"z","webhook":"h.example.com","mutated":true}"#,
    });
    let change = r#"{"configuration":"z","webhook":"h.example.com","patch":[{"op":"add","path":"/data","value":{"a":"b"}}],"patchType":"JSONPatch"}"#;
    expected.set("patch.webhook.admission.k8s.io/round_0_index_1", change);
    assert_eq!(notes(&audited), expected);
}

#[tokio::test]
async fn a_failed_admission_webhook_is_audited() {
    let audited = Audited::by(METADATA).await;
    configure(
        &audited,
        "mutatingwebhookconfigurations",
        "m",
        &hooks(1, ""),
    )
    .await;
    configure(
        &audited,
        "validatingwebhookconfigurations",
        "v",
        &hooks(1, ""),
    )
    .await;
    audited.rig.make("one", "x").await;
    let expected = value!({
        "failed-open.mutation.webhook.admission.k8s.io/round_0_index_0": "h.example.com",
        "failed-open.validating.webhook.admission.k8s.io/round_0_index_0": "h.example.com",
        "mutation.webhook.admission.k8s.io/round_0_index_0": r#"{"configuration":"m","webhook":"h.example.com","mutated":false}"#,
    });
    assert_eq!(notes(&audited), expected);
}

#[tokio::test(start_paused = true)]
async fn the_use_of_a_deprecated_api_is_annotated() {
    let audited = Audited::by(METADATA).await;
    let definition = r#"{"metadata":{"name":"foos.example.com"},"spec":{"group":"example.com","scope":"Namespaced","names":{"plural":"foos","kind":"Foo"},"versions":[{"name":"v1","served":true,"storage":true,"deprecated":true,"schema":{"openAPIV3Schema":{"type":"object"}}}]}}"#;
    audited
        .rig
        .post(
            "/apis/apiextensions.k8s.io/v1/customresourcedefinitions",
            definition,
        )
        .await
        .expect(201);
    audited
        .rig
        .get("/apis/example.com/v1/foos")
        .await
        .expect(200);
    assert_eq!(
        json::to_string(&notes(&audited)),
        r#"{"k8s.io/deprecated":"true"}"#
    );
    let endpoints = "/api/v1/namespaces/default/endpoints";
    audited.rig.get(endpoints).await.expect(200);
    assert_eq!(notes(&audited)["k8s.io/deprecated"].str(), "true");
}
