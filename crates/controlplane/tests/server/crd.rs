//! Kinds that people define: from the definition to its last object.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use mizzen_value::{Value, json, value};
use tokio::runtime::Handle;
use tokio::task::block_in_place;

use crate::rig::{Events, Rig};
use crate::webhook::{MUTATING, configure, hook, rules, webhook};

pub(crate) const DEFINITIONS: &str = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";
pub(crate) const FOOS: &str = "/apis/example.com/v1/namespaces/default/foos";
pub(crate) const FOOS_V2: &str = "/apis/example.com/v2/namespaces/default/foos";
const FOO: &str = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions/foos.example.com";

/// A version of a definition whose schema has these properties in its `spec`.
pub(crate) fn version(name: &str, storage: bool, properties: &str) -> Value {
    let properties = json::parse(properties.as_bytes()).unwrap();
    value!({
        "name": name, "served": true, "storage": storage,
        "schema": { "openAPIV3Schema": {
            "type": "object",
            "properties": { "spec": { "type": "object", "properties": properties } },
        } },
    })
}

/// The definition of `foos.example.com`.
pub(crate) fn definition(versions: Vec<Value>) -> Value {
    let mut definition = value!({
        "metadata": { "name": "foos.example.com" },
        "spec": { "group": "example.com", "scope": "Namespaced", "names": { "plural": "foos", "kind": "Foo" } },
    });
    definition.entry("spec").set("versions", versions);
    definition
}

pub(crate) async fn define(rig: &Rig, definition: &Value) -> Value {
    rig.post(DEFINITIONS, &json::to_string(definition))
        .await
        .expect(201)
        .body
}

const ANY: &str = r#"{"a":{"type":"string"},"n":{"type":"integer"}}"#;

pub(crate) fn foo(version: &str, name: &str, spec: &str) -> String {
    format!(
        r#"{{"apiVersion":"example.com/{version}","kind":"Foo","metadata":{{"name":"{name}"}},"spec":{spec}}}"#
    )
}

fn condition<'a>(definition: &'a Value, name: &str) -> &'a Value {
    let conditions = definition["status"]["conditions"].list();
    conditions
        .iter()
        .find(|condition| condition["type"].str() == name)
        .unwrap_or(&Value::Null)
}

/// Waits until a definition is as it should be; only other tasks have to have their turn.
async fn eventually(rig: &Rig, path: &str, holds: impl Fn(&crate::rig::Reply) -> bool) {
    for _ in 0..10_000 {
        if holds(&rig.get(path).await) {
            return;
        }
        tokio::task::yield_now().await;
    }
    panic!("{path} never came to that: {:?}", rig.get(path).await);
}

