use std::collections::{BTreeSet, HashSet};
use std::sync::Arc;

use expect_test::{Expect, expect, expect_file};
use mizzen_object::schema::{FieldShape, Struct};
use mizzen_object::{GroupVersionKind, Kind, KindData, NoHooks, Subresource};
use mizzen_value::{Value, json};

use super::definition::{SpecVersion, references};
use super::prose::Prose;
use super::{OpenApi, Published, custom, enums, names, proto, proto3};

fn built_in() -> Vec<Published> {
    mizzen_kinds::catalog()
        .kinds
        .into_iter()
        .map(Published::from)
        .collect()
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
    let gvk = GroupVersionKind {
        group: group.into(),
        version: "v1".into(),
        kind: "Gizmo".into(),
    };
    let root = Arc::new(Struct::new("Gizmo", "stable.example.com/v1", false));
    let scale = GroupVersionKind {
        group: "autoscaling".into(),
        version: "v1".into(),
        kind: "Scale".into(),
    };
    let verbs = |words: &[&str]| words.iter().map(|word| (*word).into()).collect();
    let data = KindData {
        list_kind: Some("GizmoList".into()),
        plural: "gizmos".into(),
        singular: "gizmo".into(),
        verbs: verbs(&[
            "delete",
            "deletecollection",
            "get",
            "list",
            "patch",
            "create",
            "update",
            "watch",
        ]),
        subresources: vec![Subresource {
            name: "scale".into(),
            verbs: verbs(&["get"]),
            kind: Some(scale),
            resets: None,
        }],
        selectable: vec![".spec.color".into()],
        ..KindData::new(gvk, root)
    };
    let kind = Kind {
        data: Arc::new(data),
        hooks: Arc::new(NoHooks),
    };
    Published {
        kind,
        schema: Some(Arc::new(json::parse(schema.as_bytes()).unwrap())),
    }
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

/// A document as a line for each operation and definition, without descriptions.
fn outline(document: &Value) -> String {
    let mut lines = String::new();
    for (path, item) in document["paths"].entries() {
        lines += &format!("{path} ({})\n", names(&item["parameters"]));
        for (method, operation) in item.entries().filter(|(key, _)| *key != "parameters") {
            let kind = &operation["x-kubernetes-group-version-kind"]["kind"];
            let answers: Vec<&str> = operation["responses"]
                .entries()
                .map(|(code, _)| code)
                .collect();
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
    parameters
        .list()
        .iter()
        .map(|parameter| parameter["name"].str())
        .collect::<Vec<_>>()
        .join(" ")
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
        check_references(
            path,
            &document,
            "#/components/schemas/",
            &document["components"]["schemas"],
        );
    }
    let document = json::parse(&api.v2_json().bytes).unwrap();
    check_references("v2", &document, "#/definitions/", &document["definitions"]);
    check_references("v2", &document, "#/parameters/", &document["parameters"]);
}

#[track_caller]
fn check_references(what: &str, document: &Value, prefix: &str, there: &Value) {
    let mut found: BTreeSet<String> = BTreeSet::new();
    references(document, prefix, &mut found);
    let lost: Vec<&String> = found
        .iter()
        .filter(|name| there.get(name).is_none())
        .collect();
    assert!(lost.is_empty(), "{what}: {lost:?}");
}

#[test]
fn no_two_operations_have_the_same_name() {
    let document = json::parse(&with(built_in()).v2_json().bytes).unwrap();
    let items = document["paths"]
        .entries()
        .flat_map(|(_, item)| item.entries());
    let mut seen = HashSet::new();
    for (method, operation) in items.filter(|(key, _)| *key != "parameters") {
        let id = operation["operationId"].str();
        assert!(seen.insert(id.to_string()), "{method} {id}");
    }
    assert!(seen.len() > 800, "{}", seen.len());
}

#[test]
fn the_index_has_the_hash_of_each_document() {
    let api = with(built_in());
    let index = json::parse(&api.v3_index()).unwrap();
    let url = index["paths"]["apis/apps/v1"]["serverRelativeURL"].str();
    let hash = url.strip_prefix("/openapi/v3/apis/apps/v1?hash=").unwrap();
    assert_eq!(api.v3("apis/apps/v1").unwrap().hash, hash);
    assert_eq!(hash.len(), 128);
}

#[test]
fn fields_have_descriptions() {
    let document = v3(&with(built_in()), "api/v1");
    let schemas = &document["components"]["schemas"];
    let spec = &schemas["io.k8s.api.core.v1.PodSpec"]["properties"];
    assert!(
        spec["containers"]["description"]
            .str()
            .starts_with("List of containers belonging to the pod.")
    );
    assert!(
        spec["dnsPolicy"]["description"]
            .str()
            .ends_with("\n - `\"Default\"`\n - `\"None\"`")
    );
    let silent = schemas
        .entries()
        .filter(|(_, schema)| schema["description"].str().is_empty())
        .count();
    assert!(silent < 5, "{silent}");
}

#[test]
fn a_custom_kind_is_described_by_its_own_schema() {
    let mut document = v3(&with(vec![gizmo(GIZMO)]), "apis/stable.example.com/v1");
    let schemas = document.entry("components").entry("schemas");
    schemas
        .make_map()
        .retain(|name, _| name.starts_with("com.example"));
    expect_file!["./gizmo.golden"].assert_eq(&outline(&document));
}

#[test]
fn v2_schemas_are_simplified_for_old_clients() {
    let document = json::parse(&with(vec![gizmo(GIZMO)]).v2_json().bytes).unwrap();
    let spec = &document["definitions"]["com.example.stable.v1.Gizmo"]["properties"]["spec"];
    expect![[r##"{"type":"object","required":["color"],"properties":{"color":{"description":"its color","type":"string"},"maybe":{},"mode":{"type":"string"},"open":{"x-kubernetes-preserve-unknown-fields":true},"template":{"type":"object","required":["kind","apiVersion"],"properties":{"apiVersion":{"description":"APIVersion defines the versioned schema of this representation of an object. Servers should convert recognized schemas to the latest internal value, and may reject unrecognized values. More info: https://git.k8s.io/community/contributors/devel/sig-architecture/api-conventions.md#resources","type":"string"},"kind":{"description":"Kind is a string value representing the REST resource this object represents. Servers may infer this from the endpoint the client submits requests to. Cannot be updated. In CamelCase. More info: https://git.k8s.io/community/contributors/devel/sig-architecture/api-conventions.md#types-kinds","type":"string"},"metadata":{"description":"Standard object's metadata. More info: https://git.k8s.io/community/contributors/devel/sig-architecture/api-conventions.md#metadata","$ref":"#/definitions/io.k8s.apimachinery.pkg.apis.meta.v1.ObjectMeta"}},"x-kubernetes-embedded-resource":true}}}"##]]
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

/// The string fields of a type whose Go type is an enum, with their values.
fn closed_fields(ty: &Struct) -> impl Iterator<Item = (&str, &'static [&'static str])> {
    let strings = ty
        .fields()
        .iter()
        .filter(|field| matches!(field.ty.shape, FieldShape::String));
    strings
        .map(|field| (field.name.as_str(), enums::values(&field.ty.go)))
        .filter(|(_, values)| !values.is_empty())
}

#[test]
fn enum_fields_list_their_values_in_both_documents() {
    let api = with(built_in());
    let v2 = json::parse(&api.v2_json().bytes).unwrap();
    let v3: Vec<Value> = api.pages.keys().map(|path| v3(&api, path)).collect();
    let mut seen = 0;
    for ty in mizzen_kinds::catalog().schemas.types.values() {
        let name = names::definition(ty);
        let schemas = v3
            .iter()
            .map(|document| &document["components"]["schemas"][name.as_str()]);
        let definitions: Vec<&Value> = schemas.chain([&v2["definitions"][name.as_str()]]).collect();
        for (field, values) in closed_fields(ty) {
            for definition in definitions
                .iter()
                .filter(|definition| !definition.is_null())
            {
                let shown: Vec<&str> = definition["properties"][field]["enum"]
                    .list()
                    .iter()
                    .map(Value::str)
                    .collect();
                assert_eq!(shown, values, "{name} {field}");
                seen += 1;
            }
        }
    }
    assert!(seen > 150, "{seen}");
}

#[test]
fn a_union_names_its_discriminator_and_its_members() {
    let document = v3(&with(built_in()), "apis/flowcontrol.apiserver.k8s.io/v1");
    let subject = &document["components"]["schemas"]["io.k8s.api.flowcontrol.v1.Subject"];
    expect![[r#"[{"discriminator":"kind","fields-to-discriminateBy":{"group":"Group","serviceAccount":"ServiceAccount","user":"User"}}]"#]]
        .assert_eq(&json::to_string(&subject["x-kubernetes-unions"]));
}

#[test]
fn options_of_every_group_version_name_them_all() {
    let api = with(built_in().into_iter().chain([gizmo(GIZMO)]).collect());
    let counted = |schemas: &Value| {
        let options = &schemas["io.k8s.apimachinery.pkg.apis.meta.v1.DeleteOptions"];
        let kinds = options["x-kubernetes-group-version-kind"].list();
        assert!(
            kinds
                .iter()
                .all(|kind| kind["group"].str() != "stable.example.com")
        );
        kinds.len()
    };
    let schemas = |path: &str| v3(&api, path)["components"]["schemas"].clone();
    assert_eq!(counted(&schemas("apis/apps/v1")), 2);
    assert_eq!(counted(&schemas("apis/stable.example.com/v1")), 53);
    assert_eq!(
        counted(&json::parse(&api.v2_json().bytes).unwrap()["definitions"]),
        60
    );
}

#[test]
fn shared_parameters_are_named_by_their_hash() {
    let document = json::parse(&with(built_in()).v2_json().bytes).unwrap();
    let names: Vec<&str> = document["parameters"]
        .entries()
        .map(|(name, _)| name)
        .collect();
    // These have no description, so upstream has the same names.
    assert!(
        names.contains(&"body-2Y1dVQaQ") && names.contains(&"body-78PwaGsr"),
        "{names:?}"
    );
    assert_eq!(names.len(), 47);
}

#[test]
fn operation_ids_have_letters_and_digits_only() {
    for (text, capital, small) in [
        ("v2-x", "V2X", "v2X"),
        (
            "rbac.authorization",
            "RbacAuthorization",
            "rbacAuthorization",
        ),
        ("3scale.net", "ScaleNet", "ScaleNet"),
        ("My-Kind", "MyKind", "MyKind"),
    ] {
        let words = [
            names::operation_word(text, true),
            names::operation_word(text, false),
        ];
        assert_eq!(words, [capital, small], "{text}");
    }
}

#[track_caller]
fn check_custom(dialect: SpecVersion, schema: &str, expect: Expect) {
    let gizmo = gizmo(schema);
    let schema = custom::definition(dialect, &gizmo, &Prose::default());
    expect.assert_eq(&json::to_string(&schema["properties"]["spec"]));
}

#[test]
fn int_or_string_is_expanded_to_plain_openapi() {
    let of = |rest: &str| {
        format!(
            r#"{{"type":"object","properties":{{"spec":{{"x-kubernetes-int-or-string":true{rest}}}}}}}"#
        )
    };
    check_custom(
        SpecVersion::V3,
        &of(""),
        expect![[
            r#"{"anyOf":[{"type":"integer"},{"type":"string"}],"x-kubernetes-int-or-string":true}"#
        ]],
    );
    check_custom(
        SpecVersion::V3,
        &of(r#","anyOf":[{"type":"integer"},{"type":"string"}],"pattern":"a""#),
        expect![[
            r#"{"pattern":"a","anyOf":[{"type":"integer"},{"type":"string"}],"x-kubernetes-int-or-string":true}"#
        ]],
    );
    check_custom(
        SpecVersion::V3,
        &of(r#","anyOf":[{"pattern":"a"}]"#),
        expect![[
            r#"{"allOf":[{"anyOf":[{"type":"integer"},{"type":"string"}]}],"anyOf":[{"pattern":"a"}],"x-kubernetes-int-or-string":true}"#
        ]],
    );
    check_custom(
        SpecVersion::V2,
        &of(""),
        expect![[r#"{"x-kubernetes-int-or-string":true}"#]],
    );
}

#[test]
fn an_embedded_resource_has_what_every_object_has() {
    let schema = r#"{"type":"object","properties":{"spec":{"type":"object","x-kubernetes-embedded-resource":true,"required":["spec"],"properties":{"spec":{"type":"object"}}}}}"#;
    check_custom(
        SpecVersion::V2,
        schema,
        expect![[
            r##"{"type":"object","required":["spec","kind","apiVersion"],"properties":{"apiVersion":{"type":"string"},"kind":{"type":"string"},"metadata":{"$ref":"#/definitions/io.k8s.apimachinery.pkg.apis.meta.v1.ObjectMeta"},"spec":{"type":"object"}},"x-kubernetes-embedded-resource":true}"##
        ]],
    );
    let open = schema.replace(
        "\"required\"",
        "\"x-kubernetes-preserve-unknown-fields\":true,\"required\"",
    );
    check_custom(
        SpecVersion::V2,
        &open,
        expect![[
            r#"{"required":["spec"],"x-kubernetes-embedded-resource":true,"x-kubernetes-preserve-unknown-fields":true}"#
        ]],
    );
}

#[test]
fn a_document_of_v3_is_written_as_protobuf() {
    let document = json::parse(
        br##"{"openapi":"3.0.0","info":{"title":"a","version":"b"},"paths":{"/p":{"get":{"operationId":"o","responses":{"200":{"description":"OK"}}}}},"components":{"schemas":{"S":{"allOf":[{"$ref":"#/T"}],"minimum":0,"default":0,"additionalProperties":true}}}}"##,
    );
    let bytes = proto3::document(&document.unwrap());
    expect![[r#"\n\x053.0.0\x12\x06\n\x01a2\x01b\"\x1e\n\x1c\n\x02/p\x12\x16\"\x14*\x01oB\x0f\x12\r\n\x03200\x12\x06\n\x04\n\x02OK*&\n$\n\"\n\x01S\x12\x1d\n\x1b\xd2\x01\x07\x12\x05\n\x03#/T\x82\x02\x02\x10\x01\x8a\x02\t\t\x00\x00\x00\x00\x00\x00\x00\x00"#]]
        .assert_eq(&bytes.escape_ascii().to_string());
}

#[track_caller]
fn check_proto(schema: &str, expect: Expect) {
    let bytes = proto::schema(&json::parse(schema.as_bytes()).unwrap());
    expect.assert_eq(&bytes.escape_ascii().to_string());
}

#[test]
fn a_schema_is_written_as_protobuf() {
    check_proto(
        r#"{"type":"string","format":"byte"}"#,
        expect![[r#"\x12\x04byte\xb2\x01\x08\n\x06string"#]],
    );
    check_proto(
        r##"{"required":["a"],"properties":{"a":{"$ref":"#/b"}},"x-c":[1]}"##,
        expect![[
            r#"\x9a\x01\x01a\xca\x01\x0c\n\n\n\x01a\x12\x05\n\x03#/b\xfa\x01\x0c\n\x03x-c\x12\x05\x12\x03[1]"#
        ]],
    );
    check_proto(
        r#"{"enum":["a"],"minimum":1,"maximum":0}"#,
        expect![[r#"I\x00\x00\x00\x00\x00\x00\xf0?\xa2\x01\x05\x12\x03\"a\""#]],
    );
    check_proto(
        r#"{"additionalProperties":{"uniqueItems":true}}"#,
        expect![[r#"\xaa\x01\x05\n\x03\x80\x01\x01"#]],
    );
}
