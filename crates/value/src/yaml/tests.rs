use super::*;
use expect_test::{Expect, expect};

#[track_caller]
fn check(text: &str, expect: Expect) {
    let answer = match to_json(text.as_bytes()) {
        Ok(json) => String::from_utf8(json).unwrap(),
        Err(error) => error.to_string(),
    };
    expect.assert_eq(&answer);
}

#[track_caller]
fn check_complaint(text: &str, expect: Expect) {
    expect.assert_eq(
        read(text.as_bytes())
            .unwrap()
            .complaint
            .as_deref()
            .unwrap_or("none"),
    );
}

#[track_caller]
fn check_written(json: &str, expect: Expect) {
    let value = json::parse(json.as_bytes()).unwrap();
    let text = write(&value);
    expect.assert_eq(&text);
    let again = read(text.as_bytes()).unwrap_or_else(|error| panic!("{error}: {text}"));
    assert_eq!(again.value, value, "{text}");
}

#[test]
fn plain_scalars_resolve_as_in_yaml_1_1() {
    check(
        "[y, N, yes, No, on, OFF, true, False]",
        expect!["[true,false,true,false,true,false,true,false]"],
    );
    check("[~, null, NULL, '', ]", expect![[r#"[null,null,null,""]"#]]);
    check(
        "[010, 0o10, 0x1F, 0b101, 1_000, +5, -0x10, 08]",
        expect!["[8,8,31,5,1000,5,-16,8]"],
    );
    check(
        "[1e3, .5, 1., -0.0, 1e400]",
        expect![[r#"[1000,0.5,1,-0,"1e400"]"#]],
    );
    check(
        "[18446744073709551615, 18446744073709551616]",
        expect!["[18446744073709551615,18446744073709552000]"],
    );
    check(
        "[2024-01-01, 1:30, 0x, -, 'yes', \"no\"]",
        expect![[r#"["2024-01-01","1:30","0x","-","yes","no"]"#]],
    );
    check("[.inf]", expect!["json: unsupported value: +Inf"]);
}

#[test]
fn a_tag_overrides_resolution() {
    check(
        "[!!str 5, !!float 5, !foo 5, !!binary aGk=]",
        expect![[r#"["5",5,"5","hi"]"#]],
    );
    check(
        "!!int x",
        expect!["yaml: cannot decode !!str `x` as a !!int"],
    );
    check(
        "!!binary x",
        expect!["yaml: !!binary value contains invalid base64 data"],
    );
    check("!a!b x", expect!["yaml: found undefined tag handle"]);
}

#[test]
fn keys_become_strings() {
    check(
        "{n: a, 1: b, 1.5: c, 2024-01-01: d}",
        expect![[r#"{"1":"b","1.5":"c","2024-01-01":"d","false":"a"}"#]],
    );
    check(
        "~: a",
        expect![[r#"unsupported map key of type: %!s(<nil>), key: <nil>, value: "a""#]],
    );
    check(
        "{a: b}: c",
        expect![[r#"yaml: invalid map key: map[interface {}]interface {}{"a":"b"}"#]],
    );
}

#[test]
fn block_and_flow_collections_nest() {
    check(
        "a:\n- b: 1\n  c: [x, {d: e}, f: g]\n- - h\n-\n? k\n: v\n",
        expect![[r#"{"a":[{"b":1,"c":["x",{"d":"e"},{"f":"g"}]},["h"],null],"k":"v"}"#]],
    );
    check(
        "{\"a\":[1,2.5,\"\\u00e9\\/\"]}",
        expect!["yaml: found unknown escape character"],
    );
}

#[test]
fn scalars_have_many_styles() {
    check("a: |\n  x\n   y\n\n", expect![[r#"{"a":"x\n y\n"}"#]]);
    check("a: |+\n  x\n\n", expect![[r#"{"a":"x\n\n"}"#]]);
    check("a: >-\n  x\n  y\n\n  z\n", expect![[r#"{"a":"x y\nz"}"#]]);
    check(
        "a: one\n  two\n\n  three # no\n",
        expect![[r#"{"a":"one two\nthree"}"#]],
    );
    check("a: 'it''s\n  x'", expect![[r#"{"a":"it's x"}"#]]);
    check(
        r#"a: "\x41\u00e9\t\
        b""#,
        expect![[r#"{"a":"Aé\tb"}"#]],
    );
    check(
        "a: b\r\nc: |\r\n  d\r\n",
        expect![[r#"{"a":"b","c":"d\n"}"#]],
    );
}

#[test]
fn only_the_first_document_counts() {
    check("---\na: 1\n---\nb: [\n", expect![[r#"{"a":1}"#]]);
    check("", expect!["null"]);
    check("# nothing", expect!["null"]);
    check("%YAML 1.1\n---\na: 1\n...\n", expect![[r#"{"a":1}"#]]);
    check(
        "%YAML 1.2\n---\na: 1\n",
        expect!["yaml: found incompatible YAML document"],
    );
}

#[test]
fn aliases_repeat_and_merge() {
    check(
        "a: &x {b: 1}\nc: *x\nd: {<<: *x, e: 2}",
        expect![[r#"{"a":{"b":1},"c":{"b":1},"d":{"b":1,"e":2}}"#]],
    );
    check(
        "a: [&x {b: 1}, &y {b: 2, c: 3}]\nd: {<<: [*x, *y]}",
        expect![[r#"{"a":[{"b":1},{"b":2,"c":3}],"d":{"b":1,"c":3}}"#]],
    );
    check("a: *x", expect!["yaml: unknown anchor 'x' referenced"]);
    check(
        "a: &x [*x]",
        expect!["yaml: anchor 'x' value contains itself"],
    );
    check(
        "<<: x",
        expect!["yaml: map merge requires map or sequence of maps as the value"],
    );
}

#[test]
fn alias_expansion_is_bounded() {
    let mut bomb = String::from("a0: &a0 [x,x,x,x,x,x,x,x,x]\n");
    for level in 1..12 {
        let alias = format!("*a{}", level - 1);
        bomb.push_str(&format!(
            "a{level}: &a{level} [{}]\n",
            [alias.as_str(); 9].join(",")
        ));
    }
    check(&bomb, expect!["yaml: document contains excessive aliasing"]);
}

#[test]
fn nesting_is_bounded() {
    let nested = |n: usize| format!("{}{}", "[".repeat(n), "]".repeat(n));
    assert!(read(nested(300).as_bytes()).is_ok());
    check(&nested(100_000), expect!["yaml: exceeded max depth of 300"]);
    let block: String = (0..2000)
        .map(|depth| format!("{}a:\n", " ".repeat(depth)))
        .collect();
    check(&block, expect!["yaml: exceeded max depth of 300"]);
}

#[test]
fn duplicate_keys_are_reported_and_the_last_one_wins() {
    check("a: 1\nb: 2\na: 3\n", expect![[r#"{"a":3,"b":2}"#]]);
    check_complaint(
        "a: 1\nb: 2\na: 3\nb:\n  4\n1: x\n1: y\n\"1\": z\n",
        expect![[r#"
            yaml: unmarshal errors:
              line 3: key "a" already set in map
              line 5: key "b" already set in map
              line 7: key 1 already set in map"#]],
    );
    check_complaint("a: 1\nb: {a: 1}\n", expect!["none"]);
}

#[test]
fn errors_equal_go_yaml() {
    check(
        "a: b: c",
        expect!["yaml: mapping values are not allowed in this context"],
    );
    check(
        "a: 1\nb: c: d",
        expect!["yaml: line 2: mapping values are not allowed in this context"],
    );
    check(
        "\tx: 1",
        expect!["yaml: found character that cannot start any token"],
    );
    check(
        "a: @b",
        expect!["yaml: found character that cannot start any token"],
    );
    check(
        "a: 1\nb\nc: 2",
        expect!["yaml: line 3: could not find expected ':'"],
    );
    check(
        "a: 1\n b: 2",
        expect!["yaml: line 2: mapping values are not allowed in this context"],
    );
    check(
        "a: [1, 2\nb: 3",
        expect!["yaml: line 1: did not find expected ',' or ']'"],
    );
    check(
        "{a: 1",
        expect!["yaml: line 1: did not find expected ',' or '}'"],
    );
    check(
        "- a\nb: c",
        expect!["yaml: line 1: did not find expected '-' indicator"],
    );
    check(
        "a:\n    b: 1\n  c: 2",
        expect!["yaml: line 2: did not find expected key"],
    );
    check(
        "a: - b",
        expect!["yaml: block sequence entries are not allowed in this context"],
    );
    check("a: \"b", expect!["yaml: found unexpected end of stream"]);
    check(
        "a: &\n",
        expect!["yaml: did not find expected alphabetic or numeric character"],
    );
    check(
        "a: \u{1}",
        expect!["yaml: control characters are not allowed"],
    );
    let error = to_json(b"a: \xff").unwrap_err();
    assert_eq!(error.to_string(), "yaml: invalid leading UTF-8 octet");
}

#[test]
fn values_are_written_in_blocks() {
    check_written(
        r#"{"b":{"y":[1,-2.5,true,null,[],{}],"x":[{"a":1,"c":2},["d"]]},"a10":"","a9":1e+21}"#,
        expect![[r#"
            a9: 1e+21
            a10: ""
            b:
              x:
              - a: 1
                c: 2
              - - d
              "y":
              - 1
              - -2.5
              - true
              - null
              - []
              - {}
        "#]],
    );
    check_written(r#""plain""#, expect![["plain\n"]]);
    check_written("[]", expect![["[]\n"]]);
}

#[test]
fn strings_are_quoted_if_necessary() {
    check_written(
        r##"["a b","yes","1","0x1F","2024-01-01T00:00:00Z","1:30","a: b","- x","#x","it's","x #y"," x","\t","😀","","~"]"##,
        expect![[r##"
            - a b
            - "yes"
            - "1"
            - "0x1F"
            - "2024-01-01T00:00:00Z"
            - "1:30"
            - 'a: b'
            - '- x'
            - '#x'
            - it's
            - 'x #y'
            - ' x'
            - "\t"
            - "\U0001F600"
            - ""
            - "~"
        "##]],
    );
}

#[test]
fn lines_are_written_as_blocks() {
    check_written(
        r#"{"a":"x\ny\n","b":"x\ny","c":"x\n\n","d":" x\ny","e":"x \ny"}"#,
        expect![[r#"
            a: |
              x
              y
            b: |-
              x
              y
            c: |+
              x

            d: |2-
               x
              y
            e: "x \ny"
        "#]],
    );
}

#[test]
fn long_texts_are_folded() {
    let words = "word ".repeat(30);
    let text = json::to_string(&Value::from(vec![
        words.trim().into(),
        format!("{words}: x").into(),
    ]));
    check_written(
        &text,
        expect![[r#"
            - word word word word word word word word word word word word word word word word
              word word word word word word word word word word word word word word
            - 'word word word word word word word word word word word word word word word word
              word word word word word word word word word word word word word word : x'
        "#]],
    );
}

#[test]
fn a_long_key_stands_alone() {
    let key = "k".repeat(129);
    let value = crate::value!({"short": 1});
    let outer = Value::Map([(key.as_str(), value)].into_iter().collect());
    assert_eq!(write(&outer), format!("? {key}\n: short: 1\n"));
}

mod any_input {
    use proptest::prelude::*;

    use super::super::{read, write};

    proptest! {
        #[test]
        fn any_text_is_parsed_or_rejected(text in r#"[ a-c\-:?#&*!|>'"%@`{}\[\],\n\t0-9.<~\\é]{0,60}"#) {
            if let Ok(document) = read(text.as_bytes()) {
                let written = write(&document.value);
                let again = read(written.as_bytes());
                prop_assert_eq!(again.map(|again| again.value), Ok(document.value), "{}", written);
            }
        }

        #[test]
        fn arbitrary_bytes_are_parsed_or_rejected(bytes in proptest::collection::vec(any::<u8>(), 0..60)) {
            let _ = read(&bytes);
        }
    }
}
