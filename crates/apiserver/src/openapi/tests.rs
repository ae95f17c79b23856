use std::collections::{BTreeSet, HashSet};
use std::sync::Arc;

use expect_test::{Expect, expect, expect_file};
use mizzen_object::schema::Struct;
use mizzen_object::{GroupVersionKind, Kind, KindData, NoHooks, Subresource, Value, json};

use super::definition::references;
use super::{OpenApi, Published, proto};

fn built_in() -> Vec<Published> {
    mizzen_kinds::catalog().kinds.into_iter().map(Published::from).collect()
}

fn with(kinds: Vec<Published>) -> OpenApi {
    OpenApi::new(kinds, Arc::new(mizzen_kinds::catalog().schemas))
}

fn v3(api: &OpenApi, path: &str) -> Value {
    json::parse(&api.v3(path).unwrap().bytes).unwrap()
}

/// A custom kind with a status and a scale.
fn gizmo(schema: &str) -> Published {
    let group: &str = "stable.example.com";
    let gvk = GroupVersionKind { group: group.into(), version: "v1".into(), kind: "Gizmo".into() };
    let root = Arc::new(Struct::new("Gizmo", "stable.example.com/v1", false));
    let scale = GroupVersionKind { group: "autoscaling".into(), version: "v1".into(), kind: "Scale".into() };
    let verbs = |words: &[&str]| words.iter().map(|word| (*word).into()).collect();
    let data = KindData {
        list_kind: Some("GizmoList".into()),
        plural: "gizmos".into(),
        singular: "gizmo".into(),
        verbs: verbs(&["delete", "deletecollection", "get", "list", "patch", "create", "update", "watch"]),
        subresources: vec![Subresource {
            name: "scale".into(),
            verbs: verbs(&["get"]),
            kind: Some(scale),
            resets: None,
        }],
        selectable: vec![".spec.color".into()],
        ..KindData::new(gvk, root)
    };
    let kind = Kind { data: Arc::new(data), hooks: Arc::new(NoHooks) };
    Published { kind, schema: Some(Arc::new(json::parse(schema.as_bytes()).unwrap())) }
}

const GIZMO: &str = r#"{
    "type": "object",
    "required": ["spec"],
    "properties": {
        "spec": {
            "type": "object",
            "required": ["color", "maybe"],
            "properties": {
                "color": {"type": "string", "default": "red", "description": "its color"},
                "maybe": {"type": "string", "nullable": true},
                "mode": {"type": "string", "oneOf": [{"pattern": "a"}, {"pattern": "b"}]},
                "open": {"type": "object", "x-kubernetes-preserve-unknown-fields": true, "properties": {"a": {}}},
                "template": {"type": "object", "x-kubernetes-embedded-resource": true}
            }
        }
    }
}"#;

/// A document as a line for each operation and definition, without prose.
fn outline(document: &Value) -> String {
    let mut lines = String::new();
    for (path, item) in document["paths"].entries() {
        lines += &format!("{path} ({})\n", names(&item["parameters"]));
        for (method, operation) in item.entries().filter(|(key, _)| *key != "parameters") {
            let kind = &operation["x-kubernetes-group-version-kind"]["kind"];
            let answers: Vec<&str> = operation["responses"].entries().map(|(code, _)| code).collect();
            lines += &format!(
                "  {method} {} {} {} ({}) {}\n",
                operation["operationId"].str(),
                operation["x-kubernetes-action"].str(),
                kind.str(),
                names(&operation["parameters"]),
                answers.join(" "),
            );
        }
    }
    for (name, schema) in document["components"]["schemas"].entries() {
        let mut schema = schema.clone();
        strip(&mut schema);
        lines += &format!("{name}\n  {}\n", json::to_string(&schema));
    }
    lines
}

fn names(parameters: &Value) -> String {
    parameters.list().iter().map(|parameter| parameter["name"].str()).collect::<Vec<_>>().join(" ")
}

fn strip(value: &mut Value) {
    match value {
        Value::List(list) => list.iter_mut().for_each(strip),
        Value::Map(map) => {
            map.retain(|key, member| key != "description" || member.as_str().is_none());
            map.values_mut().for_each(strip);
        }
        _ => {}
    }
}

#[test]
fn a_small_document_is_as_recorded() {
    let document = v3(&with(built_in()), "apis/node.k8s.io/v1");
    expect_file!["./node.golden"].assert_eq(&outline(&document));
}

#[test]
fn every_reference_resolves() {
    let api = with(built_in().into_iter().chain([gizmo(GIZMO)]).collect());
    for path in api.pages.keys() {
        let document = v3(&api, path);
        check_references(path, &document, "#/components/schemas/", &document["components"]["schemas"]);
    }
    let document = json::parse(&api.v2_json().bytes).unwrap();
    check_references("v2", &document, "#/definitions/", &document["definitions"]);
    check_references("v2", &document, "#/parameters/", &document["parameters"]);
}

