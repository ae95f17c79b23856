use expect_test::{Expect, expect};

use super::{StrategicError, strategic_diff, strategic_merge};
use crate::patch::go_text;
use crate::schema::{Schemas, parse};
use mizzen_value::Value;
use mizzen_value::json;

const TYPES: &str = "
group example
version v1
type Ship
  1 name !string
  2 labels map[string]string
  3 crew []Sailor patch=merge key=name
  4 flags []string patch=merge
  5 ports []string
  6 cargo []Box
  7 rig Rig patch=retainKeys
  8 course ?Course patch=replace
  9 tanks []Tank patch=merge,retainKeys key=name
  10 holds map[string]Course
  11 log RawExtension
  12 draft ?int32
type Sailor
  1 name !string
  2 rank string
  3 tools []Tool patch=merge key=id
  4 seen Course
type Tool
  1 id !int32
  2 word string
type Box
  1 what string
type Rig
  1 kind string
  2 sails Course
type Course
  1 from string
  2 to string
  3 by map[string]string
type Tank
  1 name !string
  2 water Course
  3 oil Course
";

const SHIP: &str = r#"{"name":"Mizzen","labels":{"a":"1","b":"2"},
    "crew":[{"name":"ann","rank":"mate","tools":[{"id":1,"word":"saw"},{"id":2,"word":"awl"}]},{"name":"bob"},{"name":"cid"}],
    "flags":["x","y","z"],"ports":["oslo","kiel"],"cargo":[{"what":"tea"}],
    "rig":{"kind":"ketch","sails":{"from":"n"}},"course":{"from":"a","by":{"k":"v"}},
    "tanks":[{"name":"t","water":{"to":"x"}}],"holds":{"h":{"from":"a","by":{}}},"log":{"a":{"b":1}}}"#;

fn types() -> Schemas {
    parse([("test.kinds", TYPES)]).unwrap()
}

fn value(text: &str) -> Value {
    json::parse(text.as_bytes()).unwrap()
}

/// Applies a patch to the ship; returns the members that it names.
fn apply(patch: &str) -> Result<Value, StrategicError> {
    let (types, mut ship, mut patch) = (types(), value(SHIP), value(patch));
    let named: Vec<String> = patch
        .entries()
        .map(|(key, _)| key.rsplit('/').next().unwrap_or_default().to_string())
        .collect();
    strategic_merge(&types.types["example/v1.Ship"], &mut ship, &mut patch)?;
    if let Value::Map(map) = &mut ship {
        map.retain(|key, _| named.iter().any(|name| name == key));
        map.sort();
    }
    Ok(ship)
}

#[track_caller]
fn check(patch: &str, expect: Expect) {
    let answer = match apply(patch) {
        Ok(ship) => json::to_string(&ship),
        Err(StrategicError::BadRequest(message)) => format!("400 {message}"),
        Err(StrategicError::Unprocessable(message)) => format!("422 {message}"),
        Err(StrategicError::Internal(message)) => format!("500 {message}"),
    };
    expect.assert_eq(&answer);
}

#[track_caller]
fn check_names(patch: &str, names: &str) {
    let ship = apply(patch).unwrap();
    let found: Vec<&str> = ship["crew"]
        .list()
        .iter()
        .map(|sailor| sailor["name"].str())
        .collect();
    assert_eq!(found.join(" "), names);
}

