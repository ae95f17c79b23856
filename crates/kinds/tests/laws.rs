//! What holds for every kind that ships with us, old versions among them, whatever an object looks like.

mod generate;

use std::sync::LazyLock;

use mizzen_kinds::{KindCatalog, legacy_catalog};
use mizzen_object::Kind;
use mizzen_object::decode::{decode, decode_value};
use mizzen_object::managed_fields::{FieldManager, FieldSet, OneVersion, keep_times};
use mizzen_object::schema::{
    FieldShape, FieldType, Merge, Struct, canonical, canonical_stored, write_stored,
};
use mizzen_value::{Value, json};

use generate::{object, scatter, seeds};

static CATALOG: LazyLock<KindCatalog> = LazyLock::new(legacy_catalog);

fn default(kind: &Kind, object: &mut Value) {
    mizzen_object::default::apply(&kind.root, object);
    kind.hooks.default(object);
    canonical(&kind.root, object);
}

#[test]
fn defaulting_is_idempotent() {
    for seed in seeds(60) {
        for kind in &CATALOG.kinds {
            let mut once = object(&kind.root, scatter(seed, 1), scatter(seed, 2));
            default(kind, &mut once);
            let mut twice = once.clone();
            default(kind, &mut twice);
            assert_eq!(
                json::to_string(&twice),
                json::to_string(&once),
                "seed {seed}: {}",
                kind.gvk
            );
        }
    }
}

#[test]
fn what_is_decoded_is_canonical_whether_text_or_value() {
    let (mut n_objects, mut n_declined) = (0, 0);
    for seed in seeds(40) {
        for kind in &CATALOG.kinds {
            let sent = sent(kind, seed);
            let text = json::to_string(&sent);
            let decoded = decode(&kind.root, text.as_bytes()).expect("it is of its kind");
            let shown = json::to_string(&decoded.value);
            let mut again = decoded.value;
            canonical(&kind.root, &mut again);
            assert_eq!(shown, json::to_string(&again), "seed {seed}: {}", kind.gvk);
            n_objects += 1;
            match decode_value(&kind.root, sent) {
                Some(value) => {
                    assert_eq!(json::to_string(&value), shown, "seed {seed}: {}", kind.gvk);
                    assert_eq!(decoded.complaints, [] as [&str; 0]);
                }
                None => n_declined += 1,
            }
        }
    }
    assert!(n_declined < n_objects / 10, "{n_declined} of {n_objects}");
}

#[test]
fn what_is_stored_is_written_in_canonical_form() {
    for seed in seeds(40) {
        for kind in &CATALOG.kinds {
            let (mut object, mut written) = (sent(kind, seed), Vec::new());
            write_stored(&kind.root, &mut object.clone(), &mut written);
            canonical_stored(&kind.root, &mut object);
            assert_eq!(
                String::from_utf8(written).unwrap(),
                json::to_string(&object),
                "seed {seed}: {}",
                kind.gvk
            );
        }
    }
}

/// An object of which half of the maps have their members in reverse order.
fn sent(kind: &Kind, seed: u64) -> Value {
    let mut object = object(&kind.root, scatter(seed, 5), scatter(seed, 6));
    reverse(&mut object, &mut scatter(seed, 7));
    object
}

fn reverse(value: &mut Value, seed: &mut u64) {
    *seed = scatter(*seed, 8);
    match value {
        Value::Map(map) => {
            map.values_mut().for_each(|value| reverse(value, seed));
            if (*seed >> 33).is_multiple_of(2) {
                let members: Vec<_> = std::mem::take(map).into_iter().collect();
                *map = members.into_iter().rev().collect();
            }
        }
        Value::List(items) => items.iter_mut().for_each(|item| reverse(item, seed)),
        _ => {}
    }
}

#[test]
fn applying_twice_is_applying_once() {
    for seed in seeds(25) {
        for kind in applicable() {
            let config = config(kind, seed);
            let once = apply(kind, None, &config, "2024-01-01T00:00:00Z");
            let mut twice = apply(kind, Some(&once), &config, "2024-01-01T00:00:01Z");
            keep_times(&once, &mut twice);
            assert_eq!(
                json::to_string(&twice),
                json::to_string(&once),
                "seed {seed}: {}",
                kind.gvk
            );
        }
    }
}

