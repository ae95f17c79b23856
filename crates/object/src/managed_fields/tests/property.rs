use std::collections::BTreeSet;

use proptest::prelude::*;

use super::{Scenario, thing};
use crate::managed_fields::{
    FieldSet, FieldSetNode, ManagedFields, PathElement, keep_times, to_field_set,
};
use mizzen_value::{Map, Value};

/// A small object: few names and values, so that managers meet. Nothing is empty, because empty
/// values are dropped when stored, so that applying them again counts as a change, here as
/// upstream.
fn body() -> impl Strategy<Value = Value> {
    let map = || prop::collection::btree_map("[abc]", "[12]", 1..3);
    let item = (
        "[abc]",
        prop::option::of("[12]"),
        prop::collection::btree_set("[tuv]", 1..3),
    );
    let items = prop::collection::btree_map("[abc]", item, 1..3);
    let port = (
        80i64..83,
        prop::option::of(prop::sample::select(vec!["TCP", "UDP"])),
    );
    let ports = prop::collection::btree_map(80i64..83, port, 1..3);
    let parts = (
        prop::option::of(map()),
        prop::option::of(0i64..3),
        prop::option::of(map()),
        prop::option::of(map()),
        prop::option::of(prop::collection::vec("[xy]", 1..3)),
        prop::option::of(items),
        prop::option::of(ports),
    );
    parts.prop_map(|(labels, replicas, data, selector, args, items, ports)| {
        let mut object = thing("{}");
        let text =
            |map: std::collections::BTreeMap<String, String>| Value::Map(map.into_iter().collect());
        set(object.entry("metadata"), "labels", labels.map(text));
        let spec = object.entry("spec");
        spec.make_map();
        set(spec, "replicas", replicas.map(Value::Int));
        set(spec, "data", data.map(text));
        set(spec, "selector", selector.map(text));
        set(spec, "args", args.map(strings));
        let item =
            |(name, (_, image, tags)): (String, (String, Option<String>, BTreeSet<String>))| {
                let mut item = Map::default();
                item.insert("name", name);
                image.map(|image| item.insert("image", image));
                item.insert("tags", strings(tags));
                Value::Map(item)
            };
        set(
            spec,
            "items",
            items.map(|items| Value::List(items.into_iter().map(item).collect())),
        );
        let port = |(port, (_, protocol)): (i64, (i64, Option<&str>))| {
            let mut item = Map::default();
            item.insert("port", port);
            protocol.map(|protocol| item.insert("protocol", protocol));
            Value::Map(item)
        };
        set(
            spec,
            "ports",
            ports.map(|ports| Value::List(ports.into_iter().map(port).collect())),
        );
        object
    })
}

fn strings(texts: impl IntoIterator<Item = String>) -> Value {
    Value::List(texts.into_iter().map(Value::from).collect())
}

fn set(object: &mut Value, key: &str, value: Option<Value>) {
    if let Some(value) = value {
        object.set(key, value);
    }
}

/// An object that several managers have written.
fn scenario() -> impl Strategy<Value = Scenario> {
    let write = (
        prop::sample::select(vec!["one", "two", "me"]),
        body(),
        any::<bool>(),
    );
    prop::collection::vec(write, 0..4).prop_map(|writes| {
        let mut scenario = Scenario::default();
        for (manager, body, applies) in writes {
            if applies {
                scenario.try_apply(manager, &body, true).unwrap();
            } else {
                scenario.put_value(manager, body);
            }
        }
        scenario
    })
}

