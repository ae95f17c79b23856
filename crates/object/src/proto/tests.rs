use std::sync::Arc;

use expect_test::{Expect, expect};

use super::*;
use crate::names::GroupVersionKind;
use crate::schema::{Struct, canonical, parse};
use mizzen_value::{Value, json};

/// A type with a field of each shape.
const TYPES: &str = "
group test
version v1

type Thing
  1 name !string
  3 flag bool
  2 count ?int32
  4 long int64
  5 ratio ?float64
  6 blob bytes
  7 at Time
  8 micro ?MicroTime
  9 amount Quantity
  10 port IntOrString
  11 raw RawExtension
  12 labels map[string]string
  13 numbers []int32
  14 parts []Part
  15 ... Inline
  16 extra map[string][]string go=ExtraValue
  17 verbs []string go=Verbs
  18 part ?Part
  19 span !Duration
  200 far string
  - unsent string

type Part
  1 x int32
  2 more ?Part

type Inline
  1 inline ?string

type JSONSchemaProps
  1 type string
  2 or ?JSONSchemaPropsOrBool
  3 items ?JSONSchemaPropsOrArray
  4 needs map[string]JSONSchemaPropsOrStringArray
  5 default ?JSON
";

fn type_named(name: &str) -> Arc<Struct> {
    parse([("types", TYPES)]).unwrap().types[format!("test/v1.{name}").as_str()].clone()
}

fn canonical_value(ty: &Struct, text: &str) -> Value {
    let mut value = json::parse(text.as_bytes()).unwrap();
    canonical(ty, &mut value);
    value
}

