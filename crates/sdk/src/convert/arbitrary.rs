//! Arbitrary objects of a kind, from the schema of its CustomResourceDefinition.

use std::collections::BTreeSet;

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::{
    JSONSchemaProps, JSONSchemaPropsOrArray, JSONSchemaPropsOrBool,
};
use kube::CustomResourceExt;
use proptest::prelude::*;
use serde::de::DeserializeOwned;
use serde_json::{Map, Value, json};

/// How many items an arbitrary list or map has, at most.
const MAX_ITEMS: usize = 3;
/// How many characters an arbitrary string has, at most.
const MAX_LENGTH: usize = 12;

/// Arbitrary objects of a kind, as its schema allows them. Values that the type does not accept are
/// left out.
///
/// ```
/// # use kube::CustomResource;
/// # use schemars::JsonSchema;
/// # use serde::{Deserialize, Serialize};
/// use mizzen_sdk::convert::arbitrary;
/// use proptest::prelude::*;
///
/// #[derive(CustomResource, Serialize, Deserialize, JsonSchema, Clone, Debug)]
/// #[kube(group = "shop.example.com", version = "v1", kind = "Oven", namespaced)]
/// struct OvenSpec {
///     #[schemars(range(max = 300))]
///     temperature: u32,
/// }
///
/// proptest!(|(oven in arbitrary::<Oven>())| prop_assert!(oven.spec.temperature <= 300));
/// ```
pub fn arbitrary<K>() -> BoxedStrategy<K>
where
    K: CustomResourceExt + DeserializeOwned + std::fmt::Debug + 'static,
{
    let (definition, resource) = (K::crd(), K::api_resource());
    let version = definition
        .spec
        .versions
        .into_iter()
        .find(|version| version.name == resource.version);
    let schema = version
        .and_then(|version| version.schema?.open_api_v3_schema)
        .unwrap_or_default();
    let (api_version, kind) = (resource.api_version, resource.kind);
    let object = (
        value(&schema),
        "[a-z]{1,8}",
        proptest::option::of("[a-z]{0,4}"),
    );
    object
        .prop_filter_map(
            "the type accepts less than its schema",
            move |(mut object, name, note)| {
                object["apiVersion"] = api_version.clone().into();
                object["kind"] = kind.clone().into();
                object["metadata"] = json!({ "name": name });
                if let Some(note) = note {
                    object["metadata"]["annotations"] = json!({ "note": note });
                }
                serde_json::from_value(object).ok()
            },
        )
        .boxed()
}

/// Arbitrary values of a structural schema.
fn value(schema: &JSONSchemaProps) -> BoxedStrategy<Value> {
    let value = match (&schema.enum_, schema.type_.as_deref()) {
        (Some(values), _) if !values.is_empty() => {
            let values: Vec<Value> = values.iter().map(|value| value.0.clone()).collect();
            proptest::sample::select(values).boxed()
        }
        (_, Some("object")) => object(schema),
        (_, Some("array")) => {
            let items = match &schema.items {
                Some(JSONSchemaPropsOrArray::Schema(items)) => value(items),
                _ => Just(Value::Null).boxed(),
            };
            let bound = |limit: Option<i64>| limit.and_then(|limit| usize::try_from(limit).ok());
            let least = bound(schema.min_items).unwrap_or(0);
            let most = bound(schema.max_items)
                .unwrap_or(usize::MAX)
                .min(least + MAX_ITEMS);
            let items = proptest::collection::vec(items, least..=most);
            items.prop_map(Value::Array).boxed()
        }
        (_, Some("string")) => string(schema),
        (_, Some("integer")) => integer(schema),
        (_, Some("number")) => any::<i32>()
            .prop_map(|number| json!(f64::from(number) / 4.0))
            .boxed(),
        (_, Some("boolean")) => any::<bool>().prop_map(Value::from).boxed(),
        _ if schema.x_kubernetes_int_or_string == Some(true) => prop_oneof![
            (0..100).prop_map(Value::from),
            "[0-9]{1,2}%".prop_map(Value::from)
        ]
        .boxed(),
        _ => match schema.any_of.as_deref().or(schema.one_of.as_deref()) {
            Some(branches) if !branches.is_empty() => {
                proptest::strategy::Union::new(branches.iter().map(value)).boxed()
            }
            _ => Just(json!({})).boxed(),
        },
    };
    match schema.nullable {
        Some(true) => prop_oneof![1 => Just(Value::Null), 3 => value].boxed(),
        _ => value,
    }
}