fn set_of_fields() -> impl Strategy<Value = FieldSet> {
    let element = prop_oneof![
        "[a-c<\"]{1,2}".prop_map(|name| PathElement::Name(name.into())),
        ("[a-c]", 0i64..20).prop_map(|(text, int)| {
            PathElement::key(vec![
                ("n".into(), text.into()),
                ("i".into(), Value::Int(int)),
            ])
        }),
        "[a-c\\\\<]".prop_map(|text| PathElement::Value(Box::new(text.into()))),
        (0i64..20).prop_map(|int| PathElement::Value(Box::new(Value::Int(int)))),
        (0i64..20).prop_map(PathElement::Index),
    ];
    let leaf = Just(FieldSet::default());
    leaf.prop_recursive(3, 20, 4, move |below| {
        let node =
            (element.clone(), any::<bool>(), below).prop_map(|(element, member, children)| {
                FieldSetNode {
                    element,
                    member: member || children.is_empty(),
                    children,
                }
            });
        prop::collection::vec(node, 0..4).prop_map(FieldSet::from_nodes)
    })
}

fn paths(set: &FieldSet) -> BTreeSet<Vec<PathElement>> {
    set.paths().into_iter().collect()
}

/// All fields of a manager, by any operation.
fn owned(object: &Value, manager: &str) -> FieldSet {
    let managed = ManagedFields::from_object(object);
    let entries = managed
        .entries
        .iter()
        .filter(|entry| entry.owner.manager == manager);
    entries.fold(FieldSet::default(), |all, entry| all.union(entry.fields()))
}

proptest! {
    #[test]
    fn field_sets_round_trip(set in set_of_fields()) {
        let text = set.to_string();
        let read = FieldSet::parse(&text).unwrap();
        prop_assert_eq!(&read, &set);
        prop_assert_eq!(read.to_string(), text);
        prop_assert!(FieldSet::read(&set.to_value()).unwrap().1);
    }

    #[test]
    fn sets_are_sets_of_paths(left in set_of_fields(), right in set_of_fields()) {
        let (lefts, rights) = (paths(&left), paths(&right));
        prop_assert_eq!(paths(&left.union(&right)), &lefts | &rights);
        prop_assert_eq!(paths(&left.intersection(&right)), &lefts & &rights);
        prop_assert_eq!(paths(&left.difference(&right)), &lefts - &rights);
        prop_assert_eq!(left.intersects(&right), !lefts.is_disjoint(&rights));
        let below = |path: &[PathElement]| (1..=path.len()).any(|n| rights.contains(&path[..n]));
        prop_assert_eq!(paths(&left.without(&right)), lefts.into_iter().filter(|path| !below(path)).collect());
    }

    #[test]
    fn applying_is_idempotent(mut scenario in scenario(), config in body()) {
        scenario.try_apply("me", &config, true).unwrap();
        let once = scenario.object.clone();
        prop_assert_eq!(scenario.try_apply("me", &config, false), Ok(()));
        let mut twice = scenario.object.clone().unwrap();
        keep_times(once.as_ref().unwrap(), &mut twice);
        prop_assert_eq!(Some(twice), once);
    }

    #[test]
    fn applied_fields_are_set(mut scenario in scenario(), config in body()) {
        scenario.try_apply("me", &config, true).unwrap();
        let object = scenario.object.unwrap();
        for (key, value) in config["spec"]["data"].entries() {
            prop_assert_eq!(&object["spec"]["data"][key], value);
        }
        for item in config["spec"]["items"].list() {
            prop_assert!(object["spec"]["items"].list().iter().any(|there| there["name"] == item["name"]));
        }
    }

    #[test]
    fn unchanged_fields_keep_their_managers(mut scenario in scenario(), config in body()) {
        let before = scenario.clone();
        if scenario.try_apply("me", &config, false).is_err() {
            prop_assert_eq!(scenario.summary(), before.summary());
            return Ok(());
        }
        let (Some(old), Some(new)) = (before.object, scenario.object) else { return Ok(()) };
        let there = to_field_set(super::schema(), &new);
        for manager in ["one", "two"] {
            let lost = owned(&old, manager).difference(&owned(&new, manager));
            prop_assert!(!lost.intersects(&there), "{manager} lost {lost}");
        }
    }
}