#[test]
fn what_is_applied_no_more_is_gone_and_all_else_as_before() {
    for seed in seeds(25) {
        for kind in applicable() {
            let config = config(kind, seed);
            let once = apply(kind, None, &config, "2024-01-01T00:00:00Z");
            let mut more = config.clone();
            more.entry("metadata")
                .entry("labels")
                .set("another", "label");
            let more = apply(kind, Some(&once), &more, "2024-01-01T00:00:01Z");
            assert_eq!(
                more["metadata"]["labels"]["another"].str(),
                "label",
                "seed {seed}: {}",
                kind.gvk
            );
            let mut back = apply(kind, Some(&more), &config, "2024-01-01T00:00:02Z");
            keep_times(&once, &mut back);
            assert_eq!(
                json::to_string(&back),
                json::to_string(&once),
                "seed {seed}: {}",
                kind.gvk
            );
        }
    }
}

/// Kinds whose objects are kept.
fn applicable() -> impl Iterator<Item = &'static Kind> {
    CATALOG
        .kinds
        .iter()
        .filter(|kind| kind.verbs.iter().any(|verb| verb == "patch"))
}

/// An applied configuration: nothing in it is empty, because empty values are dropped when it is stored, and no item of a
/// list is there twice.
fn config(kind: &Kind, seed: u64) -> Value {
    let mut config = object(&kind.root, scatter(seed, 3), scatter(seed, 4));
    config.set("metadata", mizzen_value::value!({"name": "a"}));
    config.entry("metadata").entry("labels").set("a", "b");
    config.entry("metadata").entry("annotations").set("a", "b");
    default(kind, &mut config);
    unique(&kind.root, &mut config);
    drop_empty(&mut config);
    config.set("kind", &kind.gvk.kind);
    config.set("apiVersion", kind.gvk.api_version());
    config
}

fn apply(kind: &Kind, current: Option<&Value>, config: &Value, now: &str) -> Value {
    let reset = FieldSet::default();
    let writer = FieldManager {
        schema: &kind.root,
        gvk: &kind.gvk,
        manager: "me",
        subresource: "",
        now,
        reset_fields: &reset,
        versions: &OneVersion,
    };
    let merged = writer.apply(current, config, false);
    let merged =
        merged.unwrap_or_else(|error| panic!("{}: {error}: {}", kind.gvk, json::to_string(config)));
    let mut applied = decode(&kind.root, json::to_string(&merged).as_bytes())
        .expect("it is of its kind")
        .value;
    default(kind, &mut applied);
    applied
}

fn drop_empty(value: &mut Value) {
    match value {
        Value::Map(map) => map.retain(|_, value| {
            drop_empty(value);
            !(value.is_empty() || *value == Value::Int(0) || *value == Value::Bool(false))
        }),
        Value::List(items) => items.iter_mut().for_each(drop_empty),
        _ => {}
    }
}

/// Leaves one of the items that cannot be told apart.
fn unique(ty: &Struct, value: &mut Value) {
    let Value::Map(map) = value else { return };
    for (name, value) in map.iter_mut() {
        let Some(field) = ty.field(name) else {
            continue;
        };
        if let Value::List(items) = value {
            let mut seen: Vec<Vec<Value>> = Vec::new();
            items.retain(|item| {
                let key = match &field.merge {
                    Merge::Keyed(keys) => {
                        keys.iter().map(|key| item[key.as_str()].clone()).collect()
                    }
                    Merge::Set => vec![item.clone()],
                    _ => return true,
                };
                let told = !key.iter().any(Value::is_empty) && !seen.contains(&key);
                seen.push(key);
                told
            });
        }
        unique_below(&field.ty, value);
    }
}

fn unique_below(ty: &FieldType, value: &mut Value) {
    match (&ty.shape, value) {
        (FieldShape::Struct(inner) | FieldShape::Or(_, inner), value @ Value::Map(_)) => {
            unique(inner, value)
        }
        (FieldShape::List(item), Value::List(items)) => {
            items.iter_mut().for_each(|value| unique_below(item, value));
        }
        (FieldShape::Map(item), Value::Map(map)) => {
            map.values_mut().for_each(|value| unique_below(item, value));
        }
        _ => {}
    }
}
