//! Expectations, owner references, conditions, writes, names and field paths.

use std::time::Duration;

use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::core::v1::{ConfigMap, Namespace, Pod};
use k8s_openapi::jiff::Timestamp;
use kube::api::{Api, ApiResource, ObjectMeta};
use kube::core::GroupVersionKind;
use mizzen_sdk::discover::{
    self, Mapper, RegisterError, ScaleClient, ScaleError, Scheme, SchemeError,
};
use mizzen_sdk::expectations::Expectations;
use mizzen_sdk::owner::{self, OwnError};
use mizzen_sdk::write::{self, Applier};
use mizzen_sdk::{Key, condition};
use mizzen_value::value;
use serde_json::{Value, json};

use crate::{define_shirts, send, start};

#[test]
fn keys_round_trip() {
    for text in ["default/web", "node-1"] {
        assert_eq!(text.parse::<Key>().unwrap().to_string(), text);
    }
    assert_eq!(
        "a/b/c".parse::<Key>().unwrap_err().to_string(),
        "unexpected key format: \"a/b/c\""
    );
}

#[tokio::test(start_paused = true)]
async fn expectations_are_fulfilled_by_observations() {
    let expectations = Expectations::default();
    assert!(expectations.is_satisfied(&"web"));
    expectations.expect_creations(&"web", 2);
    expectations.expect_deletions(&"web", ["old".into()]);
    expectations.creation_observed(&"web");
    expectations.deletion_observed(&"web", "old");
    expectations.deletion_observed(&"web", "old");
    assert!(!expectations.is_satisfied(&"web"), "one is still to come");
    expectations.creation_observed(&"web");
    assert!(expectations.is_satisfied(&"web"));
}

#[tokio::test(start_paused = true)]
async fn expectations_expire() {
    let expectations = Expectations::new(Duration::from_secs(60));
    expectations.expect_creations(&"web", 1);
    tokio::time::advance(Duration::from_secs(59)).await;
    assert!(!expectations.is_satisfied(&"web"));
    tokio::time::advance(Duration::from_secs(2)).await;
    assert!(expectations.is_satisfied(&"web"));
    expectations.expect_creations(&"web", 1);
    expectations.forget(&"web");
    assert!(expectations.is_satisfied(&"web"));
}

fn config_map(namespace: &str, name: &str, uid: &str) -> ConfigMap {
    let text = |text: &str| Some(text.to_string()).filter(|text| !text.is_empty());
    let metadata = ObjectMeta {
        name: text(name),
        namespace: text(namespace),
        uid: text(uid),
        ..ObjectMeta::default()
    };
    ConfigMap {
        metadata,
        ..ConfigMap::default()
    }
}

#[test]
fn second_controller_reference_fails() {
    let (first, second) = (
        config_map("default", "a", "1"),
        config_map("default", "b", "2"),
    );
    let mut object = config_map("default", "x", "");
    owner::set_controller(&first, &(), &mut object).unwrap();
    owner::set_controller(&first, &(), &mut object).unwrap();
    assert_eq!(object.metadata.owner_references.as_ref().unwrap().len(), 1);
    assert!(owner::is_controlled_by(&object, &first) && !owner::is_controlled_by(&object, &second));
    let error = owner::set_controller(&second, &(), &mut object).unwrap_err();
    assert_eq!(error.to_string(), "x is controlled by ConfigMap a already");
    assert!(owner::remove_owner(&first, &mut object) && !owner::remove_owner(&first, &mut object));
    owner::set_controller(&second, &(), &mut object).unwrap();
}

#[test]
fn owner_needs_a_uid_and_the_same_namespace() {
    let mut object = config_map("default", "x", "");
    let refused = |owner: &ConfigMap, object: &mut ConfigMap| {
        owner::set_controller(owner, &(), object).unwrap_err()
    };
    assert_eq!(
        refused(&config_map("default", "a", ""), &mut object),
        OwnError::Unstored
    );
    assert!(matches!(
        refused(&config_map("other", "a", "1"), &mut object),
        OwnError::Namespace { .. }
    ));
    let namespace = Namespace {
        metadata: ObjectMeta {
            name: Some("n".into()),
            uid: Some("3".into()),
            ..ObjectMeta::default()
        },
        ..Namespace::default()
    };
    owner::set_controller(&namespace, &(), &mut object).unwrap();
}

