//! Admission webhooks against a real little HTTPS server: what they see, what they change, and what happens when they
//! misbehave.

use std::time::Duration;

use mizzen_value::{Value, json, value};
use tokio::time::Instant;

use crate::peer::{Peer, Reaction};
use crate::rig::{CONFIG_MAPS, Rig};

pub(crate) const MUTATING: &str =
    "/apis/admissionregistration.k8s.io/v1/mutatingwebhookconfigurations";
const VALIDATING: &str = "/apis/admissionregistration.k8s.io/v1/validatingwebhookconfigurations";

/// A webhook that answers reviews: `decide` sees the request and says what the response has besides the uid.
pub(crate) async fn webhook(decide: impl Fn(&Value) -> Value + Send + Sync + 'static) -> Peer {
    Peer::start(&["127.0.0.1"], move |request| {
        let review = json::parse(request.body()).unwrap();
        let mut response = decide(&review["request"]);
        response.set("uid", review["request"]["uid"].clone());
        let mut answer = value!({ "kind": "AdmissionReview" });
        answer.set("apiVersion", review["apiVersion"].clone());
        answer.set("response", response);
        Reaction::Reply(200, json::to_string(&answer))
    })
    .await
}

/// A response that changes the object.
pub(crate) fn patched(patch: &str) -> Value {
    use base64::Engine as _;
    let patch = base64::engine::general_purpose::STANDARD.encode(patch);
    value!({ "allowed": true, "patchType": "JSONPatch", "patch": patch })
}

/// One webhook of a configuration, for writes of ConfigMaps unless `more` says otherwise.
pub(crate) fn hook(name: &str, peer: &Peer, more: Value) -> Value {
    let mut hook = value!({
        "name": (format!("{name}.example.com")),
        "clientConfig": { "url": (format!("https://127.0.0.1:{}/{name}", peer.port)), "caBundle": (peer.bundle()) },
        "rules": [{ "apiGroups": [""], "apiVersions": ["v1"], "operations": ["CREATE", "UPDATE"], "resources": ["configmaps"] }],
        "admissionReviewVersions": ["v1"],
        "sideEffects": "None",
        "timeoutSeconds": 1
    });
    for (field, value) in more.entries() {
        hook.set(field, value.clone());
    }
    hook
}

pub(crate) async fn configure(rig: &Rig, path: &str, name: &str, hooks: Vec<Value>) {
    let mut configuration = value!({ "metadata": { "name": name } });
    configuration.set("webhooks", hooks);
    rig.post(path, &json::to_string(&configuration))
        .await
        .expect(201);
}

pub(crate) fn rules(group: &str, version: &str, operation: &str, resource: &str) -> Value {
    value!({ "rules": [{ "apiGroups": [group], "apiVersions": [version], "operations": [operation], "resources": [resource] }] })
}

/// What the webhook was asked, in order.
fn asked(peer: &Peer) -> Vec<Value> {
    let bodies = peer
        .seen()
        .into_iter()
        .map(|request| json::parse(request.body()).unwrap());
    bodies.map(|review| review["request"].clone()).collect()
}

const ONE: &str = r#"{"metadata":{"name":"one"}}"#;

#[tokio::test]
async fn a_mutating_webhook_changes_the_stored_object() {
    let rig = Rig::new().await;
    let patch = r#"[{"op":"add","path":"/data","value":{"by":"hook"}},{"op":"add","path":"/nonsense","value":1}]"#;
    let peer = webhook(move |_| patched(patch)).await;
    configure(&rig, MUTATING, "m", vec![hook("m", &peer, value!({}))]).await;
    let made = rig.post(CONFIG_MAPS, ONE).await.expect(201);
    assert_eq!(made.body["data"]["by"].str(), "hook");
    assert!(
        made.body["nonsense"].is_null(),
        "what the schema does not know is left out"
    );

    let request = &asked(&peer)[0];
    assert_eq!(request["operation"].str(), "CREATE");
    assert_eq!(
        (request["name"].str(), request["namespace"].str()),
        ("one", "default")
    );
    assert_eq!(request["object"]["kind"].str(), "ConfigMap");
    assert!(request["oldObject"].is_null());
    assert_eq!(request["userInfo"]["username"].str(), "admin");
    assert_eq!(request["options"]["kind"].str(), "CreateOptions");
    assert_eq!(peer.seen()[0].uri().query(), Some("timeout=1s"));
}

