use expect_test::{Expect, expect};

use super::{GVK, STATUS, Story, canonical, schema, thing};
use crate::own::{OneVersion, ScaleOwners, Writer, keep_times};
use mizzen_value::Value;
use mizzen_value::{json, value};

#[track_caller]
fn check(story: &Story, expect: Expect) {
    expect.assert_eq(&story.tell());
}

#[test]
fn who_makes_an_object_owns_all_that_he_says() {
    let mut story = Story::default();
    story.put(
        "me",
        r#"{"metadata":{"labels":{"a":"1"},"finalizers":["f"],"ownerReferences":[{"kind":"K","uid":"o"}]},
            "spec":{"replicas":0,"ports":[{"port":80}],"items":[{"name":"i","tags":["t"]}],"args":["x"],
            "data":{"k":"v"},"selector":{"s":"1"},"free":{"m":{"n":[1]},"o":2}},"status":{"phase":"p"}}"#,
    );
    check(
        &story,
        expect![[r#"
        {"replicas":0,"ports":[{"port":80}],"items":[{"name":"i","tags":["t"]}],"args":["x"],"data":{"k":"v"},"selector":{"s":"1"},"free":{"m":{"n":[1]},"o":2}}
        me Update 00 {"f:metadata":{"f:finalizers":{".":{},"v:\"f\"":{}},"f:labels":{".":{},"f:a":{}},"f:ownerReferences":{".":{},"k:{\"uid\":\"o\"}":{}}},"f:spec":{"f:args":{},"f:data":{".":{},"f:k":{}},"f:free":{".":{},"f:m":{".":{},"f:n":{}},"f:o":{}},"f:items":{"k:{\"name\":\"i\"}":{".":{},"f:name":{},"f:tags":{".":{},"v:\"t\"":{}}}},"f:ports":{".":{},"k:{\"port\":80,\"protocol\":\"TCP\"}":{".":{},"f:port":{}}},"f:replicas":{},"f:selector":{}}}"#]],
    );
}

#[test]
fn who_changes_a_field_takes_it() {
    let mut story = Story::default();
    story.put("one", r#"{"spec":{"data":{"a":"1","b":"1","c":"1"}}}"#);
    story.put("two", r#"{"spec":{"data":{"a":"1","b":"2","d":"1"}}}"#);
    check(
        &story,
        expect![[r#"
        {"items":null,"data":{"a":"1","b":"2","d":"1"}}
        one Update 00 {"f:spec":{"f:data":{".":{},"f:a":{}}}}
        two Update 01 {"f:spec":{"f:data":{"f:b":{},"f:d":{}}}}"#]],
    );
}

#[test]
fn who_changes_nothing_leaves_no_trace() {
    let mut story = Story::default();
    story
        .put("one", r#"{"spec":{"replicas":1}}"#)
        .put("two", r#"{"spec":{"replicas":1}}"#);
    check(
        &story,
        expect![[r#"
        {"replicas":1,"items":null}
        one Update 00 {"f:spec":{"f:replicas":{}}}"#]],
    );
}

#[test]
fn who_owns_nothing_any_more_is_forgotten() {
    let mut story = Story::default();
    story
        .put("one", r#"{"spec":{"replicas":1}}"#)
        .patch("two", r#"{"spec":{"replicas":2}}"#);
    check(
        &story,
        expect![[r#"
        {"replicas":2,"items":null}
        two Update 01 {"f:spec":{"f:replicas":{}}}"#]],
    );
    story.patch("three", r#"{"spec":{"replicas":null}}"#);
    check(&story, expect![[r#"{"items":null}"#]]);
}

#[test]
fn the_same_manager_adds_to_his_entry() {
    let mut story = Story::default();
    story
        .put("me", r#"{"spec":{"replicas":1}}"#)
        .patch("me", r#"{"spec":{"args":["x"]}}"#);
    story.patch("me", r#"{"spec":{"replicas":2}}"#);
    check(
        &story,
        expect![[r#"
        {"replicas":2,"items":null,"args":["x"]}
        me Update 02 {"f:spec":{"f:args":{},"f:replicas":{}}}"#]],
    );
}

#[test]
fn items_are_followed_by_key_not_by_place() {
    let mut story = Story::default();
    story.put(
        "one",
        r#"{"spec":{"items":[{"name":"a","image":"1"},{"name":"b","image":"1"}]}}"#,
    );
    story.put(
        "two",
        r#"{"spec":{"items":[{"name":"b","image":"1"},{"name":"a","image":"2"}]}}"#,
    );
    check(
        &story,
        expect![[r#"
        {"items":[{"name":"b","image":"1"},{"name":"a","image":"2"}]}
        one Update 00 {"f:spec":{"f:items":{"k:{\"name\":\"a\"}":{".":{},"f:name":{}},"k:{\"name\":\"b\"}":{".":{},"f:image":{},"f:name":{}}}}}
        two Update 01 {"f:spec":{"f:items":{"k:{\"name\":\"a\"}":{"f:image":{}}}}}"#]],
    );
}

#[test]
fn items_with_one_key_are_owned_together() {
    let mut story = Story::default();
    story.put("one", r#"{"spec":{"items":[{"name":"a","image":"1"}]}}"#);
    story.put(
        "two",
        r#"{"spec":{"items":[{"name":"a","image":"1"},{"name":"a","image":"2"}]}}"#,
    );
    check(
        &story,
        expect![[r#"
        {"items":[{"name":"a","image":"1"},{"name":"a","image":"2"}]}
        two Update 01 {"f:spec":{"f:items":{"k:{\"name\":\"a\"}":{}}}}"#]],
    );
    story.put("three", r#"{"spec":{"items":[{"name":"a","image":"3"}]}}"#);
    check(
        &story,
        expect![[r#"
        {"items":[{"name":"a","image":"3"}]}
        three Update 02 {"f:spec":{"f:items":{"k:{\"name\":\"a\"}":{".":{},"f:image":{},"f:name":{}}}}}"#]],
    );
}

#[test]
fn an_empty_list_of_owners_forgets_them_all() {
    for reset in ["[]", "[{}]"] {
        let mut story = Story::default();
        story.put("one", r#"{"spec":{"replicas":1}}"#);
        let mut new = canonical(&thing(r#"{"spec":{"replicas":2}}"#));
        new.entry("metadata")
            .set("managedFields", json::parse(reset.as_bytes()).unwrap());
        story.write("two", |writer, old| writer.update(old, &mut new));
        story.keep(new);
        check(&story, expect![[r#"{"replicas":2,"items":null}"#]]);
        story.patch("three", r#"{"spec":{"replicas":3}}"#);
        check(&story, expect![[r#"{"replicas":3,"items":null}"#]]);
    }
}

#[test]
fn a_client_may_correct_the_owners_but_not_to_nonsense() {
    let mut story = Story::default();
    story.put("one", r#"{"spec":{"replicas":1}}"#);
    let entry = |operation: &str| {
        value!([{
            "manager": "x", "operation": operation, "apiVersion": "example.com/v1", "fieldsType": "FieldsV1",
            "fieldsV1": {"f:spec": {"f:replicas": {}}}
        }])
    };
    for operation in ["Update", "Whatever"] {
        let mut new = thing(r#"{"spec":{"replicas":1}}"#);
        new.entry("metadata").set("managedFields", entry(operation));
        story.put_value("two", new);
        check(
            &story,
            expect![[r#"
            {"replicas":1,"items":null}
            x Update never {"f:spec":{"f:replicas":{}}}"#]],
        );
    }
}

#[test]
fn the_oldest_owners_are_merged_when_there_are_too_many() {
    let mut story = Story::default();
    for name in "abcdefghijklm".chars() {
        story.patch(
            &name.to_string(),
            &format!(r#"{{"spec":{{"data":{{"{name}":"1"}}}}}}"#),
        );
    }
    let owners = story
        .tell()
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
    assert!(story.tell().contains(
        r#"ancient-changes Update 03 {"f:spec":{"f:data":{".":{},"f:a":{},"f:b":{},"f:c":{},"f:d":{}}}}"#
    ));
}

#[test]
fn what_has_become_atomic_is_owned_as_a_whole() {
    let mut story = Story::default();
    story.put("one", r#"{"spec":{"replicas":1,"selector":{"a":"1"}}}"#);
    let entries = story
        .object
        .as_mut()
        .unwrap()
        .at_mut("metadata.managedFields")
        .unwrap();
    let fields = json::parse(br#"{"f:spec":{"f:selector":{".":{},"f:a":{}}}}"#).unwrap();
    entries.list_mut()[0].set("fieldsV1", fields);
    story.patch("two", r#"{"spec":{"replicas":2}}"#);
    check(
        &story,
        expect![[r#"
        {"replicas":2,"items":null,"selector":{"a":"1"}}
        one Update 00 {"f:spec":{"f:selector":{}}}
        two Update 01 {"f:spec":{"f:replicas":{}}}"#]],
    );
}

#[test]
fn a_version_that_is_no_more_has_no_owners() {
    let mut story = Story::default();
    story.put("one", r#"{"spec":{"replicas":1,"args":["x"]}}"#);
    let entries = story
        .object
        .as_mut()
        .unwrap()
        .at_mut("metadata.managedFields")
        .unwrap();
    entries.list_mut()[0].set("apiVersion", "example.com/v0");
    story.patch("two", r#"{"spec":{"replicas":2}}"#);
    check(
        &story,
        expect![[r#"
        {"replicas":2,"items":null,"args":["x"]}
        two Update 01 {"f:spec":{"f:replicas":{}}}"#]],
    );
}

#[test]
fn a_subresource_has_owners_of_its_own() {
    let mut story = Story::default();
    story.put("me", r#"{"spec":{"replicas":1}}"#);
    let mut new = story.object.clone().unwrap();
    new.entry("status").set("phase", "Running");
    new.entry("spec").set("replicas", 2);
    let spec = crate::own::FieldSet::of_names(&["spec"]);
    story.write("me", |writer, old| {
        Writer {
            subresource: "status",
            reset: &spec,
            ..*writer
        }
        .update(old, &mut new);
    });
    story.keep(new);
    check(
        &story,
        expect![[r#"
        {"replicas":2,"items":null}
        me Update 00 {"f:spec":{"f:replicas":{}}}
        me Update 01 {"f:status":{"f:phase":{}}}"#]],
    );
}

#[test]
fn times_alone_are_no_change() {
    let mut story = Story::default();
    story.put("me", r#"{"spec":{"replicas":1}}"#);
    let old = story.object.clone().unwrap();
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
fn who_scales_takes_the_replicas() {
    let mut story = Story::default();
    story.apply("one", r#"{"spec":{"replicas":1,"args":["x"]}}"#);
    let object = story.object.clone().unwrap();
    let paths = [("example.com/v1", Some("spec.replicas"))];
    let owners = ScaleOwners {
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
    let writer = Writer {
        schema: schema(),
        gvk: &scale,
        manager: "two",
        subresource: "scale",
        now: "2024-01-01T00:00:59Z",
        reset: &STATUS,
        versions: &OneVersion,
    };
    writer.update(Some(&old), &mut new);
    let entries = owners.to_object(&new["metadata"]["managedFields"]);
    let told: Vec<String> = entries.list().iter().map(told).collect();
    expect![[r#"
        one Apply example.com/v1 {"f:spec":{"f:args":{}}}
        two Update example.com/v1 {"f:spec":{"f:replicas":{}}}"#]]
    .assert_eq(&told.join("\n"));
}

fn told(entry: &Value) -> String {
    let [manager, operation, version] =
        ["manager", "operation", "apiVersion"].map(|key| entry[key].str());
    format!(
        "{manager} {operation} {version} {}",
        json::to_string(&entry["fieldsV1"])
    )
}
