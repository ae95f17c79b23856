//! Types that are more than their fields, or have none: quantities, times, raw JSON.

use mizzen_object::schema::{Alternative, Shape, Type};
use mizzen_value::{Map, Value, value};

use super::definition::{Dialect, described};
use super::names::{EXTENSIONS, META, definition};

/// The definition of a type that is more than its fields, or has none.
pub(super) fn name(ty: &Type) -> String {
    match &ty.shape {
        Shape::Quantity => "io.k8s.apimachinery.pkg.api.resource.Quantity".into(),
        Shape::IntOrString => "io.k8s.apimachinery.pkg.util.intstr.IntOrString".into(),
        Shape::Raw if ty.go == "runtime.RawExtension" => {
            "io.k8s.apimachinery.pkg.runtime.RawExtension".into()
        }
        Shape::Raw => format!("{META}.FieldsV1"),
        Shape::Time => format!("{META}.Time"),
        Shape::MicroTime => format!("{META}.MicroTime"),
        Shape::Duration => format!("{META}.Duration"),
        Shape::Or(Alternative::Bool, schema) => format!("{}OrBool", definition(schema)),
        Shape::Or(Alternative::List, schema) => format!("{}OrArray", definition(schema)),
        Shape::Or(Alternative::Strings, schema) => format!("{}OrStringArray", definition(schema)),
        _ => format!("{EXTENSIONS}.JSON"),
    }
}

/// The schema of such a type; none if there is no such type.
pub(super) fn schema(dialect: Dialect, definition: &str) -> Option<Value> {
    let name = definition.rsplit('.').next().unwrap_or_default();
    Some(match (name, dialect) {
        ("Quantity", Dialect::V2) | ("Duration", _) => value!({"type": "string"}),
        ("Quantity", Dialect::V3) => value!({"oneOf": [{"type": "string"}, {"type": "number"}]}),
        ("IntOrString", Dialect::V2) => value!({"type": "string", "format": "int-or-string"}),
        ("IntOrString", Dialect::V3) => {
            value!({"format": "int-or-string", "oneOf": [{"type": "integer"}, {"type": "string"}]})
        }
        ("Time" | "MicroTime", _) => value!({"type": "string", "format": "date-time"}),
        ("RawExtension" | "FieldsV1" | "Patch", _) => value!({"type": "object"}),
        (
            "JSON"
            | "JSONSchemaPropsOrBool"
            | "JSONSchemaPropsOrArray"
            | "JSONSchemaPropsOrStringArray",
            _,
        ) => Value::object(),
        ("Info", dialect) => version_info(dialect),
        _ => return None,
    })
}

/// What `/version` answers, which is no object of any group.
fn version_info(dialect: Dialect) -> Value {
    let required = [
        "major",
        "minor",
        "gitVersion",
        "gitCommit",
        "gitTreeState",
        "buildDate",
        "goVersion",
        "compiler",
        "platform",
    ];
    let optional = [
        "emulationMajor",
        "emulationMinor",
        "minCompatibilityMajor",
        "minCompatibilityMinor",
    ];
    let mut properties = Map::default();
    for name in required.iter().chain(&optional) {
        let mut property = described("string", version_part(name));
        if dialect == Dialect::V3 && required.contains(name) {
            property.set("default", "");
        }
        properties.insert(*name, property);
    }
    properties.sort();
    let required: Vec<Value> = required.iter().map(|name| Value::from(*name)).collect();
    value!({"type": "object", "required": required, "properties": properties})
}

/// What a part of the version means.
fn version_part(name: &str) -> Option<&'static str> {
    Some(match name {
        "major" => "Major version of the server.",
        "minor" => "Minor version of the server.",
        "emulationMajor" => "Major version of the release whose APIs and features are emulated.",
        "emulationMinor" => "Minor version of the release whose APIs and features are emulated.",
        "minCompatibilityMajor" => {
            "Major version of the oldest release that the stored data is compatible with."
        }
        "minCompatibilityMinor" => {
            "Minor version of the oldest release that the stored data is compatible with."
        }
        _ => return None,
    })
}
