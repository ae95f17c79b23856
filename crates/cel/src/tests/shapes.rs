//! Data is read as its schema says.

use super::*;

fn shape() -> Shape {
    let text = || Shape::new(Form::String);
    let port = Shape::object(
        "Port",
        [
            ("name".into(), text()),
            ("number".into(), Shape::new(Form::Int)),
        ],
    );
    let list = |items: Shape, merge| Shape::new(Form::List(Box::new(items), merge));
    Shape::object(
        "Self",
        [
            ("name".into(), text()),
            ("x-y".into(), text()),
            ("namespace".into(), text()),
            ("ratio".into(), Shape::new(Form::Double)),
            ("at".into(), Shape::new(Form::DateTime)),
            ("wait".into(), Shape::new(Form::Duration)),
            ("data".into(), Shape::new(Form::Bytes)),
            ("port".into(), Shape::new(Form::IntOrString)),
            (
                "maybe".into(),
                Shape {
                    nullable: true,
                    ..text()
                },
            ),
            ("set".into(), list(text(), Merge::Set)),
            ("ports".into(), list(port, Merge::Map(vec!["name".into()]))),
            ("labels".into(), Shape::new(Form::Map(Box::new(text())))),
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
    // A reserved word is no identifier, but may follow a dot.
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
fn a_field_that_is_null_is_not_there() {
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
