//! What evaluations cost, and what they may cost: upstream's own tests have these figures.

use super::*;
use mizzen_value::json;

/// Rules over `self.val1`, `self.val2`, … of some types, each with its cost
/// (apiextensions-apiserver, schema/cel/celcoststability_test.go).
const COSTS: &str = include_str!("costs.txt");

/// Expressions without variables: the estimate where text has at most 12 characters, and the cost if no constant is
/// computed beforehand (apiserver, cel/library/cost_test.go).
const ESTIMATES: &str = include_str!("estimates.txt");

fn shape(word: &str) -> Shape {
    let inside = |prefix: &str| {
        word.strip_prefix(prefix)
            .and_then(|rest| rest.strip_suffix(')'))
            .map(shape)
    };
    let form = match word {
        "bool" => Form::Bool,
        "bytes" => Form::Bytes,
        "date" => Form::Date,
        "date-time" => Form::DateTime,
        "double" => Form::Double,
        "duration" => Form::Duration,
        "int" => Form::Int,
        "string" => Form::String,
        _ => match (inside("list("), inside("set("), inside("map(")) {
            (Some(items), ..) => Form::List(Box::new(items), Merge::Atomic),
            (_, Some(items), _) => Form::List(Box::new(items), Merge::Set),
            (.., Some(values)) => Form::Map(Box::new(values)),
            _ => panic!("no such type: {word}"),
        },
    };
    Shape::new(form)
}

#[test]
fn evaluations_cost_what_they_cost_upstream() {
    for group in COSTS.split("## ").skip(1) {
        let (head, rules) = group.split_once('\n').expect("a group has a head");
        let (words, data) = head.split_once('\t').expect("a head has types and data");
        let fields = words
            .split(' ')
            .enumerate()
            .map(|(n, word)| (format!("val{}", n + 1).into(), shape(word)));
        let shape = Shape::object("Self", fields);
        let data = json::parse(data.as_bytes()).expect("data is JSON");
        let environment = Environment::new(LATEST)
            .with_shape(&shape)
            .with_variable("self", shape.static_type());
        for rule in rules.lines() {
            let (cost, text) = rule.split_once('\t').expect("a rule has a cost");
            let text = text.replace("\\n", "\n");
            let program = environment
                .compile(&text)
                .unwrap_or_else(|error| panic!("{error}"));
            let variables = [("self", Value::shaped(&data, &shape).expect("data fits"))];
            let evaluation = program.evaluate(&variables, PLENTY);
            let value = evaluation.value.map(|value| standard::show(&value));
            assert_eq!(
                (value, evaluation.cost.to_string()),
                (Ok("true".into()), cost.to_owned()),
                "{text}"
            );
        }
    }
}

/// Text and octets have at most 12 characters.
struct Twelve;

impl Sizes for Twelve {
    fn size(&self, node: &Node) -> Option<Range> {
        matches!(node.kind, Type::String | Type::Bytes).then_some(Range { min: 0, max: 12 })
    }
}

#[test]
fn estimates_are_those_of_upstream() {
    let environment = Environment::new(LATEST).with_library(library::json_patch());
    for line in ESTIMATES.lines() {
        let [bounds, cost, text] = line.split('\t').collect::<Vec<_>>()[..] else {
            panic!("three columns: {line}")
        };
        let program = environment
            .compile_with(text, false)
            .unwrap_or_else(|error| panic!("{error}"));
        let range = program.estimate(&Twelve);
        let variables: [(&str, Value); 0] = [];
        let evaluation = program.evaluate(&variables, PLENTY);
        let found = (
            format!("{}..{}", range.min, range.max),
            evaluation.cost.to_string(),
        );
        assert_eq!(found, (bounds.to_owned(), cost.to_owned()), "{text}");
    }
}

#[test]
fn what_is_not_known_to_be_small_may_cost_any_price() {
    let environment = Environment::new(LATEST).with_variable("list", Type::list(Type::String));
    let program = environment
        .compile("list.all(item, item.matches('a+'))")
        .unwrap_or_else(|error| panic!("{error}"));
    assert_eq!(
        program.estimate(&NoSizes),
        Range {
            min: 2,
            max: u64::MAX
        }
    );
}
