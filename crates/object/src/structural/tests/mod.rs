//! Schemas, objects, and the results of each operation.

mod format;
mod property;

use expect_test::{Expect, expect};

use super::Structural;
use crate::violation::Violations;
use mizzen_value::Value;
use mizzen_value::json;

fn parse(text: &str) -> Value {
    json::parse(text.as_bytes()).unwrap()
}

fn compile(schema: &str) -> Structural {
    Structural::compile(&parse(schema), false)
}

fn lines(violations: Violations) -> String {
    violations
        .0
        .iter()
        .map(|violation| format!("{violation}\n"))
        .collect()
}

#[track_caller]
fn check(schema: &str, object: &str, expect: Expect) {
    let mut violations = Violations::default();
    compile(schema).validate(&parse(object), None, &mut violations);
    expect.assert_eq(&lines(violations));
}

#[track_caller]
fn check_update(schema: &str, old: &str, new: &str, expect: Expect) {
    let mut violations = Violations::default();
    compile(schema).validate(&parse(new), Some(&parse(old)), &mut violations);
    expect.assert_eq(&lines(violations));
}

#[track_caller]
fn check_prune(schema: &str, object: &str, expect: Expect) {
    let mut object = parse(object);
    let pruned = compile(schema).prune(&mut object);
    expect.assert_eq(&format!(
        "{}\n{}",
        json::to_string(&object),
        pruned.join(" ")
    ));
}

#[track_caller]
fn check_default(schema: &str, object: &str, expect: Expect) {
    let mut object = parse(object);
    compile(schema).default(&mut object);
    expect.assert_eq(&json::to_string(&object));
}