#[tokio::test]
async fn a_patched_object_gets_its_defaults_again() {
    let rig = Rig::new().await;
    let ports = r#"[{"op":"replace","path":"/spec/ports","value":[{"port":81}]}]"#;
    let peer = webhook(move |_| patched(ports)).await;
    configure(
        &rig,
        MUTATING,
        "m",
        vec![hook("m", &peer, rules("", "v1", "CREATE", "services"))],
    )
    .await;
    let service = r#"{"metadata":{"name":"s"},"spec":{"ports":[{"port":80}]}}"#;
    let made = rig
        .post("/api/v1/namespaces/default/services", service)
        .await
        .expect(201);
    let port = &made.body["spec"]["ports"].list()[0];
    assert_eq!(
        (
            port["port"].int(),
            port["protocol"].str(),
            port["targetPort"].int()
        ),
        (81, "TCP", 81)
    );
}

#[tokio::test]
async fn a_validating_webhook_rejects_with_its_message() {
    let rig = Rig::new().await;
    let no = value!({ "allowed": false, "status": { "code": 418, "reason": "Teapot", "message": "no tea" }, "warnings": ["hot"] });
    let peer = webhook(move |_| no.clone()).await;
    configure(&rig, VALIDATING, "v", vec![hook("v", &peer, value!({}))]).await;
    let refused = rig.post(CONFIG_MAPS, ONE).await.expect(418);
    assert_eq!(
        refused.body["message"].str(),
        "admission webhook \"v.example.com\" denied the request: no tea"
    );
    assert_eq!(
        (refused.body["reason"].str(), refused.body["code"].int()),
        ("Teapot", 418)
    );
    assert_eq!(refused.warnings, ["299 - \"hot\""]);
    rig.get(&format!("{CONFIG_MAPS}/one")).await.expect(404);
}

#[tokio::test]
async fn webhooks_are_called_in_the_order_of_their_configurations_names() {
    let rig = Rig::new().await;
    let peer = webhook(|_| value!({ "allowed": true })).await;
    configure(&rig, MUTATING, "b", vec![hook("third", &peer, value!({}))]).await;
    configure(
        &rig,
        MUTATING,
        "a",
        vec![
            hook("first", &peer, value!({})),
            hook("second", &peer, value!({})),
        ],
    )
    .await;
    rig.post(CONFIG_MAPS, ONE).await.expect(201);
    let paths: Vec<String> = peer
        .seen()
        .iter()
        .map(|request| request.uri().path().to_owned())
        .collect();
    assert_eq!(paths, ["/first", "/second", "/third"]);
}

