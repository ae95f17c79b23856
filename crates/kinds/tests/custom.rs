//! A definition becomes kinds that go the same way as those that ship with us.

use expect_test::{Expect, expect};
use mizzen_object::decode::decode;
use mizzen_object::managed_fields::{FieldManager, FieldSet, OneVersion};
use mizzen_object::{Action, Kind, User, Violations, custom, default, schema};
use mizzen_value::{Value, json};

const DEFINITION: &str = r#"{"spec":{"group":"example.com","scope":"Namespaced",
    "names":{"plural":"things","singular":"thing","kind":"Thing","listKind":"ThingList","shortNames":["th"],"categories":["all"]},
    "versions":[
        {"name":"v1","served":true,"storage":true,
         "schema":{"openAPIV3Schema":{"type":"object","properties":{
            "spec":{"type":"object","properties":{
                "size":{"type":"integer","default":1,"minimum":0},
                "mode":{"type":"string"},
                "parts":{"type":"array","x-kubernetes-list-type":"map","x-kubernetes-list-map-keys":["name"],
                    "items":{"type":"object","required":["name"],"properties":{"name":{"type":"string"},"value":{"type":"string"}}}},
                "tags":{"type":"array","x-kubernetes-list-type":"set","items":{"type":"string"}},
                "whole":{"type":"object","x-kubernetes-map-type":"atomic","additionalProperties":{"type":"string"}},
                "free":{"type":"object","x-kubernetes-preserve-unknown-fields":true},
                "inner":{"type":"object","x-kubernetes-embedded-resource":true,"x-kubernetes-preserve-unknown-fields":true}}},
            "status":{"type":"object","properties":{"size":{"type":"integer"},"selector":{"type":"string"}}}}}},
         "subresources":{"status":{},"scale":{"specReplicasPath":".spec.size","statusReplicasPath":".status.size","labelSelectorPath":".status.selector"}},
         "selectableFields":[{"jsonPath":".spec.mode"}],
         "additionalPrinterColumns":[{"name":"Size","type":"integer","jsonPath":".spec.size","priority":1}]},
        {"name":"v1beta1","served":true,"storage":false,"deprecated":true,
         "schema":{"openAPIV3Schema":{"type":"object","properties":{"spec":{"type":"object","properties":{"mode":{"type":"string","default":"old"}}}}}}},
        {"name":"v1alpha1","served":false,"storage":false,"schema":{"openAPIV3Schema":{"type":"object"}}}]}}"#;

fn kinds() -> Vec<Kind> {
    custom::kinds(
        &json::parse(DEFINITION.as_bytes()).unwrap(),
        &mizzen_kinds::object_meta(),
    )
}

fn current() -> Kind {
    kinds().remove(0)
}

/// The text of an object that says what it is.
fn of_kind(kind: &Kind, text: &str) -> String {
    let said = json::parse(text.as_bytes()).unwrap();
    let mut out = String::from("{");
    for (field, value) in [
        ("apiVersion", kind.gvk.api_version()),
        ("kind", kind.gvk.kind.clone()),
    ] {
        if said[field].is_null() {
            out += &format!(
                "\"{field}\":\"{value}\"{}",
                if text == "{}" && field == "kind" {
                    ""
                } else {
                    ","
                }
            );
        }
    }
    out + &text[1..]
}

fn take_in(kind: &Kind, text: &str) -> (Value, Vec<String>) {
    let decoded = decode(&kind.root, of_kind(kind, text).as_bytes()).unwrap();
    let mut object = decoded.value;
    default::apply(&kind.root, &mut object);
    kind.hooks.default(&mut object);
    schema::canonical(&kind.root, &mut object);
    (object, decoded.complaints)
}

#[test]
fn every_version_is_a_kind_served_or_not() {
    let kinds = kinds();
    let names: Vec<String> = kinds.iter().map(|kind| kind.gvk.to_string()).collect();
    assert_eq!(
        names,
        [
            "example.com/v1, Kind=Thing",
            "example.com/v1beta1, Kind=Thing",
            "example.com/v1alpha1, Kind=Thing"
        ]
    );
    let [current, old, _unserved] = kinds.as_slice() else {
        panic!("three kinds")
    };
    assert_eq!(current.space(), old.space());
    assert_eq!(current.stored, None);
    assert_eq!(old.stored.as_ref(), Some(&current.gvk));
    assert_eq!(current.list_kind.as_deref(), Some("ThingList"));
    assert_eq!(current.selectable, ["spec.mode"]);
    let subresources: Vec<&str> = current
        .subresources
        .iter()
        .map(|it| it.name.as_str())
        .collect();
    assert_eq!(subresources, ["status", "scale"]);
    assert_eq!(
        current
            .scale
            .as_ref()
            .map(|scale| scale.spec_replicas.as_str()),
        Some(".spec.size")
    );
    assert!(!current.rules.counts_status && old.rules.counts_status);
    assert_eq!(
        old.deprecation().as_deref(),
        Some("example.com/v1beta1 Thing is deprecated; use example.com/v1 Thing")
    );
}