fn encoded(ty: &Struct, value: &Value) -> Vec<u8> {
    let mut out = Vec::new();
    encode_message(ty, value, &mut out);
    out
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

#[track_caller]
fn check(name: &str, text: &str) {
    let ty = type_named(name);
    let value = canonical_value(&ty, text);
    let bytes = encoded(&ty, &value);
    assert_eq!(decode_message(&ty, &bytes), Ok(value), "{}", hex(&bytes));
}

#[track_caller]
fn check_part(message: &[u8], expect: Expect) {
    let answer = match decode_message(&type_named("Part"), message) {
        Ok(value) => json::to_string(&value),
        Err(error) => error.to_string(),
    };
    expect.assert_eq(&answer);
}

#[test]
fn every_shape_round_trips() {
    check(
        "Thing",
        r#"{"name":"a","count":0,"flag":true,"long":-5,"ratio":1.5,"blob":"aGk=","at":"2024-01-01T00:00:00Z",
            "micro":"2024-01-01T00:00:00.000123Z","amount":"100m","port":"http","raw":{"b":[1,null]},
            "labels":{"a":"1","b":""},"numbers":[1,-1,0],"parts":[{"x":1},{}],"inline":"","extra":{"k":["a","b"]},
            "verbs":["get"],"part":{"more":{"x":2}},"span":"1h30m0s","far":"away"}"#,
    );
    check("Thing", "{}");
    check("Thing", r#"{"port":8080,"verbs":[]}"#);
    check(
        "JSONSchemaProps",
        r#"{"type":"object","or":true,"items":{"type":"x"},"default":[1,"a"]}"#,
    );
    check(
        "JSONSchemaProps",
        r#"{"or":false,"items":[{"type":"x"},{}],"needs":{"a":["b"],"c":{"or":{}}}}"#,
    );
}

#[test]
fn zero_is_written_unless_it_is_a_pointer_or_empty() {
    let part = type_named("Part");
    assert_eq!(hex(&encoded(&part, &Value::Null)), "0800");
    assert_eq!(
        hex(&encoded(
            &part,
            &mizzen_value::value!({"x": (-1), "more": {}})
        )),
        "08ffffffffffffffffff0112020800"
    );
    let thing = type_named("Thing");
    let empty = hex(&encoded(&thing, &Value::object()));
    expect!["0a00180020003a004a030a01305206080010001a005a007a009a01020800c20c00"].assert_eq(&empty);
}

#[test]
fn maps_are_sorted_and_long_messages_have_long_lengths() {
    let thing = type_named("Thing");
    let map = |text: &str| canonical_value(&thing, text);
    let (one, other) = (
        map(r#"{"labels":{"b":"1","a":"2"}}"#),
        map(r#"{"labels":{"a":"2","b":"1"}}"#),
    );
    assert_eq!(encoded(&thing, &one), encoded(&thing, &other));
    for length in [100, 127, 128, 20_000] {
        check(
            "Thing",
            &format!(r#"{{"raw":{{"a":"{}"}}}}"#, "x".repeat(length)),
        );
    }
}

#[test]
fn numbers_may_be_packed() {
    let thing = type_named("Thing");
    let value = decode_message(&thing, &[0x6a, 0x03, 0x01, 0x96, 0x01, 0x68, 0x02]).unwrap();
    assert_eq!(json::to_string(&value["numbers"]), "[1,150,2]");
}

#[test]
fn repeated_fields_are_merged_and_unknown_ones_skipped() {
    check_part(&[0x08, 1, 0x08, 2], expect![[r#"{"x":2}"#]]);
    check_part(
        &[0x12, 2, 0x08, 1, 0x12, 2, 0x12, 0],
        expect![[r#"{"more":{"x":1,"more":{}}}"#]],
    );
    check_part(
        &[0x78, 1, 0x7d, 0, 0, 0, 0, 0x7b, 0x08, 1, 0x7c, 0x08, 3],
        expect![[r#"{"x":3}"#]],
    );
}

#[test]
fn malformed_messages_are_rejected() {
    check_part(&[0x08], expect!["unexpected EOF"]);
    check_part(&[0x12, 5, 0x08], expect!["unexpected EOF"]);
    check_part(&[0x0a, 0], expect!["proto: wrong wireType = 2 for field x"]);
    check_part(
        &[
            0x08, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 1,
        ],
        expect!["proto: integer overflow"],
    );
    check_part(
        &[
            0x12, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 1,
        ],
        expect!["proto: negative length found during unmarshaling"],
    );
    check_part(&[0x0e, 0], expect!["proto: illegal wireType 6"]);
    check_part(&[0x0c], expect!["proto: wiretype end group for non-group"]);
    check_part(&[0x00, 0], expect!["proto: illegal tag 0 (wire type 0)"]);
    check_part(&[0x7b, 0x7b], expect!["unexpected EOF"]);
}

#[test]
fn depth_and_number_of_messages_are_bounded() {
    let nested = |n: usize| {
        (0..n).fold(Vec::new(), |inner, _| {
            let mut outer = Vec::new();
            wire::put_bytes(2, &inner, &mut outer);
            outer
        })
    };
    let part = type_named("Part");
    assert!(decode_message(&part, &nested(MAX_DEPTH - 1)).is_ok());
    assert_eq!(
        decode_message(&part, &nested(MAX_DEPTH)),
        Err(ProtoError::Depth)
    );
    let many = [0x72, 0].repeat(MAX_MESSAGES);
    assert_eq!(
        decode_message(&type_named("Thing"), &many),
        Err(ProtoError::Messages)
    );
}

#[test]
fn values_that_json_cannot_express_are_replaced_or_rejected() {
    let thing = type_named("Thing");
    let value = decode_message(&thing, &[0x0a, 3, b'a', 0xff, b'b']).unwrap();
    assert_eq!(value["name"].str(), "a\u{fffd}b");
    let error = |message: &[u8]| decode_message(&thing, message).unwrap_err().to_string();
    assert_eq!(error(&[0x4a, 3, 0x0a, 1, b'x']), QUANTITY);
    assert_eq!(
        error(&[0x5a, 3, 0x0a, 1, b'x']),
        "invalid character 'x' looking for beginning of value"
    );
    assert_eq!(
        error(&[0x29, 0, 0, 0, 0, 0, 0, 0xf0, 0x7f]),
        "unsupported value: inf"
    );
}

const QUANTITY: &str =
    "quantities must match the regular expression '^([+-]?[0-9.]+)([eEinumkKMGTP]*[-+]?[0-9]*)$'";

fn gvk(kind: &str) -> GroupVersionKind {
    GroupVersionKind {
        group: "test".into(),
        version: "v1".into(),
        kind: kind.into(),
    }
}

#[test]
fn an_envelope_has_the_type_of_its_object() {
    let part = type_named("Part");
    let bytes = encode_object(&gvk("Part"), &part, &mizzen_value::value!({"x": 1}));
    expect![[r#"k8s\x00\n\x0f\n\x07test/v1\x12\x04Part\x12\x02\x08\x01\x1a\x00\"\x00"#]]
        .assert_eq(&bytes.escape_ascii().to_string());
    let unknown = decode_object(&bytes).unwrap();
    assert_eq!(
        (
            unknown.api_version.as_str(),
            unknown.kind.as_str(),
            unknown.raw
        ),
        ("test/v1", "Part", &[8, 1][..])
    );
}

#[test]
fn an_invalid_envelope_is_rejected() {
    let error = |bytes: &[u8]| decode_object(bytes).unwrap_err().to_string();
    assert_eq!(error(b""), "empty data");
    assert_eq!(error(b"k8s\0"), "empty body");
    assert_eq!(
        error(b"not protobuf"),
        "provided data does not appear to be a protobuf message, expected prefix [107 56 115 0]"
    );
    assert_eq!(error(b"k8s\0\x0a\x05"), "unexpected EOF");
}

#[test]
fn a_list_is_spliced_from_its_items() {
    let (metadata, items) = ([0x12, 1, b'7'], [vec![8, 1], vec![8; 200]]);
    let mut body = Vec::new();
    for item in &items {
        item_header(item.len(), &mut body);
        body.extend_from_slice(item);
    }
    let (head, tail) = list_ends(&gvk("PartList"), &metadata, body.len());
    let list = [head, body, tail].concat();
    let mut raw = vec![0x0a, 3, 0x12, 1, b'7', 0x12, 2, 8, 1, 0x12, 200, 1];
    raw.extend([8; 200]);
    assert_eq!(decode_object(&list).unwrap().raw, raw);
    assert_eq!(list, envelope(&gvk("PartList"), &raw));
}

#[test]
fn a_watch_event_is_a_frame_with_an_enveloped_object() {
    expect![[r#"\x00\x00\x00\r\n\x05ADDED\x12\x04\n\x02xy"#]]
        .assert_eq(&watch_frame("ADDED", b"xy").escape_ascii().to_string());
}

mod any_input {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn any_text_is_parsed_or_rejected(bytes in proptest::collection::vec(any::<u8>(), 0..80)) {
            for name in ["Thing", "JSONSchemaProps"] {
                if let Ok(value) = decode_message(&type_named(name), &bytes) {
                    let again = encoded(&type_named(name), &value);
                    prop_assert_eq!(decode_message(&type_named(name), &again), Ok(value));
                }
            }
            let _ = decode_object(&[b"k8s\0", bytes.as_slice()].concat());
        }
    }
}