#[test]
fn finalizers_are_added_and_removed_once() {
    let mut object = config_map("default", "x", "");
    assert!(owner::add_finalizer(&mut object, "example.com/a"));
    assert!(!owner::add_finalizer(&mut object, "example.com/a"));
    assert!(owner::has_finalizer(&object, "example.com/a"));
    assert!(owner::remove_finalizer(&mut object, "example.com/a"));
    assert!(!owner::remove_finalizer(&mut object, "example.com/a"));
}

#[test]
fn transition_time_changes_with_the_status_only() {
    let at = |second| Timestamp::from_second(second).unwrap();
    let mut conditions = Vec::new();
    assert!(condition::set(
        &mut conditions,
        condition::new("Ready", true, "Fine", "", at(1))
    ));
    assert!(
        !condition::set(
            &mut conditions,
            condition::new("Ready", true, "Fine", "", at(2))
        ),
        "nothing changed"
    );
    assert!(condition::set(
        &mut conditions,
        condition::new("Ready", true, "Finer", "", at(3))
    ));
    assert_eq!(conditions[0].last_transition_time.0, at(1));
    assert!(condition::set(
        &mut conditions,
        condition::new("Ready", false, "Bad", "", at(4))
    ));
    assert_eq!(conditions[0].last_transition_time.0, at(4));
    assert!(condition::is_false(&conditions, "Ready") && !condition::is_true(&conditions, "Ready"));
    assert!(
        condition::remove(&mut conditions, "Ready")
            && condition::find(&conditions, "Ready").is_none()
    );
}

#[test]
fn new_condition_is_appended() {
    let object = value!({"status": {"conditions": [{"type": "Ready"}, {"type": "Known"}]}});
    let order = |type_: &str| {
        let change = condition::added(&object, value!({"type": type_, "status": "True"}));
        assert_eq!(change["conditions"].list().len(), 1);
        let order = change["$setElementOrder/conditions"].list().iter();
        order
            .map(|named| named["type"].str().to_string())
            .collect::<Vec<_>>()
    };
    assert_eq!(order("Another"), ["Ready", "Known", "Another"]);
    assert_eq!(order("Known"), ["Ready", "Known"]);
}

const PATH: &str = "/api/v1/namespaces/default/configmaps";

#[tokio::test(start_paused = true)]
async fn conflicting_update_is_retried_with_the_current_object() {
    let cluster = start().await;
    send(
        &cluster,
        "POST",
        PATH,
        json!({"metadata": {"name": "a"}, "data": {"n": "0"}}),
    )
    .await;
    let api: Api<ConfigMap> = Api::namespaced(cluster.client(), "default");
    let writers: Vec<_> = (0..4)
        .map(|writer| {
            let api = api.clone();
            tokio::spawn(async move {
                let note = |object: &mut ConfigMap| {
                    object
                        .data
                        .get_or_insert_default()
                        .insert(format!("writer-{writer}"), "x".into());
                };
                write::update(&api, "a", note).await
            })
        })
        .collect();
    for writer in writers {
        writer.await.unwrap().unwrap();
    }
    assert_eq!(api.get("a").await.unwrap().data.unwrap().len(), 5);
    let before = api.get("a").await.unwrap().metadata.resource_version;
    let same = write::update(&api, "a", |_| {}).await.unwrap();
    assert_eq!(
        same.metadata.resource_version, before,
        "nothing changed, yet it was written"
    );
    assert!(write::is_not_found(
        &write::update(&api, "missing", |_| {}).await.unwrap_err()
    ));
    let again = api
        .create(&Default::default(), &config_map("default", "a", ""))
        .await
        .unwrap_err();
    assert!(write::is_already_exists(&again));
}

#[tokio::test(start_paused = true)]
async fn persistent_conflict_is_returned() {
    let mut tries = 0;
    let conflict = || {
        kube::Error::Api(Box::new(
            kube::core::Status::failure("no", "Conflict").with_code(409),
        ))
    };
    let outcome: Result<(), _> = write::retry(|| {
        tries += 1;
        std::future::ready(Err(conflict()))
    })
    .await;
    assert!(write::is_conflict(&outcome.unwrap_err()));
    assert_eq!(tries, 5);
}

