//! Data is converted according to its schema.

use super::*;

fn shape() -> DeclType {
    let text = || DeclType::new(DeclForm::String);
    let port = DeclType::object(
        "Port",
        [
            ("name".into(), text()),
            ("number".into(), DeclType::new(DeclForm::Int)),
        ],
    );
    let list = |items: DeclType, merge| DeclType::new(DeclForm::List(Box::new(items), merge));
    DeclType::object(
        "Self",
        [
            ("name".into(), text()),
            ("x-y".into(), text()),
            ("namespace".into(), text()),
            ("ratio".into(), DeclType::new(DeclForm::Double)),
            ("at".into(), DeclType::new(DeclForm::DateTime)),
            ("wait".into(), DeclType::new(DeclForm::Duration)),
            ("data".into(), DeclType::new(DeclForm::Bytes)),
            ("port".into(), DeclType::new(DeclForm::IntOrString)),
            (
                "maybe".into(),
                DeclType {
                    nullable: true,
                    ..text()
                },
            ),
            ("set".into(), list(text(), ListSemantics::Set)),
            (
                "ports".into(),
                list(port, ListSemantics::Map(vec!["name".into()])),
            ),
            (
                "labels".into(),
                DeclType::new(DeclForm::Map(Box::new(text()))),
            ),
        ],
    )
}

#[track_caller]
fn check(text: &str, expect: &str) {
    let shape = shape();
    let environment = Environment::new(LATEST)
        .with_shape(&shape)
        .with_variable("self", shape.static_type());
    let data = value!({
        "name": "n", "x-y": "dash", "namespace": "ns", "ratio": 1, "at": "2024-01-02T03:04:05Z", "wait": "90s",
        "data": "YWI=", "port": 80, "maybe": null, "set": ["a", "b"], "unknown": 1,
        "ports": [{"name": "a", "number": 1}, {"name": "b", "number": 2}], "labels": {"k-1": "v"}
    });
    let outcome = environment
        .compile(text)
        .map_err(|error| error.to_string())
        .and_then(|program| {
            let variables = [("self", Value::shaped(&data, &shape).expect("data fits"))];
            let value = program.evaluate(&variables, PLENTY).value;
            value
                .map(|value| standard::show(&value))
                .map_err(|error| error.to_string())
        });
    let shown = outcome.unwrap_or_else(|error| error.lines().next().unwrap_or_default().to_owned());
    assert_eq!(shown, expect, "{text}");
}

#[test]
fn fields_have_their_types() {
    check("self.ratio / 2.0", "0.5");
    check("self.at.getHours() + self.wait.getSeconds()", "93");
    check("string(self.data)", "ab");
    check("self.port == 80 && type(self.port) == int", "true");
    check(
        "self.name + 1",
        "ERROR: <input>:1:11: found no matching overload for '_+_' applied to '(string, int)'",
    );
    check("self.nope", "ERROR: <input>:1:5: undefined field 'nope'");
    check(
        "self.unknown",
        "ERROR: <input>:1:5: undefined field 'unknown'",
    );
    check("self.labels['k-1']", "v");
    check("self.labels.nope", "no such key: nope");
}

#[test]
fn names_are_escaped() {
    check("self.x__dash__y + self.__namespace__", "dashns");
    check("has(self.x__dash__y)", "true");
    // A reserved word is not an identifier, but may follow a dot.
    check(
        "self.namespace + (has(self.namespace) ? self.?namespace.orValue('') : '')",
        "nsns",
    );
    check(
        "self.package",
        "ERROR: <input>:1:5: undefined field 'package'",
    );
}

#[test]
fn a_null_field_is_absent() {
    check("has(self.maybe)", "false");
    check("self.maybe", "no such key: maybe");
    check("self.?maybe.orValue('none')", "none");
}

#[test]
fn sets_and_maps_have_no_order() {
    check("self.set == ['b', 'a']", "true");
    check("['b', 'a'] == self.set", "false");
    check("self.set + ['b', 'c']", "[a, b, c]");
    check("self.ports == self.ports", "true");
    check("(self.ports + self.ports).size()", "2");
    check("self.ports.exists_one(port, port.number == 2)", "true");
}