#[test]
fn columns_are_the_declared_ones_or_the_age() {
    let columns = |kind: &Kind| -> Vec<String> {
        kind.columns
            .iter()
            .map(|column| format!("{} {}", column.name, column.path.as_deref().unwrap_or("-")))
            .collect()
    };
    let kinds = kinds();
    assert_eq!(
        columns(&kinds[0]),
        ["Name .metadata.name", "Size .spec.size"]
    );
    assert_eq!(
        columns(&kinds[1]),
        ["Name .metadata.name", "Age .metadata.creationTimestamp"]
    );
}

#[track_caller]
fn check(text: &str, expect: Expect) {
    let (object, complaints) = take_in(&current(), text);
    expect.assert_eq(
        &[vec![json::to_string(&object)], complaints]
            .concat()
            .join("\n"),
    );
}

#[test]
fn objects_are_sorted_pruned_and_completed() {
    check(
        r#"{"spec":{"mode":"m","z":1,"free":{"b":1.0,"a":[{"d":1,"c":2}]},"mode":"n"},"metadata":{"name":"a","labels":{"x":"y"},"uid":"u","bogus":1},
            "kind":"Thing","apiVersion":"example.com/v1","extra":{}}"#,
        expect![[r#"
            {"apiVersion":"example.com/v1","kind":"Thing","metadata":{"labels":{"x":"y"},"name":"a","uid":"u"},"spec":{"free":{"a":[{"c":2,"d":1}],"b":1},"mode":"n","size":1}}
            duplicate field "spec.mode"
            unknown field "metadata.bogus"
            unknown field "extra"
            unknown field "spec.z""#]],
    );
    check(
        r#"{"kind":"Thing","spec":{"inner":{"kind":"Pod","apiVersion":"v1","x":1,"metadata":{"name":"n","no":1}}}}"#,
        expect![[r#"
            {"apiVersion":"example.com/v1","kind":"Thing","spec":{"inner":{"apiVersion":"v1","kind":"Pod","metadata":{"name":"n"},"x":1},"size":1}}
            unknown field "spec.inner.metadata.no""#]],
    );
}

#[track_caller]
fn check_refusal(text: &str, expected: &str) {
    let error = decode(&current().root, of_kind(&current(), text).as_bytes()).unwrap_err();
    assert_eq!(error.to_string(), expected);
}

#[test]
fn metadata_has_its_types() {
    check_refusal(
        r#"{"metadata":{"labels":{"a":1}}}"#,
        "json: cannot unmarshal number into Go struct field ObjectMeta.labels of type string",
    );
    check_refusal(
        r#"{"metadata":"x"}"#,
        "json: cannot unmarshal string into Go value of type v1.ObjectMeta",
    );
    check_refusal(
        r#"{"spec":{"inner":{"metadata":{"name":1}}}}"#,
        r#"spec.inner.metadata: Invalid value: {"name":1}: json: cannot unmarshal number into Go struct field ObjectMeta.name of type string"#,
    );
    check_refusal(
        r#"{"kind":1}"#,
        ".kind accessor error: 1 is of the type int64, expected string",
    );
}

#[track_caller]
fn check_rules(action: Action, new: &str, old: Option<&str>, expect: Expect) {
    let (kind, who) = (current(), User::default());
    let (new, old) = (take_in(&kind, new).0, old.map(|old| take_in(&kind, old).0));
    let context = who.context(action, "");
    let mut violations = Violations::default();
    kind.hooks
        .validate(&new, old.as_ref(), &context, &mut violations);
    let lines = violations.0.iter().map(ToString::to_string);
    let warnings = kind.hooks.warnings(&new, old.as_ref(), &context);
    expect.assert_eq(
        &lines
            .chain(warnings)
            .map(|line| format!("{line}\n"))
            .collect::<String>(),
    );
}

#[test]
fn checks_come_in_their_order() {
    check_rules(
        Action::Create,
        r#"{"metadata":{"finalizers":["x","a.b"]},"spec":{"size":-1,"tags":["a","a"],"inner":{"kind":"Pod"}},"status":{"size":"x"}}"#,
        None,
        expect![[r#"
            spec.size: Invalid value: -1: spec.size in body should be greater than or equal to 0
            status.size: Invalid value: "string": status.size in body must be of type integer: "string"
            .spec.size: Invalid value: -1: should be a non-negative integer
            .status.size: Invalid value: 0: .status.size accessor error: x is of the type string, expected int64
            spec.inner.apiVersion: Required value
            spec.tags[1]: Duplicate value: "a"
            metadata.finalizers: "a.b": prefer a domain-qualified finalizer name including a path (/) to avoid accidental conflicts with other finalizer writers
            metadata.finalizers: "x": prefer a domain-qualified finalizer name to avoid accidental conflicts with other finalizer writers
        "#]],
    );
}

#[test]
fn a_status_is_validated_alone() {
    check_rules(
        Action::Status,
        r#"{"spec":{"size":-1},"status":{"size":1.5,"selector":"s"}}"#,
        Some(r#"{"spec":{"size":-1},"status":{"size":1}}"#),
        expect![[r#"
            status.size: Invalid value: "number": size in body must be of type integer: "number"
            status: Invalid value: "": Checked value must be of type integer (default format) in size
            .status.size: Invalid value: 0: .status.size accessor error: 1.5 is of the type float64, expected int64
        "#]],
    );
}

#[test]
fn the_stored_version_gives_the_defaults() {
    let kinds = kinds();
    let mut object = take_in(
        &kinds[1],
        r#"{"apiVersion":"example.com/v1beta1","spec":{}}"#,
    )
    .0;
    assert_eq!(object["spec"]["mode"].str(), "old");
    kinds[1].hooks.to_stored(&mut object);
    assert_eq!(
        json::to_string(&object),
        r#"{"apiVersion":"example.com/v1","kind":"Thing","spec":{"mode":"old","size":1}}"#
    );
    object.entry("spec").remove("mode");
    kinds[1].hooks.from_stored(&mut object);
    assert_eq!(
        json::to_string(&object),
        r#"{"apiVersion":"example.com/v1beta1","kind":"Thing","spec":{}}"#
    );
}

fn writer<'a>(kind: &'a Kind, manager: &'a str, reset: &'a FieldSet) -> FieldManager<'a> {
    let now = "2026-01-01T00:00:00Z";
    FieldManager {
        schema: &kind.root,
        gvk: &kind.gvk,
        manager,
        subresource: "",
        now,
        reset_fields: reset,
        versions: &OneVersion,
    }
}

#[test]
fn fields_are_owned_as_the_schema_says() {
    let (kind, reset) = (current(), FieldSet::default());
    let text = r#"{"metadata":{"name":"a"},"spec":{"parts":[{"name":"p","value":"v"}],"tags":["t"],"whole":{"k":"v"},"free":{"x":{"y":[1]}}}}"#;
    let mut object = take_in(&kind, text).0;
    writer(&kind, "m", &reset).update(None, &mut object);
    let fields = json::to_string(&object["metadata"]["managedFields"][0]["fieldsV1"]);
    expect![[r#"{"f:spec":{".":{},"f:free":{".":{},"f:x":{".":{},"f:y":{}}},"f:parts":{".":{},"k:{\"name\":\"p\"}":{".":{},"f:name":{},"f:value":{}}},"f:size":{},"f:tags":{".":{},"v:\"t\"":{}},"f:whole":{}}}"#]]
        .assert_eq(&fields);
}

#[test]
fn what_two_apply_is_merged_by_key() {
    let (kind, reset) = (current(), FieldSet::default());
    let config = |spec: &str| {
        let text = format!(
            r#"{{"apiVersion":"example.com/v1","kind":"Thing","metadata":{{"name":"a"}},"spec":{spec}}}"#
        );
        json::parse(text.as_bytes()).unwrap()
    };
    let first = config(r#"{"parts":[{"name":"p","value":"1"}],"whole":{"k":"v"},"free":{"x":1}}"#);
    let live = writer(&kind, "one", &reset)
        .apply(None, &first, false)
        .unwrap();
    let second = config(r#"{"parts":[{"name":"q"}],"free":{"y":{"z":2}}}"#);
    let live = writer(&kind, "two", &reset)
        .apply(Some(&live), &second, false)
        .unwrap();
    let spec = json::to_string(&live["spec"]);
    expect![[
        r#"{"parts":[{"name":"p","value":"1"},{"name":"q"}],"whole":{"k":"v"},"free":{"x":1,"y":{"z":2}}}"#
    ]]
    .assert_eq(&spec);
    let rival = config(r#"{"whole":{"k":"w"}}"#);
    let error = writer(&kind, "two", &reset)
        .apply(Some(&live), &rival, false)
        .unwrap_err()
        .to_string();
    assert!(error.contains(".spec.whole"), "{error}");
    let unknown = config(r#"{"nope":1}"#);
    let error = writer(&kind, "two", &reset)
        .apply(Some(&live), &unknown, false)
        .unwrap_err()
        .to_string();
    assert!(
        error.ends_with(".spec.nope: field not declared in schema"),
        "{error}"
    );
    let wrong = config(r#"{"size":"x","parts":{},"tags":["t","t"]}"#);
    let error = writer(&kind, "two", &reset)
        .apply(Some(&live), &wrong, false)
        .unwrap_err()
        .to_string();
    assert!(
        error.contains(".spec.size: expected numeric (int or float), got string"),
        "{error}"
    );
    assert!(
        error.contains(".spec.tags: duplicate entries for key [=\"t\"]"),
        "{error}"
    );
}