/// A schema with one property.
fn with(property: &str) -> String {
    format!(r#"{{"type":"object","properties":{{"a":{property}}}}}"#)
}

#[test]
fn types_have_go_names() {
    check(
        &with(r#"{"type":"integer"}"#),
        r#"{"a":"x"}"#,
        expect![[r#"
            a: Invalid value: "string": a in body must be of type integer: "string"
        "#]],
    );
    check(
        &with(r#"{"type":"integer"}"#),
        r#"{"a":1.5}"#,
        expect![[r#"
            a: Invalid value: "number": a in body must be of type integer: "number"
            <nil>: Invalid value: "": Checked value must be of type integer (default format) in a
        "#]],
    );
    check(
        &with(r#"{"type":"string"}"#),
        r#"{"a":null}"#,
        expect![[r#"
            a: Invalid value: "null": a in body must be of type string: "null"
        "#]],
    );
    check(
        &with(r#"{"type":"string","nullable":true}"#),
        r#"{"a":null}"#,
        expect![""],
    );
    check(
        &with(r#"{"type":"string","format":"date"}"#),
        r#"{"a":5}"#,
        expect![[r#"
            a: Invalid value: "int64": a in body must be of type date: "int64"
        "#]],
    );
    check(
        &with(r#"{"x-kubernetes-int-or-string":true}"#),
        r#"{"a":true}"#,
        expect![[r#"
            a: Invalid value: "boolean": a in body must be of type integer,string: "boolean"
        "#]],
    );
}

#[test]
fn text_has_length_pattern_and_format() {
    check(
        &with(r#"{"type":"string","maxLength":2,"pattern":"^a"}"#),
        r#"{"a":"xyz"}"#,
        expect![[r#"
            a: Too long: may not be more than 2 bytes
        "#]],
    );
    check(
        &with(r#"{"type":"string","maxLength":2}"#),
        r#"{"a":"éé"}"#,
        expect![""],
    );
    check(
        &with(r#"{"type":"string","minLength":2,"format":"ipv4"}"#),
        r#"{"a":"x"}"#,
        expect![[r#"
            a: Invalid value: "x": a in body should be at least 2 chars long
            a: Invalid value: "x": a in body must be of type ipv4: "x"
        "#]],
    );
    check(
        &with(r#"{"type":"string","pattern":"^a+$"}"#),
        r#"{"a":"b"}"#,
        expect![[r#"
            a: Invalid value: "b": a in body should match '^a+$'
        "#]],
    );
}

#[test]
fn numbers_have_bounds() {
    check(
        &with(r#"{"type":"integer","minimum":5,"maximum":3,"multipleOf":2}"#),
        r#"{"a":4}"#,
        expect![[r#"
            a: Invalid value: 4: a in body should be greater than or equal to 5
            a: Invalid value: 4: a in body should be less than or equal to 3
        "#]],
    );
    check(
        &with(r#"{"type":"number","maximum":1000000,"exclusiveMaximum":true,"multipleOf":0.5}"#),
        r#"{"a":1000000.25}"#,
        expect![[r#"
            a: Invalid value: 1.00000025e+06: a in body should be a multiple of 0.5
            a: Invalid value: 1.00000025e+06: a in body should be less than 1e+06
        "#]],
    );
    check(
        &with(r#"{"type":"integer","format":"int32"}"#),
        r#"{"a":3000000000}"#,
        expect![[r#"
            <nil>: Invalid value: "": Checked value must be of type integer with format int32 in a
        "#]],
    );
}

/// Recorded at v1.36.4 on amd64, where Go converts a float that is out of range to the least int64.
#[test]
fn integers_are_compared_with_truncated_bounds() {
    let cases = [
        (
            "maximum",
            "1e21",
            "0",
            "a: Invalid value: 0: a in body should be less than or equal to -9223372036854775808\n",
        ),
        ("minimum", "1e21", "0", ""),
        ("maximum", "1e21", "1.5", ""),
        (
            "multipleOf",
            "1e20",
            "0",
            "a: Invalid value: -9223372036854775808: factor MultipleOf declared for a must be positive: -9223372036854775808\n",
        ),
        (
            "multipleOf",
            "9007199254740992",
            "-1e30",
            "a: Invalid value: -1e+30: a in body should be a multiple of 9.007199254740992e+15\n",
        ),
        ("multipleOf", "9007199254740992", "1e30", ""),
        ("maximum", "9007199254740993", "9007199254740992", ""),
        (
            "maximum",
            "9007199254740993",
            "9007199254740993",
            "a: Invalid value: 9007199254740993: a in body should be less than or equal to 9007199254740992\n",
        ),
    ];
    for (check, bound, value, expected) in cases {
        let schema = with(&format!(r#"{{"type":"number","{check}":{bound}}}"#));
        let mut violations = Violations::default();
        let object = parse(&format!(r#"{{"a":{value}}}"#));
        compile(&schema).validate(&object, None, &mut violations);
        assert_eq!(lines(violations), expected, "{check} {bound}: {value}");
    }
}

#[test]
fn lists_and_maps_have_sizes() {
    check(
        &with(
            r#"{"type":"array","items":{"type":"string"},"minItems":3,"maxItems":1,"uniqueItems":true}"#,
        ),
        r#"{"a":["x","x"]}"#,
        expect![[r#"
            a: Invalid value: 2: a in body should have at least 3 items
            a: Too many: 2: must have at most 1 item
            a: Invalid value: "": a in body shouldn't contain duplicates
        "#]],
    );
    check(
        &with(
            r#"{"type":"object","additionalProperties":{"type":"integer"},"minProperties":3,"maxProperties":1}"#,
        ),
        r#"{"a":{"x":1,"y":"z"}}"#,
        expect![[r#"
            a: Invalid value: 2: a in body should have at least 3 properties
            a: Too many: 2: must have at most 1 item
            a.y: Invalid value: "string": a.y in body must be of type integer: "string"
        "#]],
    );
    check(
        r#"{"type":"object","required":["b","c"],"properties":{"c":{"type":"string"}}}"#,
        r#"{"c":""}"#,
        expect![[r#"
            b: Required value
        "#]],
    );
}

#[test]
fn enum_values_are_validated() {
    check(
        &with(r#"{"type":"string","enum":["x","y"]}"#),
        r#"{"a":"z"}"#,
        expect![[r#"
            a: Unsupported value: "z": supported values: "x", "y"
        "#]],
    );
    check(
        &with(r#"{"type":"integer","enum":[1,2]}"#),
        r#"{"a":3}"#,
        expect![[r#"
            a: Unsupported value: 3: supported values: "1", "2"
        "#]],
    );
}

#[test]
fn the_best_matching_alternative_is_reported() {
    let one_of = r#"{"type":"object","properties":{"a":{"type":"string"},"b":{"type":"string"}},
        "oneOf":[{"required":["a"]},{"required":["b"],"properties":{"b":{"pattern":"^x"}}}]}"#;
    check(
        &with(one_of),
        r#"{"a":{"b":"y"}}"#,
        expect![[r#"
            <nil>: Invalid value: "": "a" must validate one and only one schema (oneOf). Found none valid
            a.b: Invalid value: "y": a.b in body should match '^x'
        "#]],
    );
    check(
        &with(one_of),
        r#"{"a":{"a":"","b":"x"}}"#,
        expect![[r#"
            <nil>: Invalid value: "": "a" must validate one and only one schema (oneOf). Found 2 valid alternatives
        "#]],
    );
    check(
        &with(
            r#"{"type":"integer","anyOf":[{"minimum":3},{"maximum":1}],"not":{"enum":[2]},"allOf":[{"minimum":1},{"minimum":5}]}"#,
        ),
        r#"{"a":2}"#,
        expect![[r#"
            <nil>: Invalid value: "": "a" must validate at least one schema (anyOf)
            a: Invalid value: 2: a in body should be greater than or equal to 3
            a: Invalid value: 2: a in body should be greater than or equal to 5
            <nil>: Invalid value: "": "a" must validate all the schemas (allOf)
            <nil>: Invalid value: "": "a" must not validate the schema (not)
        "#]],
    );
}

#[test]
fn violations_in_unchanged_values_are_tolerated() {
    let schema = with(
        r#"{"type":"object","properties":{"n":{"type":"integer","minimum":5},"m":{"type":"string"}},"required":["m"]}"#,
    );
    check_update(
        &schema,
        r#"{"a":{"n":1,"m":"x"}}"#,
        r#"{"a":{"n":1,"m":"y"}}"#,
        expect![""],
    );
    check_update(&schema, r#"{"a":{"n":1}}"#, r#"{"a":{"n":1}}"#, expect![""]);
    check_update(
        &schema,
        r#"{"a":{"n":1}}"#,
        r#"{"a":{"n":2}}"#,
        expect![[r#"
            a.n: Invalid value: 2: a.n in body should be greater than or equal to 5
            a.m: Required value
        "#]],
    );
}

#[test]
fn items_of_lists_with_map_keys_correlate() {
    let keyed = with(
        r#"{"type":"array","x-kubernetes-list-type":"map","x-kubernetes-list-map-keys":["k"],"items":{"type":"object",
            "properties":{"k":{"type":"string"},"n":{"type":"integer","minimum":5}}}}"#,
    );
    let old = r#"{"a":[{"k":"x","n":1},{"k":"y","n":2}]}"#;
    check_update(
        &keyed,
        old,
        r#"{"a":[{"k":"z"},{"k":"y","n":2},{"k":"x","n":1}]}"#,
        expect![""],
    );
    check_update(
        &keyed,
        old,
        r#"{"a":[{"k":"y","n":1}]}"#,
        expect![[r#"
            a[0].n: Invalid value: 1: a[0].n in body should be greater than or equal to 5
        "#]],
    );
    let atomic = with(r#"{"type":"array","items":{"type":"integer","minimum":5}}"#);
    check_update(&atomic, r#"{"a":[1]}"#, r#"{"a":[1]}"#, expect![""]);
    check_update(
        &atomic,
        r#"{"a":[1]}"#,
        r#"{"a":[1,9]}"#,
        expect![[r#"
            a[0]: Invalid value: 1: a[0] in body should be greater than or equal to 5
        "#]],
    );
}

#[test]
fn lists_that_are_sets_or_maps_have_no_item_twice() {
    #[track_caller]
    fn check(items: &str, old: Option<&str>, new: &str, expect: Expect) {
        let mut violations = Violations::default();
        compile(&with(items)).validate_lists(&parse(new), old.map(parse).as_ref(), &mut violations);
        expect.assert_eq(&lines(violations));
    }
    let set = r#"{"type":"array","x-kubernetes-list-type":"set","items":{"type":"string"}}"#;
    check(
        set,
        None,
        r#"{"a":["x","y","x","x"]}"#,
        expect![[r#"
            a[2]: Duplicate value: "x"
        "#]],
    );
    check(
        set,
        Some(r#"{"a":["x","x"]}"#),
        r#"{"a":["x","x"]}"#,
        expect![""],
    );
    let map = r#"{"type":"array","x-kubernetes-list-type":"map","x-kubernetes-list-map-keys":["k","l"],
        "items":{"type":"object"}}"#;
    check(
        map,
        None,
        r#"{"a":[{"k":1,"l":2},{"l":2,"k":1,"m":3},{"k":1}]}"#,
        expect![[r#"
            a[1]: Duplicate value: {"k":1,"l":2}
        "#]],
    );
    check(
        map,
        None,
        r#"{"a":[{"k":1},2]}"#,
        expect![[r#"
            a[1]: Invalid value: 2: must be an object for an array of list-type map
        "#]],
    );
}

#[test]
fn embedded_objects_have_a_kind() {
    let mut violations = Violations::default();
    let schema = with(r#"{"type":"object","x-kubernetes-embedded-resource":true}"#);
    let object = r#"{"a":{"apiVersion":"a/b/c","metadata":{"labels":{"x y":"z"}}}}"#;
    compile(&schema).validate_embedded(&parse(object), &mut violations);
    let found: Vec<String> = violations
        .0
        .iter()
        .map(|violation| violation.field.clone())
        .collect();
    assert_eq!(found, ["a.kind", "a.apiVersion", "a.metadata.labels"]);
}

#[test]
fn rules_that_were_not_checked_are_reported() {
    let schema = compile(&with(
        r#"{"type":"integer","x-kubernetes-validations":[{"rule":"self > 1"}]}"#,
    ));
    let mut violations = Violations::default();
    schema.validate_rules(&parse("{}"), None, &mut violations);
    assert!(violations.is_empty());
    violations.required("a", "");
    schema.validate_rules(&parse("{}"), None, &mut violations);
    assert_eq!(
        violations.0[1].to_string(),
        "<nil>: Invalid value: null: some validation rules were not checked because the object was invalid; correct \
         the existing errors to complete validation"
    );
}

#[test]
fn undeclared_fields_are_pruned() {
    check_prune(
        &with(r#"{"type":"object","properties":{"b":{"type":"string"}}}"#),
        r#"{"apiVersion":"v1","kind":"X","metadata":{"q":1},"z":1,"a":{"b":"","c":{"d":1}}}"#,
        expect![[r#"
            {"apiVersion":"v1","kind":"X","metadata":{"q":1},"a":{"b":""}}
            a.c z"#]],
    );
    check_prune(
        &with(r#"{"type":"array","items":{"type":"object","properties":{"b":{"type":"string"}}}}"#),
        r#"{"a":[{"b":"","c":1},{"d":2}]}"#,
        expect![[r#"
            {"a":[{"b":""},{}]}
            a[0].c a[1].d"#]],
    );
    check_prune(
        &with(
            r#"{"type":"object","x-kubernetes-preserve-unknown-fields":true,
                "properties":{"b":{"type":"object","properties":{"c":{"type":"string"}}}}}"#,
        ),
        r#"{"a":{"x":{"y":1},"b":{"c":"","d":1}}}"#,
        expect![[r#"
            {"a":{"x":{"y":1},"b":{"c":""}}}
            a.b.d"#]],
    );
    check_prune(
        &with(r#"{"type":"object","additionalProperties":{"type":"object"}}"#),
        r#"{"a":{"x":{"y":1}}}"#,
        expect![[r#"
            {"a":{"x":{}}}
            a.x.y"#]],
    );
}

#[test]
fn preserve_unknown_fields_disables_pruning() {
    let mut object = parse(r#"{"z":1}"#);
    assert!(
        Structural::compile(&parse(r#"{"type":"object"}"#), true)
            .prune(&mut object)
            .is_empty()
    );
    assert_eq!(object, parse(r#"{"z":1}"#));
}

#[test]
fn absent_fields_get_defaults() {
    let schema =
        with(r#"{"type":"object","default":{},"properties":{"b":{"type":"integer","default":3}}}"#);
    check_default(&schema, "{}", expect![[r#"{"a":{"b":3}}"#]]);
    check_default(
        &schema,
        r#"{"a":{"b":null}}"#,
        expect![[r#"{"a":{"b":3}}"#]],
    );
    check_default(&schema, r#"{"a":{"b":0}}"#, expect![[r#"{"a":{"b":0}}"#]]);
}

#[test]
fn pruning_removes_nulls_that_are_not_allowed() {
    check_prune(
        &with(r#"{"type":"string"}"#),
        r#"{"a":null,"b":null}"#,
        expect![[r#"
            {}
            b"#]],
    );
    check_prune(
        &with(r#"{"type":"string","nullable":true}"#),
        r#"{"a":null}"#,
        expect![[r#"
            {"a":null}
        "#]],
    );
    check_prune(
        &with(r#"{"type":"string","default":"x"}"#),
        r#"{"a":null}"#,
        expect![[r#"
            {"a":null}
        "#]],
    );
}

#[test]
fn defaults_replace_nulls_that_are_not_allowed() {
    check_default(
        &with(r#"{"type":"string"}"#),
        r#"{"a":null,"b":null}"#,
        expect![[r#"{"a":null,"b":null}"#]],
    );
    check_default(
        &with(r#"{"type":"string","default":"x"}"#),
        r#"{"a":null}"#,
        expect![[r#"{"a":"x"}"#]],
    );
    check_default(
        &with(r#"{"type":"string","nullable":true,"default":"x"}"#),
        r#"{"a":null}"#,
        expect![[r#"{"a":null}"#]],
    );
    check_default(
        &with(r#"{"type":"array","items":{"type":"string","default":"x"}}"#),
        r#"{"a":[null,"y"]}"#,
        expect![[r#"{"a":["x","y"]}"#]],
    );
}