#[track_caller]
fn check_references(what: &str, document: &Value, prefix: &str, there: &Value) {
    let mut found: BTreeSet<String> = BTreeSet::new();
    references(document, prefix, &mut found);
    let lost: Vec<&String> = found.iter().filter(|name| there.get(name).is_none()).collect();
    assert!(lost.is_empty(), "{what}: {lost:?}");
}

#[test]
fn no_two_operations_have_the_same_name() {
    let document = json::parse(&with(built_in()).v2_json().bytes).unwrap();
    let items = document["paths"].entries().flat_map(|(_, item)| item.entries());
    let mut seen = HashSet::new();
    for (method, operation) in items.filter(|(key, _)| *key != "parameters") {
        let id = operation["operationId"].str();
        assert!(seen.insert(id.to_string()), "{method} {id}");
    }
    assert!(seen.len() > 800, "{}", seen.len());
}

#[test]
fn the_index_knows_the_hash_of_each_document() {
    let api = with(built_in());
    let index = json::parse(&api.v3_index()).unwrap();
    let url = index["paths"]["apis/apps/v1"]["serverRelativeURL"].str();
    let hash = url.strip_prefix("/openapi/v3/apis/apps/v1?hash=").unwrap();
    assert_eq!(api.v3("apis/apps/v1").unwrap().hash, hash);
    assert_eq!(hash.len(), 128);
}

#[test]
fn fields_are_explained() {
    let document = v3(&with(built_in()), "api/v1");
    let schemas = &document["components"]["schemas"];
    let spec = &schemas["io.k8s.api.core.v1.PodSpec"]["properties"];
    assert!(spec["containers"]["description"].str().starts_with("List of containers belonging to the pod."));
    assert!(spec["dnsPolicy"]["description"].str().ends_with("\n - `\"Default\"`\n - `\"None\"`"));
    let silent = schemas.entries().filter(|(_, schema)| schema["description"].str().is_empty()).count();
    assert!(silent < 5, "{silent}");
}

#[test]
fn a_custom_kind_is_described_by_its_own_schema() {
    let mut document = v3(&with(vec![gizmo(GIZMO)]), "apis/stable.example.com/v1");
    let schemas = document.entry("components").entry("schemas");
    schemas.make_map().retain(|name, _| name.starts_with("com.example"));
    expect_file!["./gizmo.golden"].assert_eq(&outline(&document));
}

#[test]
fn swagger_says_only_what_old_clients_understand() {
    let document = json::parse(&with(vec![gizmo(GIZMO)]).v2_json().bytes).unwrap();
    let spec = &document["definitions"]["com.example.stable.v1.Gizmo"]["properties"]["spec"];
    expect![[r#"{"type":"object","properties":{"color":{"type":"string","description":"its color"},"maybe":{},"mode":{"type":"string"},"open":{"x-kubernetes-preserve-unknown-fields":true},"template":{"type":"object","x-kubernetes-embedded-resource":true}},"required":["color"]}"#]]
        .assert_eq(&json::to_string(spec));
}

#[test]
fn a_changed_kind_rewrites_only_its_document() {
    let kinds = built_in();
    let before = with(kinds.iter().cloned().chain([gizmo(GIZMO)]).collect());
    let (node, custom) = ("apis/node.k8s.io/v1", "apis/stable.example.com/v1");
    let (old_node, old_custom) = (before.v3(node).unwrap(), before.v3(custom).unwrap());
    let after = before.with_kinds(kinds.into_iter().chain([gizmo(r#"{"type":"object"}"#)]));
    assert!(Arc::ptr_eq(&old_node, &after.v3(node).unwrap()));
    assert_ne!(old_custom.hash, after.v3(custom).unwrap().hash);
}

#[track_caller]
fn check_proto(schema: &str, expect: Expect) {
    let bytes = proto::schema(&json::parse(schema.as_bytes()).unwrap());
    expect.assert_eq(&bytes.escape_ascii().to_string());
}

#[test]
fn a_schema_is_written_as_protobuf() {
    check_proto(r#"{"type":"string","format":"byte"}"#, expect![[r#"\x12\x04byte\xb2\x01\x08\n\x06string"#]]);
    check_proto(
        r##"{"required":["a"],"properties":{"a":{"$ref":"#/b"}},"x-c":[1]}"##,
        expect![[
            r#"\x9a\x01\x01a\xca\x01\x0c\n\n\n\x01a\x12\x05\n\x03#/b\xfa\x01\x0c\n\x03x-c\x12\x05\x12\x03[1]"#
        ]],
    );
    check_proto(
        r#"{"enum":["a"],"minimum":1}"#,
        expect![[r#"I\x00\x00\x00\x00\x00\x00\xf0?\xa2\x01\x05\x12\x03\"a\""#]],
    );
    check_proto(
        r#"{"additionalProperties":{"uniqueItems":true}}"#,
        expect![[r#"\xaa\x01\x05\n\x03\x80\x01\x01"#]],
    );
}
