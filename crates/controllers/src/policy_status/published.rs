//! The schema of a kind from the server's OpenAPI v3 document, with references resolved.
//!
//! Invariant: a recursive reference becomes an object without known fields, and a schema above the
//! size limit is dropped.

use std::sync::Arc;

use mizzen_object::GroupVersionKind;
use mizzen_object::schema::Struct;
use mizzen_object::structural::Structural;
use mizzen_value::{Map, Value, value};

/// How many nodes a resolved schema may have.
const MAX_PARTS: usize = 100_000;
const COMPONENTS: &str = "#/components/schemas/";

/// The path of the OpenAPI document of a group version.
pub(super) fn page(kind: &GroupVersionKind) -> String {
    match &*kind.group {
        "" => format!("/openapi/v3/api/{}", kind.version),
        group => format!("/openapi/v3/apis/{group}/{}", kind.version),
    }
}

/// The schema of a kind; none if the document has none.
pub(super) fn shape(page: &Value, kind: &GroupVersionKind) -> Option<Arc<Struct>> {
    let schemas = &page["components"]["schemas"];
    let is_meant = |schema: &Value| {
        schema["x-kubernetes-group-version-kind"]
            .list()
            .iter()
            .any(|known| {
                known["group"].str() == kind.group
                    && known["version"].str() == kind.version
                    && known["kind"].str() == kind.kind
            })
    };
    let (name, schema) = schemas.entries().find(|(_, schema)| is_meant(schema))?;
    let mut whole = SchemaResolver {
        schemas,
        path: vec![name],
        n_left: MAX_PARTS,
    };
    let schema = whole.resolve(schema)?;
    let shape = Struct::new(kind.kind.clone(), kind.api_version(), false);
    shape.define(Vec::new(), Vec::new());
    shape.define_rest(Arc::new(Structural::compile(&schema, false)));
    Some(Arc::new(shape))
}

/// Replaces references by what they refer to.
struct SchemaResolver<'a> {
    schemas: &'a Value,
    /// The references that are being resolved.
    path: Vec<&'a str>,
    n_left: usize,
}

impl<'a> SchemaResolver<'a> {
    /// None if it gets too large, or a reference is not found.
    fn resolve(&mut self, schema: &'a Value) -> Option<Value> {
        self.n_left = self.n_left.checked_sub(1)?;
        let Some(name) = reference(schema) else {
            return self.resolve_members(schema);
        };
        if self.path.contains(&name) {
            return Some(value!({ "type": "object" }));
        }
        self.path.push(name);
        let referred = self.resolve_members(self.schemas.get(name)?);
        self.path.pop();
        referred
    }

    fn resolve_members(&mut self, schema: &'a Value) -> Option<Value> {
        let mut whole = schema.clone();
        let properties = &schema["properties"];
        if !properties.is_null() {
            let mut all = Map::default();
            for (name, property) in properties.entries() {
                all.insert(name, self.resolve(property)?);
            }
            whole.set("properties", Value::Map(all));
        }
        for field in ["items", "additionalProperties"] {
            if schema[field].as_map().is_some() {
                whole.set(field, self.resolve(&schema[field])?);
            }
        }
        Some(whole)
    }
}

/// The reference of a schema, perhaps within an `allOf`, which lets it have its own description.
fn reference(schema: &Value) -> Option<&str> {
    let own = schema["$ref"]
        .as_str()
        .map(|name| name.trim_start_matches(COMPONENTS));
    own.or_else(|| schema["allOf"].list().iter().find_map(reference))
}

#[cfg(test)]
mod tests {
    use super::*;
    use mizzen_value::json;

    fn kind(name: &str) -> GroupVersionKind {
        GroupVersionKind {
            group: "a.io".into(),
            version: "v1".into(),
            kind: name.into(),
        }
    }

    /// The schemas of a document, the first of which is that of a kind, after resolution.
    #[track_caller]
    fn check(schemas: &str, expected: Option<&str>) {
        let schemas = json::parse(schemas.as_bytes()).unwrap();
        let (name, first) = schemas.entries().next().unwrap();
        let whole = SchemaResolver {
            schemas: &schemas,
            path: vec![name],
            n_left: MAX_PARTS,
        }
        .resolve(first);
        assert_eq!(
            whole.map(|schema| json::to_string(&schema)).as_deref(),
            expected
        );
    }

    #[test]
    fn references_are_followed_wherever_they_are() {
        check(
            r##"{"a":{"properties":{"b":{"$ref":"#/components/schemas/b"},"c":{"allOf":[{"$ref":"#/components/schemas/b"}],"default":{}}},
                "items":{"$ref":"#/components/schemas/b"},"additionalProperties":true},"b":{"type":"string"}}"##,
            Some(
                r#"{"properties":{"b":{"type":"string"},"c":{"type":"string"}},"items":{"type":"string"},"additionalProperties":true}"#,
            ),
        );
    }

    #[test]
    fn a_recursive_schema_ends() {
        check(
            r##"{"a":{"properties":{"b":{"$ref":"#/components/schemas/b"}}},"b":{"properties":{"a":{"$ref":"#/components/schemas/a"}}}}"##,
            Some(r#"{"properties":{"b":{"properties":{"a":{"type":"object"}}}}}"#),
        );
    }

    #[test]
    fn missing_references_and_large_schemas_are_dropped() {
        check(
            r##"{"a":{"items":{"$ref":"#/components/schemas/b"}}}"##,
            None,
        );
        let doubled = |at: u32| {
            let below = format!(r##"{{"$ref":"#/components/schemas/{}"}}"##, at + 1);
            format!(r#""{at}":{{"properties":{{"l":{below},"r":{below}}}}}"#)
        };
        let schemas: Vec<String> = (0..40).map(doubled).collect();
        check(
            &format!(r#"{{{},"40":{{"type":"string"}}}}"#, schemas.join(",")),
            None,
        );
    }

    #[test]
    fn a_document_names_the_schema_of_a_kind() {
        let page = value!({ "components": { "schemas": {
            "other": { "type": "object" },
            "foo": {
                "type": "object",
                "x-kubernetes-group-version-kind": [{ "group": "a.io", "version": "v1", "kind": "Foo" }]
            }
        } } });
        assert!(shape(&page, &kind("Foo")).is_some());
        assert!(shape(&page, &kind("Bar")).is_none());
        assert_eq!(super::page(&kind("Foo")), "/openapi/v3/apis/a.io/v1");
    }
}
