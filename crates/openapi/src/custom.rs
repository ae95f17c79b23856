//! Definitions of custom resources: the author's schema, plus the fields that every object has.

use mizzen_object::Kind;
use mizzen_value::{Map, Value, value};

use super::Published;
use super::definition::{SpecVersion, described, in_order, kind_value, sibling};
use super::names::META;
use super::prose::Prose;

/// The built-in type whose descriptions of common fields are used.
pub(super) const MODEL: &str = "io.k8s.api.core.v1.ConfigMap";
/// The URL of the API conventions.
const CONVENTIONS: &str =
    "https://git.k8s.io/community/contributors/devel/sig-architecture/api-conventions.md";

/// The definition of a custom resource.
pub(super) fn definition(dialect: SpecVersion, published: &Published, prose: &Prose) -> Value {
    let mut schema = published
        .schema
        .as_deref()
        .cloned()
        .unwrap_or_else(|| value!({"type": "object"}));
    visit(&mut schema, &mut |schema| complete(dialect, schema, prose));
    if dialect == SpecVersion::V2 && schema["type"].is_null() {
        // Kubernetes: with unknown fields at the root the whole schema is dropped, because clients
        // cannot handle a partial one.
        schema = value!({"type": "object"});
    } else {
        add_properties(dialect, &mut schema, prose);
    }
    let gvk = &published.kind.gvk;
    add_extensions(&mut schema, &published.kind, &gvk.kind);
    visit(&mut schema, &mut |schema| in_order(schema.make_map()));
    schema
}

/// Adds the extensions for the kind and its selectable fields.
fn add_extensions(schema: &mut Value, kind: &Kind, name: &str) {
    let gvk = &kind.gvk;
    schema.set(
        "x-kubernetes-group-version-kind",
        vec![kind_value(&gvk.group, &gvk.version, name)],
    );
    if !kind.selectable.is_empty() {
        let fields = kind
            .selectable
            .iter()
            .map(|path| value!({"fieldPath": (path.trim_start_matches('.'))}));
        schema.set("x-kubernetes-selectable-fields", fields.collect::<Vec<_>>());
    }
}

/// The definition of a list of custom resources.
pub(super) fn list(dialect: SpecVersion, name: &str, kind: &Kind, prose: &Prose) -> Value {
    let list_kind = name.rsplit('.').next().unwrap_or_default();
    let words = format!("Standard list metadata. More info: {CONVENTIONS}#types-kinds");
    let metadata = dialect.with_attributes(
        dialect.reference(&format!("{META}.ListMeta")),
        Some(&words),
        Map::default(),
    );
    let mut list = value!({
        "description": (format!("{list_kind} is a list of {}", kind.gvk.kind)),
        "type": "object",
        "required": ["items"],
        "properties": {
            "apiVersion": (described("string", prose.field(MODEL, "apiVersion"))),
            "items": {
                "description": (format!("List of {}. More info: {CONVENTIONS}", kind.plural)),
                "type": "array",
                "items": (dialect.reference(&sibling(name, &kind.gvk.kind))),
            },
            "kind": (described("string", prose.field(MODEL, "kind"))),
            "metadata": metadata,
        },
    });
    add_extensions(&mut list, kind, list_kind);
    list
}

/// Calls `change` with a schema, then with each schema inside it.
fn visit(schema: &mut Value, change: &mut impl FnMut(&mut Value)) {
    change(schema);
    if let Some(Value::Map(properties)) = schema.get_mut("properties") {
        properties
            .values_mut()
            .for_each(|property| visit(property, change));
    }
    for key in ["items", "additionalProperties"] {
        if let Some(inner @ Value::Map(_)) = schema.get_mut(key) {
            visit(inner, change);
        }
    }
}

fn complete(dialect: SpecVersion, schema: &mut Value, prose: &Prose) {
    if dialect == SpecVersion::V2 {
        simplify(schema);
    } else if schema["x-kubernetes-int-or-string"].bool() {
        unfold(schema);
    }
    // Kubernetes: v2 clients reject unknown fields where any field is declared.
    let open = dialect == SpecVersion::V2 && schema["x-kubernetes-preserve-unknown-fields"].bool();
    if schema["x-kubernetes-embedded-resource"].bool() && !open {
        add_properties(dialect, schema, prose);
        let required = schema.entry("required").make_list();
        for name in ["kind", "apiVersion"] {
            if !required.iter().any(|known| known.str() == name) {
                required.push(name.into());
            }
        }
    }
}

/// Expands `x-kubernetes-int-or-string` to plain OpenAPI, unless the author did
/// (apiextensions-apiserver/pkg/apiserver/schema/unfold.go).
fn unfold(schema: &mut Value) {
    let either = value!([{"type": "integer"}, {"type": "string"}]);
    let unfolded = value!({"anyOf": (either.clone())});
    if schema["anyOf"] == either || schema["allOf"][0] == unfolded {
        return;
    }
    if schema["anyOf"].is_null() {
        schema.set("anyOf", either);
    } else {
        schema.entry("allOf").make_list().insert(0, unfolded);
    }
}

/// Removes what OpenAPI v2 or its clients do not support.
fn simplify(schema: &mut Value) {
    for key in ["default", "allOf", "oneOf", "anyOf", "not"] {
        schema.remove(key);
    }
    let nullable = schema
        .remove("nullable")
        .is_some_and(|nullable| nullable.bool());
    let open = schema["x-kubernetes-preserve-unknown-fields"].bool();
    if nullable || open {
        schema.remove("items");
        schema.remove("properties");
    }
    let untyped = match schema["type"].str() {
        "array" => schema.get("items").is_none(),
        "object" => open,
        _ => false,
    };
    if nullable || untyped {
        schema.remove("type");
    }
    // A nullable field loses its type, so it cannot be required.
    let Some(Value::List(mut required)) = schema.remove("required") else {
        return;
    };
    if !schema["additionalProperties"]["nullable"].bool() {
        required.retain(|name| !schema["properties"][name.str()]["nullable"].bool());
        if !required.is_empty() {
            schema.set("required", required);
        }
    }
}

fn add_properties(dialect: SpecVersion, schema: &mut Value, prose: &Prose) {
    let metadata = dialect.with_attributes(
        dialect.reference(&format!("{META}.ObjectMeta")),
        prose.field(MODEL, "metadata"),
        Map::default(),
    );
    let properties = schema.entry("properties").make_map();
    for field in ["apiVersion", "kind"] {
        properties.insert(field, described("string", prose.field(MODEL, field)));
    }
    properties.insert("metadata", metadata);
    properties.sort();
}
