//! Limits on the length, depth and cost of expressions.

use std::sync::atomic::AtomicBool;

use super::*;

#[track_caller]
fn refused(text: &str, message: &str) {
    assert_eq!(run(text).0, format!("ERROR: <input>:-1:0: {message}"));
}

#[track_caller]
fn accepted(text: &str) {
    let error = environment()
        .compile(text)
        .map(|_| ())
        .map_err(|error| error.to_string());
    assert_eq!(error, Ok(()));
}

#[test]
fn an_expression_has_at_most_100_000_characters() {
    accepted(&format!("'{}'", "é".repeat(99_998)));
    refused(
        &format!("'{}'", "é".repeat(99_999)),
        "expression code point size exceeds limit: size: 100001, limit 100000",
    );
}

#[test]
fn an_expression_has_at_most_250_levels() {
    let nested = |n: usize| format!("{}1{}", "(".repeat(n), ")".repeat(n));
    accepted(&nested(249));
    refused(&nested(250), "expression recursion limit exceeded: 250");
    accepted(&format!("x{}", ".a".repeat(250)));
    refused(
        &format!("x{}", ".a".repeat(251)),
        "max recursion depth exceeded",
    );
    refused(
        &format!("1{}", "+1".repeat(251)),
        "max recursion depth exceeded",
    );
    refused(
        &format!("x[1{}]{}", "+1".repeat(150), ".a".repeat(120)),
        "max recursion depth exceeded",
    );
    accepted(&format!("true{}", " && true".repeat(400)));
}

#[test]
fn errors_are_counted_after_the_hundredth() {
    let error = run(&"@ ".repeat(120)).0;
    assert!(error.ends_with("\n1 more errors were truncated"), "{error}");
    let error = run(&"( ".repeat(40)).0;
    assert!(
        error.contains("error recovery attempt limit exceeded: 30"),
        "{error}"
    );
    let error = run(&"1 ".repeat(600)).0;
    assert!(
        error
            .starts_with("ERROR: <input>:-1:0: error recovery token lookahead limit exceeded: 256"),
        "{error}"
    );
}

#[test]
fn deep_loops_fit_the_stack() {
    // Without optimization a level needs some kilobytes of stack.
    let text = format!("{}true{}", "l.all(i, ".repeat(100), ")".repeat(100));
    let program = environment().compile(&text).unwrap();
    let _ = program.estimate(&UnknownSizes);
    let list = value!([1]);
    let variables = [("l", Value::data(&list))];
    assert_eq!(
        program
            .evaluate(&variables, PLENTY)
            .value
            .map(|value| value.as_bool()),
        Ok(Some(true))
    );
}

#[test]
fn an_evaluation_ends_at_the_cost_limit() {
    let program = environment()
        .compile("l.all(i, l.all(j, l.all(k, i + j + k > 0)))")
        .unwrap();
    let list = value!([1, 2, 3]);
    let variables = [("l", Value::data(&list))];
    let full = program.evaluate(&variables, PLENTY);
    assert_eq!(full.value.map(|value| value.as_bool()), Ok(Some(true)));
    for cost in 0..full.cost {
        let evaluation = program.evaluate(
            &variables,
            EvalLimits {
                cost,
                interrupted: None,
            },
        );
        assert_eq!(evaluation.value.map(|_| ()), Err(EvalError::CostLimit));
    }
    let message = EvalError::CostLimit.to_string();
    assert_eq!(message, "operation cancelled: actual cost limit exceeded");
}

#[test]
fn an_interrupted_evaluation_ends() {
    let program = environment().compile("l.map(i, i)").unwrap();
    let (list, gone) = (value!([1, 2, 3]), AtomicBool::new(true));
    let variables = [("l", Value::data(&list))];
    let evaluation = program.evaluate(
        &variables,
        EvalLimits {
            cost: u64::MAX,
            interrupted: Some(&gone),
        },
    );
    assert_eq!(evaluation.value.map(|_| ()), Err(EvalError::Interrupted));
}

#[test]
fn a_long_list_is_made_in_place() {
    let numbers = mizzen_value::Value::List((0..100_000).map(mizzen_value::Value::Int).collect());
    let variables = [("l", Value::data(&numbers))];
    let program = environment()
        .compile("l.map(i, i + 1).filter(i, i % 2 == 0).size()")
        .unwrap();
    let evaluation = program.evaluate(&variables, PLENTY);
    assert_eq!(
        evaluation.value.map(|value| value.as_int()),
        Ok(Some(50_000))
    );
}

#[test]
fn programs_can_be_shared_between_threads() {
    fn shared<T: Send + Sync>() {}
    shared::<Program>();
    shared::<Environment>();
    shared::<Value>();
}