#[test]
fn null_removes_maps_merge_and_the_rest_is_replaced() {
    check(
        r#"{"name":null,"labels":{"a":null,"c":"3"},"ports":["rome"],"cargo":[],"draft":3}"#,
        expect![[r#"{"cargo":[],"draft":3,"labels":{"b":"2","c":"3"},"ports":["rome"]}"#]],
    );
    check(
        r#"{"labels":"x","draft":{"a":null,"b":1}}"#,
        expect![[r#"{"draft":{"b":1},"labels":"x"}"#]],
    );
    check(
        r#"{"course":{"to":"b","x":null}}"#,
        expect![[r#"{"course":{"to":"b","x":null}}"#]],
    );
}

#[test]
fn structs_merge_by_their_key() {
    check(
        r#"{"crew":[{"name":"bob","rank":"cook"},{"name":"ann","tools":[{"id":2,"word":null},{"id":3}]}]}"#,
        expect![[
            r#"{"crew":[{"name":"bob","rank":"cook"},{"name":"ann","rank":"mate","tools":[{"id":1,"word":"saw"},{"id":2},{"id":3}]},{"name":"cid"}]}"#
        ]],
    );
    check(
        r#"{"crew":[{"name":"ann","$patch":"delete"},{"name":"nobody","$patch":"delete"}]}"#,
        expect![[r#"{"crew":[{"name":"bob"},{"name":"cid"}]}"#]],
    );
    check(
        r#"{"crew":[{"name":"dee"},{"$patch":"replace"}]}"#,
        expect![[r#"{"crew":[{"name":"dee"}]}"#]],
    );
    check(
        r#"{"crew":[{"$patch":"replace"}]}"#,
        expect![[r#"{"crew":[]}"#]],
    );
}

#[test]
fn scalars_merge_as_a_set() {
    check(
        r#"{"flags":["q","y","q"]}"#,
        expect![[r#"{"flags":["q","x","y","z"]}"#]],
    );
    check(
        r#"{"$deleteFromPrimitiveList/flags":["x","z","?"]}"#,
        expect![[r#"{"flags":["y"]}"#]],
    );
    check(
        r#"{"$deleteFromPrimitiveList/ports":["oslo"]}"#,
        expect![[r#"{"ports":["kiel"]}"#]],
    );
    check(
        r#"{"flags":["q"],"$deleteFromPrimitiveList/flags":["x"],"$setElementOrder/flags":["z","q"]}"#,
        expect![[r#"{"flags":["y","z","q"]}"#]],
    );
}

#[test]
fn new_items_come_first_and_the_rest_stays() {
    check_names(r#"{"crew":[{"name":"dee"}]}"#, "dee ann bob cid");
    check_names(
        r#"{"crew":[{"name":"bob"},{"name":"dee"}]}"#,
        "ann bob dee cid",
    );
    check_names(r#"{"crew":[{"name":"cid"},{"name":"ann"}]}"#, "bob cid ann");
}

#[test]
fn the_patch_may_set_the_order() {
    check_names(
        r#"{"$setElementOrder/crew":[{"name":"cid"},{"name":"ann"}]}"#,
        "bob cid ann",
    );
    check_names(
        r#"{"$setElementOrder/crew":[{"name":"cid"},{"name":"dee"}],"crew":[{"name":"dee"}]}"#,
        "ann bob cid dee",
    );
    // A removed item frees a slot for the new one, which so has a position on the server.
    check_names(
        r#"{"$setElementOrder/crew":[{"name":"dee"}],"crew":[{"name":"dee"},{"name":"ann","$patch":"delete"}]}"#,
        "bob cid dee",
    );
    // With an inconsistent order the result depends on Go's sort.
    check_names(
        r#"{"$setElementOrder/crew":[],"crew":[{"name":"dee"},{"name":"eve"}]}"#,
        "ann bob cid eve dee",
    );
    check_names(
        r#"{"$setElementOrder/crew":[],"crew":[{"name":"dee"},{"name":"bob"},{"name":"eve"}]}"#,
        "eve ann bob cid dee",
    );
}

#[test]
fn a_map_may_be_replaced_or_reduced() {
    check(
        r#"{"labels":{"$patch":"replace","c":"3"}}"#,
        expect![[r#"{"labels":{"c":"3"}}"#]],
    );
    check(
        r#"{"labels":{"$patch":"delete","c":"3"}}"#,
        expect![[r#"{"labels":{}}"#]],
    );
    check(
        r#"{"rig":{"$retainKeys":["kind"],"kind":"yawl"}}"#,
        expect![[r#"{"rig":{"kind":"yawl"}}"#]],
    );
    check(
        r#"{"tanks":[{"name":"t","$retainKeys":["name","oil"],"oil":{"to":"y"},"water":null}]}"#,
        expect![[r#"{"tanks":[{"name":"t","oil":{"to":"y"}}]}"#]],
    );
}

#[test]
fn added_values_lose_nulls_and_directives() {
    check(
        r#"{"bogus":{"a":null,"b":{"$patch":"delete"},"c":[{"$patch":"replace"},{"d":null}],"$retainKeys":["x"]}}"#,
        expect![[r#"{"bogus":{"c":[{}],"$retainKeys":["x"]}}"#]],
    );
    check(r#"{"bogus":{"$patch":"replace","a":1}}"#, expect!["{}"]);
    check(
        r#"{"crew":[{"name":"dee","rank":null,"seen":{"$patch":"replace"}},{"$patch":"replace"}]}"#,
        expect![[r#"{"crew":[{"name":"dee","rank":null,"seen":{"$patch":"replace"}}]}"#]],
    );
}

#[test]
fn malformed_directives_are_rejected() {
    check(
        r#"{"$retainKeys":"name"}"#,
        expect!["400 invalid patch format of retainKeys"],
    );
    check(
        r#"{"$retainKeys":["ports"],"name":"x"}"#,
        expect!["400 invalid patch format of retainKeys"],
    );
    check(
        r#"{"$deleteFromPrimitiveList":[]}"#,
        expect!["400 invalid patch format of primitive list"],
    );
    check(
        r#"{"$setElementOrder":[]}"#,
        expect!["400 invalid patch format of setElementOrder list"],
    );
    check(
        r#"{"$setElementOrder/crew":1}"#,
        expect!["500 expected a []interface {}, but received a int64"],
    );
    check(
        r#"{"$setElementOrder/crew":["x"]}"#,
        expect!["500 value for key 0 is not a map"],
    );
    check(
        r#"{"$patch":"merge"}"#,
        expect!["500 unknown patch type: merge in map: map[$patch:merge]"],
    );
    check(
        r#"{"crew":[{"name":"ann","$patch":null}]}"#,
        expect!["500 unknown patch type: %!s(<nil>) in map: map[$patch:<nil> name:ann]"],
    );
    check(
        r#"{"crew":[{"name":"ann","$patch":"merge"}]}"#,
        expect!["500 merging lists cannot yet be specified in the patch"],
    );
}

#[test]
fn patches_that_do_not_match_are_rejected() {
    check(
        r#"{"crew":[{"rank":"cook"}]}"#,
        expect!["500 map: map[rank:cook] does not contain declared merge key: name"],
    );
    check(
        r#"{"flags":["a",1]}"#,
        expect!["500 list element types are not identical: [[x y z] [a 1]]"],
    );
    check(
        r#"{"$setElementOrder/crew":[{"name":"ann"}],"crew":[{"name":"bob"}]}"#,
        expect![[r#"
            500 The order in patch list:
            [map[name:bob]]
             doesn't match $setElementOrder list:
            [map[name:ann]]
        "#]],
    );
    check(
        r#"{"$setElementOrder/sails":[]}"#,
        expect![[r#"500 unable to find api field in struct Ship for the json field "sails""#]],
    );
    check(
        r#"{"$deleteFromPrimitiveList/cargo":[{"what":"tea"}]}"#,
        expect!["500 cannot merge lists without merge key for struct"],
    );
    check(
        r#"{"holds":{"h":{"to":"b"}}}"#,
        expect!["500 merging an object in json but data type is not struct, instead is: map"],
    );
    check(
        r#"{"log":{"a":{"b":2}}}"#,
        expect![[r#"500 unable to find api field in struct RawExtension for the json field "a""#]],
    );
    check(
        "[]",
        expect!["400 json: cannot unmarshal array into Go value of type map[string]interface {}"],
    );
}

#[test]
fn an_applied_patch_is_modified_as_upstream_does() {
    let (types, mut ship) = (types(), value(SHIP));
    let mut patch = value(
        r#"{"rig":{"$retainKeys":["kind"],"sails":null},"$setElementOrder/crew":[{"name":"ann"}],
            "crew":[{"name":"ann","rank":"x"}],"y":null,"z":{"a":null,"b":[{"c":null}],"d":{"$patch":"delete"}}}"#,
    );
    strategic_merge(&types.types["example/v1.Ship"], &mut ship, &mut patch).unwrap();
    assert_eq!(
        go_text(&patch),
        "map[rig:map[sails:<nil>] y:<nil> z:map[b:[map[]]]]"
    );
}

#[track_caller]
fn check_diff(to: &str, expect: Expect) {
    let (types, ship, mut to) = (types(), value(SHIP), value(to));
    let ty = &types.types["example/v1.Ship"];
    // Members that `to` does not have stay.
    if let (Value::Map(ship), Value::Map(to)) = (&ship, &mut to) {
        for (name, value) in ship
            .iter()
            .filter(|(name, _)| !to.contains_key(name))
            .collect::<Vec<_>>()
        {
            to.insert(name, value.clone());
        }
    }
    let mut patch = strategic_diff(ty, &ship, &to);
    expect.assert_eq(&json::to_string(&patch));
    let mut patched = ship;
    strategic_merge(ty, &mut patched, &mut patch).unwrap();
    assert_eq!(
        json::to_string(&sorted(patched)),
        json::to_string(&sorted(to))
    );
}

fn sorted(mut value: Value) -> Value {
    if let Value::Map(map) = &mut value {
        map.sort();
    }
    value
}

#[test]
fn a_diff_is_minimal() {
    check_diff("{}", expect!["{}"]);
    check_diff(
        r#"{"labels":{"a":"1"}}"#,
        expect![[r#"{"labels":{"b":null}}"#]],
    );
    check_diff(
        r#"{"flags":["z","q"]}"#,
        expect![[
            r#"{"flags":["q"],"$deleteFromPrimitiveList/flags":["x","y"],"$setElementOrder/flags":["z","q"]}"#
        ]],
    );
    check_diff(
        r#"{"crew":[{"name":"cid"},{"name":"bob","rank":"cook"}]}"#,
        expect![[
            r#"{"crew":[{"rank":"cook","name":"bob"},{"name":"ann","$patch":"delete"}],"$setElementOrder/crew":[{"name":"cid"},{"name":"bob"}]}"#
        ]],
    );
    check_diff(
        r#"{"rig":{"kind":"yawl"}}"#,
        expect![[r#"{"rig":{"kind":"yawl","sails":null,"$retainKeys":["kind"]}}"#]],
    );
}

#[test]
fn a_diff_replaces_lists_that_cannot_be_merged() {
    check_diff(
        r#"{"crew":[{"name":"eve"},{"name":"eve"}]}"#,
        expect![[r#"{"crew":[{"name":"eve"},{"name":"eve"},{"$patch":"replace"}]}"#]],
    );
    check_diff(
        r#"{"holds":{"h":{"from":"b"}}}"#,
        expect![[r#"{"holds":{"h":{"from":"b"},"$patch":"replace"}}"#]],
    );
}
