//! Properties that hold for every schema and object.

use proptest::prelude::*;

use super::{Structural, parse};
use mizzen_value::{Map, Value};

/// Schemas and matching objects.
fn schema() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(r#"{"type":"string","default":"d"}"#),
        Just(r#"{"type":"integer"}"#),
        Just(r#"{"type":"string","nullable":true,"default":"d"}"#),
        Just(r#"{"x-kubernetes-preserve-unknown-fields":true}"#),
    ];
    leaf.prop_map(parse).prop_recursive(3, 24, 3, |inner| {
        let object = (
            prop::collection::btree_map("[ab]", inner.clone(), 0..3),
            any::<bool>(),
            any::<bool>(),
        );
        prop_oneof![
            object.prop_map(|(properties, keeps, fills)| {
                let mut schema = parse(r#"{"type":"object"}"#);
                schema.set("properties", properties.into_iter().collect::<Map>());
                schema.set("x-kubernetes-preserve-unknown-fields", keeps);
                if fills {
                    schema.set("default", Value::object());
                }
                schema
            }),
            inner
                .clone()
                .prop_map(|items| [("type", "array".into()), ("items", items)]
                    .into_iter()
                    .collect::<Map>()
                    .into()),
            inner.prop_map(|below| {
                [("type", "object".into()), ("additionalProperties", below)]
                    .into_iter()
                    .collect::<Map>()
                    .into()
            }),
        ]
    })
}

fn object() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(Value::Null),
        Just(Value::Int(1)),
        Just(Value::from("x"))
    ];
    leaf.prop_recursive(4, 32, 3, |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..3).prop_map(Value::List),
            prop::collection::btree_map("[abc]", inner, 0..3)
                .prop_map(|members| members.into_iter().collect::<Map>().into()),
        ]
    })
}

proptest! {
    #[test]
    fn pruning_and_defaulting_are_idempotent(schema in schema(), object in object()) {
        let mut root = parse(r#"{"type":"object"}"#);
        root.entry("properties").set("a", schema);
        let schema = Structural::compile(&root, false);
        let mut once: Value = [("a", object)].into_iter().collect::<Map>().into();
        schema.prune(&mut once);
        let mut twice = once.clone();
        prop_assert!(schema.prune(&mut twice).is_empty());
        prop_assert_eq!(&once, &twice);
        schema.default(&mut once);
        let mut twice = once.clone();
        schema.default(&mut twice);
        prop_assert_eq!(once, twice);
    }
}
