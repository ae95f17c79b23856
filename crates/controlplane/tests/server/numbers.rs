//! Numbers of custom resources: integers and floats as upstream reads, compares and writes them.
//!
//! Each expectation was seen at v1.36.4. Upstream reads a number as int64 if it is written as one and fits, as float64
//! otherwise; `1.0` is written as `1`, and is an int64 when it is read again.

use mizzen_value::json;

use crate::crd::{DEFINITIONS, FOOS, define, definition, foo, version};
use crate::rig::{Reply, Rig};

const PROPERTIES: &str = r#"{
    "n": {"type": "number"},
    "i": {"type": "integer"},
    "i32": {"type": "integer", "format": "int32"},
    "d": {"type": "number", "default": 1.0},
    "e": {"type": "number", "enum": [1, 2.5]},
    "ios": {"x-kubernetes-int-or-string": true},
    "free": {"x-kubernetes-preserve-unknown-fields": true},
    "set": {"type": "array", "items": {"type": "number"}, "x-kubernetes-list-type": "set"},
    "list": {"type": "array", "x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["k"],
        "items": {"type": "object", "required": ["k"], "properties": {"k": {"type": "number"}}}},
    "one": {"type": "number", "x-kubernetes-validations": [{"rule": "self == 1.0", "message": "not one"}]},
    "whole": {"type": "integer", "x-kubernetes-validations": [{"rule": "self > 0", "message": "not positive"}]},
    "max": {"type": "number", "maximum": 5.0}
}"#;

async fn rig() -> Rig {
    let rig = Rig::new().await;
    let mut version = version("v1", true, PROPERTIES);
    version.set("subresources", mizzen_value::value!({ "status": {} }));
    version.entry("schema").entry("openAPIV3Schema").entry("properties").set(
        "status",
        mizzen_value::value!({ "type": "object", "x-kubernetes-preserve-unknown-fields": true }),
    );
    define(&rig, &definition(vec![version])).await;
    rig
}

/// What came of a write: the answer's `spec`, how often it changed the intent, and whether it was stored.
struct Outcome {
    spec: String,
    generations: i64,
    stored: bool,
}

struct Writer {
    rig: Rig,
    last: Reply,
}

impl Writer {
    async fn new(spec: &str) -> Writer {
        let rig = rig().await;
        let last = rig.post(FOOS, &foo("v1", "a", spec)).await.expect(201);
        Writer { rig, last }
    }

    async fn write(&mut self, method: &str, path: &str, body: &str) -> Result<Outcome, Reply> {
        let reply = self
            .rig
            .call(method, &format!("{FOOS}/a{path}"), body)
            .await;
        if reply.status != 200 {
            return Err(reply);
        }
        let generation = |reply: &Reply| reply.body.at("metadata.generation").int();
        let outcome = Outcome {
            spec: json::to_string(&reply.body["spec"]),
            generations: generation(&reply) - generation(&self.last),
            stored: reply.version() != self.last.version(),
        };
        self.last = reply;
        Ok(outcome)
    }