#[tokio::test(start_paused = true)]
async fn applied_field_is_owned_and_removed_when_omitted() {
    let cluster = start().await;
    let api: Api<ConfigMap> = Api::namespaced(cluster.client(), "default");
    let wanted = |data: Value| json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "a"}, "data": data});
    let (mine, gentle) = (Applier::new("mine"), Applier::without_force("polite"));
    mine.apply(&api, "a", &wanted(json!({"x": "1", "y": "1"})))
        .await
        .unwrap();
    let error = gentle
        .apply(&api, "a", &wanted(json!({"x": "2"})))
        .await
        .unwrap_err();
    assert!(write::is_conflict(&error), "{error}");
    let applied = mine
        .apply(&api, "a", &wanted(json!({"x": "1"})))
        .await
        .unwrap();
    assert_eq!(applied.data.unwrap().keys().collect::<Vec<_>>(), ["x"]);
}

#[tokio::test(start_paused = true)]
async fn mapper_finds_kinds_by_all_names_and_rediscovers() {
    let cluster = start().await;
    let mapper = Mapper::new(cluster.client());
    for name in [
        "deploy",
        "deployment",
        "deployments",
        "Deployment",
        "deployments.apps",
        "deployments.v1.apps",
    ] {
        let found = mapper.find(name).await.unwrap();
        assert_eq!(
            (
                found.resource.plural.as_str(),
                found.resource.api_version.as_str()
            ),
            ("deployments", "apps/v1")
        );
    }
    let pods = mapper
        .by_kind(&GroupVersionKind::gvk("", "v1", "Pod"))
        .await
        .unwrap();
    assert_eq!(
        pods.path(Some("default")),
        "/api/v1/namespaces/default/pods"
    );
    assert_eq!(mapper.by_resource(&pods.gvr()).await.unwrap(), pods);
    assert_eq!(
        mapper.find("nodes").await.unwrap().path(Some("ignored")),
        "/api/v1/nodes"
    );
    assert!(mapper.by_category("all").await.unwrap().contains(&pods));
    let error = mapper.find("shirts").await.unwrap_err();
    assert_eq!(
        error.to_string(),
        "the server doesn't have a resource type \"shirts\""
    );

    define_shirts(&cluster).await;
    let shirts = mapper.find("shirts").await.unwrap();
    assert_eq!(
        shirts.path(Some("default")),
        "/apis/example.com/v1/namespaces/default/shirts"
    );
}

#[tokio::test(start_paused = true)]
async fn scale_subresource_of_any_kind() {
    let cluster = start().await;
    let deployment = json!({"metadata": {"name": "web"}, "spec": {
        "selector": {"matchLabels": {"a": "b"}},
        "template": {"metadata": {"labels": {"a": "b"}}, "spec": {"containers": [{"name": "c", "image": "i"}]}},
    }});
    send(
        &cluster,
        "POST",
        "/apis/apps/v1/namespaces/default/deployments",
        deployment,
    )
    .await;
    let scales = ScaleClient::new(cluster.client(), Mapper::new(cluster.client()));
    let key = Key::new("default", "web");
    assert_eq!(
        scales
            .get("deploy", &key)
            .await
            .unwrap()
            .spec
            .unwrap()
            .replicas,
        Some(1)
    );
    scales.set("deployments", &key, 7).await.unwrap();
    let api: Api<Deployment> = Api::namespaced(cluster.client(), "default");
    assert_eq!(
        api.get("web").await.unwrap().spec.unwrap().replicas,
        Some(7)
    );
    assert!(matches!(
        scales.get("configmaps", &key).await,
        Err(ScaleError::NotScalable(_))
    ));
    assert!(matches!(
        scales.get("shirts", &key).await,
        Err(ScaleError::Unknown(_))
    ));
}

