//! Errors of expressions, recorded from a real server.

use super::*;

/// Each expression after `=====`, then the whole message.
const REFUSALS: &str = include_str!("refusals.txt");

#[test]
fn errors_are_those_of_a_real_server() {
    let environment = Environment::new(LATEST).with_variable("object", Type::Dyn);
    for case in REFUSALS.split("===== ").skip(1) {
        let (text, message) = case.split_once('\n').expect("a case has a message");
        let error = environment
            .compile(&text.replace("\\n", "\n"))
            .map(|_| ())
            .map_err(|error| error.to_string());
        assert_eq!(error, Err(message.trim_end().to_owned()), "{text}");
    }
}

#[test]
fn an_error_is_printed_with_its_line() {
    let error = Environment::new(LATEST)
        .compile("true &&\n\t'é' + 1 ==\n2")
        .map(|_| ())
        .unwrap_err();
    let expect = "ERROR: <input>:2:6: found no matching overload for '_+_' applied to '(string, int)'\n \
                  |  'é' + 1 ==\n | ..．..^";
    assert_eq!(error.to_string(), expect);
}

#[test]
fn a_library_is_available_since_its_version() {
    let compiles = |version| {
        Environment::new(version)
            .compile("[1].all(i, v, i < v)")
            .is_ok()
    };
    assert!(compiles((1, 32)) && !compiles((1, 31)));
}
