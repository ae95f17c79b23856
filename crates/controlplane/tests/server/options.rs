//! Bodies and queries with the options of a request: which versions they may be of, and what several faults at once
//! are answered with.

use mizzen_apiserver::User;
use mizzen_object::GroupVersionKind;
use mizzen_object::proto::envelope;
use mizzen_value::Value;

use crate::crd::{DEFINITIONS, FOOS};
use crate::rig::{CONFIG_MAPS, Reply, Rig};

/// Deletes a fresh object, and the collection with a dry run, with the same body.
async fn delete(rig: &Rig, media_type: &str, body: &str) -> [Reply; 2] {
    let reply = rig.post(CONFIG_MAPS, r#"{"metadata":{"name":"a"}}"#).await;
    assert!([201, 409].contains(&reply.status));
    let headers = [("content-type", media_type)];
    let all = rig
        .call_as(
            User::master("admin"),
            &headers,
            "DELETE",
            &format!("{CONFIG_MAPS}?labelSelector=none"),
            body,
        )
        .await;
    let one = rig
        .call_as(
            User::master("admin"),
            &headers,
            "DELETE",
            &format!("{CONFIG_MAPS}/a"),
            body,
        )
        .await;
    [one, all]
}

#[tokio::test]
async fn delete_options_of_any_version_are_accepted() {
    let rig = Rig::new().await;
    for body in [
        "{}",
        "null",
        r#"{"kind":"DeleteOptions"}"#,
        r#"{"apiVersion":"v1"}"#,
        r#"{"apiVersion":"apps/v1"}"#,
        r#"{"kind":"DeleteOptions","apiVersion":"v1"}"#,
        r#"{"kind":"DeleteOptions","apiVersion":"apps/v1"}"#,
        r#"{"kind":"DeleteOptions","apiVersion":"meta.k8s.io/v1"}"#,
        r#"{"kind":"DeleteOptions","apiVersion":"meta.k8s.io/__internal"}"#,
        r#"{"kind":"DeleteOptions","apiVersion":"meta.k8s.io/"}"#,
        r#"{"kind":"DeleteOptions","apiVersion":"no.such/v9"}"#,
        r#"{"kind":"DeleteOptions","apiVersion":"/"}"#,
        r#"{"kind":"DeleteOptions","unknown":1}"#,
    ] {
        for reply in delete(&rig, "application/json", body).await {
            assert_eq!(reply.status, 200, "{body}: {}", reply.message());
        }
    }
    for reply in delete(
        &rig,
        "application/yaml",
        "kind: DeleteOptions\napiVersion: kueue.x-k8s.io/v1",
    )
    .await
    {
        assert_eq!(reply.status, 200, "{}", reply.message());
    }
}

#[tokio::test]
async fn delete_options_in_protobuf_are_of_any_version() {
    let rig = Rig::new().await;
    for (group, version, kind) in [
        ("", "v1", "DeleteOptions"),
        ("apps", "v1", "DeleteOptions"),
        ("a/b", "v1", "DeleteOptions"),
        ("", "", ""),
    ] {
        let gvk = GroupVersionKind {
            group: group.into(),
            version: version.into(),
            kind: kind.into(),
        };
        // gracePeriodSeconds: 0
        let body = String::from_utf8(envelope(&gvk, &[8, 0])).unwrap();
        for reply in delete(&rig, "application/vnd.kubernetes.protobuf", &body).await {
            assert_eq!(reply.status, 200, "{gvk:?}: {}", reply.message());
        }
    }
    let gvk = GroupVersionKind {
        group: "".into(),
        version: "v1".into(),
        kind: "Pod".into(),
    };
    let body = String::from_utf8(envelope(&gvk, &[])).unwrap();
    for reply in delete(&rig, "application/vnd.kubernetes.protobuf", &body).await {
        let expected = "no kind \"Pod\" is registered for version \"v1\" in scheme \
                        \"pkg/apis/meta/internalversion/scheme/register.go:27\"";
        assert_eq!(reply.expect(400).message(), expected);
    }
}

#[tokio::test]
async fn invalid_delete_options_are_rejected_in_the_words_of_the_decoder() {
    let rig = Rig::new().await;
    const SCHEME: &str = "in scheme \"pkg/apis/meta/internalversion/scheme/register.go:27\"";
    for (body, expected) in [
        (r#"{"#, "couldn't get version/kind; json parse error: unexpected end of JSON input".to_owned()),
        (
            r#"{"kind":"Pod","apiVersion":"v1"}"#,
            format!("no kind \"Pod\" is registered for version \"v1\" {SCHEME}"),
        ),
        (
            r#"{"kind":"Pod"}"#,
            format!("no kind \"Pod\" is registered for version \"meta.k8s.io/v1\" {SCHEME}"),
        ),
        (
            r#"{"kind":"Status","apiVersion":"apps/v1"}"#,
            "converting (v1.Status) to (v1.DeleteOptions): unknown conversion".into(),
        ),
        (
            r#"{"kind":"CreateOptions","apiVersion":"x/v1"}"#,
            "converting (v1.CreateOptions) to (v1.DeleteOptions): unknown conversion".into(),
        ),
        (
            r#"{"kind":"ListOptions","apiVersion":"meta.k8s.io/v1"}"#,
            "converting (v1.ListOptions) to (v1.DeleteOptions): unknown conversion".into(),
        ),
        (
            r#"{"kind":"ListOptions","apiVersion":"v1"}"#,
            format!("no kind \"ListOptions\" is registered for version \"v1\" {SCHEME}"),
        ),
        (
            r#"{"kind":"DeleteOptions","apiVersion":"a/b/c"}"#,
            "unexpected GroupVersion string: a/b/c".into(),
        ),
        (
            r#"{"kind":"DeleteOptions","apiVersion":"apps/"}"#,
            r#"Object 'apiVersion' is missing in '{"kind":"DeleteOptions","apiVersion":"apps/"}'"#.into(),
        ),
        (
            r#"{"gracePeriodSeconds":"x"}"#,
            "json: cannot unmarshal string into Go struct field DeleteOptions.gracePeriodSeconds of type int64".into(),
        ),
    ] {
        for reply in delete(&rig, "application/json", body).await {
            assert_eq!((reply.status, reply.message()), (400, expected.as_str()), "{body}");
        }
    }
    rig.get(&format!("{CONFIG_MAPS}/a")).await.expect(200);
}

/// What an answer complains of, in order.
fn causes(reply: &Reply) -> Vec<String> {
    let causes = reply.body.at("details.causes").list().iter();
    causes
        .map(|cause| format!("{} {}", cause["field"].str(), cause["reason"].str()))
        .collect()
}

#[tokio::test]
async fn every_error_of_delete_options_is_reported_in_order() {
    let rig = Rig::new().await;
    let expected = [
        "propagationPolicy FieldValueInvalid",
        "propagationPolicy FieldValueNotSupported",
        "dryRun FieldValueNotSupported",
    ];
    rig.make("a", "").await;
    let body = r#"{"orphanDependents":true,"propagationPolicy":"x","dryRun":["y"]}"#;
    let query = "orphanDependents=1&propagationPolicy=x&dryRun=y";
    for path in [format!("{CONFIG_MAPS}/a"), CONFIG_MAPS.to_owned()] {
        assert_eq!(
            causes(&rig.delete(&path, body).await.expect(422)),
            expected,
            "{path}"
        );
        assert_eq!(
            causes(&rig.delete(&format!("{path}?{query}"), "").await.expect(422)),
            expected,
            "{path}"
        );
    }
    let empty = rig
        .delete(&format!("{CONFIG_MAPS}/a?propagationPolicy="), "")
        .await
        .expect(422);
    assert_eq!(causes(&empty), ["propagationPolicy FieldValueNotSupported"]);
}

#[tokio::test]
async fn preconditions_of_a_delete_may_stand_in_the_query() {
    let rig = Rig::new().await;
    let made = rig.make("a", "").await;
    let path = format!("{CONFIG_MAPS}/a");
    rig.delete(&format!("{path}?uid=other"), "")
        .await
        .expect(409);
    rig.delete(&format!("{path}?resourceVersion=1"), "")
        .await
        .expect(409);
    // A body wins over the query.
    rig.delete(
        &format!("{path}?uid=other&dryRun=All"),
        r#"{"dryRun":["All"]}"#,
    )
    .await
    .expect(200);
    let query = format!(
        "uid={}&resourceVersion={}",
        made.body.at("metadata.uid").str(),
        made.version()
    );
    rig.delete(&format!("{path}?{query}"), "").await.expect(200);
    rig.get(&path).await.expect(404);
}

#[tokio::test]
async fn list_options_are_decoded_then_validated_then_translated() {
    let rig = Rig::new().await;
    let number = |text: &str| format!("strconv.ParseInt: parsing \"{text}\": invalid syntax");
    for (query, expected) in [
        ("limit=x&timeoutSeconds=y", number("y")),
        (
            "limit=x&labelSelector=%3D&resourceVersionMatch=x",
            number("x"),
        ),
        (
            "resourceVersionMatch=x&fieldSelector=a",
            "invalid selector: 'a'; can't understand 'a'".into(),
        ),
    ] {
        for watch in ["", "&watch=1"] {
            let reply = rig.get(&format!("{CONFIG_MAPS}?{query}{watch}")).await;
            assert_eq!(
                (reply.status, reply.message()),
                (400, expected.as_str()),
                "{query}{watch}"
            );
        }
        let reply = rig.delete(&format!("{CONFIG_MAPS}?{query}"), "{").await;
        assert_eq!(
            (reply.status, reply.message()),
            (400, expected.as_str()),
            "DELETE {query}"
        );
    }
    let list = "resourceVersionMatch=x&continue=c&sendInitialEvents=1&fieldSelector=no%3Dsuch";
    let matching = "resourceVersionMatch";
    let expected = vec![
        format!("{matching} FieldValueForbidden"),
        format!("{matching} FieldValueForbidden"),
        format!("{matching} FieldValueNotSupported"),
        "sendInitialEvents FieldValueForbidden".into(),
    ];
    assert_eq!(
        causes(&rig.get(&format!("{CONFIG_MAPS}?{list}")).await.expect(422)),
        expected
    );
    let expected = [
        format!("{matching} FieldValueForbidden"),
        format!("{matching} FieldValueNotSupported"),
        format!("{matching} FieldValueForbidden"),
    ];
    assert_eq!(
        causes(
            &rig.get(&format!("{CONFIG_MAPS}?{list}&watch=1"))
                .await
                .expect(422)
        ),
        expected
    );
    let implied = rig
        .get(&format!("{CONFIG_MAPS}?watch=1&continue=c"))
        .await
        .expect(422);
    assert_eq!(
        causes(&implied),
        [format!("{matching} FieldValueForbidden")]
    );
    let translated = rig
        .get(&format!("{CONFIG_MAPS}?fieldSelector=no%3Dsuch"))
        .await
        .expect(400);
    assert!(
        translated
            .message()
            .contains("is not a known field selector"),
        "{}",
        translated.message()
    );
}

#[tokio::test]
async fn every_error_of_write_options_is_reported_in_order() {
    let rig = Rig::new().await;
    rig.make("a", "").await;
    let query = format!(
        "dryRun=x&fieldValidation=y&fieldManager={}%01",
        "m".repeat(129)
    );
    let shared = [
        "fieldManager FieldValueTooLong",
        "fieldManager FieldValueInvalid",
        "dryRun FieldValueNotSupported",
        "fieldValidation FieldValueNotSupported",
    ];
    let object = r#"{"metadata":{"name":"a"}}"#;
    let post = rig
        .post(&format!("{CONFIG_MAPS}?{query}"), object)
        .await
        .expect(422);
    assert_eq!(causes(&post), shared);
    let put = rig
        .put(&format!("{CONFIG_MAPS}/a?{query}"), object)
        .await
        .expect(422);
    assert_eq!(causes(&put), shared);
    let patch = rig
        .patch(&format!("{CONFIG_MAPS}/a?{query}&force=1"), "{}")
        .await
        .expect(422);
    assert_eq!(
        causes(&patch),
        [&["force FieldValueForbidden"], &shared[..]].concat()
    );
    let apply = rig
        .call("APPLY", &format!("{CONFIG_MAPS}/a?dryRun=x"), object)
        .await
        .expect(422);
    assert_eq!(
        causes(&apply),
        [
            "fieldManager FieldValueRequired",
            "dryRun FieldValueNotSupported"
        ]
    );
}

#[tokio::test]
async fn the_media_type_of_a_new_object_comes_before_its_options() {
    let rig = Rig::new().await;
    rig.make("a", "").await;
    let text = [("content-type", "text/plain")];
    let admin = || User::master("admin");
    let query = format!("{CONFIG_MAPS}?dryRun=x");
    rig.call_as(admin(), &text, "POST", &query, "{}")
        .await
        .expect(415);
    rig.call_as(
        admin(),
        &text,
        "PUT",
        &format!("{CONFIG_MAPS}/a?dryRun=x"),
        "{}",
    )
    .await
    .expect(422);
    let odd = [("content-type", "text/plain"), ("accept", "text/plain")];
    rig.call_as(
        admin(),
        &odd,
        "PATCH",
        &format!("{CONFIG_MAPS}/a?dryRun=x"),
        "{}",
    )
    .await
    .expect(415);
}

#[tokio::test]
async fn an_eviction_may_be_of_either_version_in_any_encoding() {
    let rig = Rig::new().await;
    const PODS: &str = "/api/v1/namespaces/default/pods";
    let pod = r#"{"metadata":{"name":"p"},"spec":{"containers":[{"name":"c","image":"i"}]}}"#;
    let path = format!("{PODS}/p/eviction");
    for (media_type, body) in [
        (
            "application/json",
            r#"{"kind":"Eviction","apiVersion":"policy/v1beta1","metadata":{"name":"p"}}"#,
        ),
        (
            "application/json",
            r#"{"kind":"Eviction","metadata":{"name":"p"}}"#,
        ),
        (
            "application/json",
            r#"{"apiVersion":"policy/","metadata":{"name":"p"}}"#,
        ),
        (
            "application/yaml",
            "kind: Eviction\napiVersion: policy/v1beta1\nmetadata: {name: p}",
        ),
    ] {
        rig.post(PODS, pod).await.expect(201);
        rig.call_as(
            User::master("admin"),
            &[("content-type", media_type)],
            "POST",
            &path,
            body,
        )
        .await
        .expect(201);
    }
    rig.post(PODS, pod).await.expect(201);
    let gvk = GroupVersionKind {
        group: "policy".into(),
        version: "v1beta1".into(),
        kind: "Eviction".into(),
    };
    // metadata: {name: p}
    let body = String::from_utf8(envelope(&gvk, &[10, 3, 10, 1, b'p'])).unwrap();
    let headers = [("content-type", "application/vnd.kubernetes.protobuf")];
    rig.call_as(User::master("admin"), &headers, "POST", &path, &body)
        .await
        .expect(201);
    let wrong = r#"{"kind":"Eviction","apiVersion":"v1","metadata":{"name":"p"}}"#;
    let refused = rig.post(&path, wrong).await.expect(400);
    let expected = "Eviction in version \"v1\" cannot be handled as a Eviction: no kind \"Eviction\" is registered for \
                    version \"v1\" in scheme \"pkg/api/legacyscheme/scheme.go:30\"";
    assert_eq!(refused.message(), expected);
}

#[tokio::test]
async fn an_object_of_a_meta_kind_is_registered_and_cannot_be_converted() {
    let rig = Rig::new().await;
    for (api_version, kind, expected) in [
        (
            "v1",
            "DeleteOptions",
            "converting (v1.DeleteOptions) to (core.ConfigMap): unknown conversion",
        ),
        (
            "apps/v1",
            "PatchOptions",
            "converting (v1.PatchOptions) to (core.ConfigMap): unknown conversion",
        ),
        (
            "no.such/v7",
            "Status",
            "converting (v1.Status) to (core.ConfigMap): unknown conversion",
        ),
        (
            "no.such/v7",
            "DeleteOptions",
            "no kind \"DeleteOptions\" is registered for version \"no.such/v7\" in scheme \
             \"pkg/api/legacyscheme/scheme.go:30\"",
        ),
        (
            "foo/",
            "ConfigMap",
            "Object 'apiVersion' is missing in '{\"apiVersion\":\"foo/\",\"kind\":\"ConfigMap\"}'",
        ),
    ] {
        let body = format!(r#"{{"apiVersion":"{api_version}","kind":"{kind}"}}"#);
        let reply = rig.post(CONFIG_MAPS, &body).await.expect(400);
        let version = api_version.rsplit('/').next().unwrap();
        let expected =
            format!("{kind} in version \"{version}\" cannot be handled as a ConfigMap: {expected}");
        assert_eq!(reply.message(), expected);
    }
}

#[tokio::test]
async fn the_scale_of_a_custom_resource_has_one_decoding_error() {
    let rig = Rig::new().await;
    let definition = r#"{"metadata":{"name":"foos.example.com"},"spec":{"group":"example.com","scope":"Namespaced",
        "names":{"plural":"foos","kind":"Foo"},"versions":[{"name":"v1","served":true,"storage":true,
        "subresources":{"scale":{"specReplicasPath":".spec.n","statusReplicasPath":".status.n"}},
        "schema":{"openAPIV3Schema":{"type":"object","x-kubernetes-preserve-unknown-fields":true}}}]}}"#;
    rig.post(DEFINITIONS, definition).await.expect(201);
    let foo =
        r#"{"apiVersion":"example.com/v1","kind":"Foo","metadata":{"name":"a"},"spec":{"n":1}}"#;
    rig.post(FOOS, foo).await.expect(201);
    let path = format!("{FOOS}/a/scale");
    let expected = "no kind is registered for the type v1.Scale in scheme \
                    \"pkg/apiserver/customresource_handler.go:781\"";
    for body in [
        "{",
        r#"{"kind":"Pod","apiVersion":"v1"}"#,
        r#"{"kind":"Scale","apiVersion":"extensions/v1beta1","metadata":{"name":"a"}}"#,
        r#"{"kind":"Scale","apiVersion":"autoscaling/v1","spec":{"replicas":"x"}}"#,
    ] {
        let reply = rig.put(&path, body).await;
        assert_eq!((reply.status, reply.message()), (400, expected), "{body}");
    }
    let wide = r#"{"kind":"Scale","apiVersion":"autoscaling/v1","metadata":{"name":"a"},"spec":{"replicas":2}}"#;
    let scaled: Value = rig.put(&path, wide).await.expect(200).body;
    assert_eq!(scaled.at("spec.replicas").int(), 2);
}