#[test]
fn scheme_decodes_by_api_version_and_kind() {
    let mut scheme = Scheme::new();
    scheme
        .register::<Pod>()
        .unwrap()
        .register::<ConfigMap>()
        .unwrap();
    let gvk = GroupVersionKind::gvk("", "v1", "ConfigMap");
    assert_eq!(scheme.kind_of::<ConfigMap>(), Some(&gvk));
    assert_eq!(scheme.resource_of(&gvk).unwrap().resource, "configmaps");
    assert!(scheme.type_of(&gvk).unwrap().ends_with("ConfigMap"));
    let read = scheme
        .read(br#"{"kind":"ConfigMap","apiVersion":"v1","metadata":{"name":"a"}}"#)
        .unwrap();
    assert_eq!(
        read.downcast::<ConfigMap>()
            .unwrap()
            .metadata
            .name
            .as_deref(),
        Some("a")
    );
    let unknown = scheme
        .read(br#"{"kind":"Shirt","apiVersion":"example.com/v1"}"#)
        .unwrap_err();
    assert_eq!(
        unknown.to_string(),
        "no type is registered for kind \"Shirt\" in version \"example.com/v1\""
    );
    assert!(matches!(scheme.read(b"{}"), Err(SchemeError::Read(_))));
}

/// A type that several kinds share.
#[derive(Debug, PartialEq, serde::Deserialize)]
struct Shirt {
    kind: String,
}

/// Another type.
#[derive(serde::Deserialize)]
struct Blouse {}

#[test]
fn scheme_maps_a_kind_to_one_type() {
    let kind = |version: &str, kind: &str| GroupVersionKind::gvk("example.com", version, kind);
    let resource = |version: &str, name: &str| ApiResource::from_gvk(&kind(version, name));
    let mut scheme = Scheme::new();
    for (version, name) in [
        ("v1", "Shirt"),
        ("v2", "Shirt"),
        ("v2", "Blouse"),
        ("v1", "Shirt"),
    ] {
        scheme
            .register_as::<Shirt>(&resource(version, name))
            .unwrap();
    }
    assert_eq!(
        scheme.kinds_of::<Shirt>(),
        [
            kind("v1", "Shirt"),
            kind("v2", "Shirt"),
            kind("v2", "Blouse")
        ]
    );
    assert_eq!(scheme.kind_of::<Shirt>(), Some(&kind("v1", "Shirt")));
    let read = scheme
        .read(br#"{"kind":"Blouse","apiVersion":"example.com/v2"}"#)
        .unwrap();
    assert_eq!(
        *read.downcast::<Shirt>().unwrap(),
        Shirt {
            kind: "Blouse".into()
        }
    );

    let error = scheme
        .register_as::<Blouse>(&resource("v2", "Blouse"))
        .err()
        .unwrap();
    assert!(
        matches!(&error, RegisterError::DoubleRegistration { gvk, .. } if *gvk == kind("v2", "Blouse"))
    );
    let text = error.to_string();
    assert!(
        text.starts_with(
            "double registration of different types for kind \"Blouse\" in version \"example.com/v2\": old="
        ),
        "{text}"
    );
    assert!(
        text.contains("::Shirt, new=") && text.ends_with("::Blouse"),
        "{text}"
    );
    assert!(scheme.kinds_of::<Blouse>().is_empty() && scheme.recognizes(&kind("v2", "Blouse")));
    assert!(
        scheme
            .type_of(&kind("v2", "Blouse"))
            .unwrap()
            .ends_with("Shirt"),
        "the first stays"
    );

    let error = scheme
        .register_as::<Blouse>(&resource("", "Blouse"))
        .err()
        .unwrap();
    assert!(matches!(error, RegisterError::NoVersion { .. }));
}

#[test]
fn fields_are_accessed_by_path_and_errors_name_it() {
    let mut object = json!({"spec": {"replicas": 3, "args": ["a"]}, "kind": "X"});
    assert_eq!(
        discover::get(&object, &["spec", "replicas"]),
        Ok(Some(&json!(3)))
    );
    assert_eq!(discover::get(&object, &["status", "phase"]), Ok(None));
    assert_eq!(discover::get_str(&object, &["kind"]), Ok(Some("X")));
    assert_eq!(
        discover::get_list(&object, &["spec", "args"])
            .unwrap()
            .unwrap()
            .len(),
        1
    );
    let error = discover::get_str(&object, &["spec", "replicas"]).unwrap_err();
    assert_eq!(
        error.to_string(),
        ".spec.replicas: expected string, found number"
    );
    let error = discover::get(&object, &["spec", "args", "x"]).unwrap_err();
    assert_eq!(
        error.to_string(),
        ".spec.args: expected object, found array"
    );
    discover::set(&mut object, &["status", "phase"], json!("Ready")).unwrap();
    assert_eq!(object["status"]["phase"], "Ready");
    let error = discover::set(&mut object, &["kind", "x"], json!(1)).unwrap_err();
    assert_eq!(error.to_string(), ".kind: expected object, found string");
    assert_eq!(
        discover::remove(&mut object, &["status", "phase"]),
        Ok(Some(json!("Ready")))
    );
    assert_eq!(
        discover::remove(&mut object, &["none", "at", "all"]),
        Ok(None)
    );
    assert!(discover::remove(&mut object, &["kind", "x"]).is_err());
}

#[test]
fn typed_accessors_reject_other_types() {
    let object = json!({
        "bool": true, "int": -3, "float": 1.5, "huge": u64::MAX, "string": "x", "null": null,
        "list": ["a", 1], "strings": ["a", "b"], "map": {"n": null, "s": "t"}, "labels": {"a": "b"},
    });
    let error = |error: discover::FieldError| error.to_string();
    assert_eq!(discover::get_bool(&object, &["bool"]), Ok(Some(true)));
    assert_eq!(discover::get_i64(&object, &["int"]), Ok(Some(-3)));
    assert_eq!(discover::get_f64(&object, &["float"]), Ok(Some(1.5)));
    assert_eq!(
        discover::get_number_as_f64(&object, &["int"]),
        Ok(Some(-3.0))
    );
    assert_eq!(
        discover::get_number_as_f64(&object, &["float"]),
        Ok(Some(1.5))
    );
    assert_eq!(
        discover::get_str_list(&object, &["strings"]),
        Ok(Some(vec!["a", "b"]))
    );
    assert_eq!(
        discover::get_map(&object, &["labels"])
            .unwrap()
            .unwrap()
            .len(),
        1
    );
    assert_eq!(
        discover::get_str_map(&object, &["labels"]),
        Ok(Some([("a", "b")].into()))
    );
    assert_eq!(
        discover::get_null_coercing_str_map(&object, &["map"]),
        Ok(Some([("n", ""), ("s", "t")].into()))
    );

    for (wrong, expected) in [
        (
            discover::get_bool(&object, &["int"]).map(drop),
            ".int: expected boolean, found number",
        ),
        (
            discover::get_i64(&object, &["float"]).map(drop),
            ".float: expected integer, found number",
        ),
        (
            discover::get_i64(&object, &["huge"]).map(drop),
            ".huge: expected integer, found number",
        ),
        (
            discover::get_f64(&object, &["int"]).map(drop),
            ".int: expected float, found number",
        ),
        (
            discover::get_number_as_f64(&object, &["string"]).map(drop),
            ".string: expected number, found string",
        ),
        (
            discover::get_str_list(&object, &["list"]).map(drop),
            ".list[1]: expected string, found number",
        ),
        (
            discover::get_map(&object, &["list"]).map(drop),
            ".list: expected object, found array",
        ),
        (
            discover::get_str_map(&object, &["map"]).map(drop),
            ".map.n: expected string, found null",
        ),
        (
            discover::get_str(&object, &["null"]).map(drop),
            ".null: expected string, found null",
        ),
    ] {
        assert_eq!(wrong.map_err(error), Err(expected.to_string()));
    }
    assert_eq!(
        discover::get_str(&object, &["null", "below"]),
        Ok(None),
        "null on the way is missing"
    );
    assert_eq!(discover::get_bool(&object, &["none"]), Ok(None));
}

#[test]
fn fields_of_every_type_can_be_set() {
    let mut object = Value::Null;
    discover::set(&mut object, &["spec", "on"], true).unwrap();
    discover::set(&mut object, &["spec", "replicas"], 3).unwrap();
    discover::set(&mut object, &["spec", "name"], "web").unwrap();
    discover::set(&mut object, &["spec", "list"], vec![json!(1), json!("a")]).unwrap();
    discover::set_str_list(&mut object, &["spec", "args"], ["a", "b"]).unwrap();
    discover::set_str_map(&mut object, &["metadata", "labels"], [("app", "web")]).unwrap();
    let expected = json!({
        "metadata": {"labels": {"app": "web"}},
        "spec": {"on": true, "replicas": 3, "name": "web", "list": [1, "a"], "args": ["a", "b"]},
    });
    assert_eq!(object, expected);
    assert!(discover::set_str_list(&mut object, &["spec", "name", "x"], ["a"]).is_err());
}
