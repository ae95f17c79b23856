//! Random structural schemas: the code is valid Rust, whatever names and descriptions they have.

use mizzen_crd_types::generate;
use mizzen_value::{Map, Value, json, value};
use proptest::prelude::*;

/// Names of properties: ordinary ones, keywords, and any text.
fn name() -> impl Strategy<Value = String> {
    prop_oneof![
        "[a-z][a-zA-Z0-9]{0,8}",
        prop::sample::select(vec![
            "type", "self", "Self", "crate", "fn", "spec", "kind", "other", "field"
        ])
        .prop_map(str::to_owned),
        "[ -~]{0,6}",
        "\\PC{0,4}",
    ]
}

fn scalar() -> impl Strategy<Value = Value> {
    prop_oneof![
        Just(value!({"type": "string"})),
        Just(value!({"type": "boolean", "default": true})),
        Just(value!({"type": "number", "default": 3, "nullable": true})),
        (any::<i64>(), "int32|int64|uint8|").prop_map(
            |(default, format)| value!({"type": "integer", "format": format, "default": default})
        ),
        prop::collection::vec(name(), 1..5).prop_map(|names| {
            let default = names[0].clone();
            let names: Vec<Value> = names.into_iter().map(Value::from).collect();
            value!({"type": "string", "enum": names, "default": default})
        }),
        Just(value!({"x-kubernetes-int-or-string": true})),
        Just(value!({"x-kubernetes-preserve-unknown-fields": true})),
        Just(value!({"type": "object", "x-kubernetes-embedded-resource": true})),
        Just(value!({"type": "object"})),
    ]
}

fn object(fields: impl Strategy<Value = Value>) -> impl Strategy<Value = Value> {
    let fields = prop::collection::vec((name(), fields, any::<bool>()), 0..6);
    (fields, any::<bool>(), "(\\PC|\n|`|/|\\*|\\[){0,30}").prop_map(
        |(fields, is_open, description)| {
            let (mut properties, mut required) = (Map::default(), Vec::new());
            for (name, schema, is_required) in fields {
                if is_required {
                    required.push(Value::from(&name));
                }
                properties.insert(name, schema);
            }
            let mut schema =
                value!({"type": "object", "properties": properties, "required": required});
            schema.set("description", description);
            if is_open {
                schema.set("x-kubernetes-preserve-unknown-fields", true);
            }
            schema
        },
    )
}

fn schema() -> impl Strategy<Value = Value> {
    let nested = scalar().prop_recursive(4, 40, 6, |inner| {
        prop_oneof![
            object(inner.clone()),
            inner
                .clone()
                .prop_map(|items| value!({"type": "array", "items": items})),
            inner.prop_map(|values| value!({"type": "object", "additionalProperties": values})),
        ]
    });
    object(nested)
}

proptest! {
    #[test]
    fn code_of_any_schema_is_valid_rust(kind in "[A-Z][A-Za-z]{0,8}|Option|String|Self", schema in schema()) {
        let definition = value!({
            "apiVersion": "apiextensions.k8s.io/v1",
            "kind": "CustomResourceDefinition",
            "metadata": {"name": "things.example.com"},
            "spec": {
                "group": "example.com",
                "scope": "Namespaced",
                "names": {"kind": kind, "plural": "things"},
                "versions": [{"name": "v1", "storage": true, "schema": {"openAPIV3Schema": schema}}],
            },
        });
        let code = generate(&definition, None).unwrap();
        let file = syn::parse_file(&code).map_err(|error| {
            TestCaseError::fail(format!("{error}: {}\n{code}", json::to_string(&definition)))
        })?;
        // No two types have the same name, and no two fields or variants of one.
        let mut types = Vec::new();
        for item in &file.items {
            let (name, members): (_, Vec<String>) = match item {
                syn::Item::Struct(item) => {
                    let fields = item.fields.iter().flat_map(|field| &field.ident);
                    (&item.ident, fields.map(ToString::to_string).collect())
                }
                syn::Item::Enum(item) => {
                    let variants = item.variants.iter().map(|variant| variant.ident.to_string());
                    (&item.ident, variants.collect())
                }
                _ => continue,
            };
            types.push(name.to_string());
            prop_assert!(is_unique(&members), "{name}: {members:?}");
        }
        prop_assert!(is_unique(&types), "{types:?}");
        prop_assert_eq!(generate(&definition, None).unwrap(), code);
    }
}

fn is_unique(names: &[String]) -> bool {
    let mut sorted = names.to_vec();
    sorted.sort();
    sorted.dedup();
    sorted.len() == names.len()
}