#[tokio::test]
async fn a_kind_is_served_once_its_definition_is_accepted() {
    let rig = Rig::new().await;
    let made = define(&rig, &definition(vec![version("v1", true, ANY)])).await;
    assert!(
        made["status"]["conditions"].is_null(),
        "the answer is the definition as it was sent"
    );
    let stored = rig.get(FOO).await.expect(200).body;
    for name in ["NamesAccepted", "Established"] {
        assert_eq!(condition(&stored, name)["status"].str(), "True", "{name}");
    }
    assert_eq!(
        stored["metadata"]["managedFields"].list().len(),
        2,
        "the server owns the status"
    );
    rig.post(FOOS, &foo("v1", "one", r#"{"a":"x"}"#))
        .await
        .expect(201);
    let list = rig.get(FOOS).await.expect(200).body;
    assert_eq!(list["kind"].str(), "FooList");
    assert_eq!(
        list["items"].list()[0]["kind"].str(),
        "Foo",
        "custom objects say what they are inside lists"
    );
    let group = rig.get("/apis/example.com").await.expect(200).body;
    assert_eq!(group["preferredVersion"]["version"].str(), "v1");
}

#[tokio::test]
async fn a_missing_custom_resource_is_not_found_in_the_words_of_upstream() {
    let rig = Rig::new().await;
    let mut hidden = version("v2", false, ANY);
    hidden.set("served", false);
    define(&rig, &definition(vec![version("v1", true, ANY), hidden])).await;
    rig.post(FOOS, &foo("v1", "one", "{}")).await.expect(201);
    let page = "404 page not found\n";
    let named = "foos.example.com \"one\" not found";
    let cases = [
        ("GET", FOOS_V2, page),
        ("GET", "/apis/example.com/v9/namespaces/default/foos", page),
        ("GET", "/apis/example.com/v1/namespaces/default/bars", page),
        ("POST", "/apis/example.com/v1/foos", page),
        ("DELETE", "/apis/example.com/v1/foos", page),
        ("GET", "/apis/example.com/v2", page),
        (
            "GET",
            "/apis/example.com/v1/namespaces/default/foos/one/status",
            named,
        ),
        (
            "GET",
            "/apis/example.com/v1/namespaces/default/foos/one/scale",
            named,
        ),
    ];
    for (method, path, words) in cases {
        let reply = match method {
            "GET" => rig.get(path).await,
            "POST" => rig.post(path, &foo("v1", "two", "{}")).await,
            _ => rig.delete(path, "").await,
        };
        let said = reply
            .body
            .as_str()
            .unwrap_or(reply.body["message"].str())
            .to_string();
        assert_eq!(
            (reply.status, said.as_str()),
            (404, words),
            "{method} {path}"
        );
    }
}

#[tokio::test]
async fn a_conflicting_name_is_accepted_when_it_becomes_free() {
    let rig = Rig::new().await;
    define(&rig, &definition(vec![version("v1", true, ANY)])).await;
    let mut other = definition(vec![version("v1", true, ANY)]);
    other.entry("metadata").set("name", "bars.example.com");
    other.entry("spec").entry("names").set("plural", "bars");
    define(&rig, &other).await;
    let bars = format!("{DEFINITIONS}/bars.example.com");
    let waiting = rig.get(&bars).await.expect(200).body;
    assert_eq!(
        condition(&waiting, "NamesAccepted")["reason"].str(),
        "ListKindConflict"
    );
    assert_eq!(
        condition(&waiting, "Established")["reason"].str(),
        "NotAccepted"
    );
    rig.get("/apis/example.com/v1/namespaces/default/bars")
        .await
        .expect(404);
    rig.delete(FOO, "").await.expect(200);
    eventually(&rig, &bars, |reply| {
        condition(&reply.body, "Established")["status"].str() == "True"
    })
    .await;
    rig.get("/apis/example.com/v1/namespaces/default/bars")
        .await
        .expect(200);
}

#[tokio::test]
async fn a_definition_is_deleted_after_its_objects_and_rejects_creates_meanwhile() {
    let rig = Rig::new().await;
    define(&rig, &definition(vec![version("v1", true, ANY)])).await;
    rig.post(FOOS, &foo("v1", "free", "{}")).await.expect(201);
    rig.post(FOOS, &foo("v1", "held", "{}")).await.expect(201);
    let held = format!("{FOOS}/held");
    rig.patch(&held, r#"{"metadata":{"finalizers":["example.com/hold"]}}"#)
        .await
        .expect(200);
    let deleted = rig.delete(FOO, "").await.expect(200).body;
    assert_eq!(
        condition(&deleted, "Terminating")["reason"].str(),
        "InstanceDeletionPending"
    );
    let refused = rig.post(FOOS, &foo("v1", "late", "{}")).await.expect(403);
    let why = "foos.example.com \"late\" is forbidden: create not allowed while custom resource definition is terminating";
    assert_eq!(refused.body["message"].str(), why);
    eventually(&rig, FOOS, |reply| reply.names() == ["held"]).await;
    let going = rig.get(FOO).await.expect(200).body;
    assert_eq!(
        condition(&going, "Terminating")["reason"].str(),
        "InstanceDeletionInProgress"
    );
    let verbs =
        rig.get("/apis/example.com/v1").await.expect(200).body["resources"].list()[0]["verbs"]
            .clone();
    assert!(!verbs.list().contains(&"create".into()), "{verbs:?}");
    rig.patch(&held, r#"{"metadata":{"finalizers":null}}"#)
        .await
        .expect(200);
    eventually(&rig, FOO, |reply| reply.status == 404).await;
    eventually(&rig, "/apis/example.com", |reply| reply.status == 404).await;
    define(&rig, &definition(vec![version("v1", true, ANY)])).await;
    assert_eq!(rig.get(FOOS).await.expect(200).names(), [] as [&str; 0]);
}

#[tokio::test]
async fn a_restarted_server_serves_existing_definitions() {
    let rig = Rig::new().await;
    define(&rig, &definition(vec![version("v1", true, ANY)])).await;
    rig.post(FOOS, &foo("v1", "one", r#"{"a":"x"}"#))
        .await
        .expect(201);
    let again = rig.restarted().await;
    assert_eq!(again.get(FOOS).await.expect(200).names(), ["one"]);
}

#[tokio::test]
async fn objects_are_served_in_every_version() {
    let rig = Rig::new().await;
    let v1 = version(
        "v1",
        true,
        r#"{"a":{"type":"string"},"only1":{"type":"string"}}"#,
    );
    let v2 = version(
        "v2",
        false,
        r#"{"a":{"type":"string"},"d":{"type":"string","default":"late"}}"#,
    );
    define(&rig, &definition(vec![v1, v2])).await;
    rig.post(FOOS, &foo("v1", "one", r#"{"a":"x","only1":"y"}"#))
        .await
        .expect(201);
    let seen = rig.get(&format!("{FOOS_V2}/one")).await.expect(200).body;
    assert_eq!(seen["apiVersion"].str(), "example.com/v2");
    assert_eq!(
        json::to_string(&seen["spec"]),
        r#"{"a":"x"}"#,
        "defaults are those of the stored version"
    );
    let made = rig
        .post(FOOS_V2, &foo("v2", "two", r#"{"a":"z"}"#))
        .await
        .expect(201)
        .body;
    assert_eq!(
        json::to_string(&made["spec"]),
        r#"{"a":"z"}"#,
        "what is stored is what comes back"
    );
    let list = rig.get(FOOS_V2).await.expect(200).body;
    assert!(
        list["items"]
            .list()
            .iter()
            .all(|item| item["apiVersion"].str() == "example.com/v2")
    );
    let mut events: Events = rig
        .watch(&format!("{FOOS_V2}?watch=true&resourceVersion=0"))
        .await;
    assert_eq!(
        events.next().await.unwrap()["object"]["apiVersion"].str(),
        "example.com/v2"
    );
    // Whoever owns something of a version that cannot be had from the other is forgotten, as all are.
    let changed = rig
        .patch(&format!("{FOOS}/one"), r#"{"spec":{"a":"w"}}"#)
        .await
        .expect(200)
        .body;
    assert_eq!(changed["metadata"]["managedFields"].list().len(), 1);
}

#[tokio::test]
async fn the_storage_version_can_change_and_a_no_op_write_migrates_an_object() {
    let rig = Rig::new().await;
    define(
        &rig,
        &definition(vec![version("v1", true, ANY), version("v2", false, ANY)]),
    )
    .await;
    let made = rig
        .post(FOOS, &foo("v1", "one", r#"{"a":"x"}"#))
        .await
        .expect(201);
    let versions = vec![version("v1", false, ANY), version("v2", true, ANY)];
    let mut patch = value!({ "spec": {} });
    patch.entry("spec").set("versions", versions);
    let patched = rig
        .patch(FOO, &json::to_string(&patch))
        .await
        .expect(200)
        .body;
    assert_eq!(patched["status"]["storedVersions"], value!(["v1", "v2"]));
    let same = rig.patch(&format!("{FOOS}/one"), "{}").await.expect(200);
    assert_ne!(same.version(), made.version(), "it was stored again");
    assert_eq!(same.body["apiVersion"].str(), "example.com/v1");
    let again = rig.patch(&format!("{FOOS}/one"), "{}").await.expect(200);
    assert_eq!(again.version(), same.version(), "and then no more");
}

#[tokio::test]
async fn objects_follow_their_schema() {
    let rig = Rig::new().await;
    define(&rig, &definition(vec![version("v1", true, ANY)])).await;
    rig.post(FOOS, &foo("v1", "one", r#"{"a":"x","n":7}"#))
        .await
        .expect(201);
    let stricter = version(
        "v1",
        true,
        r#"{"a":{"type":"string"},"d":{"type":"string","default":"new"}}"#,
    );
    let mut patch = value!({ "spec": {} });
    patch.entry("spec").set("versions", vec![stricter]);
    rig.patch(FOO, &json::to_string(&patch)).await.expect(200);
    let seen = rig.get(&format!("{FOOS}/one")).await.expect(200).body;
    assert_eq!(json::to_string(&seen["spec"]), r#"{"a":"x","d":"new"}"#);
}

#[tokio::test]
async fn a_watch_ends_when_its_definition_is_changed_or_deleted() {
    let rig = Rig::new().await;
    define(&rig, &definition(vec![version("v1", true, ANY)])).await;
    rig.post(FOOS, &foo("v1", "one", "{}")).await.expect(201);
    let mut events = rig
        .watch(&format!("{FOOS}?watch=true&resourceVersion=0"))
        .await;
    assert_eq!(events.next_name().await, "ADDED one");
    rig.patch(FOO, r#"{"metadata":{"labels":{"a":"b"}}}"#)
        .await
        .expect(200);
    rig.patch(&format!("{FOOS}/one"), r#"{"spec":{"a":"y"}}"#)
        .await
        .expect(200);
    assert_eq!(
        events.next_name().await,
        "MODIFIED one",
        "labels of a definition are nobody's business"
    );
    rig.patch(FOO, r#"{"spec":{"names":{"shortNames":["f"]}}}"#)
        .await
        .expect(200);
    assert_eq!(events.next_name().await, "end");
    let mut events = rig
        .watch(&format!("{FOOS}?watch=true&resourceVersion=0"))
        .await;
    assert_eq!(events.next_name().await, "ADDED one");
    rig.delete(FOO, "").await.expect(200);
    assert_eq!(events.next_name().await, "DELETED one");
    assert_eq!(events.next_name().await, "end");
}

#[tokio::test]
async fn scale_fields_are_at_the_paths_of_the_definition() {
    let rig = Rig::new().await;
    let mut v1 = version(
        "v1",
        true,
        r#"{"size":{"type":"object","properties":{"wanted":{"type":"integer"}}}}"#,
    );
    v1.set(
        "subresources",
        value!({ "status": {}, "scale": { "specReplicasPath": ".spec.size.wanted", "statusReplicasPath": ".status.has", "labelSelectorPath": ".status.which" } }),
    );
    let status = value!({ "type": "object", "properties": { "has": { "type": "integer" }, "which": { "type": "string" } } });
    v1.entry("schema")
        .entry("openAPIV3Schema")
        .entry("properties")
        .set("status", status);
    define(&rig, &definition(vec![v1])).await;
    rig.post(FOOS, &foo("v1", "one", "{}")).await.expect(201);
    let (one, scale) = (format!("{FOOS}/one"), format!("{FOOS}/one/scale"));
    let missing = rig.get(&scale).await.expect(500).body;
    assert!(
        missing["message"]
            .str()
            .ends_with("the spec replicas field \".spec.size.wanted\" does not exist")
    );
    let empty = rig
        .patch(&scale, r#"{"metadata":{"labels":{"a":"b"}}}"#)
        .await
        .expect(400)
        .body;
    assert_eq!(
        empty["message"].str(),
        "the spec replicas field \".spec.size.wanted\" cannot be empty"
    );
    rig.patch(
        &format!("{one}/status"),
        r#"{"status":{"has":1,"which":"a=b"}}"#,
    )
    .await
    .expect(200);
    let scaled = rig
        .patch(&scale, r#"{"spec":{"replicas":3}}"#)
        .await
        .expect(200)
        .body;
    assert_eq!(
        json::to_string(&scaled["status"]),
        r#"{"replicas":1,"selector":"a=b"}"#
    );
    let object = rig.get(&one).await.expect(200).body;
    assert_eq!(object.at("spec.size.wanted").int(), 3);
    assert_eq!(object["metadata"]["generation"].int(), 2);
}

#[tokio::test]
async fn selectable_fields_of_a_definition_can_be_selected() {
    let rig = Rig::new().await;
    let mut v1 = version("v1", true, ANY);
    v1.set("selectableFields", value!([{ "jsonPath": ".spec.a" }]));
    // Kubernetes: where versions share a schema, they share their selectable fields, too.
    let other = r#"{"a":{"type":"string"},"b":{"type":"string"}}"#;
    define(&rig, &definition(vec![v1, version("v2", false, other)])).await;
    rig.post(FOOS, &foo("v1", "red", r#"{"a":"red"}"#))
        .await
        .expect(201);
    rig.post(FOOS, &foo("v1", "blue", r#"{"a":"blue"}"#))
        .await
        .expect(201);
    let selected = rig
        .get(&format!("{FOOS}?fieldSelector=spec.a%3Dred"))
        .await
        .expect(200);
    assert_eq!(selected.names(), ["red"]);
    let refused = rig
        .get(&format!("{FOOS_V2}?fieldSelector=spec.a%3Dred"))
        .await
        .expect(400);
    assert_eq!(
        refused.body["message"].str(),
        "field label not supported: spec.a"
    );
    let mut events = rig
        .watch(&format!(
            "{FOOS}?watch=true&fieldSelector=spec.a%3Dred&resourceVersion=0"
        ))
        .await;
    assert_eq!(events.next_name().await, "ADDED red");
    rig.patch(&format!("{FOOS}/red"), r#"{"spec":{"a":"green"}}"#)
        .await
        .expect(200);
    assert_eq!(events.next_name().await, "DELETED red");
}

#[tokio::test]
async fn openapi_follows_definitions() {
    let rig = Rig::new().await;
    let path = "/openapi/v3/apis/example.com/v1";
    rig.get(path).await.expect(404);
    define(&rig, &definition(vec![version("v1", true, ANY)])).await;
    let first = rig.get(path).await.expect(200).body;
    assert!(!first["components"]["schemas"]["com.example.v1.Foo"].is_null());
    let index = || async {
        rig.get("/openapi/v3").await.expect(200).body["paths"]["apis/example.com/v1"].clone()
    };
    let before = index().await;
    let other = version("v1", true, r#"{"b":{"type":"string"}}"#);
    let mut patch = value!({ "spec": {} });
    patch.entry("spec").set("versions", vec![other]);
    rig.patch(FOO, &json::to_string(&patch)).await.expect(200);
    assert_ne!(
        index().await,
        before,
        "the hash tells that the document has changed"
    );
    let second = rig.get(path).await.expect(200).body;
    let properties =
        &second["components"]["schemas"]["com.example.v1.Foo"]["properties"]["spec"]["properties"];
    assert!(properties["a"].is_null() && !properties["b"].is_null());
    let all = rig.get("/openapi/v2").await.expect(200).body;
    assert!(!all["definitions"]["com.example.v1.Foo"].is_null());
    rig.delete(FOO, "").await.expect(200);
    eventually(&rig, path, |reply| reply.status == 404).await;
}

#[tokio::test]
async fn many_clients_define_kinds_at_once() {
    let rig = Arc::new(Rig::new().await);
    let tasks: Vec<_> = (0..50)
        .map(|at| {
            let rig = rig.clone();
            tokio::spawn(async move {
                let mut other = definition(vec![version("v1", true, ANY)]);
                other
                    .entry("metadata")
                    .set("name", format!("k{at}s.example.com"));
                let names = value!({ "plural": (format!("k{at}s")), "kind": (format!("K{at}")) });
                other.entry("spec").set("names", names);
                define(&rig, &other).await;
                rig.get(&format!("/apis/example.com/v1/namespaces/default/k{at}s"))
                    .await
                    .expect(200);
            })
        })
        .collect();
    for task in tasks {
        task.await.unwrap();
    }
    let resources = rig.get("/apis/example.com/v1").await.expect(200).body["resources"]
        .list()
        .len();
    assert_eq!(resources, 50);
}

#[tokio::test]
async fn unchanged_values_pass_a_new_rule() {
    let rig = Rig::new().await;
    define(&rig, &definition(vec![version("v1", true, ANY)])).await;
    let made = rig
        .post(FOOS, &foo("v1", "one", r#"{"n":1}"#))
        .await
        .expect(201)
        .body;
    let ruled = r#"{"a":{"type":"string"},"n":{"type":"integer","x-kubernetes-validations":[{"rule":"self > 1"}]}}"#;
    let mut stricter = rig.get(FOO).await.expect(200).body;
    stricter
        .entry("spec")
        .set("versions", vec![version("v1", true, ruled)]);
    rig.put(FOO, &json::to_string(&stricter)).await.expect(200);

    let words = "spec.n: Invalid value: 1: failed rule: self > 1";
    let refused = rig
        .post(FOOS, &foo("v1", "two", r#"{"n":1}"#))
        .await
        .expect(422);
    assert_eq!(
        refused.message(),
        format!("Foo.example.com \"two\" is invalid: {words}")
    );
    let mut changed = made;
    changed.entry("spec").set("a", "x");
    let kept = rig
        .put(&format!("{FOOS}/one"), &json::to_string(&changed))
        .await
        .expect(200);
    assert!(
        kept.warnings.iter().any(|warning| warning.contains(words)),
        "{:?}",
        kept.warnings
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn a_status_is_written_again_after_a_conflict() {
    let rig = Rig::new().await;
    let (client, is_changed) = (rig.clone(), AtomicBool::new(false));
    let change = async move |rig: &Rig| {
        let writer = rig.clone();
        // Its response waits for the controller, which waits for the webhook.
        tokio::spawn(async move {
            let change = r#"{"metadata":{"annotations":{"changed":"meanwhile"}}}"#;
            writer.patch(FOO, change).await
        });
        let annotation =
            |definition: &Value| definition["metadata"]["annotations"]["changed"].clone();
        eventually(rig, FOO, |reply| !annotation(&reply.body).is_null()).await;
    };
    // The first status has passed its plug-ins when someone else changes the definition.
    let peer = webhook(move |_| {
        if !is_changed.swap(true, Ordering::SeqCst) {
            block_in_place(|| Handle::current().block_on(change(&client)));
        }
        value!({ "allowed": true })
    })
    .await;
    let status = "customresourcedefinitions/status";
    let mut slow = rules("apiextensions.k8s.io", "v1", "UPDATE", status);
    slow.set("timeoutSeconds", 10);
    configure(&rig, MUTATING, "m", vec![hook("m", &peer, slow)]).await;
    define(&rig, &definition(vec![version("v1", true, ANY)])).await;
    eventually(&rig, FOO, |reply| {
        condition(&reply.body, "Established")["status"].str() == "True"
    })
    .await;
    let stored = rig.get(FOO).await.expect(200).body;
    let kept = &stored["metadata"]["annotations"]["changed"];
    assert_eq!(kept.str(), "meanwhile");
    assert!(peer.seen().len() > 1, "{:?}", peer.seen());
    rig.post(FOOS, &foo("v1", "a", "{}")).await.expect(201);
}
