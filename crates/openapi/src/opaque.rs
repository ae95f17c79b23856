//! Types without a schema of their own: quantities, times, raw JSON.

use mizzen_object::schema::{Alternative, FieldShape, FieldType};
use mizzen_value::{Map, Value, value};

use super::definition::{SpecVersion, described};
use super::names::{EXTENSIONS, META, definition};

/// The definition name of such a type.
pub(super) fn name(ty: &FieldType) -> String {
    match &ty.shape {
        FieldShape::Quantity => "io.k8s.apimachinery.pkg.api.resource.Quantity".into(),
        FieldShape::IntOrString => "io.k8s.apimachinery.pkg.util.intstr.IntOrString".into(),
        FieldShape::Raw if ty.go == "runtime.RawExtension" => {
            "io.k8s.apimachinery.pkg.runtime.RawExtension".into()
        }
        FieldShape::Raw => format!("{META}.FieldsV1"),
        FieldShape::Time => format!("{META}.Time"),
        FieldShape::MicroTime => format!("{META}.MicroTime"),
        FieldShape::Duration => format!("{META}.Duration"),
        FieldShape::Or(Alternative::Bool, schema) => format!("{}OrBool", definition(schema)),
        FieldShape::Or(Alternative::List, schema) => format!("{}OrArray", definition(schema)),
        FieldShape::Or(Alternative::Strings, schema) => {
            format!("{}OrStringArray", definition(schema))
        }
        _ => format!("{EXTENSIONS}.JSON"),
    }
}

/// The schema of such a type; `None` for other definitions.
pub(super) fn schema(dialect: SpecVersion, definition: &str) -> Option<Value> {
    let name = definition.rsplit('.').next().unwrap_or_default();
    Some(match (name, dialect) {
        ("Quantity", SpecVersion::V2) | ("Duration", _) => value!({"type": "string"}),
        ("Quantity", SpecVersion::V3) => {
            value!({"oneOf": [{"type": "string"}, {"type": "number"}]})
        }
        ("IntOrString", SpecVersion::V2) => value!({"type": "string", "format": "int-or-string"}),
        ("IntOrString", SpecVersion::V3) => {
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

/// The schema of `/version`.
fn version_info(dialect: SpecVersion) -> Value {
    const REQUIRED: [(&str, Option<&str>); 9] = [
        ("major", Some("Major version of the server.")),
        ("minor", Some("Minor version of the server.")),
        ("gitVersion", None),
        ("gitCommit", None),
        ("gitTreeState", None),
        ("buildDate", None),
        ("goVersion", None),
        ("compiler", None),
        ("platform", None),
    ];
    const OPTIONAL: [(&str, Option<&str>); 4] = [
        (
            "emulationMajor",
            Some("Major version of the release whose APIs and features are emulated."),
        ),
        (
            "emulationMinor",
            Some("Minor version of the release whose APIs and features are emulated."),
        ),
        (
            "minCompatibilityMajor",
            Some("Major version of the oldest release that the stored data is compatible with."),
        ),
        (
            "minCompatibilityMinor",
            Some("Minor version of the oldest release that the stored data is compatible with."),
        ),
    ];
    let mut properties = Map::default();
    for (index, (name, description)) in REQUIRED.iter().chain(&OPTIONAL).enumerate() {
        let mut property = described("string", *description);
        if dialect == SpecVersion::V3 && index < REQUIRED.len() {
            property.set("default", "");
        }
        properties.insert(*name, property);
    }
    properties.sort();
    let required: Vec<Value> = REQUIRED
        .iter()
        .map(|(name, _)| Value::from(*name))
        .collect();
    value!({"type": "object", "required": required, "properties": properties})
}
