//! Objects, rules, and their violations, with upstream's messages.

use expect_test::{Expect, expect};

use crate::structural::Structural;
use crate::violation::Violations;
use mizzen_value::Value;
use mizzen_value::json;

fn parse(text: &str) -> Value {
    json::parse(text.as_bytes()).unwrap_or_else(|error| panic!("{error}: {text}"))
}

/// A schema with properties and root rules.
fn schema(properties: &str, rules: &str) -> Structural {
    let text = format!(
        r#"{{"type":"object","properties":{{"spec":{{"type":"object","properties":{{{properties}}},"x-kubernetes-validations":[{rules}]}}}}}}"#
    );
    Structural::compile(&parse(&text), false)
}

fn run(schema: &Structural, old: Option<&str>, new: &str) -> String {
    let whole = |spec: &str| {
        parse(&format!(
            r#"{{"kind":"Foo","metadata":{{"name":"x"}},"spec":{spec}}}"#
        ))
    };
    let mut violations = Violations::default();
    schema.validate_rules(&whole(new), old.map(whole).as_ref(), &mut violations);
    let errors = violations
        .0
        .iter()
        .map(|violation| format!("{violation}\n"));
    errors
        .chain(
            violations
                .1
                .iter()
                .map(|warning| format!("warning: {warning}\n")),
        )
        .collect()
}

#[track_caller]
fn check(properties: &str, rules: &str, new: &str, expect: Expect) {
    expect.assert_eq(&run(&schema(properties, rules), None, new));
}

#[track_caller]
fn check_update(properties: &str, rules: &str, old: &str, new: &str, expect: Expect) {
    expect.assert_eq(&run(&schema(properties, rules), Some(old), new));
}

const SCALARS: &str = r#"
    "a":{"type":"integer","x-kubernetes-validations":[{"rule":"self > 0"}]},
    "s":{"type":"string","x-kubernetes-validations":[{"rule":"self != 'x'","reason":"FieldValueDuplicate"}]},
    "n":{"type":"number","x-kubernetes-validations":[{"rule":"self < 2.5"}]},
    "i":{"x-kubernetes-int-or-string":true,"x-kubernetes-validations":[{"rule":"type(self) == int ? self > 0 : self == 'y'"}]},
    "nu":{"type":"integer","nullable":true,"x-kubernetes-validations":[{"rule":"self > 0"}]},
    "d":{"type":"string","format":"duration","x-kubernetes-validations":[{"rule":"self > duration('1h')"}]}"#;