#[tokio::test]
async fn a_webhook_is_reinvoked_after_a_change_if_needed() {
    let rig = Rig::new().await;
    let watcher = webhook(|_| value!({ "allowed": true })).await;
    let changer = webhook(|_| patched(r#"[{"op":"add","path":"/data","value":{"a":"b"}}]"#)).await;
    let again = value!({ "reinvocationPolicy": "IfNeeded" });
    let hooks = vec![
        hook("watcher", &watcher, again),
        hook("changer", &changer, value!({})),
    ];
    configure(&rig, MUTATING, "m", hooks).await;
    rig.post(CONFIG_MAPS, ONE).await.expect(201);
    let seen: Vec<bool> = asked(&watcher)
        .iter()
        .map(|request| request["object"]["data"].is_null())
        .collect();
    assert_eq!(seen, [true, false]);
    assert_eq!(asked(&changer).len(), 1);
}

#[tokio::test]
async fn a_rule_for_another_version_matches_and_gets_that_version() {
    let rig = Rig::new().await;
    let peer =
        webhook(|_| patched(r#"[{"op":"replace","path":"/spec/maxReplicas","value":7}]"#)).await;
    let mut more = rules("autoscaling", "v2", "CREATE", "horizontalpodautoscalers");
    more.set("matchPolicy", "Equivalent");
    configure(&rig, MUTATING, "m", vec![hook("m", &peer, more)]).await;
    let scaler = r#"{"metadata":{"name":"h"},"spec":{"maxReplicas":3,"scaleTargetRef":{"kind":"Deployment","name":"d","apiVersion":"apps/v1"},"targetCPUUtilizationPercentage":50}}"#;
    let path = "/apis/autoscaling/v1/namespaces/default/horizontalpodautoscalers";
    let made = rig.post(path, scaler).await.expect(201);
    assert_eq!(made.body["apiVersion"].str(), "autoscaling/v1");
    assert_eq!(made.body["spec"]["maxReplicas"].int(), 7);
    assert_eq!(
        made.body["spec"]["targetCPUUtilizationPercentage"].int(),
        50
    );
    let request = &asked(&peer)[0];
    assert_eq!(request["object"]["apiVersion"].str(), "autoscaling/v2");
    assert_eq!(request["object"]["spec"]["metrics"].list().len(), 1);
    let versions = ["kind", "resource", "requestKind", "requestResource"]
        .map(|field| request[field]["version"].str());
    assert_eq!(versions, ["v2", "v2", "v1", "v1"]);
}

#[tokio::test]
async fn a_delete_review_has_the_old_object_and_cannot_be_mutated() {
    let rig = Rig::new().await;
    let peer = webhook(
        |request| match request["oldObject"]["metadata"]["name"].str() {
            "two" => value!({ "allowed": false }),
            "three" => patched(r#"[{"op":"add","path":"/data","value":{}}]"#),
            _ => value!({ "allowed": true }),
        },
    )
    .await;
    for name in ["one", "two", "three"] {
        rig.make(name, "x").await;
    }
    configure(
        &rig,
        MUTATING,
        "m",
        vec![hook("m", &peer, rules("", "v1", "DELETE", "configmaps"))],
    )
    .await;
    let options = r#"{"gracePeriodSeconds":3,"propagationPolicy":"Orphan"}"#;
    rig.delete(&format!("{CONFIG_MAPS}/one?dryRun=All"), "")
        .await
        .expect(200);
    rig.delete(&format!("{CONFIG_MAPS}/one"), options)
        .await
        .expect(200);
    rig.delete(&format!("{CONFIG_MAPS}/two"), "")
        .await
        .expect(400);
    let refused = rig
        .delete(&format!("{CONFIG_MAPS}/three"), "")
        .await
        .expect(500);
    let expected = "Internal error occurred: admission webhook \"m.example.com\" attempted to modify the object, which is not supported for this operation";
    assert_eq!(refused.body["message"].str(), expected);
    rig.delete(CONFIG_MAPS, "").await.expect(500);

    let requests = asked(&peer);
    assert_eq!(
        (requests[0]["dryRun"].bool(), requests[1]["dryRun"].bool()),
        (true, false)
    );
    let options = &requests[1]["options"];
    assert_eq!(
        (options["kind"].str(), options["gracePeriodSeconds"].int()),
        ("DeleteOptions", 3)
    );
    assert_eq!(options["propagationPolicy"].str(), "Orphan");
    assert!(requests[1]["object"].is_null());
    assert_eq!(
        (requests[1]["name"].str(), requests[4]["name"].str()),
        ("one", "")
    );
}

#[tokio::test]
async fn a_review_of_a_subresource_has_the_object_of_the_subresource() {
    let rig = Rig::new().await;
    let peer = webhook(|request| match request["subResource"].str() {
        "scale" => patched(r#"[{"op":"replace","path":"/spec/replicas","value":9}]"#),
        _ => value!({ "allowed": true }),
    })
    .await;
    let deployment = r#"{"metadata":{"name":"d"},"spec":{"selector":{"matchLabels":{"a":"b"}},"template":{"metadata":{"labels":{"a":"b"}},"spec":{"containers":[{"name":"c","image":"i"}]}}}}"#;
    rig.post("/apis/apps/v1/namespaces/default/deployments", deployment)
        .await
        .expect(201);
    let pod = r#"{"metadata":{"name":"p"},"spec":{"containers":[{"name":"c","image":"i"}]}}"#;
    rig.post("/api/v1/namespaces/default/pods", pod)
        .await
        .expect(201);
    configure(
        &rig,
        MUTATING,
        "m",
        vec![hook("m", &peer, rules("*", "*", "*", "*/*"))],
    )
    .await;
    let last = webhook(|_| value!({ "allowed": true })).await;
    configure(
        &rig,
        VALIDATING,
        "v",
        vec![hook("v", &last, rules("*", "*", "*", "*/*"))],
    )
    .await;

    let scaled = rig
        .patch(
            "/apis/apps/v1/namespaces/default/deployments/d/scale",
            r#"{"spec":{"replicas":2}}"#,
        )
        .await;
    assert_eq!(scaled.expect(200).body["spec"]["replicas"].int(), 9);
    rig.patch(
        "/apis/apps/v1/namespaces/default/deployments/d/status",
        r#"{"status":{"replicas":2}}"#,
    )
    .await
    .expect(200);
    let binding = r#"{"metadata":{"name":"p"},"target":{"kind":"Node","name":"n"}}"#;
    rig.post("/api/v1/namespaces/default/pods/p/binding", binding)
        .await
        .expect(201);
    let eviction = r#"{"apiVersion":"policy/v1","kind":"Eviction","metadata":{"name":"p"}}"#;
    rig.post("/api/v1/namespaces/default/pods/p/eviction", eviction)
        .await
        .expect(201);

    let parts = |request: &Value| {
        let part = |field: &str| request[field].str().to_owned();
        format!(
            "{} {} {}",
            part("operation"),
            request["kind"]["kind"].str(),
            part("subResource")
        )
    };
    for peer in [peer, last] {
        let seen: Vec<String> = asked(&peer).iter().map(parts).collect();
        let expected = [
            "UPDATE Scale scale",
            "UPDATE Deployment status",
            "CREATE Binding binding",
            "CREATE Eviction eviction",
        ];
        assert_eq!(seen, expected);
    }
}

#[tokio::test]
async fn selectors_and_scopes_exclude_objects() {
    let rig = Rig::new().await;
    let peer = webhook(|_| value!({ "allowed": false })).await;
    let elsewhere = value!({ "namespaceSelector": { "matchLabels": { "team": "other" } } });
    configure(&rig, VALIDATING, "a", vec![hook("a", &peer, elsewhere)]).await;
    let marked = value!({ "objectSelector": { "matchExpressions": [{ "key": "guarded", "operator": "Exists" }] } });
    configure(&rig, VALIDATING, "b", vec![hook("b", &peer, marked)]).await;
    let cluster = value!({ "rules": [{ "apiGroups": ["*"], "apiVersions": ["*"], "operations": ["*"], "resources": ["*"], "scope": "Cluster" }] });
    configure(&rig, VALIDATING, "c", vec![hook("c", &peer, cluster)]).await;
    rig.post(CONFIG_MAPS, ONE).await.expect(201);
    rig.post(
        CONFIG_MAPS,
        r#"{"metadata":{"name":"two","labels":{"guarded":""}}}"#,
    )
    .await
    .expect(400);
    rig.patch(
        &format!("{CONFIG_MAPS}/one"),
        r#"{"metadata":{"labels":{"guarded":"yes"}}}"#,
    )
    .await
    .expect(400);
    rig.post(
        "/api/v1/namespaces",
        r#"{"metadata":{"name":"n","labels":{"team":"other"}}}"#,
    )
    .await
    .expect(400);
}

#[tokio::test]
async fn webhooks_are_not_called_for_webhook_configurations() {
    let rig = Rig::new().await;
    let peer = webhook(|_| value!({ "allowed": false })).await;
    configure(
        &rig,
        VALIDATING,
        "v",
        vec![hook("v", &peer, rules("*", "*", "*", "*"))],
    )
    .await;
    configure(
        &rig,
        MUTATING,
        "m",
        vec![hook("m", &peer, rules("*", "*", "*", "*"))],
    )
    .await;
    rig.post(CONFIG_MAPS, ONE).await.expect(400);
    rig.delete(&format!("{VALIDATING}/v"), "").await.expect(200);
    rig.delete(&format!("{MUTATING}/m"), "").await.expect(200);
    rig.post(CONFIG_MAPS, ONE).await.expect(201);
}

#[tokio::test]
async fn reviews_of_v1beta1_are_supported() {
    let rig = Rig::new().await;
    let peer = webhook(|_| {
        let mut response = patched(r#"[{"op":"add","path":"/data","value":{"a":"b"}}]"#);
        response.remove("patchType");
        response
    })
    .await;
    let old = value!({ "admissionReviewVersions": ["v9", "v1beta1", "v1"] });
    configure(&rig, MUTATING, "m", vec![hook("m", &peer, old)]).await;
    assert_eq!(
        rig.post(CONFIG_MAPS, ONE).await.expect(201).body["data"]["a"].str(),
        "b"
    );
    let review = json::parse(peer.seen()[0].body()).unwrap();
    assert_eq!(review["apiVersion"].str(), "admission.k8s.io/v1beta1");
}

/// What a client is told when the webhook behaves like this. A webhook whose failures are ignored does no harm.
async fn check_fault(
    names: &[&str],
    react: impl Fn() -> Reaction + Send + Sync + 'static,
    expected: &str,
) {
    let peer = Peer::start(names, move |_| react()).await;
    for path in [MUTATING, VALIDATING] {
        let rig = Rig::new().await;
        configure(&rig, path, "w", vec![hook("w", &peer, value!({}))]).await;
        let refused = rig.post(CONFIG_MAPS, ONE).await.expect(500);
        let message = refused.body["message"]
            .str()
            .replace(&format!("127.0.0.1:{}", peer.port), "$");
        let start = "Internal error occurred: failed calling webhook \"w.example.com\": ";
        assert_eq!(
            message.strip_prefix(start).expect("the usual beginning"),
            expected
        );

        rig.delete(&format!("{path}/w"), "").await.expect(200);
        configure(
            &rig,
            path,
            "w",
            vec![hook("w", &peer, value!({ "failurePolicy": "Ignore" }))],
        )
        .await;
        rig.post(CONFIG_MAPS, ONE).await.expect(201);
    }
}

const HERE: &[&str] = &["127.0.0.1"];

#[tokio::test]
async fn a_hanging_webhook_times_out() {
    let expected =
        "failed to call webhook: Post \"https://$/w?timeout=1s\": context deadline exceeded";
    check_fault(HERE, || Reaction::Hang, expected).await;
}

#[tokio::test]
async fn an_undecodable_response_is_quoted() {
    let expected = "failed to call webhook: couldn't get version/kind; json parse error: invalid character 'r' looking for beginning of value";
    check_fault(HERE, || Reaction::Reply(200, "rubbish".into()), expected).await;
    let absent = "received invalid webhook response: webhook response was absent";
    check_fault(HERE, || Reaction::Reply(200, "{}".into()), absent).await;
    let wrong = r#"{"response":{"allowed":"yes"}}"#;
    let expected = "failed to call webhook: json: cannot unmarshal string into Go struct field AdmissionResponse.response.allowed of type bool";
    check_fault(HERE, move || Reaction::Reply(200, wrong.into()), expected).await;
    let other = r#"{"kind":"Pod","apiVersion":"v1"}"#;
    let expected = "failed to call webhook: no kind \"Pod\" is registered for version \"v1\" in scheme \"pkg/util/webhook/client.go:71\"";
    check_fault(HERE, move || Reaction::Reply(200, other.into()), expected).await;
    let empty = "failed to call webhook: 0-length response with status code: 200 and content type: application/json";
    check_fault(HERE, || Reaction::Reply(200, String::new()), empty).await;
}

#[tokio::test]
async fn a_too_large_response_is_an_error() {
    let expected = "failed to call webhook: unexpected error when reading response body. Please retry. Original error: the response is larger than 8388608 bytes";
    check_fault(HERE, || Reaction::Reply(200, " ".repeat(9 << 20)), expected).await;
}

#[tokio::test]
async fn an_error_status_of_a_webhook_is_quoted() {
    let expected = "failed to call webhook: an error on the server (\"unknown\") has prevented the request from succeeding";
    check_fault(HERE, || Reaction::Reply(500, "{}".into()), expected).await;
}

#[tokio::test]
async fn a_closed_connection_is_an_unexpected_end_of_file() {
    let rig = Rig::new().await;
    let peer = Peer::start(&["shop.default.svc"], |_| Reaction::Close).await;
    let service =
        r#"{"metadata":{"name":"shop"},"spec":{"type":"ExternalName","externalName":"localhost"}}"#;
    rig.post("/api/v1/namespaces/default/services", service)
        .await
        .expect(201);
    let mut more = value!({});
    more.set(
        "clientConfig",
        value!({
            "caBundle": (peer.bundle()),
            "service": { "namespace": "default", "name": "shop", "port": (i64::from(peer.port)), "path": "/hook" }
        }),
    );
    configure(&rig, VALIDATING, "v", vec![hook("v", &peer, more)]).await;
    let refused = rig.post(CONFIG_MAPS, ONE).await.expect(500);
    let expected = format!(
        "Internal error occurred: failed calling webhook \"v.example.com\": failed to call webhook: \
         Post \"https://shop.default.svc:{}/hook?timeout=1s\": EOF",
        peer.port
    );
    assert_eq!(refused.body["message"].str(), expected);
}

#[tokio::test]
async fn a_webhook_with_an_untrusted_certificate_gets_no_review() {
    let expected = "failed to call webhook: Post \"https://$/w?timeout=1s\": tls: failed to verify certificate: x509: cannot validate certificate for 127.0.0.1 because it doesn't contain any IP SANs";
    check_fault(&["elsewhere.example.com"], || Reaction::Hang, expected).await;
}

#[tokio::test]
async fn a_response_with_another_uid_is_an_error() {
    let rig = Rig::new().await;
    let peer = Peer::answering(
        200,
        r#"{"kind":"AdmissionReview","apiVersion":"admission.k8s.io/v1","response":{"uid":"x","allowed":true}}"#,
    )
    .await;
    configure(&rig, VALIDATING, "v", vec![hook("v", &peer, value!({}))]).await;
    let refused = rig.post(CONFIG_MAPS, ONE).await.expect(500);
    assert!(
        refused.body["message"]
            .str()
            .contains("received invalid webhook response: expected response.uid=")
    );
}

#[tokio::test]
async fn a_patch_that_cannot_be_applied_is_an_error() {
    for (patch, expected) in [
        (
            r#"[{"op":"remove","path":"/none"}]"#,
            "Internal error occurred: error in remove for path: '/none': Unable to remove nonexistent key: none: missing value",
        ),
        (
            r#"[{"op":"add","path":"/data","value":{"a":1}}]"#,
            "Internal error occurred: json: cannot unmarshal number",
        ),
        (
            r#"{}"#,
            "Internal error occurred: failed calling webhook \"m.example.com\": received undecodable patch in webhook response: json: cannot unmarshal object into Go value of type jsonpatch.Patch",
        ),
    ] {
        let rig = Rig::new().await;
        let peer = webhook(move |_| patched(patch)).await;
        configure(&rig, MUTATING, "m", vec![hook("m", &peer, value!({}))]).await;
        let message = rig.post(CONFIG_MAPS, ONE).await.expect(500).body["message"]
            .str()
            .to_owned();
        assert!(message.starts_with(expected), "{message}");
    }
}

/// Time is virtual here: it passes when nothing happens, and a webhook that hangs is nothing that happens.
#[tokio::test(start_paused = true)]
async fn the_timeouts_of_parallel_webhooks_do_not_add_up() {
    let rig = Rig::new().await;
    let peer = Peer::start(HERE, |_| Reaction::Hang).await;
    let ignored = || value!({ "failurePolicy": "Ignore", "timeoutSeconds": 20 });
    let hooks = (0..10)
        .map(|at| hook(&format!("h{at}"), &peer, ignored()))
        .collect();
    configure(&rig, MUTATING, "m", hooks).await;
    let started = Instant::now();
    let refused = rig.post(CONFIG_MAPS, ONE).await.expect(504);
    assert_eq!(
        refused.body["message"].str(),
        "Timeout: request did not complete within requested timeout"
    );
    assert!(
        started.elapsed() <= Duration::from_secs(35),
        "{:?}",
        started.elapsed()
    );
}

#[tokio::test]
async fn match_conditions_decide_whether_a_webhook_is_called() {
    let rig = Rig::new().await;
    let peer = webhook(|_| value!({ "allowed": false })).await;
    let with = |policy: &str, expression: &str| value!({ "failurePolicy": policy, "matchConditions": [{ "name": "c", "expression": expression }] });
    for (policy, expression, expected) in [
        ("Fail", "request.name == 'two'", 201),
        (
            "Fail",
            "request.name == 'one' && object.metadata.namespace == request.namespace",
            400,
        ),
        (
            "Fail",
            "request.userInfo.username == 'admin' && request.operation in ['CREATE']",
            400,
        ),
        (
            "Fail",
            "authorizer.group('').resource('configmaps').check('delete').allowed()",
            400,
        ),
        (
            "Fail",
            "!authorizer.requestResource.check('delete').allowed()",
            201,
        ),
        ("Ignore", "object.data.none == 'x'", 201),
        ("Fail", "object.data.none == 'x'", 403),
    ] {
        configure(
            &rig,
            VALIDATING,
            "v",
            vec![hook("v", &peer, with(policy, expression))],
        )
        .await;
        let reply = rig
            .post(&format!("{CONFIG_MAPS}?dryRun=All"), ONE)
            .await
            .expect(expected);
        if expected == 403 {
            let message = "configmaps \"one\" is forbidden: expression 'object.data.none == 'x'' resulted in error: no such key: data";
            assert_eq!(reply.body["message"].str(), message);
        }
        rig.delete(&format!("{VALIDATING}/v"), "").await.expect(200);
    }
}
