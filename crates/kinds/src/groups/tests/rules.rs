//! Tests of CustomResourceDefinitions with validation rules.

use expect_test::{Expect, expect};

use super::extension::definition;

const KIND: &str = "apiextensions.k8s.io/v1 CustomResourceDefinition";

/// A schema whose `spec` has these properties and rules.
fn schema(properties: &str, rules: &str) -> String {
    format!(
        r#"{{"type":"object","properties":{{"spec":{{"type":"object","properties":{{{properties}}},"x-kubernetes-validations":[{rules}]}}}}}}"#
    )
}

#[track_caller]
fn check(properties: &str, rules: &str, expect: Expect) {
    super::check(KIND, &definition(&schema(properties, rules), ""), expect);
}

#[test]
fn a_rule_is_an_expression_that_is_true_or_false() {
    check(
        r#""a":{"type":"integer"},"u":{"x-kubernetes-preserve-unknown-fields":true}"#,
        r#"{"rule":"self.a >"},{"rule":"self.a"},{"rule":"self.b > 1"},{"rule":"self.u == 1"},{"rule":"int('x') == 1"},
           {"rule":"true","messageExpression":"self.a"},{"rule":"true","messageExpression":"'x' +"},{"rule":"true","messageExpression":"string(int('x'))"}"#,
        expect![[r#"
            spec.validation.openAPIV3Schema.properties[spec].x-kubernetes-validations[0].rule: Invalid value: {"Rule":"self.a \u003e","Message":"","MessageExpression":"","Reason":null,"FieldPath":"","OptionalOldSelf":null}: compilation failed: ERROR: <input>:1:9: Syntax error: mismatched input '<EOF>' expecting {'[', '{', '(', '.', '-', '!', 'true', 'false', 'null', NUM_FLOAT, NUM_INT, NUM_UINT, STRING, BYTES, IDENTIFIER}
             | self.a >
             | ........^
            spec.validation.openAPIV3Schema.properties[spec].x-kubernetes-validations[1].rule: Invalid value: {"Rule":"self.a","Message":"","MessageExpression":"","Reason":null,"FieldPath":"","OptionalOldSelf":null}: cel expression must evaluate to a bool
            spec.validation.openAPIV3Schema.properties[spec].x-kubernetes-validations[2].rule: Invalid value: {"Rule":"self.b \u003e 1","Message":"","MessageExpression":"","Reason":null,"FieldPath":"","OptionalOldSelf":null}: compilation failed: ERROR: <input>:1:5: undefined field 'b'
             | self.b > 1
             | ....^
            spec.validation.openAPIV3Schema.properties[spec].x-kubernetes-validations[3].rule: Invalid value: {"Rule":"self.u == 1","Message":"","MessageExpression":"","Reason":null,"FieldPath":"","OptionalOldSelf":null}: compilation failed: ERROR: <input>:1:5: undefined field 'u'
             | self.u == 1
             | ....^
            spec.validation.openAPIV3Schema.properties[spec].x-kubernetes-validations[4].rule: Invalid value: {"Rule":"int('x') == 1","Message":"","MessageExpression":"","Reason":null,"FieldPath":"","OptionalOldSelf":null}: program instantiation failed: type conversion error from 'string' to 'int'
            spec.validation.openAPIV3Schema.properties[spec].x-kubernetes-validations[5].messageExpression: Invalid value: {"Rule":"true","Message":"","MessageExpression":"self.a","Reason":null,"FieldPath":"","OptionalOldSelf":null}: messageExpression must evaluate to a string
            spec.validation.openAPIV3Schema.properties[spec].x-kubernetes-validations[6].messageExpression: Invalid value: {"Rule":"true","Message":"","MessageExpression":"'x' +","Reason":null,"FieldPath":"","OptionalOldSelf":null}: messageExpression compilation failed: ERROR: <input>:1:6: Syntax error: mismatched input '<EOF>' expecting {'[', '{', '(', '.', '-', '!', 'true', 'false', 'null', NUM_FLOAT, NUM_INT, NUM_UINT, STRING, BYTES, IDENTIFIER}
             | 'x' +
             | .....^
            spec.validation.openAPIV3Schema.properties[spec].x-kubernetes-validations[7].messageExpression: Invalid value: {"Rule":"true","Message":"","MessageExpression":"string(int('x'))","Reason":null,"FieldPath":"","OptionalOldSelf":null}: messageExpression instantiation failed: type conversion error from 'string' to 'int'
        "#]],
    );
}

#[test]
fn what_has_no_type_has_no_rules() {
    check(
        r#""u":{"x-kubernetes-preserve-unknown-fields":true,"x-kubernetes-validations":[{"rule":"true"}]}"#,
        "",
        expect![[r#"
            spec.validation.openAPIV3Schema.properties[spec].properties[u].x-kubernetes-validations: Internal error: internal error: failed to construct type information for x-kubernetes-validations rules: unable to convert structural schema to CEL declarations
        "#]],
    );
}

#[test]
fn old_self_is_set_where_items_correlate() {
    let item = |list: &str| {
        format!(
            r#""l":{{"type":"array","maxItems":9{list},"items":{{"type":"object","required":["k"],"properties":{{"k":{{"type":"string"}},
               "v":{{"type":"integer","x-kubernetes-validations":[{{"rule":"self == oldSelf"}}]}}}}}}}}"#
        )
    };
    check(
        &item(""),
        "",
        expect![[r#"
        spec.validation.openAPIV3Schema.properties[spec].properties[l].items.properties[v].x-kubernetes-validations[0].rule: Invalid value: "self == oldSelf": oldSelf cannot be used on the uncorrelatable portion of the schema within spec.validation.openAPIV3Schema.properties[spec].properties[l]
    "#]],
    );
    check(
        &item(r#","x-kubernetes-list-type":"map","x-kubernetes-list-map-keys":["k"]"#),
        r#"{"rule":"has(self.l)","optionalOldSelf":false}"#,
        expect![[r#"
            spec.validation.openAPIV3Schema.properties[spec].x-kubernetes-validations[0].optionalOldSelf: Invalid value: false: may not be set if oldSelf is not used in rule
        "#]],
    );
}

const DEAR: &str = "self.all(a, self.all(b, self.all(c, a == b && b == c)))";

fn list(bounds: &str, rule: &str) -> String {
    format!(
        r#""l":{{"type":"array"{bounds},"items":{{"type":"integer"}},"x-kubernetes-validations":[{{"rule":"{rule}"}}]}}"#
    )
}

#[test]
fn a_rule_that_may_run_for_ever_is_refused() {
    check(
        &list("", DEAR),
        "",
        expect![[r#"
        spec.validation.openAPIV3Schema.properties[spec].properties[l].x-kubernetes-validations[0].rule: Forbidden: estimated rule cost exceeds budget by factor of more than 100x (try simplifying the rule, or adding maxItems, maxProperties, and maxLength where arrays, maps, and strings are declared)
        spec.validation.openAPIV3Schema.properties[spec].properties[l].x-kubernetes-validations[0].rule: Forbidden: contributed to estimated rule cost total exceeding cost limit for entire OpenAPIv3 schema
        spec.validation.openAPIV3Schema: Forbidden: x-kubernetes-validations estimated rule cost total for entire OpenAPIv3 schema exceeds budget by factor of more than 100x (try simplifying the rule, or adding maxItems, maxProperties, and maxLength where arrays, maps, and strings are declared)
    "#]],
    );
    check(
        &list(r#","maxItems":150"#, DEAR),
        "",
        expect![[r#"
        spec.validation.openAPIV3Schema.properties[spec].properties[l].x-kubernetes-validations[0].rule: Forbidden: estimated rule cost exceeds budget by factor of 2.4x (try simplifying the rule, or adding maxItems, maxProperties, and maxLength where arrays, maps, and strings are declared)
    "#]],
    );
    check(
        &list(r#","maxItems":5000"#, "self.all(a, a > 1)"),
        r#"{"rule":"true","messageExpression":"string(self.l.size()) + 'x'"}"#,
        expect![[r#"
            spec.validation.openAPIV3Schema.properties[spec].x-kubernetes-validations[0].messageExpression: Forbidden: estimated messageExpression cost exceeds budget by factor of more than 100x (try simplifying the rule, or adding maxItems, maxProperties, and maxLength where arrays, maps, and strings are declared)
            spec.validation.openAPIV3Schema.properties[spec].x-kubernetes-validations[0].messageExpression: Forbidden: contributed to estimated rule cost total exceeding cost limit for entire OpenAPIv3 schema
            spec.validation.openAPIV3Schema: Forbidden: x-kubernetes-validations estimated rule cost total for entire OpenAPIv3 schema exceeds budget by factor of more than 100x (try simplifying the rule, or adding maxItems, maxProperties, and maxLength where arrays, maps, and strings are declared)
        "#]],
    );
}

#[test]
fn what_is_repeated_costs_as_often() {
    let text = r#"{"type":"string","maxLength":64,"x-kubernetes-validations":[{"rule":"self.matches('a.*b')"}]}"#;
    check(
        &format!(r#""l":{{"type":"array","items":{text}}}"#),
        "",
        expect![[r#"
        spec.validation.openAPIV3Schema.properties[spec].properties[l].items.x-kubernetes-validations[0].rule: Forbidden: estimated rule cost exceeds budget by factor of 2.8x (try simplifying the rule, or adding maxItems, maxProperties, and maxLength where arrays, maps, and strings are declared)
    "#]],
    );
    check(
        &format!(r#""m":{{"type":"object","maxProperties":900000,"additionalProperties":{text}}}"#),
        "",
        expect![[r#"
            spec.validation.openAPIV3Schema.properties[spec].properties[m].additionalProperties.x-kubernetes-validations[0].rule: Forbidden: estimated rule cost exceeds budget by factor of 2.4x (try simplifying the rule, or adding maxItems, maxProperties, and maxLength where arrays, maps, and strings are declared)
        "#]],
    );
}

#[test]
fn the_rules_of_a_schema_share_a_budget() {
    let field = |n: usize| {
        format!(
            r#""f{n:02}":{{"type":"array","maxItems":700,"items":{{"type":"string","maxLength":8}},
               "x-kubernetes-validations":[{{"rule":"self.all(a, self.all(b, a == b))"}}]}}"#
        )
    };
    let fields: Vec<String> = (0..30).map(field).collect();
    check(
        &fields.join(","),
        "",
        expect![[r#"
        spec.validation.openAPIV3Schema.properties[spec].properties[f00].x-kubernetes-validations[0].rule: Forbidden: contributed to estimated rule cost total exceeding cost limit for entire OpenAPIv3 schema
        spec.validation.openAPIV3Schema.properties[spec].properties[f01].x-kubernetes-validations[0].rule: Forbidden: contributed to estimated rule cost total exceeding cost limit for entire OpenAPIv3 schema
        spec.validation.openAPIV3Schema.properties[spec].properties[f02].x-kubernetes-validations[0].rule: Forbidden: contributed to estimated rule cost total exceeding cost limit for entire OpenAPIv3 schema
        spec.validation.openAPIV3Schema.properties[spec].properties[f03].x-kubernetes-validations[0].rule: Forbidden: contributed to estimated rule cost total exceeding cost limit for entire OpenAPIv3 schema
        spec.validation.openAPIV3Schema: Forbidden: x-kubernetes-validations estimated rule cost total for entire OpenAPIv3 schema exceeds budget by factor of 1.324051x (try simplifying the rule, or adding maxItems, maxProperties, and maxLength where arrays, maps, and strings are declared)
    "#]],
    );
}

#[test]
fn a_schema_that_has_not_changed_may_stay_dear() {
    let versioned =
        |text: String| text.replace(r#""metadata":{"#, r#""metadata":{"resourceVersion":"1","#);
    let made = |rule: &str, more: &str| {
        versioned(definition(
            &schema(&list(r#","maxItems":200"#, rule), ""),
            more,
        ))
    };
    let cheap = made("self.all(a, a > 1)", "");
    super::check_update(
        KIND,
        &made(DEAR, ""),
        &cheap,
        expect![[r#"
        spec.validation.openAPIV3Schema.properties[spec].properties[l].x-kubernetes-validations[0].rule: Forbidden: estimated rule cost exceeds budget by factor of 5.6x (try simplifying the rule, or adding maxItems, maxProperties, and maxLength where arrays, maps, and strings are declared)
    "#]],
    );
    super::check_update(
        KIND,
        &made(DEAR, r#","deprecated":true"#),
        &made(DEAR, ""),
        expect![[r#"
        {"metadata":{"name":"foos.example.com","resourceVersion":"1"},"spec":{"group":"example.com","names":{"plural":"foos","singular":"foo","kind":"Foo","listKind":"FooList"},"scope":"Namespaced","versions":[{"name":"v1","served":true,"storage":true,"deprecated":true,"schema":{"openAPIV3Schema":{"type":"object","properties":{"spec":{"type":"object","properties":{"l":{"type":"array","maxItems":200,"items":{"type":"integer"},"x-kubernetes-validations":[{"rule":"self.all(a, self.all(b, self.all(c, a == b \u0026\u0026 b == c)))"}]}}}}}}}],"conversion":{"strategy":"None"}},"status":{"conditions":null,"acceptedNames":{"plural":"","kind":""},"storedVersions":["v1"]}}
    "#]],
    );
}

#[test]
fn a_default_obeys_its_rules() {
    check(
        r#""a":{"type":"integer","default":1,"x-kubernetes-validations":[{"rule":"self > 10"}]},
           "b":{"type":"integer","default":1,"x-kubernetes-validations":[{"rule":"oldSelf.hasValue()","optionalOldSelf":true}]},
           "c":{"type":"object","properties":{"d":{"type":"integer"}},"default":{"d":1},"x-kubernetes-validations":[{"rule":"self.e > 1"}]}"#,
        "",
        expect![[r#"
            spec.validation.openAPIV3Schema.properties[spec].properties[a].default: Invalid value: 1: failed rule: self > 10
            spec.validation.openAPIV3Schema.properties[spec].properties[b].default: Invalid value: 1: failed rule: oldSelf.hasValue()
            spec.validation.openAPIV3Schema.properties[spec].properties[c].default: Invalid value: "object": rule compile error: compilation failed: ERROR: <input>:1:5: undefined field 'e'
             | self.e > 1
             | ....^
        "#]],
    );
}