/// Objects with all required members and some of the optional ones. Of the members that branches of
/// `oneOf` require, an object has those of one branch.
fn object(schema: &JSONSchemaProps) -> BoxedStrategy<Value> {
    let required = |schema: &JSONSchemaProps| -> BTreeSet<String> {
        schema.required.iter().flatten().cloned().collect()
    };
    let branches: Vec<_> = schema.one_of.iter().flatten().map(required).collect();
    let alternatives: BTreeSet<String> = branches.iter().flatten().cloned().collect();
    let of_branch = |branch: &BTreeSet<String>| {
        let mut members: BoxedStrategy<Map<String, Value>> = Just(Map::new()).boxed();
        for (name, property) in schema.properties.iter().flatten() {
            if alternatives.contains(name) && !branch.contains(name) {
                continue;
            }
            let is_required = required(schema).contains(name) || branch.contains(name);
            let member = match is_required {
                true => value(property).prop_map(Some).boxed(),
                false => proptest::option::of(value(property)).boxed(),
            };
            let name = name.clone();
            members = (members, member)
                .prop_map(move |(mut members, member)| {
                    member.map(|member| members.insert(name.clone(), member));
                    members
                })
                .boxed();
        }
        if let Some(JSONSchemaPropsOrBool::Schema(item)) = &schema.additional_properties {
            let more = proptest::collection::btree_map("[a-z]{1,5}", value(item), 0..=MAX_ITEMS);
            members = (members, more)
                .prop_map(|(mut members, more)| {
                    members.extend(more);
                    members
                })
                .boxed();
        }
        members.prop_map(Value::Object).boxed()
    };
    match branches.is_empty() {
        true => of_branch(&BTreeSet::new()),
        false => proptest::strategy::Union::new(branches.iter().map(of_branch)).boxed(),
    }
}

fn string(schema: &JSONSchemaProps) -> BoxedStrategy<Value> {
    let bound = |limit: Option<i64>| limit.and_then(|limit| usize::try_from(limit).ok());
    let least = bound(schema.min_length).unwrap_or(0);
    let most = bound(schema.max_length)
        .unwrap_or(usize::MAX)
        .min(least + MAX_LENGTH);
    let text = match (schema.format.as_deref(), schema.pattern.as_deref()) {
        (Some("date-time"), _) => (0..60u8)
            .prop_map(|second| format!("2026-01-02T03:04:{second:02}Z"))
            .boxed(),
        (Some("byte"), _) => "([a-z]{4}){0,3}".boxed(),
        (_, Some(pattern)) => match proptest::string::string_regex(unanchored(pattern)) {
            Ok(text) => text.boxed(),
            Err(_) => Just(String::new()).boxed(),
        },
        _ => proptest::string::string_regex(&format!("[a-zA-Z0-9 /.~-]{{{least},{most}}}"))
            .expect("the bounds are small")
            .boxed(),
    };
    text.prop_map(Value::String).boxed()
}

fn integer(schema: &JSONSchemaProps) -> BoxedStrategy<Value> {
    let (least, most) = match schema.format.as_deref() {
        Some("int32") => (i32::MIN.into(), i32::MAX.into()),
        Some("uint8") => (0, u8::MAX.into()),
        Some("uint16") => (0, u16::MAX.into()),
        Some("uint32") => (0, u32::MAX.into()),
        Some("uint64" | "uint") => (0, i64::MAX),
        _ => (i64::MIN, i64::MAX),
    };
    let least = schema
        .minimum
        .map_or(least, |bound| (bound.ceil() as i64).max(least));
    let most = schema
        .maximum
        .map_or(most, |bound| (bound.floor() as i64).min(most));
    // Small numbers, where rounding and units show, and any at all.
    let small = least.clamp(-100, 100).max(least)..=most.clamp(-100, 100).min(most);
    match small.is_empty() {
        true => (least..=most.max(least)).prop_map(Value::from).boxed(),
        false => prop_oneof![small, least..=most]
            .prop_map(Value::from)
            .boxed(),
    }
}

/// Generated texts match a whole pattern anyway.
fn unanchored(pattern: &str) -> &str {
    let pattern = pattern.strip_prefix('^').unwrap_or(pattern);
    pattern.strip_suffix('$').unwrap_or(pattern)
}
