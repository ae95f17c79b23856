//! Versions that a webhook converts, against a real little HTTPS server.

use mizzen_value::{Value, json, value};

use crate::crd::{DEFINITIONS, FOOS, FOOS_V2, define, definition, foo, version};
use crate::peer::{Peer, Reaction};
use crate::rig::Rig;

/// A webhook that renames `spec.a` to `spec.b` and back, and then does to its response what `spoil` does.
async fn webhook(spoil: impl Fn(&mut Value) + Send + Sync + 'static) -> Peer {
    Peer::start(&["127.0.0.1"], move |request| {
        let review = json::parse(request.body()).unwrap();
        let (asked, mut answer) = (&review["request"], review.clone());
        let convert = |object: &Value| {
            let mut object = object.clone();
            object.set("apiVersion", asked["desiredAPIVersion"].clone());
            let (from, to) = if asked["desiredAPIVersion"].str() == "example.com/v2" {
                ("a", "b")
            } else {
                ("b", "a")
            };
            if let Some(text) = object.entry("spec").remove(from) {
                object.entry("spec").set(to, text);
            }
            object
        };
        let objects: Vec<Value> = asked["objects"].list().iter().map(convert).collect();
        let mut response = value!({ "result": { "status": "Success" } });
        response.set("uid", asked["uid"].clone());
        response.set("convertedObjects", objects);
        spoil(&mut response);
        answer.remove("request");
        answer.set("response", response);
        Reaction::Reply(200, json::to_string(&answer))
    })
    .await
}

