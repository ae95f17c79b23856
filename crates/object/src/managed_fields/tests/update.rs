use expect_test::{Expect, expect};

use super::{GVK, STATUS, Scenario, canonical, schema, thing};
use crate::managed_fields::{FieldManager, OneVersion, ScaleHandler, keep_times};
use mizzen_value::Value;
use mizzen_value::{json, value};

#[track_caller]
fn check(scenario: &Scenario, expect: Expect) {
    expect.assert_eq(&scenario.summary());
}

#[test]
fn the_creator_owns_all_fields() {
    let mut scenario = Scenario::default();
    scenario.put(
        "me",
        r#"{"metadata":{"labels":{"a":"1"},"finalizers":["f"],"ownerReferences":[{"kind":"K","uid":"o"}]},
            "spec":{"replicas":0,"ports":[{"port":80}],"items":[{"name":"i","tags":["t"]}],"args":["x"],
            "data":{"k":"v"},"selector":{"s":"1"},"free":{"m":{"n":[1]},"o":2}},"status":{"phase":"p"}}"#,
    );
    check(
        &scenario,
        expect![[r#"
        {"replicas":0,"ports":[{"port":80}],"items":[{"name":"i","tags":["t"]}],"args":["x"],"data":{"k":"v"},"selector":{"s":"1"},"free":{"m":{"n":[1]},"o":2}}
        me Update 00 {"f:metadata":{"f:finalizers":{".":{},"v:\"f\"":{}},"f:labels":{".":{},"f:a":{}},"f:ownerReferences":{".":{},"k:{\"uid\":\"o\"}":{}}},"f:spec":{"f:args":{},"f:data":{".":{},"f:k":{}},"f:free":{".":{},"f:m":{".":{},"f:n":{}},"f:o":{}},"f:items":{"k:{\"name\":\"i\"}":{".":{},"f:name":{},"f:tags":{".":{},"v:\"t\"":{}}}},"f:ports":{".":{},"k:{\"port\":80,\"protocol\":\"TCP\"}":{".":{},"f:port":{}}},"f:replicas":{},"f:selector":{}}}"#]],
    );
}

#[test]
fn a_changed_field_changes_its_manager() {
    let mut scenario = Scenario::default();
    scenario.put("one", r#"{"spec":{"data":{"a":"1","b":"1","c":"1"}}}"#);
    scenario.put("two", r#"{"spec":{"data":{"a":"1","b":"2","d":"1"}}}"#);
    check(
        &scenario,
        expect![[r#"
        {"items":null,"data":{"a":"1","b":"2","d":"1"}}
        one Update 00 {"f:spec":{"f:data":{".":{},"f:a":{}}}}
        two Update 01 {"f:spec":{"f:data":{"f:b":{},"f:d":{}}}}"#]],
    );
}

#[test]
fn an_update_without_changes_adds_no_entry() {
    let mut scenario = Scenario::default();
    scenario
        .put("one", r#"{"spec":{"replicas":1}}"#)
        .put("two", r#"{"spec":{"replicas":1}}"#);
    check(
        &scenario,
        expect![[r#"
        {"replicas":1,"items":null}
        one Update 00 {"f:spec":{"f:replicas":{}}}"#]],
    );
}

#[test]
fn an_entry_without_fields_is_dropped() {
    let mut scenario = Scenario::default();
    scenario
        .put("one", r#"{"spec":{"replicas":1}}"#)
        .patch("two", r#"{"spec":{"replicas":2}}"#);
    check(
        &scenario,
        expect![[r#"
        {"replicas":2,"items":null}
        two Update 01 {"f:spec":{"f:replicas":{}}}"#]],
    );
    scenario.patch("three", r#"{"spec":{"replicas":null}}"#);
    check(&scenario, expect![[r#"{"items":null}"#]]);
}

#[test]
fn a_manager_has_one_entry() {
    let mut scenario = Scenario::default();
    scenario
        .put("me", r#"{"spec":{"replicas":1}}"#)
        .patch("me", r#"{"spec":{"args":["x"]}}"#);
    scenario.patch("me", r#"{"spec":{"replicas":2}}"#);
    check(
        &scenario,
        expect![[r#"
        {"replicas":2,"items":null,"args":["x"]}
        me Update 02 {"f:spec":{"f:args":{},"f:replicas":{}}}"#]],
    );
}

#[test]
fn list_items_are_owned_by_key() {
    let mut scenario = Scenario::default();
    scenario.put(
        "one",
        r#"{"spec":{"items":[{"name":"a","image":"1"},{"name":"b","image":"1"}]}}"#,
    );
    scenario.put(
        "two",
        r#"{"spec":{"items":[{"name":"b","image":"1"},{"name":"a","image":"2"}]}}"#,
    );
    check(
        &scenario,
        expect![[r#"
        {"items":[{"name":"b","image":"1"},{"name":"a","image":"2"}]}
        one Update 00 {"f:spec":{"f:items":{"k:{\"name\":\"a\"}":{".":{},"f:name":{}},"k:{\"name\":\"b\"}":{".":{},"f:image":{},"f:name":{}}}}}
        two Update 01 {"f:spec":{"f:items":{"k:{\"name\":\"a\"}":{"f:image":{}}}}}"#]],
    );
}

#[test]
fn items_with_duplicate_keys_are_owned_together() {
    let mut scenario = Scenario::default();
    scenario.put("one", r#"{"spec":{"items":[{"name":"a","image":"1"}]}}"#);
    scenario.put(
        "two",
        r#"{"spec":{"items":[{"name":"a","image":"1"},{"name":"a","image":"2"}]}}"#,
    );
    check(
        &scenario,
        expect![[r#"
        {"items":[{"name":"a","image":"1"},{"name":"a","image":"2"}]}
        two Update 01 {"f:spec":{"f:items":{"k:{\"name\":\"a\"}":{}}}}"#]],
    );
    scenario.put("three", r#"{"spec":{"items":[{"name":"a","image":"3"}]}}"#);
    check(
        &scenario,
        expect![[r#"
        {"items":[{"name":"a","image":"3"}]}
        three Update 02 {"f:spec":{"f:items":{"k:{\"name\":\"a\"}":{".":{},"f:image":{},"f:name":{}}}}}"#]],
    );
}

#[test]
fn an_empty_list_clears_managed_fields() {
    for reset in ["[]", "[{}]"] {
        let mut scenario = Scenario::default();
        scenario.put("one", r#"{"spec":{"replicas":1}}"#);
        let mut new = canonical(&thing(r#"{"spec":{"replicas":2}}"#));
        new.entry("metadata")
            .set("managedFields", json::parse(reset.as_bytes()).unwrap());
        scenario.write("two", |field_manager, old| {
            field_manager.update(old, &mut new)
        });
        scenario.keep(new);
        check(&scenario, expect![[r#"{"replicas":2,"items":null}"#]]);
        scenario.patch("three", r#"{"spec":{"replicas":3}}"#);
        check(&scenario, expect![[r#"{"replicas":3,"items":null}"#]]);
    }
}

#[test]
fn clients_may_correct_managed_fields_if_they_are_valid() {
    let mut scenario = Scenario::default();
    scenario.put("one", r#"{"spec":{"replicas":1}}"#);
    let entry = |operation: &str| {
        value!([{
            "manager": "x", "operation": operation, "apiVersion": "example.com/v1", "fieldsType": "FieldsV1",
            "fieldsV1": {"f:spec": {"f:replicas": {}}}
        }])
    };
    for operation in ["Update", "Whatever"] {
        let mut new = thing(r#"{"spec":{"replicas":1}}"#);
        new.entry("metadata").set("managedFields", entry(operation));
        scenario.put_value("two", new);
        check(
            &scenario,
            expect![[r#"
            {"replicas":1,"items":null}
            x Update never {"f:spec":{"f:replicas":{}}}"#]],
        );
    }
}

#[test]
fn the_oldest_updaters_are_merged_when_there_are_too_many() {
    let mut scenario = Scenario::default();
    for name in "abcdefghijklm".chars() {
        scenario.patch(
            &name.to_string(),
            &format!(r#"{{"spec":{{"data":{{"{name}":"1"}}}}}}"#),
        );
    }
    let owners = scenario
        .summary()
        .lines()
        .skip(1)
        .map(|line| line[..20].to_string())
        .collect::<Vec<_>>()
        .join("\n");
    expect![[r#"
        ancient-changes Upda
        e Update 04 {"f:spec
        f Update 05 {"f:spec
        g Update 06 {"f:spec
        h Update 07 {"f:spec
        i Update 08 {"f:spec
        j Update 09 {"f:spec
        k Update 10 {"f:spec
        l Update 11 {"f:spec
        m Update 12 {"f:spec"#]]
    .assert_eq(&owners);
    assert!(scenario.summary().contains(
        r#"ancient-changes Update 03 {"f:spec":{"f:data":{".":{},"f:a":{},"f:b":{},"f:c":{},"f:d":{}}}}"#
    ));
}

#[test]
fn fields_that_became_atomic_are_owned_as_a_whole() {
    let mut scenario = Scenario::default();
    scenario.put("one", r#"{"spec":{"replicas":1,"selector":{"a":"1"}}}"#);
    let entries = scenario
        .object
        .as_mut()
        .unwrap()
        .at_mut("metadata.managedFields")
        .unwrap();
    let fields = json::parse(br#"{"f:spec":{"f:selector":{".":{},"f:a":{}}}}"#).unwrap();
    entries.list_mut()[0].set("fieldsV1", fields);
    scenario.patch("two", r#"{"spec":{"replicas":2}}"#);
    check(
        &scenario,
        expect![[r#"
        {"replicas":2,"items":null,"selector":{"a":"1"}}
        one Update 00 {"f:spec":{"f:selector":{}}}
        two Update 01 {"f:spec":{"f:replicas":{}}}"#]],
    );
}

#[test]
fn entries_of_removed_versions_are_dropped() {
    let mut scenario = Scenario::default();
    scenario.put("one", r#"{"spec":{"replicas":1,"args":["x"]}}"#);
    let entries = scenario
        .object
        .as_mut()
        .unwrap()
        .at_mut("metadata.managedFields")
        .unwrap();
    entries.list_mut()[0].set("apiVersion", "example.com/v0");
    scenario.patch("two", r#"{"spec":{"replicas":2}}"#);
    check(
        &scenario,
        expect![[r#"
        {"replicas":2,"items":null,"args":["x"]}
        two Update 01 {"f:spec":{"f:replicas":{}}}"#]],
    );
}

#[test]
fn subresources_have_their_own_entries() {
    let mut scenario = Scenario::default();
    scenario.put("me", r#"{"spec":{"replicas":1}}"#);
    let mut new = scenario.object.clone().unwrap();
    new.entry("status").set("phase", "Running");
    new.entry("spec").set("replicas", 2);
    let spec = crate::managed_fields::FieldSet::of_names(&["spec"]);
    scenario.write("me", |field_manager, old| {
        FieldManager {
            subresource: "status",
            reset_fields: &spec,
            ..*field_manager
        }
        .update(old, &mut new);
    });
    scenario.keep(new);
    check(
        &scenario,
        expect![[r#"
        {"replicas":2,"items":null}
        me Update 00 {"f:spec":{"f:replicas":{}}}
        me Update 01 {"f:status":{"f:phase":{}}}"#]],
    );
}

#[test]
fn times_alone_are_no_change() {
    let mut scenario = Scenario::default();
    scenario.put("me", r#"{"spec":{"replicas":1}}"#);
    let old = scenario.object.clone().unwrap();
    let mut new = old.clone();
    new.at_mut("metadata.managedFields").unwrap().list_mut()[0].set("time", "2024-02-02T00:00:00Z");
    keep_times(&old, &mut new);
    assert_eq!(new, old);
    new.at_mut("metadata.managedFields").unwrap().list_mut()[0].set("time", "2024-02-02T00:00:00Z");
    new.entry("spec").set("replicas", 2);
    keep_times(&old, &mut new);
    assert_ne!(new["metadata"], old["metadata"]);
}

#[test]
fn a_scale_update_owns_the_replicas() {
    let mut scenario = Scenario::default();
    scenario.apply("one", r#"{"spec":{"replicas":1,"args":["x"]}}"#);
    let object = scenario.object.clone().unwrap();
    let paths = [("example.com/v1", Some("spec.replicas"))];
    let owners = ScaleHandler {
        object: &object,
        api_version: "example.com/v1",
        paths: paths.to_vec(),
    };
    let mut old = value!({"metadata": {"uid": "u"}, "spec": {"replicas": 1}});
    old.entry("metadata")
        .set("managedFields", owners.to_scale());
    let mut new = old.clone();
    new.entry("spec").set("replicas", 2);
    let scale = crate::names::GroupVersionKind {
        group: "autoscaling".into(),
        ..GVK.clone()
    };
    let field_manager = FieldManager {
        schema: schema(),
        gvk: &scale,
        manager: "two",
        subresource: "scale",
        now: "2024-01-01T00:00:59Z",
        reset_fields: &STATUS,
        versions: &OneVersion,
    };
    field_manager.update(Some(&old), &mut new);
    let entries = owners.to_object(&new["metadata"]["managedFields"]);
    let keyed: Vec<String> = entries.list().iter().map(keyed).collect();
    expect![[r#"
        one Apply example.com/v1 {"f:spec":{"f:args":{}}}
        two Update example.com/v1 {"f:spec":{"f:replicas":{}}}"#]]
    .assert_eq(&keyed.join("\n"));
}

fn keyed(entry: &Value) -> String {
    let [manager, operation, version] =
        ["manager", "operation", "apiVersion"].map(|key| entry[key].str());
    format!(
        "{manager} {operation} {version} {}",
        json::to_string(&entry["fieldsV1"])
    )
}
