//! Strings that match a format, and strings that do not.

use super::{compile, with};
use crate::violation::Violations;
use mizzen_value::Map;

#[track_caller]
fn check_format(format: &str, good: &[&str], bad: &[&str]) {
    let schema = compile(&with(&format!(
        r#"{{"type":"string","format":"{format}"}}"#
    )));
    let passes = |text: &str| {
        let mut violations = Violations::default();
        let object: Map = [("a", text)].into_iter().collect();
        schema.validate(&object.into(), None, &mut violations);
        violations.is_empty()
    };
    let wrong: Vec<&&str> = good.iter().filter(|text| !passes(text)).collect();
    assert!(wrong.is_empty(), "{format} refuses {wrong:?}");
    let wrong: Vec<&&str> = bad.iter().filter(|text| passes(text)).collect();
    assert!(wrong.is_empty(), "{format} takes {wrong:?}");
}

#[test]
fn formats_match_their_go_functions() {
    check_format("date", &["2020-02-29"], &["2021-02-29", "2020-1-1", ""]);
    check_format(
        "date-time",
        &["2020-01-02T03:04:05Z", "2020-01-02t03:04:05.5+01:00"],
        &["2020-01-02 03:04:05Z"],
    );
    check_format(
        "duration",
        &["1h30m", "22 ns", "3 days", "2 weeks"],
        &["", "x", "5"],
    );
    check_format(
        "email",
        &["a@b.c", "Ann <a@b>"],
        &["a", "a@", "@b", "a b@c"],
    );
    check_format(
        "uri",
        &["http://a.b/c?d", "/abs", "mailto:x"],
        &["", "rel", "http://a b/", ":x"],
    );
    check_format(
        "hostname",
        &["a.example.com", "x"],
        &["-a", "a..b", "a_b.c"],
    );
    check_format("ipv4", &["1.2.3.4", "01.2.3.4"], &["::1", "1.2.3"]);
    check_format("ipv6", &["::1", "fe80::1"], &["1.2.3.4", ":"]);
    check_format(
        "cidr",
        &["10.0.0.0/8", "::/0"],
        &["10.0.0.0", "10.0.0.0/33"],
    );
    check_format(
        "mac",
        &["01:23:45:67:89:ab", "0123.4567.89ab"],
        &["01:23:45", "zz:23:45:67:89:ab"],
    );
    check_format("uuid", &["7b4d1a2e-0000-4000-8000-000000000000"], &["7b4d"]);
    check_format(
        "isbn",
        &["0321751043", "978-0321751041"],
        &["0321751044", "9780321751042"],
    );
    check_format(
        "creditcard",
        &["4111 1111 1111 1111"],
        &["4111 1111 1111 1112"],
    );
    check_format("byte", &["aGk="], &["", "aGk"]);
    check_format("hexcolor", &["#fff", "ABCDEF"], &["#ffff"]);
    check_format("rgbcolor", &["rgb(0, 255,1)"], &["rgb(0,256,1)"]);
    check_format("bsonobjectid", &["507f1f77bcf86cd799439011"], &["507f1f77"]);
    check_format("k8s-short-name", &["a-b"], &["A", "a.b"]);
    check_format("nobody-knows-it", &["anything"], &[]);
}
