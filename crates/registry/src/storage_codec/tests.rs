//! Objects without a kind of their own: what is cut, what is kept, and what cannot be decoded.

use super::*;

fn codec() -> StorageCodec {
    StorageCodec::new("/registry", [])
}

/// Decodes a custom object, and encodes it again.
fn decode(text: &str) -> Draft {
    let bytes = Bytes::copy_from_slice(text.as_bytes());
    codec().decode("example.com/things", "ns/a", &bytes).0
}

fn encode(draft: &Draft) -> String {
    let encoded = codec().encode("example.com/things", "ns/a", draft);
    String::from_utf8(encoded.unwrap().bytes.to_vec()).unwrap()
}

#[test]
fn the_resource_version_is_cut_wherever_it_is() {
    for (value, expected) in [
        (
            r#"{"metadata":{"name":"a","resourceVersion":"","uid":"u"}}"#,
            r#"{"metadata":{"name":"a","uid":"u"}}"#,
        ),
        (
            r#"{"metadata":{"resourceVersion":"","uid":"u"}}"#,
            r#"{"metadata":{"uid":"u"}}"#,
        ),
        (
            r#"{"metadata":{"name":"a","resourceVersion":""}}"#,
            r#"{"metadata":{"name":"a"}}"#,
        ),
        (
            r#"{"metadata":{"resourceVersion":""}}"#,
            r#"{"metadata":{}}"#,
        ),
    ] {
        let stamp = value.find(r#"n":"""#).unwrap() + 4;
        let draft = Draft {
            value: value.into(),
            stamp: Some(stamp),
            ..Draft::default()
        };
        assert_eq!(encode(&draft), format!("{expected}\n"));
    }
}

#[test]
fn a_custom_object_is_kept_as_it_is() {
    let text = r#"{"kind":"Thing","apiVersion":"example.com/v9","spec":{"z":1.50,"a":[12345678901234567890,9007199254740993,null]},
        "metadata":{"selfLink":"/x","name":"a","resourceVersion":"7","labels":{"b":"c"}}}"#;
    let draft = decode(text);
    let expected = r#"{"apiVersion":"example.com/v9","kind":"Thing","metadata":{"labels":{"b":"c"},"name":"a","resourceVersion":""},"spec":{"a":[12345678901234567000,9007199254740993,null],"z":1.5}}"#;
    assert_eq!(String::from_utf8_lossy(&draft.value), expected);
    assert!(expected[..draft.stamp.unwrap()].ends_with(r#""resourceVersion":""#));
    assert_eq!(draft.terms, ["b=c".into()]);
    assert_eq!(
        encode(&draft),
        expected.replace(r#","resourceVersion":"""#, "") + "\n"
    );
    assert_eq!(decode(&encode(&draft)).value, draft.value);
}

#[test]
fn an_object_that_is_not_readable_is_an_error_for_its_readers() {
    for (text, expected) in [
        (
            "not json",
            "invalid character 'o' in literal null (expecting 'u')",
        ),
        ("{}", "Object 'Kind' is missing in '{}'"),
        (
            r#"{"kind":"Thing","spec":1e999}"#,
            "json: cannot unmarshal number 1e999 into Go value of type float64",
        ),
    ] {
        let draft = decode(text);
        let attached = draft.attachment.unwrap().downcast::<Attached>().unwrap();
        assert_eq!(attached.err().unwrap().message, expected);
        assert_eq!((draft.value, draft.stamp), (text.into(), None));
    }
}

#[test]
fn keys_begin_with_the_prefix_of_the_flag() {
    let codec = StorageCodec::new("registry/two/", []);
    assert_eq!(
        codec.prefix("example.com/things"),
        "/registry/two/example.com/things/"
    );
}