#[test]
fn scalars_are_shown_and_null_is_not_validated() {
    check(
        SCALARS,
        "",
        r#"{"a":1,"s":"y","n":1,"i":"y","nu":null,"d":"2h"}"#,
        expect![[""]],
    );
    check(
        SCALARS,
        "",
        r#"{"a":0,"s":"x","n":3.25,"i":"z","nu":-1,"d":"5m"}"#,
        expect![[r#"
        spec.a: Invalid value: 0: failed rule: self > 0
        spec.s: Duplicate value: "x"
        spec.n: Invalid value: 3.25: failed rule: self < 2.5
        spec.i: Invalid value: "z": failed rule: type(self) == int ? self > 0 : self == 'y'
        spec.nu: Invalid value: -1: failed rule: self > 0
        spec.d: Invalid value: "5m": failed rule: self > duration('1h')
    "#]],
    );
}

const CONTAINERS: &str = r#"
    "l":{"type":"array","items":{"type":"integer","x-kubernetes-validations":[{"rule":"self > 0"}]},
         "x-kubernetes-validations":[{"rule":"self.size() < 3"}]},
    "m":{"type":"object","additionalProperties":{"type":"string","x-kubernetes-validations":[{"rule":"self != 'x'"}]}},
    "o":{"type":"object","properties":{"p":{"type":"integer"},"a.b":{"type":"integer"}},"x-kubernetes-validations":[
         {"rule":"self.p > 0","fieldPath":".p","reason":"FieldValueRequired","message":" put it "},
         {"rule":"!has(self.a__dot__b)","fieldPath":"['a.b']","reason":"FieldValueForbidden"}]}"#;

#[test]
fn lists_and_maps_are_shown_by_type() {
    check(
        CONTAINERS,
        "",
        r#"{"l":[0,2,-3],"m":{"k.x":"x"},"o":{"p":0,"a.b":1}}"#,
        expect![[r#"
        spec.l: Invalid value: failed rule: self.size() < 3
        spec.l[0]: Invalid value: 0: failed rule: self > 0
        spec.l[2]: Invalid value: -3: failed rule: self > 0
        spec.m[k.x]: Invalid value: "x": failed rule: self != 'x'
        spec.o.p: Required value: put it
        spec.o.a.b: Forbidden: failed rule: !has(self.a__dot__b)
    "#]],
    );
}

#[test]
fn evaluation_errors_of_rules_are_reported() {
    let properties = r#""i":{"x-kubernetes-int-or-string":true},"a":{"type":"integer"},"l":{"type":"array","items":{"type":"integer"}}"#;
    let rules = r#"{"rule":"self.i > 1"},{"rule":"10 / self.a > 0","message":"the message"},{"rule":"self.l[2] == 1"}"#;
    check(
        properties,
        rules,
        r#"{"i":"x","a":0,"l":[1]}"#,
        expect![[r#"
        spec: Invalid value: "object": 'no such overload': call arguments did not match a supported operator, function or macro signature for rule: self.i > 1
        spec: Invalid value: "object": division by zero evaluating rule: the message
        spec: Invalid value: "object": index out of bounds: 2 evaluating rule: self.l[2] == 1
    "#]],
    );
}

#[test]
fn the_root_has_declared_names() {
    let text = r#"{"type":"object","properties":{"spec":{"type":"object","x-kubernetes-preserve-unknown-fields":true}},
        "x-kubernetes-validations":[{"rule":"self.metadata.name == 'y' && self.kind == 'Foo'"},{"rule":"!has(self.spec)","fieldPath":".spec"}]}"#;
    let schema = Structural::compile(&parse(text), false);
    expect![[r#"
        <nil>: Invalid value: failed rule: self.metadata.name == 'y' && self.kind == 'Foo'
        spec: Invalid value: failed rule: !has(self.spec)
    "#]]
    .assert_eq(&run(&schema, None, "{}"));
}

#[test]
fn embedded_objects_have_declared_names() {
    let properties = r#""e":{"type":"object","x-kubernetes-embedded-resource":true,"x-kubernetes-preserve-unknown-fields":true,
        "x-kubernetes-validations":[{"rule":"self.kind == 'Pod'"},{"rule":"self.metadata.name.startsWith('x')"}]}"#;
    check(
        properties,
        "",
        r#"{"e":{"apiVersion":"v1","kind":"Podx","metadata":{"name":"y"}}}"#,
        expect![[r#"
            spec.e: Invalid value: failed rule: self.kind == 'Pod'
            spec.e: Invalid value: failed rule: self.metadata.name.startsWith('x')
        "#]],
    );
}

#[test]
fn a_message_expression_overrides_the_message() {
    let properties = r#""a":{"type":"integer"},"s":{"type":"string"}"#;
    let rules = r#"
        {"rule":"self.a > 0","messageExpression":"'  a is ' + string(self.a)"},
        {"rule":"self.a > 1","messageExpression":"self.s","message":"no text"},
        {"rule":"self.a > 2","messageExpression":"oldSelf.s","message":"no old"},
        {"rule":"self.a > 3","messageExpression":"' '"}"#;
    check(
        properties,
        rules,
        r#"{"a":0}"#,
        expect![[r#"
        spec: Invalid value: a is 0
        spec: Invalid value: no text
        spec: Invalid value: no old
        spec: Invalid value: failed rule: self.a > 3
    "#]],
    );
    check(
        properties,
        rules,
        r#"{"a":1,"s":"two\nlines"}"#,
        expect![[r#"
        spec: Invalid value: no text
        spec: Invalid value: no old
        spec: Invalid value: failed rule: self.a > 3
    "#]],
    );
    check(
        properties,
        rules,
        &format!(r#"{{"a":2,"s":"{}"}}"#, "x".repeat(5121)),
        expect![[r#"
        spec: Invalid value: no old
        spec: Invalid value: failed rule: self.a > 3
    "#]],
    );
}

const CHANGES: &str = r#"
    "a":{"type":"integer","x-kubernetes-validations":[{"rule":"self >= oldSelf"}]},
    "l":{"type":"array","x-kubernetes-list-type":"map","x-kubernetes-list-map-keys":["k"],"items":{"type":"object",
         "properties":{"k":{"type":"string"},"v":{"type":"integer"}},"x-kubernetes-validations":[{"rule":"self.v >= oldSelf.v"}]}},
    "o":{"type":"integer","x-kubernetes-validations":[
         {"rule":"oldSelf.hasValue() ? self > oldSelf.value() : self == 1","optionalOldSelf":true}]}"#;

#[test]
fn a_transition_rule_needs_an_old_value() {
    check(
        CHANGES,
        "",
        r#"{"a":1,"l":[{"k":"a","v":1}]}"#,
        expect![[""]],
    );
    let old = r#"{"a":5,"l":[{"k":"a","v":3},{"k":"b","v":4}]}"#;
    check_update(
        CHANGES,
        "",
        old,
        r#"{"a":4,"l":[{"k":"b","v":3},{"k":"c","v":0},{"k":"a","v":3}]}"#,
        expect![[r#"
            spec.a: Invalid value: 4: failed rule: self >= oldSelf
            spec.l[0]: Invalid value: failed rule: self.v >= oldSelf.v
        "#]],
    );
    check_update(CHANGES, "", "{}", r#"{"a":4}"#, expect![[""]]);
}

#[test]
fn a_rule_may_have_an_optional_old_value() {
    check(
        CHANGES,
        "",
        r#"{"o":2}"#,
        expect![[r#"
        spec.o: Invalid value: 2: failed rule: oldSelf.hasValue() ? self > oldSelf.value() : self == 1
    "#]],
    );
    check_update(
        CHANGES,
        "",
        r#"{"o":2}"#,
        r#"{"o":2}"#,
        expect![[r#"
        spec.o: Invalid value: 2: failed rule: oldSelf.hasValue() ? self > oldSelf.value() : self == 1
    "#]],
    );
    check_update(CHANGES, "", r#"{"o":2}"#, r#"{"o":3}"#, expect![[""]]);
}

const STRICT: &str = r#"
    "a":{"type":"integer","x-kubernetes-validations":[{"rule":"self > 10"}]},
    "x":{"type":"integer"},
    "l":{"type":"array","items":{"type":"object","properties":{"v":{"type":"integer","x-kubernetes-validations":[{"rule":"self > 10"}]}}}}"#;

#[test]
fn rule_violations_in_unchanged_values_are_warnings() {
    let old = r#"{"a":1,"l":[{"v":1}]}"#;
    let rules = r#"{"rule":"self.a > 11"}"#;
    check_update(
        STRICT,
        rules,
        old,
        old,
        expect![[r#"
        warning: spec: Invalid value: failed rule: self.a > 11
        warning: spec.a: Invalid value: 1: failed rule: self > 10
        warning: spec.l[0].v: Invalid value: 1: failed rule: self > 10
    "#]],
    );
    check_update(
        STRICT,
        rules,
        old,
        r#"{"a":1,"x":1,"l":[{"v":1}]}"#,
        expect![[r#"
        spec: Invalid value: failed rule: self.a > 11
        warning: spec.a: Invalid value: 1: failed rule: self > 10
        warning: spec.l[0].v: Invalid value: 1: failed rule: self > 10
    "#]],
    );
    check_update(
        STRICT,
        rules,
        old,
        r#"{"a":2,"l":[{"v":1},{"v":2}]}"#,
        expect![[r#"
        spec: Invalid value: failed rule: self.a > 11
        spec.a: Invalid value: 2: failed rule: self > 10
        spec.l[0].v: Invalid value: 1: failed rule: self > 10
        spec.l[1].v: Invalid value: 2: failed rule: self > 10
    "#]],
    );
}

#[test]
fn an_expensive_rule_exceeds_the_cost_limit() {
    let loops =
        "self.all(a, self.all(b, self.all(c, self.all(d, self.all(e, self.all(f, true))))))";
    let properties = format!(
        r#""l":{{"type":"array","items":{{"type":"integer"}},"x-kubernetes-validations":[{{"rule":"{loops}","message":"m"}},{{"rule":"false"}}]}},
           "z":{{"type":"integer","x-kubernetes-validations":[{{"rule":"false"}}]}}"#
    );
    let numbers: Vec<String> = (0..1000).map(|n| n.to_string()).collect();
    check(
        &properties,
        "",
        &format!(r#"{{"l":[{}],"z":1}}"#, numbers.join(",")),
        expect![[r#"
        spec.l: Invalid value: "array": 'operation cancelled: actual cost limit exceeded': no further validation rules will be run due to call cost exceeds limit for rule: m
    "#]],
    );
}

#[test]
fn all_rules_of_an_object_share_a_budget() {
    // Long strings and expressions are expensive by cost, but fast.
    let rule = format!("!self.matches('{}')", "a".repeat(300));
    let field = |n: usize| {
        format!(r#""s{n:02}":{{"type":"string","x-kubernetes-validations":[{{"rule":"{rule}"}}]}}"#)
    };
    let properties: Vec<String> = (0..25).map(field).collect();
    let texts: Vec<String> = (0..25)
        .map(|n| format!(r#""s{n:02}":"{}""#, "b".repeat(100_000)))
        .collect();
    check(
        &properties.join(","),
        "",
        &format!("{{{}}}", texts.join(",")),
        expect![[r#"
        spec.s13: Invalid value: "string": validation failed due to running out of cost budget, no further validation rules will be run
    "#]],
    );
}

#[test]
fn a_message_that_costs_too_much_ends_the_rules() {
    let loops = "self.l.all(a, self.l.all(b, self.l.all(c, a + b + c > -1))) ? 'x' : 'y'";
    let rules = format!(
        r#"{{"rule":"self.l.size() < 2","messageExpression":"{loops}"}},{{"rule":"false"}}"#
    );
    let numbers: Vec<String> = (0..300).map(|n| n.to_string()).collect();
    check(
        r#""l":{"type":"array","items":{"type":"integer"}}"#,
        &rules,
        &format!(r#"{{"l":[{}]}}"#, numbers.join(",")),
        expect![[r#"
            spec: Invalid value: "object": no further validation rules will be run due to call cost exceeds limit for messageExpression: "self.l.all(a, self.l.all(b, self.l.all(c, a + b + c > -1))) ? 'x' : 'y'"
        "#]],
    );
}

#[test]
fn rules_are_compiled_when_they_are_first_needed() {
    let schema = schema(SCALARS, "");
    let spec = schema.root().property("spec").expect("it is declared");
    let is_compiled = |name: &str| {
        let rules = spec
            .property(name)
            .and_then(|node| node.rules())
            .expect("it has rules");
        rules.compiled.get().is_some()
    };
    run(&schema, None, r#"{"a":1}"#);
    assert!(is_compiled("a") && !is_compiled("s"));
}

#[test]
fn a_rule_that_does_not_compile_is_reported_at_validation() {
    check(
        r#""a":{"type":"integer"}"#,
        r#"{"rule":"self.a > 'x'"}"#,
        "{}",
        expect![[r#"
        spec: Invalid value: "object": rule compile error: compilation failed: ERROR: <input>:1:8: found no matching overload for '_>_' applied to '(int, string)'
         | self.a > 'x'
         | .......^
    "#]],
    );
}
