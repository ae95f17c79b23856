//! Any text yields a value or an error, in bounded time.

use proptest::prelude::*;

use super::*;

/// Tokens of the language in any order.
fn words() -> impl Strategy<Value = String> {
    let word = prop::sample::select(vec![
        "x",
        "l",
        ".",
        ",",
        ":",
        "?",
        "(",
        ")",
        "[",
        "]",
        "{",
        "}",
        "+",
        "-",
        "*",
        "/",
        "%",
        "!",
        "==",
        "<",
        "in",
        "&&",
        "||",
        "has(",
        "x.a",
        "l.map(",
        "l.all(i, ",
        "i",
        "true",
        "null",
        "1",
        "2u",
        "3.5",
        "'t'",
        "b'o'",
        "\"\"\"",
        "`",
        "'\\",
        "0x",
        "1e",
        "//",
        "\n",
        "é",
        "optional.of(",
        ".?",
        "[?",
        "size(",
        "string(",
        "'%s'.format(",
    ]);
    prop::collection::vec(word, 0..24).prop_map(|words| words.join(" "))
}

fn survives(text: &str) {
    let Ok(program) = environment().compile(text) else {
        return;
    };
    let _ = program.estimate(&UnknownSizes);
    let data = value!({"a": 1, "b": {"c": "text"}, "list": [1, 2, 3]});
    let list = value!([1, 2, 3]);
    let variables = [("x", Value::data(&data)), ("l", Value::data(&list))];
    for cost in [0, 10, 10_000] {
        let evaluation = program.evaluate(
            &variables,
            EvalLimits {
                cost,
                interrupted: None,
            },
        );
        // The step that exceeds the limit is the last.
        assert!(
            evaluation.cost <= cost || evaluation.value.is_err(),
            "{text}"
        );
    }
}

proptest! {
    #[test]
    fn any_characters_yield_a_value_or_an_error(text in ".{0,40}") {
        survives(&text);
    }

    #[test]
    fn any_tokens_yield_a_value_or_an_error(text in words()) {
        survives(&text);
    }

    #[test]
    fn any_number_round_trips(number in any::<i64>(), fraction in any::<f64>()) {
        prop_assert_eq!(run(&format!("{number}")).0, number.to_string());
        if fraction.is_finite() {
            let shown = run(&format!("double(string({fraction:e}))")).0;
            prop_assert_eq!(shown.parse::<f64>(), Ok(fraction));
        }
    }
}
