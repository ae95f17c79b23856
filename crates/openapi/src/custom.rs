//! A custom kind's definition: the schema its author wrote, and what every object has.

use mizzen_object::Kind;
use mizzen_value::{Map, Value, value};

use super::Published;
use super::definition::{Dialect, described, in_order, kind_value, sibling};
use super::names::META;
use super::prose::Prose;

/// Where the words come from that all kinds share.
pub(super) const MODEL: &str = "io.k8s.api.core.v1.ConfigMap";
/// Where objects are explained that everybody may define.
const CONVENTIONS: &str =
    "https://git.k8s.io/community/contributors/devel/sig-architecture/api-conventions.md";

/// The definition of a custom kind's objects.
pub(super) fn definition(dialect: Dialect, published: &Published, prose: &Prose) -> Value {
    let mut schema = published
        .schema
        .as_deref()
        .cloned()
        .unwrap_or_else(|| value!({"type": "object"}));
    visit(&mut schema, &mut |schema| complete(dialect, schema, prose));
    if dialect == Dialect::V2 && schema["type"].is_null() {
        // Unknown fields at the root: say nothing of the known ones either, as clients cannot do with half.
        schema = value!({"type": "object"});
    } else {
        add_properties(dialect, &mut schema, prose);
    }
    let gvk = &published.kind.gvk;
    add_extensions(&mut schema, &published.kind, &gvk.kind);
    visit(&mut schema, &mut |schema| in_order(schema.make_map()));
    schema
}

/// Says of a schema which kind it is, and by which fields it is selected.
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

/// The definition of a list of a custom kind's objects.
pub(super) fn list(dialect: Dialect, name: &str, kind: &Kind, prose: &Prose) -> Value {
    let list_kind = name.rsplit('.').next().unwrap_or_default();
    let words = format!("Standard list metadata. More info: {CONVENTIONS}#types-kinds");
    let metadata = dialect.dress(
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

fn complete(dialect: Dialect, schema: &mut Value, prose: &Prose) {
    if dialect == Dialect::V2 {
        simplify(schema);
    } else if schema["x-kubernetes-int-or-string"].bool() {
        unfold(schema);
    }
    // Kubernetes: clients of v2 refuse unknown fields where they know any.
    let open = dialect == Dialect::V2 && schema["x-kubernetes-preserve-unknown-fields"].bool();
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

/// Says in plain OpenAPI what `x-kubernetes-int-or-string` means, unless the author did
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

/// Takes out what OpenAPI v2, or the clients that read it, do not know.
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
    require_only_typed(schema);
}

/// A field that may be null loses its type, so it cannot be required.
fn require_only_typed(schema: &mut Value) {
    let Some(Value::List(required)) = schema.remove("required") else {
        return;
    };
    if schema["additionalProperties"]["nullable"].bool() {
        return;
    }
    let typed = |name: &Value| !schema["properties"][name.str()]["nullable"].bool();
    let required: Vec<Value> = required.into_iter().filter(typed).collect();
    if !required.is_empty() {
        schema.set("required", required);
    }
}

fn add_properties(dialect: Dialect, schema: &mut Value, prose: &Prose) {
    let metadata = dialect.dress(
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
