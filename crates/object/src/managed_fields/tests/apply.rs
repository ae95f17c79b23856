use expect_test::{Expect, expect};

use super::{Scenario, thing};
use mizzen_value::json;

#[track_caller]
fn check(scenario: &Scenario, expect: Expect) {
    expect.assert_eq(&scenario.summary());
}

#[test]
fn an_applier_owns_exactly_the_fields_of_its_configuration() {
    let mut scenario = Scenario::default();
    scenario.apply(
        "me",
        r#"{"spec":{"ports":[{"port":80}],"data":{"k":"1"},"selector":{"s":"1"},"args":[]}}"#,
    );
    check(
        &scenario,
        expect![[r#"
        {"ports":[{"port":80}],"items":null,"data":{"k":"1"},"selector":{"s":"1"}}
        me Apply 00 {"f:spec":{"f:args":{},"f:data":{"f:k":{}},"f:ports":{"k:{\"port\":80,\"protocol\":\"TCP\"}":{".":{},"f:port":{}}},"f:selector":{}}}"#]],
    );
}

#[test]
fn fields_that_are_no_longer_applied_are_removed() {
    let mut scenario = Scenario::default();
    scenario.apply(
        "me",
        r#"{"metadata":{"labels":{"l":"1"}},"spec":{"data":{"a":"1","b":"1"},"items":[{"name":"i"}]}}"#,
    );
    scenario.apply("me", r#"{"spec":{"data":{"b":"1"}}}"#);
    check(
        &scenario,
        expect![[r#"
        {"items":null,"data":{"b":"1"}}
        me Apply 01 {"f:spec":{"f:data":{"f:b":{}}}}"#]],
    );
    scenario.apply("me", "{}");
    check(&scenario, expect![[r#"{"items":null}"#]]);
}

#[test]
fn fields_of_other_managers_stay() {
    let mut scenario = Scenario::default();
    scenario.apply(
        "one",
        r#"{"spec":{"replicas":1,"data":{"a":"1","b":"1"},"items":[{"name":"i","image":"1"}]}}"#,
    );
    scenario.apply(
        "two",
        r#"{"spec":{"data":{"b":"1"},"items":[{"name":"i"}]}}"#,
    );
    scenario
        .patch("three", r#"{"spec":{"data":{"c":"1"}}}"#)
        .apply("one", "{}");
    check(
        &scenario,
        expect![[r#"
        {"items":[{"name":"i"}],"data":{"b":"1","c":"1"}}
        two Apply never {"f:spec":{"f:data":{"f:b":{}},"f:items":{"k:{\"name\":\"i\"}":{".":{},"f:name":{}}}}}
        three Update 02 {"f:spec":{"f:data":{"f:c":{}}}}"#]],
    );
}

#[test]
fn a_removed_list_item_takes_fields_of_other_managers_along() {
    let mut scenario = Scenario::default();
    scenario.apply("one", r#"{"spec":{"items":[{"name":"i","image":"1"}]}}"#);
    scenario
        .patch(
            "two",
            r#"{"spec":{"items":[{"name":"i","image":"1","tags":["t"]}]}}"#,
        )
        .apply("one", "{}");
    check(&scenario, expect![[r#"{"items":null}"#]]);
}

#[test]
fn managers_that_apply_the_same_value_share_a_field() {
    let mut scenario = Scenario::default();
    scenario
        .apply("one", r#"{"spec":{"replicas":1}}"#)
        .apply("two", r#"{"spec":{"replicas":1}}"#);
    check(
        &scenario,
        expect![[r#"
        {"replicas":1,"items":null}
        two Apply never {"f:spec":{"f:replicas":{}}}
        one Apply 00 {"f:spec":{"f:replicas":{}}}"#]],
    );
    scenario.apply("one", "{}");
    check(
        &scenario,
        expect![[r#"
        {"replicas":1,"items":null}
        two Apply never {"f:spec":{"f:replicas":{}}}"#]],
    );
}

#[test]
fn managers_that_apply_different_values_conflict() {
    let mut scenario = Scenario::default();
    scenario.apply(
        "one",
        r#"{"spec":{"replicas":1,"ports":[{"port":80,"name":"x"}]}}"#,
    );
    expect![[r#"Apply failed with 1 conflict: conflict with "one": .spec.replicas"#]]
        .assert_eq(&scenario.refused("two", r#"{"spec":{"replicas":2}}"#));
    scenario
        .apply("three", r#"{"spec":{"replicas":1}}"#)
        .patch("four", r#"{"spec":{"args":["x"]}}"#);
    expect![[r#"
        Apply failed with 4 conflicts: conflicts with "four" using example.com/v1:
        - .spec.args
        conflicts with "one":
        - .spec.replicas
        - .spec.ports[port=80,protocol="TCP"].name
        conflicts with "three":
        - .spec.replicas"#]]
    .assert_eq(&scenario.refused(
        "two",
        r#"{"spec":{"replicas":2,"args":[],"ports":[{"port":80,"name":"y"}]}}"#,
    ));
}

#[test]
fn a_forced_apply_takes_ownership() {
    let mut scenario = Scenario::default();
    scenario
        .apply("one", r#"{"spec":{"replicas":1,"args":["x"]}}"#)
        .force("two", r#"{"spec":{"replicas":2}}"#);
    check(
        &scenario,
        expect![[r#"
        {"replicas":2,"items":null,"args":["x"]}
        one Apply 00 {"f:spec":{"f:args":{}}}
        two Apply 01 {"f:spec":{"f:replicas":{}}}"#]],
    );
}

#[test]
fn fields_before_the_first_apply_have_a_manager() {
    let mut scenario = Scenario::default();
    scenario.put("one", r#"{"spec":{"replicas":1,"args":["x"]}}"#);
    scenario
        .object
        .as_mut()
        .unwrap()
        .entry("metadata")
        .remove("managedFields");
    expect![[r#"Apply failed with 1 conflict: conflict with "before-first-apply" using example.com/v1: .spec.replicas"#]]
        .assert_eq(&scenario.refused("me", r#"{"spec":{"replicas":2}}"#));
    scenario.apply("me", r#"{"spec":{"replicas":1}}"#);
    check(
        &scenario,
        expect![[r#"
        {"replicas":1,"items":null,"args":["x"]}
        me Apply never {"f:spec":{"f:replicas":{}}}
        before-first-apply Update 02 {"f:spec":{"f:args":{},"f:replicas":{}}}"#]],
    );
}

#[test]
fn client_side_apply_can_be_migrated() {
    let last = r#"{\"apiVersion\":\"example.com/v1\",\"kind\":\"Thing\",\"metadata\":{\"name\":\"a\"},\"spec\":{\"replicas\":1}}"#;
    let body = format!(
        r#"{{"metadata":{{"annotations":{{"kubectl.kubernetes.io/last-applied-configuration":"{last}"}}}},
            "spec":{{"replicas":1,"args":["x"]}}}}"#
    );
    let mut scenario = Scenario::default();
    scenario.put("kubectl-client-side-apply", &body);
    let config = r#"{"spec":{"replicas":2}}"#;
    assert!(
        scenario
            .refused("other", config)
            .contains("kubectl-client-side-apply")
    );
    assert!(
        scenario
            .refused("kubectl", r#"{"spec":{"args":["y"]}}"#)
            .ends_with(".spec.args")
    );
    scenario.apply("kubectl", config);
    let annotations = &scenario.object.as_ref().unwrap()["metadata"]["annotations"];
    expect![[r#"{"kubectl.kubernetes.io/last-applied-configuration":"{\"apiVersion\":\"example.com/v1\",\"kind\":\"Thing\",\"metadata\":{\"name\":\"a\"},\"spec\":{\"replicas\":2}}\n"}"#]]
        .assert_eq(&json::to_string(annotations));
}

#[test]
fn the_wrong_kind_and_managed_fields_are_rejected() {
    let mut scenario = Scenario::default();
    let mut refused = |key: &str, value: &str| {
        let mut config = thing("{}");
        config.set(key, value);
        scenario.try_apply("me", &config, false).unwrap_err()
    };
    assert_eq!(
        refused("kind", "Other"),
        "invalid object type: example.com/v1, Kind=Other"
    );
    assert_eq!(
        refused("apiVersion", "v1"),
        "invalid object type: /v1, Kind=Thing"
    );
    assert_eq!(
        refused("apiVersion", ""),
        "invalid object type: /, Kind=Thing"
    );
    let owners = scenario.refused("me", r#"{"metadata":{"managedFields":[]}}"#);
    assert_eq!(owners, "metadata.managedFields must be nil");
    let odd = scenario.refused("me", r#"{"metadata":{"managedFields":["x"]}}"#);
    assert!(
        odd.contains("managedFields[0]: expected map, got &{x}"),
        "{odd}"
    );
}

#[track_caller]
fn check_shape(config: &str, expect: Expect) {
    let refused = Scenario::default().refused("me", config);
    let head = "failed to create typed patch object (/a; example.com/v1, Kind=Thing): ";
    expect.assert_eq(refused.strip_prefix(head).unwrap());
}

#[test]
fn a_configuration_that_does_not_match_the_schema_is_rejected() {
    check_shape(
        r#"{"spec":{"replicas":"1"}}"#,
        expect![".spec.replicas: expected numeric (int or float), got string"],
    );
    check_shape(
        r#"{"spec":{"args":["x",1]}}"#,
        expect![".spec.args[1]: expected string, got &value.valueUnstructured{Value:1}"],
    );
    check_shape(
        r#"{"spec":{"args":[9223372036854775808,0.0000001]}}"#,
        expect![[r#"
            errors:
              .spec.args[0]: expected string, got &value.valueUnstructured{Value:9.223372036854776e+18}
              .spec.args[1]: expected string, got &value.valueUnstructured{Value:1e-07}"#]],
    );
    check_shape(
        r#"{"spec":{"args":"x"}}"#,
        expect![".spec.args: expected list, got &{x}"],
    );
    check_shape(
        r#"{"spec":[{"a":1}]}"#,
        expect![".spec: expected map, got &{[map[a:1]]}"],
    );
    check_shape(
        r#"{"spec":{"more":1}}"#,
        expect![".spec.more: field not declared in schema"],
    );
    check_shape(
        r#"{"metadata":{"labels":{"a":1,"b":true}}}"#,
        expect![[r#"
            errors:
              .metadata.labels.a: expected string, got &value.valueUnstructured{Value:1}
              .metadata.labels.b: expected string, got &value.valueUnstructured{Value:true}"#]],
    );
    check_shape(
        r#"{"spec":{"ports":[{"port":80},{"port":80,"protocol":"TCP"}]}}"#,
        expect![[r#".spec.ports: duplicate entries for key [port=80,protocol="TCP"]"#]],
    );
    check_shape(
        r#"{"spec":{"items":[null]}}"#,
        expect![".spec.items: element 0: associative list with keys may not have a null element"],
    );
    check_shape(
        r#"{"metadata":{"finalizers":["a","a"]}}"#,
        expect![[r#".metadata.finalizers: duplicate entries for key [="a"]"#]],
    );
}