async fn defined(rig: &Rig, peer: &Peer) {
    let v1 = version("v1", true, r#"{"a":{"type":"string"}}"#);
    let v2 = version("v2", false, r#"{"b":{"type":"string"}}"#);
    let mut definition = definition(vec![v1, v2]);
    let config = value!({
        "clientConfig": { "url": (format!("https://127.0.0.1:{}/convert", peer.port)), "caBundle": (peer.bundle()) },
        "conversionReviewVersions": ["v1"],
    });
    definition.entry("spec").set(
        "conversion",
        value!({ "strategy": "Webhook", "webhook": config }),
    );
    define(rig, &definition).await;
}

#[tokio::test]
async fn a_webhook_converts_on_read_and_write() {
    let (rig, peer) = (Rig::new().await, webhook(|_| {}).await);
    defined(&rig, &peer).await;
    rig.post(FOOS, &foo("v1", "one", r#"{"a":"x"}"#))
        .await
        .expect(201);
    assert!(peer.seen().is_empty(), "the stored version needs no help");
    let seen = rig.get(&format!("{FOOS_V2}/one")).await.expect(200).body;
    assert_eq!(json::to_string(&seen["spec"]), r#"{"b":"x"}"#);
    rig.post(FOOS_V2, &foo("v2", "two", r#"{"b":"y"}"#))
        .await
        .expect(201);
    let stored = rig.get(&format!("{FOOS}/two")).await.expect(200).body;
    assert_eq!(json::to_string(&stored["spec"]), r#"{"a":"y"}"#);
    let changed = rig
        .patch(&format!("{FOOS_V2}/two"), r#"{"spec":{"b":"z"}}"#)
        .await
        .expect(200)
        .body;
    assert_eq!(json::to_string(&changed["spec"]), r#"{"b":"z"}"#);
    for name in ["other", "others"] {
        rig.post(FOOS, &foo("v1", name, r#"{"a":"x"}"#))
            .await
            .expect(201);
    }
    let before = peer.seen().len();
    for why in ["a list is one question", "its answer is remembered"] {
        let list = rig.get(FOOS_V2).await.expect(200);
        let seen = (list.names().len(), peer.seen().len() - before);
        assert_eq!(seen, (4, 1), "{why}");
    }
    let mut events = rig
        .watch(&format!("{FOOS_V2}?watch=true&resourceVersion=0"))
        .await;
    assert_eq!(
        json::to_string(&events.next().await.unwrap()["object"]["spec"]),
        r#"{"b":"x"}"#
    );
    rig.delete(&format!("{FOOS_V2}/two"), "").await.expect(200);
}

#[track_caller]
fn said(reply: &crate::rig::Reply) -> &str {
    assert_eq!(reply.status, 500, "{reply:?}");
    reply.body["message"].str()
}

/// What a client of the other version is told when the webhook's response is spoiled.
async fn check(spoil: impl Fn(&mut Value) + Send + Sync + 'static, expected: &str) {
    let (rig, peer) = (Rig::new().await, webhook(spoil).await);
    defined(&rig, &peer).await;
    rig.post(FOOS, &foo("v1", "one", r#"{"a":"x"}"#))
        .await
        .expect(201);
    let reply = rig.get(&format!("{FOOS_V2}/one")).await;
    assert_eq!(
        said(&reply),
        format!("conversion webhook for example.com/v1, Kind=Foo {expected}")
    );
}

fn first(response: &mut Value) -> &mut Value {
    &mut response.entry("convertedObjects").make_list()[0]
}

#[tokio::test]
async fn an_invalid_conversion_response_is_an_error() {
    check(
        |it| it.set("convertedObjects", Vec::<Value>::new()),
        "returned 0 objects, expected 1",
    )
    .await;
    check(
        |it| {
            it.set(
                "result",
                value!({ "status": "Failure", "message": "not today" }),
            )
        },
        "failed: not today",
    )
    .await;
    check(
        |it| it.set("result", value!({ "status": "Odd" })),
        "failed: response.result.status was 'Odd', not 'Success'",
    )
    .await;
    check(
        |it| first(it).set("apiVersion", "example.com/v3"),
        "returned invalid object at index 0: invalid groupVersion (expected example.com/v2, received example.com/v3)",
    )
    .await;
    check(
        |it| first(it).set("kind", "Bar"),
        "returned invalid object at index 0: invalid kind (expected Foo, received Bar)",
    )
    .await;
    check(
        |it| first(it).entry("metadata").set("name", "two"),
        "returned invalid object: must have the same name: one != two",
    )
    .await;
    check(
        |it| first(it).entry("metadata").set("labels", value!({ "a": 1 })),
        "returned invalid metadata: metadata.labels[a] must be a string, but is int64 in converted object",
    )
    .await;
}

#[tokio::test]
async fn a_conversion_response_with_another_uid_is_an_error() {
    let (rig, peer) = (
        Rig::new().await,
        webhook(|response| response.set("uid", "another")).await,
    );
    defined(&rig, &peer).await;
    rig.post(FOOS, &foo("v1", "one", r#"{"a":"x"}"#))
        .await
        .expect(201);
    let reply = rig.get(&format!("{FOOS_V2}/one")).await;
    assert!(
        said(&reply).contains("failed: expected response.uid=\""),
        "{}",
        said(&reply)
    );
    assert!(
        said(&reply).ends_with("got \"another\""),
        "{}",
        said(&reply)
    );
}

#[tokio::test]
async fn managers_of_other_versions_lose_fields_as_the_webhook_converts_them() {
    let (rig, peer) = (Rig::new().await, webhook(|_| {}).await);
    defined(&rig, &peer).await;
    rig.post(FOOS, &foo("v1", "one", r#"{"a":"x"}"#))
        .await
        .expect(201);
    let changed = rig
        .patch(&format!("{FOOS_V2}/one"), r#"{"spec":{"b":"y"}}"#)
        .await
        .expect(200)
        .body;
    let owners: Vec<String> = changed["metadata"]["managedFields"]
        .list()
        .iter()
        .map(|entry| {
            format!(
                "{} {}",
                entry["apiVersion"].str(),
                json::to_string(&entry["fieldsV1"])
            )
        })
        .collect();
    // What was owned in the first version is `a`, and has changed with `b`.
    assert_eq!(
        owners,
        [
            r#"example.com/v1 {"f:spec":{}}"#,
            r#"example.com/v2 {"f:spec":{"f:b":{}}}"#
        ]
    );
    assert!(peer.seen().len() > 1);
}

#[tokio::test]
async fn selectors_match_labels_that_a_webhook_sets() {
    let label = |response: &mut Value| {
        for object in response.entry("convertedObjects").make_list() {
            object
                .entry("metadata")
                .set("labels", value!({ "from": "webhook" }));
        }
    };
    let (rig, peer) = (Rig::new().await, webhook(label).await);
    defined(&rig, &peer).await;
    rig.post(FOOS, &foo("v1", "one", r#"{"a":"x"}"#))
        .await
        .expect(201);
    assert_eq!(
        rig.get(&format!("{FOOS_V2}?labelSelector=from%3Dwebhook"))
            .await
            .expect(200)
            .names(),
        ["one"]
    );
    assert_eq!(
        rig.get(&format!("{FOOS}?labelSelector=from%3Dwebhook"))
            .await
            .expect(200)
            .names()
            .len(),
        0
    );
}

#[tokio::test]
async fn an_unreachable_webhook_fails_only_the_versions_it_converts() {
    let rig = Rig::new().await;
    let peer = webhook(|_| {}).await;
    defined(&rig, &peer).await;
    drop(peer);
    rig.post(FOOS, &foo("v1", "one", r#"{"a":"x"}"#))
        .await
        .expect(201);
    rig.get(&format!("{FOOS}/one")).await.expect(200);
    let reply = rig.get(FOOS_V2).await;
    assert!(
        said(&reply).contains("dial tcp 127.0.0.1:"),
        "{}",
        said(&reply)
    );
    rig.post(FOOS_V2, &foo("v2", "two", "{}")).await.expect(500);
    rig.get(DEFINITIONS).await.expect(200);
}

#[tokio::test]
async fn versions_without_a_webhook_share_their_common_fields() {
    let rig = Rig::new().await;
    let text = r#"{"type":"string"}"#;
    let v1 = format!(
        r#"{{"a":{text},"d":{{"type":"string","default":"dd"}},"n":{{"type":"string","nullable":true}}}}"#
    );
    let v2 = format!(r#"{{"a":{text},"b":{text},"d":{text},"n":{text}}}"#);
    define(
        &rig,
        &definition(vec![version("v1", true, &v1), version("v2", false, &v2)]),
    )
    .await;
    let spec = |object: &Value| json::to_string(&object["spec"]);

    let dry = rig
        .post(
            &format!("{FOOS_V2}?dryRun=All"),
            &foo("v2", "one", r#"{"a":"1","b":"2"}"#),
        )
        .await;
    assert_eq!(
        spec(&dry.expect(201).body),
        r#"{"a":"1","d":"dd"}"#,
        "as if it were stored and read"
    );
    rig.post(FOOS, &foo("v1", "two", r#"{"a":"1","n":null}"#))
        .await
        .expect(201);
    let stored = rig.get(&format!("{FOOS}/two")).await.expect(200).body;
    assert_eq!(spec(&stored), r#"{"a":"1","d":"dd","n":null}"#);
    let other = rig.get(&format!("{FOOS_V2}/two")).await.expect(200).body;
    assert_eq!(
        spec(&other),
        r#"{"a":"1","d":"dd"}"#,
        "a null that the version does not allow"
    );
    let patch = format!("{FOOS_V2}/two?dryRun=All");
    let dry = rig
        .patch(&patch, r#"{"spec":{"a":"3","b":"4"}}"#)
        .await
        .expect(200)
        .body;
    assert_eq!(spec(&dry), r#"{"a":"3","d":"dd"}"#);
}