    async fn put(&mut self, spec: &str) -> Result<Outcome, Reply> {
        let version = self.last.version();
        let name = format!(r#"a","resourceVersion":"{version}"#);
        self.write("PUT", "", &foo("v1", &name, spec)).await
    }
}

/// Each line: what is written, whether that counts as a change, what is answered.
async fn check(field: &str, steps: &[(&str, bool, &str)]) {
    let mut writer = Writer::new("{}").await;
    for (number, changes, shown) in steps {
        let outcome = writer.put(&format!(r#"{{"{field}":{number}}}"#)).await;
        let outcome = outcome.unwrap_or_else(|reply| panic!("{number}: {reply:?}"));
        assert_eq!(
            outcome.spec,
            format!(r#"{{"d":1,"{field}":{shown}}}"#),
            "{number}"
        );
        assert_eq!(
            (outcome.generations, outcome.stored),
            (i64::from(*changes), *changes),
            "{number}"
        );
    }
}

#[tokio::test]
async fn a_float_differs_from_an_integer_and_is_written_as_short_as_possible() {
    let steps = [
        ("1", true, "1"),
        ("1", false, "1"),
        ("1.0", true, "1"),
        ("1", false, "1"),
        ("1e0", true, "1"),
        ("10e-1", true, "1"),
        ("1.5", true, "1.5"),
        ("1.50", false, "1.5"),
        ("15e-1", false, "1.5"),
        ("0", true, "0"),
        ("-0", false, "0"),
        ("-0.0", true, "0"),
        ("0.0", true, "0"),
        ("100", true, "100"),
        ("1E2", true, "100"),
        ("9223372036854775807", true, "9223372036854775807"),
        ("9223372036854775808", true, "9223372036854776000"),
        ("9223372036854775808.0", false, "9223372036854776000"),
        ("9.223372036854775808e18", false, "9223372036854776000"),
        ("18446744073709551615", true, "18446744073709552000"),
        (
            "123456789012345678901234567890",
            true,
            "1.2345678901234568e+29",
        ),
        ("1e20", true, "100000000000000000000"),
        ("1e21", true, "1e+21"),
        ("0.000001", true, "0.000001"),
        ("0.0000001", true, "1e-7"),
        ("1e-7", false, "1e-7"),
        ("1e-400", true, "0"),
        ("5e-324", true, "5e-324"),
        ("1.7976931348623157e308", true, "1.7976931348623157e+308"),
        ("0.1", true, "0.1"),
        ("0.10000000000000000001", false, "0.1"),
        ("12345678901234567890.5", true, "12345678901234567000"),
    ];
    check("n", &steps).await;
    check("free", &steps).await;
}

#[tokio::test]
async fn whole_floats_are_integers_where_the_schema_requires_them() {
    let steps = [
        ("1", true, "1"),
        ("1.0", true, "1"),
        ("2147483648.0", true, "2147483648"),
    ];
    check("i", &steps).await;
    check(
        "i32",
        &[("1.0", true, "1"), ("2147483647", true, "2147483647")],
    )
    .await;
    check(
        "ios",
        &[("1", true, "1"), ("1.0", true, "1"), ("1e2", true, "100")],
    )
    .await;
    check(
        "e",
        &[
            ("1.0", true, "1"),
            ("2.50", true, "2.5"),
            ("25e-1", false, "2.5"),
        ],
    )
    .await;
    check("one", &[("1", true, "1"), ("1.0", true, "1")]).await;
    check(
        "set",
        &[("[1,2]", true, "[1,2]"), ("[1,1.0]", true, "[1,1]")],
    )
    .await;
    check(
        "list",
        &[(r#"[{"k":1},{"k":1.0}]"#, true, r#"[{"k":1},{"k":1}]"#)],
    )
    .await;
}

#[track_caller]
fn refuses(outcome: Result<Outcome, Reply>, status: u16, expected: &str) {
    let Err(reply) = outcome else {
        panic!("accepted; expected {expected}")
    };
    assert_eq!(reply.status, status, "{reply:?}");
    assert!(
        reply.message().contains(expected),
        "{}\nlacks\n{expected}",
        reply.message()
    );
}

#[tokio::test]
async fn errors_show_the_type_of_a_number() {
    let mut writer = Writer::new("{}").await;
    let cases = [
        (
            r#"{"i":1.5}"#,
            r#"spec.i in body must be of type integer: "number""#,
        ),
        // Beyond 2^53 a float is no integer.
        (
            r#"{"i":1e18}"#,
            r#"spec.i in body must be of type integer: "number""#,
        ),
        (
            r#"{"i":9223372036854775808}"#,
            r#"spec.i in body must be of type integer: "number""#,
        ),
        (
            r#"{"ios":1.5}"#,
            r#"spec.ios in body must be of type integer,string: "number""#,
        ),
        (
            r#"{"one":9223372036854775808}"#,
            "spec.one: Invalid value: 9.223372036854776e+18: not one",
        ),
        (
            r#"{"whole":1.0}"#,
            "spec.whole: Invalid value: \"integer\": invalid data, expected int, got float64",
        ),
        (
            r#"{"max":1000000.5}"#,
            "spec.max: Invalid value: 1.0000005e+06: spec.max in body should be less than",
        ),
        (
            r#"{"max":12345678.0}"#,
            "spec.max: Invalid value: 1.2345678e+07: spec.max in body should be less than",
        ),
        (
            r#"{"max":12345678}"#,
            "spec.max: Invalid value: 12345678: spec.max in body should be less than",
        ),
        (
            r#"{"e":2}"#,
            r#"Unsupported value: 2: supported values: "1", "2.5""#,
        ),
        (r#"{"set":[1.5,1.50]}"#, "spec.set[1]: Duplicate value: 1.5"),
    ];
    for (spec, expected) in cases {
        refuses(writer.put(spec).await, 422, expected);
    }
}

/// These panicked.
#[tokio::test]
async fn a_number_beyond_float64_is_rejected_as_in_go() {
    let mut writer = Writer::new("{}").await;
    for number in ["1e309", "1e400", "-1e400", "1e+999"] {
        let expected =
            format!("json: cannot unmarshal number {number} into Go value of type float64");
        let handled = format!(r#"Foo in version "v1" cannot be handled as a Foo: {expected}"#);
        for spec in [
            format!(r#"{{"n":{number}}}"#),
            format!(r#"{{"free":{{"a":[{number}]}}}}"#),
        ] {
            refuses(writer.put(&spec).await, 400, &handled);
            let reply = writer.rig.post(FOOS, &foo("v1", "b", &spec)).await;
            assert_eq!((reply.status, reply.message()), (400, handled.as_str()));
            let patch = format!(r#"{{"spec":{spec}}}"#);
            let decoding = format!("error decoding patch: {expected}");
            refuses(writer.write("PATCH", "", &patch).await, 400, &decoding);
        }
        for operation in ["test", "replace", "add"] {
            let patch = format!(r#"[{{"op":"{operation}","path":"/spec/n","value":{number}}}]"#);
            let expected = format!(
                "error decoding patch: json: cannot unmarshal number {number} into Go struct field \
                 jsonPatchOp.value of type float64"
            );
            refuses(writer.write("JSON", "", &patch).await, 400, &expected);
        }
    }
}

#[tokio::test]
async fn patches_compare_numbers_as_text_and_write_them_as_values() {
    let mut writer = Writer::new(r#"{"n":1,"free":{"a":1,"b":9223372036854775808}}"#).await;
    for (path, value, holds) in [
        ("/spec/n", "1", true),
        ("/spec/n", "1.0", false),
        ("/spec/n", "1e0", false),
        ("/spec/free/b", "9223372036854776000", true),
        ("/spec/free/b", "9223372036854775808", false),
        ("/spec/free", r#"{"b":9223372036854776000,"a":1}"#, true),
        ("/spec/free", r#"{"b":9223372036854776000,"a":1.0}"#, false),
    ] {
        let patch = format!(r#"[{{"op":"test","path":"{path}","value":{value}}}]"#);
        let outcome = writer.write("JSON", "", &patch).await;
        assert_eq!(
            outcome.as_ref().err().map(|reply| reply.status),
            (!holds).then_some(422),
            "{path} {value}"
        );
        assert!(outcome.is_err() || !outcome.is_ok_and(|outcome| outcome.stored));
    }
    for (method, one, other) in [
        ("PATCH", r#"{"spec":{"n":1}}"#, r#"{"spec":{"n":1.0}}"#),
        (
            "JSON",
            r#"[{"op":"replace","path":"/spec/n","value":1}]"#,
            r#"[{"op":"replace","path":"/spec/n","value":1.0}]"#,
        ),
    ] {
        for (patch, changes) in [(one, false), (other, true), (one, false)] {
            let outcome = writer
                .write(method, "", patch)
                .await
                .unwrap_or_else(|reply| panic!("{reply:?}"));
            assert_eq!(
                (outcome.generations, outcome.stored),
                (i64::from(changes), changes),
                "{patch}"
            );
        }
    }
}

#[tokio::test]
async fn apply_and_status_see_no_change_in_another_spelling() {
    let mut writer = Writer::new(r#"{"n":7}"#).await;
    for (number, changes) in [
        ("1", true),
        ("1.0", false),
        ("1e0", false),
        ("1.5", true),
        ("1.50", false),
    ] {
        let body = foo("v1", "a", &format!(r#"{{"n":{number}}}"#));
        let outcome = writer
            .write("APPLY", "?fieldManager=m&force=true", &body)
            .await;
        let outcome = outcome.unwrap_or_else(|reply| panic!("{reply:?}"));
        assert_eq!(
            (outcome.generations, outcome.stored),
            (i64::from(changes), changes),
            "{number}"
        );
    }
    for (number, changes) in [
        ("1", true),
        ("1.0", false),
        ("1e0", false),
        ("2.5", true),
        ("2.50", false),
    ] {
        let version = writer.last.version();
        let name = format!(r#"a","resourceVersion":"{version}"#);
        let mut body = json::parse(foo("v1", &name, "{}").as_bytes()).unwrap();
        body.set(
            "status",
            json::parse(format!(r#"{{"q":{number}}}"#).as_bytes()).unwrap(),
        );
        let outcome = writer
            .write("PUT", "/status", &json::to_string(&body))
            .await;
        let outcome = outcome.unwrap_or_else(|reply| panic!("{reply:?}"));
        assert_eq!(
            (outcome.generations, outcome.stored),
            (0, changes),
            "{number}"
        );
    }
}

/// Upstream turns them into loose values and back.
#[tokio::test]
async fn numbers_of_a_definition_are_written_as_short_as_possible() {
    let rig = Rig::new().await;
    let properties = r#"{"a": {"type": "number", "default": 1.0, "enum": [1.0, 2.50, 1e2], "maximum": 1e3},
        "b": {"type": "object", "x-kubernetes-preserve-unknown-fields": true,
            "default": {"z": 1.0, "a": [1e2, -0, -0.0, 9223372036854775808]}}}"#;
    let body = json::to_string(&definition(vec![version("v1", true, properties)]));
    let reply = rig.post(crate::crd::DEFINITIONS, &body).await.expect(201);
    let schema = &reply.body["spec"]["versions"][0]["schema"]["openAPIV3Schema"];
    let shown = json::to_string(&schema["properties"]["spec"]["properties"]);
    assert_eq!(
        shown,
        r#"{"a":{"type":"number","default":1,"maximum":1000,"enum":[1,2.5,100]},"b":{"type":"object","default":{"a":[100,0,0,9223372036854776000],"z":1},"x-kubernetes-preserve-unknown-fields":true}}"#
    );
    for (field, number) in [("default", "1e400"), ("enum", "[1e400]")] {
        let properties = format!(r#"{{"a":{{"type":"number","{field}":{number}}}}}"#);
        let body = json::to_string(&definition(vec![version("v1", true, &properties)]));
        let reply = rig.post(crate::crd::DEFINITIONS, &body).await.expect(400);
        let expected = "json: cannot unmarshal number 1e400 into Go value of type float64";
        assert!(reply.message().ends_with(expected), "{reply:?}");
    }
}

#[tokio::test]
async fn managers_own_numbers_by_value() {
    let rig = rig().await;
    let path = format!("{FOOS}/a");
    let apply =
        async |manager: &str, spec: &str| rig.apply(&path, manager, &foo("v1", "a", spec)).await;
    let made = apply("one", r#"{"n":1.5,"set":[1.0],"list":[{"k":1e0}]}"#)
        .await
        .expect(201);
    let fields = &made.body["metadata"]["managedFields"][0]["fieldsV1"];
    assert_eq!(
        json::to_string(fields),
        r#"{"f:spec":{"f:list":{"k:{\"k\":1}":{".":{},"f:k":{}}},"f:n":{},"f:set":{"v:1":{}}}}"#
    );
    let again = apply("one", r#"{"n":15e-1,"set":[1],"list":[{"k":1}]}"#)
        .await
        .expect(200);
    assert_eq!(again.version(), made.version());
    apply("two", r#"{"n":1.50}"#).await.expect(200);
    let refused = apply("two", r#"{"n":1}"#).await.expect(409);
    assert!(
        refused
            .message()
            .ends_with(r#"conflict with "one": .spec.n"#),
        "{refused:?}"
    );
}

/// A definition's own numbers are Go's float64, whatever they are written as.
#[tokio::test(start_paused = true)]
async fn bounds_of_a_schema_are_written_as_the_floats_that_they_are() {
    let rig = Rig::new().await;
    let cases = [
        ("9007199254740993", "9007199254740992"),
        ("9223372036854775807", "9223372036854776000"),
        ("100000000000000000001", "100000000000000000000"),
        ("-1e22", "-1e+22"),
        ("1e21", "1e+21"),
        ("1E5", "100000"),
        ("1.0", "1"),
        ("1e-7", "1e-7"),
        ("-0", "-0"),
    ];
    for (sent, expected) in cases {
        let property = format!(r#"{{"x":{{"type":"number","maximum":{sent}}}}}"#);
        let body = json::to_string(&definition(vec![version("v1", true, &property)]));
        let made = rig
            .post(&format!("{DEFINITIONS}?dryRun=All"), &body)
            .await
            .expect(201);
        let path = "schema.openAPIV3Schema.properties.spec.properties.x.maximum";
        let written = json::to_string(made.body["spec"]["versions"][0].at(path));
        assert_eq!(written, expected, "{sent}");
    }
}
